//! What is on its way to a client: text of ours, at most one piece of a body, and what ends it. It leaves with
//! as few calls as there are reasons to wait.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::l7::transport::Transport;

/// The bytes of small pieces that are put together.
const GATHERED: usize = 16 * 1024;
/// Pieces up to this size are copied behind the text: that costs less than a call with one part more.
const SMALL: usize = 4 * 1024;
/// The memory that is kept for the next response.
const KEPT: usize = 2 * GATHERED;

/// Bytes on their way to a client.
#[derive(Default)]
pub(super) struct Outbox {
    text: Vec<u8>,
    piece: Bytes,
    tail: Vec<u8>,
    /// The bytes of it that have gone.
    gone: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.piece.is_empty() && self.tail.is_empty()
    }

    /// More of a body may be put in.
    pub(super) fn has_room(&self) -> bool {
        self.piece.is_empty() && self.text.len() < GATHERED
    }

    /// Text behind all that is here.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        if self.piece.is_empty() { &mut self.text } else { &mut self.tail }
    }

    /// Puts a piece of a body behind all that is here, which has room for it.
    pub(super) fn data(&mut self, data: Bytes) {
        if data.len() <= SMALL || !self.piece.is_empty() {
            self.text().extend_from_slice(&data);
        } else {
            self.piece = data;
        }
    }

    /// All that is here, as it would be sent.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<u8> {
        [&self.text[..], &self.piece, &self.tail].concat()
    }

    /// The bytes that are here.
    pub(super) fn len(&self) -> usize {
        self.text.len() + self.piece.len() + self.tail.len()
    }

    /// All that is here, where nothing of it has gone.
    pub(super) fn parts(&self) -> [&[u8]; 3] {
        debug_assert_eq!(self.gone, 0, "some of it has gone");
        [&self.text, &self.piece, &self.tail]
    }

    /// Forgets what is here.
    pub(super) fn clear(&mut self) {
        self.gone = 0;
        self.text.clear();
        self.piece = Bytes::new();
        self.tail.clear();
        if self.text.capacity() > KEPT {
            self.text = Vec::new();
        }
    }

    /// Sends what is here, and waits until the kernel has it; `moved` is set when something left.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        moved: &mut bool,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let n = ready!(self.poll_write(cx, transport))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *moved = true;
            self.gone += n;
            if self.gone == self.len() {
                self.clear();
            }
        }
        transport.poll_flush(cx)
    }

    fn poll_write(&self, cx: &mut Context<'_>, transport: &mut Transport) -> Poll<io::Result<usize>> {
        let mut skip = self.gone;
        let mut rest = |part: &'_ [u8]| {
            let gone = skip.min(part.len());
            skip -= gone;
            gone
        };
        let text = &self.text[rest(&self.text)..];
        let piece = &self.piece[rest(&self.piece)..];
        let tail = &self.tail[rest(&self.tail)..];
        if piece.is_empty() && tail.is_empty() {
            return transport.poll_write_vectored(cx, &[IoSlice::new(text)]);
        }
        let all = [IoSlice::new(text), IoSlice::new(piece), IoSlice::new(tail)];
        let parts = match (text.is_empty(), tail.is_empty()) {
            (false, false) => &all[..],
            (false, true) => &all[..2],
            (true, false) => &all[1..],
            (true, true) => &all[1..2],
        };
        transport.poll_write_vectored(cx, parts)
    }
}
