//! The way of a request to a server: what waits to be written, and what is still to be asked of its body.
//!
//! The head and the first piece of a body that is there at once leave in one write; a body is asked for its next
//! piece only when the socket has taken what came before. Nothing of a body is copied; where the body can lend its
//! pieces, they are written from where they lie, and what the socket does not take stays there.

use std::error::Error as StdError;
use std::io::{self, IoSlice, Write as _};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::Method;
use offramp_http::body::Frame;
use offramp_http::h1::Asked;
use offramp_http::head::{self, Fields};
use offramp_http::semantics::is_idempotent;
use offramp_net::turn::{Turn, Work};

use super::encode::{self, Framing, LateFields, Size, Written};
use super::{Lent, MOST_PARTS, RequestBody};
use crate::http::outgoing::Progress;
use crate::link::Link;

/// The capacity up to which the memory of a head is kept when it has gone: no more than a stream of a client is counted as
/// for it.
pub(super) const KEEP_WRITTEN: usize = 512;
/// The capacity up to which memory is kept for the next request.
const KEEP: usize = 8 * 1024;

/// A request on its way.
pub(crate) struct Outbound<B: RequestBody> {
    /// What goes before the data: the head, and the lines of chunk sizes. A long head is dropped when it has gone: to send
    /// the request once more it is written again.
    before: Vec<u8>,
    /// How much of it has gone.
    gone: usize,
    data: Option<Bytes>,
    /// What goes behind the data.
    after: &'static [u8],
    /// What is not asked for yet.
    body: Option<B>,
    framing: Framing,
    trailers: LateFields,
    /// What was known of the body when the head was written, and whether content of unknown length is sent with any method.
    size: Size,
    announce: bool,
    /// Whether the head waits until it is known if there is any content, which it is to say then.
    unsettled: bool,
    asked: Asked,
    idempotent: bool,
    /// Whether anything of the body was used.
    touched: bool,
    /// Whether the kernel has taken a byte.
    begun: bool,
    /// Whether it cannot come to an end in order.
    broken: bool,
    /// What was moved since others had their turn.
    turn: Turn,
}

/// Why a request does not go on.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The server does not take it.
    Io(io::Error),
    /// The body failed, or is not of the length that was said.
    Body(Box<dyn StdError + Send + Sync>),
}

impl<B: RequestBody> Outbound<B> {
    /// Nothing to send.
    pub(super) fn idle() -> Self {
        Outbound {
            before: Vec::new(),
            gone: 0,
            data: None,
            after: &[],
            body: None,
            framing: Framing::Length(0),
            trailers: LateFields::None,
            size: Size::None,
            announce: false,
            unsettled: false,
            asked: Asked::Other,
            idempotent: false,
            touched: false,
            begun: false,
            broken: false,
            turn: Turn::default(),
        }
    }

    /// Takes on a request, which goes out with [`Outbound::poll`]. Its head is written out by now. `announce`: content
    /// of unknown length is sent with methods that have none, too.
    pub(super) fn load(&mut self, head: &head::Request, body: B, announce: bool) {
        let size = match body.is_end_stream() {
            true => Size::None,
            false => body.length().map_or(Size::Unknown, Size::Exact),
        };
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        let Written { framing, trailers } = encode::head(head, size, announce, &mut before);
        let ends = size == Size::None || framing == Framing::Length(0);
        let unsettled = encode::may_say_none(head, size) && before.ends_with(encode::CODED);
        *self = Outbound {
            before,
            body: (!ends).then_some(body),
            framing,
            trailers,
            size,
            announce,
            unsettled,
            asked: match head.method {
                Method::HEAD => Asked::Head,
                Method::CONNECT => Asked::Connect,
                _ => Asked::Other,
            },
            idempotent: is_idempotent(&head.method),
            turn: std::mem::take(&mut self.turn),
            ..Self::idle()
        };
    }

    /// Takes the request back as [`Outbound::load`] left it, but for its head, if nothing of it was used that would be missing.
    /// `stale`: the server may have closed the connection before it saw the request, and so much is known to have
    /// been done that an idempotent one may be sent again (RFC 9110 §9.2.2).
    pub(super) fn take_back(&mut self, stale: bool) -> Option<Self> {
        let unseen = !self.begun || (stale && self.idempotent && !self.touched);
        if !unseen || self.broken {
            return None;
        }
        let request = std::mem::replace(self, Self::idle());
        Some(Outbound { before: Vec::new(), gone: 0, begun: false, ..request })
    }

    /// Writes the head once more, of a request that was taken back.
    pub(super) fn load_again(&mut self, head: &head::Request) {
        encode::head(head, self.size, self.announce, &mut self.before);
    }

    /// What was asked for.
    pub(super) fn asked(&self) -> Asked {
        self.asked
    }

