//! The content of a response from a file: read where it is needed, never more than the length that was said.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use offramp_net::file::{self, Wait};
use tokio::task::{JoinHandle, spawn_blocking};

/// The bytes of one read that does not go straight into records.
const CHUNK: usize = 64 * 1024;
/// The bytes of one read by a thread that waits for a disk.
const COLD: usize = 256 * 1024;

/// A part of the content.
#[derive(Debug)]
pub(crate) enum ContentPiece {
    /// Text that Offramp has written.
    Text(Bytes),
    /// These bytes of the file.
    File(Range<u64>),
}

/// The rest of the content.
pub(crate) struct FileContent {
    file: Arc<OwnedFd>,
    pieces: VecDeque<ContentPiece>,
    left: u64,
    /// The size of the next frames.
    most: usize,
    /// Thread that reads the first piece.
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    /// The part of the first piece that was read.
    read: Bytes,
}

impl FileContent {
    /// The content of these pieces of `file`.
    pub(crate) fn new(file: Arc<OwnedFd>, pieces: Vec<ContentPiece>) -> Self {
        let length = |piece: &ContentPiece| match piece {
            ContentPiece::Text(text) => text.len() as u64,
            ContentPiece::File(range) => range.end - range.start,
        };
        let left = pieces.iter().map(length).sum();
        let pieces = pieces.into_iter().filter(|piece| length(piece) > 0).collect();
        Self { file, pieces, left, most: CHUNK, reading: None, read: Bytes::new() }
    }

    /// The bytes that are to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The bytes that can be asked for with [`FileContent::poll_into`].
    pub(crate) fn direct(&self) -> u64 {
        match self.pieces.front() {
            Some(ContentPiece::File(range)) => range.end - range.start,
            _ => 0,
        }
    }

    /// Has the next frames be of so many bytes at the most.
    pub(crate) fn limit(&mut self, most: usize) {
        self.most = most.clamp(1, CHUNK);
    }

    /// The memory that it holds.
    pub(crate) fn held_memory(&self) -> usize {
        if self.read.is_empty() && self.reading.is_none() { 0 } else { COLD }
    }

    /// Reads into `slots`, which have room for 1 to [`FileContent::direct`] bytes.
    pub(crate) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(ContentPiece::File(range)) = self.pieces.front() else {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        };
        if self.read.is_empty() && self.reading.is_none() {
            match file::read(&*self.file, slots, range.start, Wait::Never) {
                Ok(n) => {
                    self.gone(n);
                    return Poll::Ready(Ok(n));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        ready!(self.poll_cold(cx))?;
        let mut copied = 0;
        for slot in slots {
            let now = self.read.split_to(slot.len().min(self.read.len()));
            slot[..now.len()].copy_from_slice(&now);
            copied += now.len();
        }
        self.gone(copied);
        Poll::Ready(Ok(copied))
    }

    /// The next bytes; not to be asked for behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let range = match self.pieces.front() {
            Some(ContentPiece::File(range)) => range,
            Some(ContentPiece::Text(text)) => {
                let text = text.clone();
                self.gone(text.len());
                return Poll::Ready(Ok(text));
            }
            None => return Poll::Ready(Ok(Bytes::new())),
        };
        if self.read.is_empty() && self.reading.is_none() {
            let room = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(self.most);
            let mut bytes = BytesMut::zeroed(room);
            match file::read(&*self.file, &mut [IoSliceMut::new(&mut bytes)], range.start, Wait::Never) {
                Ok(n) => {
                    bytes.truncate(n);
                    self.gone(n);
                    return Poll::Ready(Ok(bytes.freeze()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        ready!(self.poll_cold(cx))?;
        let now = self.read.split_to(self.read.len().min(self.most));
        self.gone(now.len());
        Poll::Ready(Ok(now))
    }

    /// Waits for a thread to read the next bytes of the first piece. A file that ends before is shorter than was said.
    fn poll_cold(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.read.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let Some(ContentPiece::File(range)) = self.pieces.front() else {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        };
        let reading = self.reading.get_or_insert_with(|| {
            let room = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(COLD);
            let (file, start) = (Arc::clone(&self.file), range.start);
            spawn_blocking(move || {
                let mut bytes = BytesMut::zeroed(room);
                let n = file::read(&*file, &mut [IoSliceMut::new(&mut bytes)], start, Wait::Allowed)?;
                bytes.truncate(n);
                Ok(bytes.freeze())
            })
        });
        let outcome = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        self.read = outcome.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        if self.read.is_empty() {
            return Poll::Ready(Err(io::Error::other("the file became shorter while it was sent")));
        }
        Poll::Ready(Ok(()))
    }

    /// So many bytes of the first piece have come out.
    fn gone(&mut self, n: usize) {
        self.left -= n as u64;
        let over = match self.pieces.front_mut() {
            Some(ContentPiece::File(range)) => {
                range.start += n as u64;
                range.start >= range.end
            }
            _ => true,
        };
        if over {
            self.pieces.pop_front();
        }
    }
}
