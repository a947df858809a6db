//! The way of a response from a server: bytes that have come, heads, and content.
//!
//! Heads and content are parts of the buffer that they were read into, and share it: nothing is copied. How much
//! is read at a time follows what comes, so that large bodies come in few calls and slow ones cost little.

use std::io::IoSliceMut;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use offramp_http::body::Frame;
use offramp_http::h1::{
    Asked, Chunk, Chunks, Http1Fault, Limits, ResponseFault, ResponseFraming, ResponseHead, ResponseReader,
};
use offramp_http::head::{Fields, Response};
use offramp_net::turn::{Turn, Work};

use super::buffers::ReadBuffers;
use crate::fault::{Breach, Fault, Violation};
use crate::link::Link;

/// What a head may cost: larger than that of any server that is in its right mind.
const LIMITS: Limits = Limits { head: 128 * 1024, fields: 256, target: 0, connect: false };
/// The room for the first read of a response, which most fit into, in bytes.
pub const FIRST_READ: usize = 8 * 1024;
/// The least room for a read.
const READ_LEAST: usize = 2 * 1024;
/// The most that one read takes.
const READ_MOST: usize = 128 * 1024;
/// By how much reads grow each time that one took all that it could.
const GROWTH: usize = 4;
/// So much that is left of a read, as a part of a line of a chunk's size, is copied rather than keep all of it.
const LITTLE: usize = 1024;
/// The room beyond the end of content: a read that does not fill its room knows that nothing more is there.
const BEYOND: u64 = 512;

/// The responses of a connection.
pub(crate) struct Inbound {
    bytes: BytesMut,
    /// Where the memory for first reads comes from.
    buffers: Rc<ReadBuffers>,
    reader: ResponseReader,
    content: ResponseContent,
    /// The room for the next read of content.
    room: usize,
    /// The most that a read takes, though at least [`LITTLE`].
    most: usize,
    /// How large the memory of `bytes` is at the most, parts of which may have been given out.
    made: usize,
    /// Whether a byte of the response has come.
    received: bool,
    /// Whether the connection may be used again behind the response.
    keep_alive: bool,
    /// Bounds the chunks that are given out before others have their turn: a read may have thousands.
    turn: Turn,
}

/// What is to come of the content.
enum ResponseContent {
    Over,
    Length(u64),
    Chunked(Chunks, Option<Result<Chunk, Http1Fault>>),
    UntilClose,
}

/// A head that has come.
pub(crate) struct ServerHead {
    pub(crate) response: Response,
    pub(crate) framing: ResponseFraming,
}

impl Inbound {
    pub(super) fn new(buffers: Rc<ReadBuffers>) -> Self {
        Inbound {
            bytes: BytesMut::new(),
            buffers,
            reader: ResponseReader::default(),
            content: ResponseContent::Over,
            room: FIRST_READ,
            most: READ_MOST,
            made: 0,
            received: false,
            keep_alive: true,
            turn: Turn::default(),
        }
    }

    /// A request is sent: what comes is its response.
    pub(super) fn begin(&mut self) {
        self.received = false;
        (self.room, self.most) = (FIRST_READ, READ_MOST);
    }

    /// Whether a byte of the response has come.
    pub(super) fn has_received(&self) -> bool {
        self.received
    }

