//! The response of a server: received bytes, heads, and content.
//!
//! Heads and content are slices of the buffer that they were read into, and share it: nothing is copied. The
//! size of reads adapts to the data, so that large bodies need few calls and slow ones little memory.

use std::io::IoSliceMut;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use offramp_http::Http1Fault;
use offramp_http::body::Frame;
use offramp_http::h1::{
    Chunk, Chunks, HeadLimits, RequestKind, ResponseFault, ResponseFraming, ResponseHead, ResponseReader,
};
use offramp_http::head::{Fields, Response};
use offramp_net::turn::{Turn, Work};

use super::buffers::ReadBuffers;
use crate::fault::{Breach, ResponseViolation, UpstreamFault};
use crate::link::ServerStream;

/// Bounds on a head, above that of any reasonable server.
const LIMITS: HeadLimits = HeadLimits { head: 128 * 1024, fields: 256, target: 0, connect: false };
/// Size of the first read of a response, in bytes, which most responses fit.
pub const FIRST_READ: usize = 8 * 1024;
/// Minimum size of a read, in bytes.
const READ_LEAST: usize = 2 * 1024;
/// Maximum size of a read, in bytes.
const READ_MOST: usize = 128 * 1024;
/// Factor by which reads grow after a full one.
const GROWTH: usize = 4;
/// Remainders of a read up to this size, such as a part of a chunk-size line, are copied instead of retaining
/// all of it.
const LITTLE: usize = 1024;
/// Space beyond the end of content: a read that does not fill it proves that nothing more is there.
const BEYOND: u64 = 512;

/// Responses of a connection.
pub(crate) struct InboundResponses {
    bytes: BytesMut,
    /// Source of memory for first reads.
    buffers: Rc<ReadBuffers>,
    reader: ResponseReader,
    content: ResponseContent,
    /// Size of the next read of content.
    room: usize,
    /// Maximum size of a read, at least [`LITTLE`].
    most: usize,
    /// Maximum size of the memory of `bytes`, parts of which may have been returned.
    made: usize,
    /// Set once a byte of the response was received.
    received: bool,
    /// Set if the connection may be reused after the response.
    keep_alive: bool,
    /// Bounds the chunks returned before other tasks run: a read may contain thousands.
    turn: Turn,
}

/// Content that is still to be read.
enum ResponseContent {
    Over,
    Length(u64),
    Chunked(Chunks, Option<Result<Chunk, Http1Fault>>),
    UntilClose,
}

/// A received head, interim or final.
pub(crate) struct ServerHead {
    pub(crate) response: Response,
    pub(crate) framing: ResponseFraming,
}

impl InboundResponses {
    pub(super) fn new(buffers: Rc<ReadBuffers>) -> Self {
        InboundResponses {
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

    /// Starts a request: what follows is its response.
    pub(super) fn begin(&mut self) {
        self.received = false;
        (self.room, self.most) = (FIRST_READ, READ_MOST);
    }

    /// Returns true once a byte of the response was received.
    pub(super) fn has_received(&self) -> bool {
        self.received
    }

    /// Returns true once the content has ended.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.content, ResponseContent::Over)
    }

    /// Returns true if the end of the connection is that of the content.
    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(self.content, ResponseContent::UntilClose)
    }

    /// Returns true if the response has ended and only another response can follow.
    pub(super) fn is_settled(&self) -> bool {
        self.has_ended() && self.keep_alive && self.bytes.is_empty()
    }

    /// Remaining length of the content, if known.
    pub(super) fn length(&self) -> Option<u64> {
        match self.content {
            ResponseContent::Over => Some(0),
            ResponseContent::Length(left) => Some(left),
            ResponseContent::Chunked(..) | ResponseContent::UntilClose => None,
        }
    }

    /// Releases memory of an idle connection: all of it, or what few responses need.
    pub(super) fn trim(&mut self, all: bool) {
        if self.bytes.is_empty() {
            self.release();
        }
        if all {
            self.bytes = BytesMut::new();
            self.reader = ResponseReader::default();
        }
    }

