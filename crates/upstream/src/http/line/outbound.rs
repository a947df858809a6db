//! The request to a server: bytes that wait to be written, and the rest of its body.
//!
//! The head and the first piece of a body that is available at once are sent in one write; the next piece is
//! polled only when the socket has accepted the previous one. Nothing of a body is copied; a body that can
//! lend its pieces has them written in place, and keeps what the socket does not accept.

use std::error::Error as StdError;
use std::io::{self, IoSlice, Write as _};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::Method;
use offramp_http::body::Frame;
use offramp_http::h1::RequestKind;
use offramp_http::head::{self, Fields};
use offramp_http::semantics::is_idempotent;
use offramp_net::turn::{Turn, Work};

use super::encode::{self, BodySize, EncodedHead, LateFields, OutgoingFraming};
use super::{Lent, MOST_PARTS, RequestBody};
use crate::http::outgoing::SendProgress;
use crate::link::ServerStream;

/// Capacity up to which the memory of a sent head is kept: the amount that a client's stream is charged for
/// it.
pub(super) const KEEP_WRITTEN: usize = 512;
/// Capacity up to which memory is kept for the next request.
const KEEP: usize = 8 * 1024;

/// A request on its way.
pub(crate) struct Outbound<B: RequestBody> {
    queued: QueuedWrite,
    /// The part of the body that was not polled yet.
    body: Option<B>,
    framing: OutgoingFraming,
    trailers: LateFields,
    /// Size of the body when the head was written, and whether content of unknown length is sent with any
    /// method.
    size: BodySize,
    announce: bool,
    /// Set while the head waits until it is known if there is any content to declare.
    unsettled: bool,
    asked: RequestKind,
    idempotent: bool,
    /// Set once anything of the body was used.
    touched: bool,
    /// Set once the kernel has accepted a byte.
    begun: bool,
    /// Set if the request cannot end in order.
    broken: bool,
    /// Work since other tasks had their turn.
    turn: Turn,
}

/// Bytes that wait to be written, in the order of the fields.
#[derive(Default)]
struct QueuedWrite {
    /// Bytes before the data: the head, and chunk-size lines. A long head is dropped once it was sent; a
    /// retry encodes it again.
    before: Vec<u8>,
    /// Number of these bytes that were sent.
    gone: usize,
    data: Option<Bytes>,
    /// Bytes behind the data.
    after: &'static [u8],
}

impl QueuedWrite {
    fn is_written(&self) -> bool {
        self.gone == self.before.len() && self.data.is_none() && self.after.is_empty()
    }

    /// Clears the sent bytes before the next piece. Otherwise 100 requests with slow responses would retain
    /// all their heads, which the client's side has as well.
    fn clear(&mut self) {
        if self.before.capacity() > KEEP_WRITTEN {
            self.before = Vec::new();
        }
        self.before.clear();
        self.gone = 0;
    }

    /// Writes with one system call, and returns the number of bytes that the kernel has accepted.
    fn poll_write(&self, cx: &mut Context<'_>, link: &mut ServerStream) -> Poll<io::Result<usize>> {
        let before = &self.before[self.gone..];
        let data = self.data.as_deref().unwrap_or_default();
        let mut parts = [IoSlice::new(&[]); 3];
        let mut filled = 0;
        for part in [before, data, self.after] {
            if !part.is_empty() {
                parts[filled] = IoSlice::new(part);
                filled += 1;
            }
        }
        // A plain write is cheaper than a vectored one.
        match &parts[..filled] {
            [only] => link.poll_write(cx, only),
            parts => link.poll_writev(cx, parts),
        }
    }

    /// Removes `n` sent bytes.
    fn advance(&mut self, mut n: usize) {
        let now = n.min(self.before.len() - self.gone);
        self.gone += now;
        n -= now;
        if let Some(data) = &mut self.data {
            let now = n.min(data.remaining());
            data.advance(now);
            n -= now;
            if !data.has_remaining() {
                self.data = None;
            }
        }
        self.after = &self.after[n..];
    }