    /// Whether nothing is left to be done.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_none() && self.is_written()
    }

    /// Whether the request has come to its end in order.
    pub(super) fn is_complete(&self) -> bool {
        self.is_over() && !self.broken
    }

    /// Gives up what is left, which the server does not take.
    pub(super) fn give_up(&mut self) {
        self.drop_rest();
        self.broken = true;
    }

    /// Gives memory back: all of it, or what few requests need.
    pub(super) fn trim(&mut self, all: bool) {
        if all || self.before.capacity() > KEEP {
            self.before = Vec::new();
            self.gone = 0;
        }
        self.trailers = LateFields::None;
    }

    /// Moves what can be moved. Ready when the request has gone, or cannot.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        progress: &Progress,
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
                    // From now on it is the server that is waited for.
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
            self.clear();
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

    /// Waits for the begin of the content, and has the head say that there is none if it turns out so (RFC 9110 §8.6).
    #[cold]
    fn poll_settle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(body) = &mut self.body {
            ready!(body.poll_begun(cx));
            if !self.begun && body.is_end_stream() && self.before.ends_with(encode::CODED) {
                self.before.truncate(self.before.len() - encode::CODED.len());
                self.before.extend_from_slice(encode::EMPTY);
                // Whoever has a copy of it learns of its end.
                let _ = body.poll_frame(cx);
                (self.body, self.framing, self.size) = (None, Framing::Length(0), Size::None);
            }
        }
        self.unsettled = false;
        Poll::Ready(())
    }

    /// Has the body lend its next piece, and writes it behind what goes before it. Content in chunks has its sizes
    /// between the pieces and goes the other way.
    fn poll_direct(&mut self, cx: &mut Context<'_>, link: &mut Link) -> Poll<Lent> {
        let Self {
            before,
            gone,
            data: None,
            after: [],
            body,
            framing: Framing::Length(left @ 1..),
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
            // More than was said is for whoever looks at frames to refuse.
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
            if self.framing == Framing::Length(0) {
                self.body = None;
            }
        }
        Poll::Ready(lent)
    }

    /// Asks the body for its next piece, if its time has come. Whether it has none yet.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        progress: &Progress,
    ) -> Result<bool, Box<dyn StdError + Send + Sync>> {
        if self.data.is_some() || !self.after.is_empty() {
            return Ok(false);
        }
        let Some(body) = &mut self.body else {
            // The head promised content, and there is none.
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

    /// The next piece of the content; with the last one its end goes along.
    fn piece(&mut self, data: Bytes, ends: bool) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let n = data.remaining() as u64;
        match &mut self.framing {
            Framing::Length(left) => {
                *left = left.checked_sub(n).ok_or(WRONG_LENGTH)?;
                if *left == 0 {
                    self.body = None;
                }
            }
            Framing::Chunked if n > 0 => {
                // Writing to a vector cannot fail.
                let _ = write!(self.before, "{n:X}\r\n");
                self.after = b"\r\n";
                if ends {
                    self.after = b"\r\n0\r\n\r\n";
                    self.body = None;
                }
            }
            Framing::Chunked => {}
        }
        if n > 0 {
            self.data = Some(data);
        }
        Ok(())
    }

    /// The content has ended.
    fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.body = None;
        if self.is_short() {
            return Err(WRONG_LENGTH.into());
        }
        if self.framing == Framing::Chunked {
            self.before.extend_from_slice(b"0\r\n");
            for (name, value) in trailers.into_iter().flat_map(Fields::iter) {
                if self.trailers.passes(name) {
                    encode::field(name, value, &mut self.before);
                }
            }
            self.before.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn is_short(&self) -> bool {
        matches!(self.framing, Framing::Length(1..))
    }

    fn is_written(&self) -> bool {
        self.gone == self.before.len() && self.data.is_none() && self.after.is_empty()
    }

    /// Makes room for what goes before the next piece, when all has gone. 100 requests whose responses take their time would
    /// hold the heads of all, which the client's side has as well.
    fn clear(&mut self) {
        if self.before.capacity() > KEEP_WRITTEN {
            self.before = Vec::new();
        }
        self.before.clear();
        self.gone = 0;
    }

    /// Writes once.
    fn poll_write(&mut self, cx: &mut Context<'_>, link: &mut Link) -> Poll<Result<(), Halt>> {
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
        // The call for one buffer is the cheaper one.
        let written = match &parts[..filled] {
            [only] => link.poll_write(cx, only),
            parts => link.poll_writev(cx, parts),
        };
        let n = ready!(written).map_err(Halt::Io)?;
        if n == 0 {
            return Poll::Ready(Err(Halt::Io(io::ErrorKind::WriteZero.into())));
        }
        self.begun = true;
        self.spend(n);
        self.advance(n);
        Poll::Ready(Ok(()))
    }

    /// A call has moved so many bytes.
    fn spend(&mut self, n: usize) {
        self.turn.spend(Work::Calls(1));
        self.turn.spend(Work::Bytes(n));
    }

    /// So many bytes have gone.
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

    fn drop_rest(&mut self) {
        self.gone = self.before.len();
        self.data = None;
        self.after = &[];
        self.body = None;
    }
}

const WRONG_LENGTH: &str = "it is not of the length that its head says";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_head_is_forgotten_when_it_has_gone_and_written_again_from_the_request() {
        for (length, kept) in [(10, true), (20_000, false)] {
            let mut request = head::Request::new();
            request.fields.append(b"cookie", &vec![b'x'; length]);
            let mut out = Outbound::<String>::idle();
            out.load(&request, String::new(), false);
            let written = out.before.clone();
            out.gone = out.before.len();
            out.clear();
            assert!(out.is_complete());
            assert_eq!(out.before.capacity() > 0, kept, "{length}");
            out.begun = true;
            let mut again = out.take_back(true).unwrap();
            again.load_again(&request);
            assert_eq!((again.before, again.gone), (written, 0));
        }
    }
}