    /// Returns the empty buffer to the pool of buffers.
    fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        // The remainder of a buffer does not tell the size of the whole.
        if std::mem::take(&mut self.made) <= FIRST_READ {
            self.buffers.put(bytes);
        }
    }

    /// Bytes read behind a head that switches the protocol.
    pub(super) fn into_rest(self) -> Bytes {
        self.bytes.freeze()
    }

    /// Returns the next head, interim or final.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut ServerStream,
        asked: RequestKind,
    ) -> Poll<Result<ServerHead, UpstreamFault>> {
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

    /// Returns the next frame of the content; `None` at its end.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut ServerStream,
    ) -> Poll<Option<Result<Frame, UpstreamFault>>> {
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

    /// Memory held for content that was read and not returned. Nearly empty memory is released: large memory
    /// at once, all of it if content `waits` for its receiver.
    pub(super) fn held(&mut self, waits: bool) -> usize {
        if self.bytes.is_empty() {
            if waits {
                self.release();
            }
            return 0;
        }
        if self.bytes.len() <= LITTLE && self.made > if waits { 2 * LITTLE } else { FIRST_READ } {
            // The remainder of a buffer would retain all of it.
            self.bytes = BytesMut::from(&self.bytes[..]);
            self.made = self.bytes.len();
        }
        self.made
    }

    /// Memory retained by the last returned data, at most.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Limits the size of reads to about `most` bytes.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Number of content bytes that [`InboundResponses::poll_into`] can read now: the rest of the content, if
    /// its length is known, none of it is buffered, and the server sends more at a time than a first read.
    pub(super) fn direct(&self) -> u64 {
        match self.content {
            ResponseContent::Length(left) if self.bytes.is_empty() && self.room > FIRST_READ => left,
            _ => 0,
        }
    }

    /// Reads content into `slots`, which have room for at most [`InboundResponses::direct`] bytes.
    pub(super) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut ServerStream,
        slots: &mut [IoSliceMut<'_>],
    ) -> Poll<Result<usize, UpstreamFault>> {
        let room: usize = slots.iter().map(|slot| slot.len()).sum();
        let left = self.direct();
        assert!((1..=left).contains(&(room as u64)), "what follows the content is not its reader's");
        let n = match ready!(link.poll_readv(cx, slots)) {
            Ok(n @ 1..) => n,
            end => {
                (self.content, self.keep_alive) = (ResponseContent::Over, false);
                return Poll::Ready(Err(UpstreamFault::Aborted(
                    end.map_or_else(Breach::Io, |_| Breach::Closed),
                )));
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
        link: &mut ServerStream,
        left: u64,
    ) -> Poll<Result<Frame, UpstreamFault>> {
        if self.bytes.is_empty() {
            ready!(self.poll_more(cx, link, left))?;
        }
        let now = usize::try_from(left).map_or(self.bytes.len(), |left| left.min(self.bytes.len()));
        let left = left - now as u64;
        self.content = if left == 0 { ResponseContent::Over } else { ResponseContent::Length(left) };
        Poll::Ready(Ok(Frame::Data(self.bytes.split_to(now).freeze())))
    }

    fn poll_chunked(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut ServerStream,
    ) -> Poll<Result<Option<Frame>, UpstreamFault>> {
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

    /// Looks for the end of the content behind its last data, so that both are reported together.
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

    fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut ServerStream,
    ) -> Poll<Result<Option<Frame>, UpstreamFault>> {
        if self.bytes.is_empty() && !ready!(self.poll_read(cx, link, u64::MAX))? {
            self.content = ResponseContent::Over;
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Ok(Some(Frame::Data(self.bytes.split().freeze()))))
    }

    /// Reads more of an unfinished message, of which at most `wanted` bytes are missing.
    fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut ServerStream,
        wanted: u64,
    ) -> Poll<Result<(), UpstreamFault>> {
        if ready!(self.poll_read(cx, link, wanted))? {
            Poll::Ready(Ok(()))
        } else {
            Poll::Ready(Err(UpstreamFault::Aborted(Breach::Closed)))
        }
    }

    /// Reads once; returns false at the end of the stream.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut ServerStream,
        wanted: u64,
    ) -> Poll<Result<bool, UpstreamFault>> {
        let wanted = usize::try_from(wanted.saturating_add(BEYOND)).unwrap_or(usize::MAX);
        let mut least = READ_LEAST;
        if self.bytes.capacity() == 0 && self.most >= FIRST_READ {
            // Without memory, a first read gets a contiguous buffer.
            (self.bytes, self.made, least) = (self.buffers.take(), FIRST_READ, FIRST_READ);
        }
        let least = least.min(self.most.max(LITTLE));
        let room = wanted.clamp(least, self.room.min(self.most).max(least));
        let Poll::Ready(read) = link.poll_read_behind(cx, &mut self.bytes, room) else {
            if self.bytes.is_empty() {
                // No memory is held while the server is awaited.
                self.release();
            }
            return Poll::Pending;
        };
        let n = read.map_err(|error| UpstreamFault::Aborted(Breach::Io(error)))?;
        // If the memory did not suffice it was replaced, and all of it is ahead.
        self.made = self.made.max(self.bytes.capacity());
        if n == room {
            self.room = (self.room * GROWTH).min(READ_MOST);
        }
        Poll::Ready(Ok(n > 0))
    }

    /// Converts a complete head to one that can be forwarded.
    fn head(&mut self, head: &ResponseHead) -> Result<ServerHead, UpstreamFault> {
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
fn bad_head(fault: ResponseFault) -> UpstreamFault {
    UpstreamFault::BadResponse(ResponseViolation::Head(fault))
}

#[cold]
fn bad_content(fault: Http1Fault) -> UpstreamFault {
    UpstreamFault::BadResponse(ResponseViolation::Content(fault))
}