    /// Drops what was not sent.
    fn drop_rest(&mut self) {
        self.gone = self.before.len();
        self.data = None;
        self.after = &[];
    }
}

/// Reason for which a request stops.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The server does not accept it.
    Io(io::Error),
    /// The body failed, or does not have the declared length.
    Body(Box<dyn StdError + Send + Sync>),
}

impl<B: RequestBody> Outbound<B> {
    /// No request to send.
    pub(super) fn idle() -> Self {
        Outbound {
            queued: QueuedWrite::default(),
            body: None,
            framing: OutgoingFraming::Length(0),
            trailers: LateFields::None,
            size: BodySize::None,
            announce: false,
            unsettled: false,
            asked: RequestKind::Other,
            idempotent: false,
            touched: false,
            begun: false,
            broken: false,
            turn: Turn::default(),
        }
    }

    /// Starts a request, which is sent by [`Outbound::poll`]. Its head is encoded now. `announce` also sends
    /// content of unknown length with methods that usually have none.
    pub(super) fn load(&mut self, head: &head::Request, body: B, announce: bool) {
        let size = match body.is_end_stream() {
            true => BodySize::None,
            false => body.length().map_or(BodySize::Unknown, BodySize::Exact),
        };
        let mut before = std::mem::take(&mut self.queued.before);
        before.clear();
        let EncodedHead { framing, trailers } = encode::head(head, size, announce, &mut before);
        let ends = size == BodySize::None || framing == OutgoingFraming::Length(0);
        let unsettled = encode::may_say_none(head, size) && before.ends_with(encode::CODED);
        *self = Outbound {
            queued: QueuedWrite { before, ..QueuedWrite::default() },
            body: (!ends).then_some(body),
            framing,
            trailers,
            size,
            announce,
            unsettled,
            asked: match head.method {
                Method::HEAD => RequestKind::Head,
                Method::CONNECT => RequestKind::Connect,
                _ => RequestKind::Other,
            },
            idempotent: is_idempotent(&head.method),
            turn: std::mem::take(&mut self.turn),
            ..Self::idle()
        };
    }

    /// Returns the request as passed to [`Outbound::load`], without its head, if nothing that would be
    /// missing was used. `stale` is set if the server may have closed the connection before it saw the
    /// request, so that an idempotent one may be repeated (RFC 9110 §9.2.2).
    pub(super) fn take_back(&mut self, stale: bool) -> Option<Self> {
        let unseen = !self.begun || (stale && self.idempotent && !self.touched);
        if !unseen || self.broken {
            return None;
        }
        let request = std::mem::replace(self, Self::idle());
        let queued = QueuedWrite { before: Vec::new(), gone: 0, ..request.queued };
        Some(Outbound { queued, begun: false, ..request })
    }

    /// Encodes the head of a returned request again.
    pub(super) fn load_again(&mut self, head: &head::Request) {
        encode::head(head, self.size, self.announce, &mut self.queued.before);
    }

    /// Kind of the request.
    pub(super) fn asked(&self) -> RequestKind {
        self.asked
    }