    /// Whether the content has ended.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.content, ResponseContent::Over)
    }

    /// Whether the end of the connection is that of the content.
    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(self.content, ResponseContent::UntilClose)
    }

    /// Whether the response has ended and nothing but another response can follow.
    pub(super) fn is_settled(&self) -> bool {
        self.has_ended() && self.keep_alive && self.bytes.is_empty()
    }

    /// What is known of the length of the rest of the content.
    pub(super) fn length(&self) -> Option<u64> {
        match self.content {
            ResponseContent::Over => Some(0),
            ResponseContent::Length(left) => Some(left),
            ResponseContent::Chunked(..) | ResponseContent::UntilClose => None,
        }
    }

    /// Gives memory back: all of it, or what few responses need. For a connection on which nothing is to come.
    pub(super) fn trim(&mut self, all: bool) {
        if self.bytes.is_empty() {
            self.release();
        }
        if all {
            self.bytes = BytesMut::new();
            self.reader = ResponseReader::default();
        }
    }

    /// Gives the memory of `bytes`, in which nothing is, to whoever reads next.
    fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        // What is left of a buffer does not tell how large the whole is.
        if std::mem::take(&mut self.made) <= FIRST_READ {
            self.buffers.put(bytes);
        }
    }

    /// What was read behind a head that changes the protocol.
    pub(super) fn into_rest(self) -> Bytes {
        self.bytes.freeze()
    }

    /// The next head, final or not.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        asked: Asked,
    ) -> Poll<Result<ServerHead, Fault>> {
        loop {
            if !self.bytes.is_empty()
                && let Some(head) = self.reader.read(&self.bytes, &LIMITS, asked).map_err(bad_head)?
            {
                return Poll::Ready(self.head(&head));
            }
            ready!(self.poll_more(cx, link, READ_LEAST as u64))?;
            self.received = true;
        }
    }

    /// The next frame of the content; `None` is its end.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
    ) -> Poll<Option<Result<Frame, Fault>>> {
        let frame = match &self.content {
            ResponseContent::Over => return Poll::Ready(None),
            ResponseContent::Length(left) => ready!(self.poll_length(cx, link, *left)).map(Some),
            ResponseContent::Chunked(..) => ready!(self.poll_chunked(cx, link)),
            ResponseContent::UntilClose => ready!(self.poll_rest(cx, link)),
        };
        if frame.is_err() {
            (self.content, self.keep_alive) = (ResponseContent::Over, false);
        }
        Poll::Ready(frame.transpose())
    }

    /// How much memory is held for content that was read and not given out. Memory with next to nothing in it is given
    /// back: large one at once, and all where content `waits` for its receiver.
    pub(super) fn held(&mut self, waits: bool) -> usize {
        if self.bytes.is_empty() {
            if waits {
                self.release();
            }
            return 0;
        }
        if self.bytes.len() <= LITTLE && self.made > if waits { 2 * LITTLE } else { FIRST_READ } {
            // What is left of a buffer would keep all of it.
            self.bytes = BytesMut::from(&self.bytes[..]);
            self.made = self.bytes.len();
        }
        self.made
    }

    /// How large the memory is in which what was given out last lies, at the most.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Has reads take about so much at the most.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// How much of the content can be read with [`Inbound::poll_into`] now: what is left of it, where its length is
    /// known and none of it has come, and the server sends more at a time than a first read takes.
    pub(super) fn direct(&self) -> u64 {
        match self.content {
            ResponseContent::Length(left) if self.bytes.is_empty() && self.room > FIRST_READ => left,
            _ => 0,
        }
    }

    /// Reads content straight into `slots`, which have room for [`Inbound::direct`] bytes at the most.
    pub(super) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        slots: &mut [IoSliceMut<'_>],
    ) -> Poll<Result<usize, Fault>> {
        let room: usize = slots.iter().map(|slot| slot.len()).sum();
        let left = self.direct();
        assert!((1..=left).contains(&(room as u64)), "what follows the content is not its reader's");
        let n = match ready!(link.poll_readv(cx, slots)) {
            Ok(n @ 1..) => n,
            end => {
                (self.content, self.keep_alive) = (ResponseContent::Over, false);
                return Poll::Ready(Err(Fault::Aborted(end.map_or_else(Breach::Io, |_| Breach::Closed))));
            }
        };
        if n < room.min(FIRST_READ) {
            self.room = FIRST_READ;
        }
        let left = left - n as u64;
        self.content = if left == 0 { ResponseContent::Over } else { ResponseContent::Length(left) };
        Poll::Ready(Ok(n))
    }

    fn poll_length(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        left: u64,
    ) -> Poll<Result<Frame, Fault>> {
        if self.bytes.is_empty() {
            ready!(self.poll_more(cx, link, left))?;
        }
        let now = usize::try_from(left).map_or(self.bytes.len(), |left| left.min(self.bytes.len()));
        let left = left - now as u64;
        self.content = if left == 0 { ResponseContent::Over } else { ResponseContent::Length(left) };
        Poll::Ready(Ok(Frame::Data(self.bytes.split_to(now).freeze())))
    }

    fn poll_chunked(&mut self, cx: &mut Context<'_>, link: &mut Link) -> Poll<Result<Option<Frame>, Fault>> {
        ready!(self.turn.poll_rest(cx));
        loop {
            let ResponseContent::Chunked(chunks, ahead) = &mut self.content else {
                return Poll::Ready(Ok(None));
            };
            let next = ahead.take().unwrap_or_else(|| chunks.next(&self.bytes, &LIMITS));
            match next.map_err(bad_content)? {
                Chunk::Wait(used) => {
                    self.bytes.advance(used);
                    ready!(self.poll_more(cx, link, u64::MAX))?;
                }
                Chunk::Data(range) => {
                    self.bytes.advance(range.start);
                    let data = self.bytes.split_to(range.len()).freeze();
                    self.turn.spend(Work::Pieces(1));
                    self.turn.spend(Work::Bytes(data.len()));
                    self.look_ahead();
                    return Poll::Ready(Ok(Some(Frame::Data(data))));
                }
                Chunk::End { trailers, length } => {
                    let lines = self.bytes.split_to(length);
                    self.content = ResponseContent::Over;
                    if trailers.is_empty() {
                        return Poll::Ready(Ok(None));
                    }
                    let trailers = Fields::of_section(&lines[trailers]);
                    return Poll::Ready(Ok(Some(Frame::Trailers(Box::new(trailers)))));
                }
            }
        }
    }

    /// Whether the end of the content is here already is worth knowing with the last of its data.
    fn look_ahead(&mut self) {
        let ResponseContent::Chunked(chunks, ahead) = &mut self.content else { return };
        match chunks.next(&self.bytes, &LIMITS) {
            Ok(Chunk::Wait(used)) => self.bytes.advance(used),
            Ok(Chunk::End { trailers, length }) if trailers.is_empty() => {
                self.bytes.advance(length);
                self.content = ResponseContent::Over;
            }
            other => *ahead = Some(other),
        }
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>, link: &mut Link) -> Poll<Result<Option<Frame>, Fault>> {
        if self.bytes.is_empty() && !ready!(self.poll_read(cx, link, u64::MAX))? {
            self.content = ResponseContent::Over;
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Ok(Some(Frame::Data(self.bytes.split().freeze()))))
    }

    /// Reads more of a message that has not ended; `wanted` bytes of it are to come at most.
    fn poll_more(&mut self, cx: &mut Context<'_>, link: &mut Link, wanted: u64) -> Poll<Result<(), Fault>> {
        if ready!(self.poll_read(cx, link, wanted))? {
            Poll::Ready(Ok(()))
        } else {
            Poll::Ready(Err(Fault::Aborted(Breach::Closed)))
        }
    }

    /// Reads once; `false` is the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, link: &mut Link, wanted: u64) -> Poll<Result<bool, Fault>> {
        let wanted = usize::try_from(wanted.saturating_add(BEYOND)).unwrap_or(usize::MAX);
        let mut least = READ_LEAST;
        if self.bytes.capacity() == 0 && self.most >= FIRST_READ {
            // Where there is no memory yet, a first read gets some in one piece.
            (self.bytes, self.made, least) = (self.buffers.take(), FIRST_READ, FIRST_READ);
        }
        let least = least.min(self.most.max(LITTLE));
        let room = wanted.clamp(least, self.room.min(self.most).max(least));
        let Poll::Ready(read) = link.poll_read_behind(cx, &mut self.bytes, room) else {
            if self.bytes.is_empty() {
                // Nothing is held while the server is waited for.
                self.release();
            }
            return Poll::Pending;
        };
        let n = read.map_err(|error| Fault::Aborted(Breach::Io(error)))?;
        // Where the memory did not suffice there is other, all of which is ahead.
        self.made = self.made.max(self.bytes.capacity());
        if n == room {
            self.room = (self.room * GROWTH).min(READ_MOST);
        }
        Poll::Ready(Ok(n > 0))
    }

    /// A head has come: makes it one that can be passed on.
    fn head(&mut self, head: &ResponseHead) -> Result<ServerHead, Fault> {
        let response = Response::load(head, &self.reader, &self.bytes[..head.length]);
        self.bytes.advance(head.length);
        self.reader.clear();
        self.keep_alive = head.keep_alive;
        self.content = match head.framing {
            ResponseFraming::Length(length @ 1..) => ResponseContent::Length(length),
            ResponseFraming::Chunked => ResponseContent::Chunked(Chunks::of_server(), None),
            ResponseFraming::UntilClose => ResponseContent::UntilClose,
            _ => ResponseContent::Over,
        };
        Ok(ServerHead { response: response.map_err(bad_head)?, framing: head.framing })
    }
}

#[cold]
fn bad_head(fault: ResponseFault) -> Fault {
    Fault::BadResponse(Violation::Head(fault))
}

#[cold]
fn bad_content(fault: Http1Fault) -> Fault {
    Fault::BadResponse(Violation::Content(fault))
}