    /// Returns true if nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_none() && self.is_written()
    }

    /// Returns true if the request was sent completely.
    pub(super) fn is_complete(&self) -> bool {
        self.is_over() && !self.broken
    }

    /// Drops the rest, which the server does not accept.
    pub(super) fn give_up(&mut self) {
        self.drop_rest();
        self.broken = true;
    }

    /// Releases memory: all of it, or what few requests need.
    pub(super) fn trim(&mut self, all: bool) {
        if all || self.queued.before.capacity() > KEEP {
            self.queued.before = Vec::new();
            self.queued.gone = 0;
        }
        self.trailers = LateFields::None;
    }

    /// Sends as much as possible. Ready when the request was sent, or cannot be.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut ServerStream,
        progress: &SendProgress,
    ) -> Poll<Result<(), Halt>> {
        loop {
            ready!(self.turn.poll_rest(cx));
            if self.unsettled && self.poll_settle(cx).is_pending() {
                progress.starve();
                return Poll::Pending;
            }
            let asked = match self.poll_direct(cx, link) {
                Poll::Pending => Ok(true),
                Poll::Ready(Lent::Nothing) => self.poll_body(cx, progress),
                Poll::Ready(Lent::Taken(_)) => {
                    progress.note();
                    Ok(false)
                }
                Poll::Ready(Lent::Full) => {
                    // From now on the server is awaited.
                    if progress.since().is_none() {
                        progress.note();
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Lent::Lost(error)) => return Poll::Ready(Err(Halt::Io(error))),
                Poll::Ready(Lent::Broken(error)) => Err(error),
            };
            let starved = match asked {
                Ok(starved) => starved,
                Err(error) => {
                    self.give_up();
                    return Poll::Ready(Err(Halt::Body(error)));
                }
            };
            while !self.is_written() {
                ready!(self.poll_write(cx, link))?;
                progress.note();
            }
            self.queued.clear();
            if starved {
                progress.starve();
                link.pause_writing();
                return Poll::Pending;
            }
            if self.body.is_none() {
                link.pause_writing();
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Waits for the begin of the content, and declares an empty content in the head if it turns out so (RFC
    /// 9110 §8.6).
    #[cold]
    fn poll_settle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(body) = &mut self.body {
            ready!(body.poll_begun(cx));
            if !self.begun && body.is_end_stream() && self.queued.before.ends_with(encode::CODED) {
                self.queued.before.truncate(self.queued.before.len() - encode::CODED.len());
                self.queued.before.extend_from_slice(encode::EMPTY);
                // The source of the content learns of its end.
                let _ = body.poll_frame(cx);
                (self.body, self.framing, self.size) = (None, OutgoingFraming::Length(0), BodySize::None);
            }
        }
        self.unsettled = false;
        Poll::Ready(())
    }

    /// Lets the body lend its next piece, and writes it behind the pending bytes. Chunked content has sizes
    /// between the pieces and is polled by frames instead.
    fn poll_direct(&mut self, cx: &mut Context<'_>, link: &mut ServerStream) -> Poll<Lent> {
        let Self {
            queued: QueuedWrite { before, gone, data: None, after: [] },
            body,
            framing: OutgoingFraming::Length(left @ 1..),
            begun,
            ..
        } = self
        else {
            return Poll::Ready(Lent::Nothing);
        };
        let Some(lender) = body else { return Poll::Ready(Lent::Nothing) };
        let lent = ready!(lender.poll_lend(cx, &mut |cx, piece| {
            let head = &before[*gone..];
            let mut parts = [IoSlice::new(&[]); MOST_PARTS + 1];
            parts[0] = IoSlice::new(head);
            // Excess content is left to the check of frames.
            let mut most = usize::try_from(*left).unwrap_or(usize::MAX);
            for (place, part) in parts[1..].iter_mut().zip(piece) {
                let part = &part[..part.len().min(most)];
                most -= part.len();
                *place = IoSlice::new(part);
            }
            let from = usize::from(head.is_empty());
            let written = match &parts[from..=piece.len().min(MOST_PARTS)] {
                [only] => link.poll_write(cx, only),
                parts => link.poll_writev(cx, parts),
            };
            let n = match ready!(written) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => written?,
            };
            *begun = true;
            let now = n.min(head.len());
            *gone += now;
            *left -= (n - now) as u64;
            Poll::Ready(Ok(n - now))
        }));
        if let Lent::Taken(n @ 1..) = lent {
            self.touched = true;
            self.spend(n);
            if self.framing == OutgoingFraming::Length(0) {
                self.body = None;
            }
        }
        Poll::Ready(lent)
    }

    /// Polls the body for its next piece when the last one was sent; returns true if there is none yet.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        progress: &SendProgress,
    ) -> Result<bool, Box<dyn StdError + Send + Sync>> {
        if self.queued.data.is_some() || !self.queued.after.is_empty() {
            return Ok(false);
        }
        let Some(body) = &mut self.body else {
            // The head declared content, and there is none.
            return if !self.touched && self.is_short() { Err(WRONG_LENGTH.into()) } else { Ok(false) };
        };
        let Poll::Ready(frame) = body.poll_frame(cx) else { return Ok(true) };
        let ends = body.is_end_stream();
        self.touched = true;
        progress.note();
        match frame.transpose().map_err(Into::into)?.map(Frame::into_data) {
            Some(Ok(data)) => self.piece(data, ends)?,
            Some(Err(trailers)) => self.end(Some(&trailers))?,
            None => self.end(None)?,
        }
        Ok(false)
    }

    /// Queues the next piece of the content, with the end if it is the last one.
    fn piece(&mut self, data: Bytes, ends: bool) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let n = data.remaining() as u64;
        match &mut self.framing {
            OutgoingFraming::Length(left) => {
                *left = left.checked_sub(n).ok_or(WRONG_LENGTH)?;
                if *left == 0 {
                    self.body = None;
                }
            }
            OutgoingFraming::Chunked if n > 0 => {
                // Writing to a vector cannot fail.
                let _ = write!(self.queued.before, "{n:X}\r\n");
                self.queued.after = b"\r\n";
                if ends {
                    self.queued.after = b"\r\n0\r\n\r\n";
                    self.body = None;
                }
            }
            OutgoingFraming::Chunked => {}
        }
        if n > 0 {
            self.queued.data = Some(data);
        }
        Ok(())
    }

    /// Handles the end of the content.
    fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.body = None;
        if self.is_short() {
            return Err(WRONG_LENGTH.into());
        }
        if self.framing == OutgoingFraming::Chunked {
            self.queued.before.extend_from_slice(b"0\r\n");
            for (name, value) in trailers.into_iter().flat_map(Fields::iter) {
                if self.trailers.passes(name) {
                    encode::field(name, value, &mut self.queued.before);
                }
            }
            self.queued.before.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn is_short(&self) -> bool {
        matches!(self.framing, OutgoingFraming::Length(1..))
    }

    fn is_written(&self) -> bool {
        self.queued.is_written()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, link: &mut ServerStream) -> Poll<Result<(), Halt>> {
        let n = ready!(self.queued.poll_write(cx, link)).map_err(Halt::Io)?;
        if n == 0 {
            return Poll::Ready(Err(Halt::Io(io::ErrorKind::WriteZero.into())));
        }
        self.begun = true;
        self.spend(n);
        self.queued.advance(n);
        Poll::Ready(Ok(()))
    }

    /// Accounts a call that has moved `n` bytes.
    fn spend(&mut self, n: usize) {
        self.turn.spend(Work::Calls(1));
        self.turn.spend(Work::Bytes(n));
    }

    fn drop_rest(&mut self) {
        self.queued.drop_rest();
        self.body = None;
    }
}

const WRONG_LENGTH: &str = "it is not of the length that its head says";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_head_is_dropped_after_sending_and_encoded_again() {
        for (length, kept) in [(10, true), (20_000, false)] {
            let mut request = head::Request::new();
            request.fields.append(b"cookie", &vec![b'x'; length]);
            let mut out = Outbound::<String>::idle();
            out.load(&request, String::new(), false);
            let written = out.queued.before.clone();
            out.queued.gone = out.queued.before.len();
            out.queued.clear();
            assert!(out.is_complete());
            assert_eq!(out.queued.before.capacity() > 0, kept, "{length}");
            out.begun = true;
            let mut again = out.take_back(true).unwrap();
            again.load_again(&request);
            assert_eq!((again.queued.before, again.queued.gone), (written, 0));
        }
    }
}
