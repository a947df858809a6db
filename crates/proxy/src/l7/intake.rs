//! The client's direction of an HTTP/1 connection, behind a guard.
//!
//! The guard looks at every byte before it is read. Heads are taken out whole, content as far as it has passed.
//! Bytes stay where they arrived; only what the guard needs in one piece and did not get in one piece is put
//! together. Of what the guard refuses nothing is given out, and nothing behind it.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use offramp_http::Http1Fault;
use offramp_http::h1::{Chunk, Guard, GuardOutcome, HeadLimits, Http1Version, Phase, RequestHead};
use offramp_http::head;
use offramp_net::Buffer;
use offramp_net::clock::coarse_ms;
use offramp_net::turn::{Turn, Work};
use offramp_upstream::{Lent, MOST_PARTS, PieceWriter};

use super::content::{Chunked, UploadError};
use super::heads::Heads;
use super::transport::Transport;

/// The most content that is given out at a time.
const PIECE: usize = 64 * 1024;
/// From this size on a piece is one of many, and what comes with it is put together with it.
const BULK: usize = 8 * 1024;
/// Bytes of unwanted content that are dropped, so that the connection can go on. What lies there already is rarely
/// more; a client that sends more gets the end of the connection.
const UNWANTED: usize = 64 * 1024;

/// State that the guard and the requests behind it share.
pub(crate) struct GuardState {
    guard: RefCell<Guard>,
    limits: HeadLimits,
    /// Begin of the head that is coming, in milliseconds of the coarse clock; 0 while none is.
    pub(crate) head_since: Cell<u64>,
    /// Begin of the latest head that has passed, if it did not come at once; else 0.
    pub(crate) began: Cell<u64>,
    /// The last request that passed.
    pub(crate) last: Cell<HeadFlags>,
    /// Time when a byte was last read or written, in milliseconds of the coarse clock.
    pub(crate) moved: Cell<u64>,
    /// Set while the kernel has all that was written.
    pub(crate) drained: Cell<bool>,
    /// Set once a request in progress has reported the refusal.
    pub(crate) reported: Cell<bool>,
    /// Reason for which nothing more is read.
    pub(crate) stopped: Cell<ReadStop>,
}

/// Properties of a request's head that are remembered.
#[derive(Clone, Copy, Default)]
pub(crate) struct HeadFlags {
    /// Set if another protocol was asked for.
    pub(crate) switches: bool,
    /// Set if the client waits for `100 Continue`.
    pub(crate) expects: bool,
    /// Set for HTTP/1.0, which knows no interim responses.
    pub(crate) http10: bool,
}

/// Reason for which nothing more is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadStop {
    /// More may be read.
    #[default]
    Not,
    /// The guard refused what came.
    Refused(Http1Fault),
    /// The client began with HTTP/2.
    Http2,
}

impl GuardState {
    pub(crate) fn new(limits: HeadLimits) -> Rc<Self> {
        Rc::new(Self {
            guard: RefCell::new(Guard::new(limits)),
            limits,
            head_since: Cell::new(0),
            began: Cell::new(0),
            last: Cell::default(),
            moved: Cell::new(coarse_ms()),
            drained: Cell::new(true),
            reported: Cell::new(false),
            stopped: Cell::default(),
        })
    }

    /// Phase of the connection.
    pub(crate) fn phase(&self) -> Phase {
        self.guard.borrow().phase()
    }

    /// The answer to a request for another protocol was an ordinary one.
    pub(crate) fn stayed(&self) {
        self.guard.borrow_mut().stayed();
    }

    /// Records that the protocol changes.
    pub(crate) fn switched(&self) {
        self.guard.borrow_mut().switched();
    }

    fn note(&self, head: &RequestHead) {
        self.began.set(self.head_since.replace(0));
        self.last.set(HeadFlags {
            switches: head.switches,
            expects: head.expects_continue,
            http10: head.version == Http1Version::Http10,
        });
    }

    /// Has the guard look at `bytes`, all of which have come and not passed, for a head: the head, taken in, and its
    /// length, or nothing, where there is more to come or a reason to stop.
    fn head(&self, bytes: &[u8], heads: &Heads) -> Option<(RequestHead, Box<head::Request>, usize)> {
        let mut guard = self.guard.borrow_mut();
        let inspected = guard.inspect(bytes);
        match inspected.outcome {
            GuardOutcome::Head(head) => {
                self.note(&head);
                let mut request = heads.take();
                match request.load(&head, &guard, &bytes[..inspected.pass]) {
                    Ok(()) => return Some((head, request, inspected.pass)),
                    // A method that the guard takes for one is one.
                    Err(fault) => self.stopped.set(ReadStop::Refused(fault)),
                }
            }
            GuardOutcome::Http2 => self.stopped.set(ReadStop::Http2),
            GuardOutcome::Refused(fault) => self.stopped.set(ReadStop::Refused(fault)),
            GuardOutcome::Wait | GuardOutcome::End | GuardOutcome::Over => {}
        }
        if guard.phase() == Phase::Head && self.head_since.get() == 0 {
            self.head_since.set(coarse_ms().max(1));
        }
        None
    }

    /// The same for content: how many of `bytes` have passed.
    fn content(&self, bytes: &[u8]) -> usize {
        let inspected = self.guard.borrow_mut().inspect(bytes);
        if let GuardOutcome::Refused(fault) = inspected.outcome {
            self.stopped.set(ReadStop::Refused(fault));
        }
        inspected.pass
    }
}

/// The next item on a connection.
pub(crate) enum Heading {
    /// A request: what the guard says of its head, and the head itself.
    Request(RequestHead, Box<head::Request>),
    /// The end of the client's direction; [`RequestReader::failed`] says whether in order.
    End,
    /// Nothing, for the reason that [`GuardState::stopped`] gives.
    Stopped,
}

/// The client's connection and what has arrived on it.
pub(crate) struct RequestReader {
    pub(crate) transport: Transport,
    guard_state: Rc<GuardState>,
    /// Bytes that were not given out yet, where the guard needs them in one piece; what the transport has
    /// comes behind them.
    held: Buffer,
    /// The guard has looked at all of `held` and needs more.
    seen: bool,
    /// The bytes of content at the front that have passed the guard, in one record or several.
    passing: usize,
    /// The error of the client's direction.
    pub(crate) failed: Option<io::Error>,
    /// It has ended in order.
    pub(crate) ended: bool,
    /// The way in which the connection is to end.
    pub(crate) ending: Ending,
    /// The memory for heads.
    heads: Rc<Heads>,
    /// Work since others had their turn.
    turn: Turn,
}

/// The way in which a connection ends, in the middle of something or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// In order, with close_notify.
    Orderly,
    /// Without close_notify: within TLS that tells a cut from an end.
    Unsaid,
    /// By a reset: the end of the connection would be that of a response, and many clients do not look for close_notify.
    Reset,
}

impl RequestReader {
    pub(crate) fn new(transport: Transport, guard_state: Rc<GuardState>, heads: Rc<Heads>) -> Self {
        let (held, turn) = (Buffer::default(), Turn::default());
        Self {
            transport,
            guard_state,
            held,
            seen: false,
            passing: 0,
            failed: None,
            ended: false,
            ending: Ending::Orderly,
            heads,
            turn,
        }
    }

    /// Gives back what is kept for the next requests.
    pub(crate) fn rest(&mut self) {
        self.transport.keep_buffer(false);
        self.guard_state.guard.borrow_mut().rest();
    }

    /// The bytes that the guard has not let pass.
    pub(crate) fn take_held(&mut self) -> Vec<u8> {
        let held = self.held.filled().to_vec();
        self.held.free();
        held
    }

    /// All of the last request was given out.
    pub(crate) fn is_between(&self) -> bool {
        self.passing == 0 && self.guard_state.phase() != Phase::Body
    }

    /// Waits for the next head.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Heading> {
        loop {
            if self.guard_state.stopped.get() != ReadStop::Not {
                return Poll::Ready(Heading::Stopped);
            }
            if self.needs_more() {
                ready!(self.turn.poll_rest(cx));
                if !ready!(self.poll_more(cx)) {
                    return Poll::Ready(Heading::End);
                }
                let alone = self.held.is_empty();
                if alone
                    && let Poll::Ready(Ok(bytes)) = self.transport.poll_fill(cx)
                    && let Some((head, request, length)) = self.guard_state.head(bytes, &self.heads)
                {
                    self.transport.consume(length);
                    return Poll::Ready(Heading::Request(head, request));
                }
                self.hold(cx, alone);
                continue;
            }
            self.seen = true;
            if let Some((head, request, length)) = self.guard_state.head(self.held.filled(), &self.heads) {
                self.consume_held(length);
                return Poll::Ready(Heading::Request(head, request));
            }
        }
    }

    /// Waits for content of a message with a length; nothing at its end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UploadError>> {
        if ready!(self.poll_passed(cx))? == 0 {
            return Poll::Ready(Ok(None));
        }
        let more = self.guard_state.phase() == Phase::Body;
        let front = self.front(cx)?;
        if !more || !(BULK..PIECE).contains(&front.len()) {
            let piece = Bytes::copy_from_slice(&front[..front.len().min(PIECE)]);
            self.take(piece.len());
            return Poll::Ready(Ok(Some(piece)));
        }
        let mut piece = BytesMut::with_capacity(PIECE);
        loop {
            let front = self.front(cx)?;
            let n = front.len().min(PIECE - piece.len());
            piece.extend_from_slice(&front[..n]);
            self.take(n);
            // What goes wrong now is said the next time.
            if piece.len() == PIECE || !matches!(self.poll_passed(cx), Poll::Ready(Ok(1..))) {
                return Poll::Ready(Ok(Some(piece.freeze())));
            }
        }
    }

    /// Lends content of a message with a length to `write`, where it lies, and uses up what that takes; nothing at its
    /// end. All that has come goes at once, but for bytes of a plain socket that are better put together with more: a
    /// call for each read would cost more than the copy.
    pub(crate) fn poll_lend(&mut self, cx: &mut Context<'_>, write: &mut PieceWriter<'_>) -> Poll<Lent> {
        // A fault is reported with the next piece that is asked for.
        let Ok(1..) = ready!(self.poll_passed(cx)) else { return Poll::Ready(Lent::Nothing) };
        let tls = self.transport.is_tls();
        let mut parts = [&[][..]; MOST_PARTS];
        let (mut count, mut all) = (0, 0);
        if self.held.is_empty() {
            let arrived = match self.transport.arrived(cx, MOST_PARTS) {
                Ok(arrived) => arrived,
                Err(error) => {
                    self.failed = Some(error);
                    return Poll::Ready(Lent::Nothing);
                }
            };
            for (place, part) in parts.iter_mut().zip(arrived) {
                if self.passing == all {
                    if self.guard_state.phase() != Phase::Body {
                        break;
                    }
                    self.passing += self.guard_state.content(part);
                }
                *place = &part[..part.len().min(self.passing - all)];
                (count, all) = (count + 1, all + place.len());
            }
        } else {
            parts[0] = self.held.filled().get(..self.passing).unwrap_or_default();
            (count, all) = (1, parts[0].len());
        }
        let more = self.guard_state.phase() == Phase::Body;
        if all == 0 || more && !tls && (BULK..PIECE).contains(&all) {
            return Poll::Ready(Lent::Nothing);
        }
        Poll::Ready(match write(cx, &parts[..count]) {
            Poll::Ready(Ok(n)) => {
                self.take(n);
                Lent::Taken(n)
            }
            Poll::Ready(Err(error)) => Lent::Lost(error),
            Poll::Pending => Lent::Full,
        })
    }

    /// The same for a message in chunks, of which as many are put together as have come.
    pub(crate) fn poll_chunks(
        &mut self,
        cx: &mut Context<'_>,
        message: &mut Chunked,
    ) -> Poll<Result<Option<Bytes>, UploadError>> {
        let mut piece = BytesMut::new();
        while message.end.is_none() && piece.len() < PIECE {
            match self.poll_passed(cx) {
                Poll::Ready(Ok(1..)) => {}
                _ if !piece.is_empty() => break,
                Poll::Ready(Ok(_)) => return Poll::Ready(Ok(None)),
                Poll::Ready(Err(broken)) => return Poll::Ready(Err(broken)),
                Poll::Pending => return Poll::Pending,
            }
            if self.turn.poll_rest(cx).is_pending() {
                if piece.is_empty() {
                    return Poll::Pending;
                }
                break;
            }
            let limits = self.guard_state.limits;
            let front = self.front(cx)?;
            match message.chunks.next(front, &limits) {
                Ok(Chunk::Data(range)) => {
                    if piece.is_empty() {
                        piece.reserve(front.len().min(PIECE));
                    }
                    piece.extend_from_slice(&front[range.clone()]);
                    self.take(range.end);
                    self.turn.spend(Work::Pieces(1));
                }
                Ok(Chunk::End { trailers, length }) => {
                    message.finish(&front[trailers]);
                    self.take(length);
                }
                // Lines pass the guard whole, so there is something to be used up.
                Ok(Chunk::Wait(0)) => return Poll::Ready(Err(UploadError::Unreadable)),
                Ok(Chunk::Wait(n)) => self.take(n),
                Err(fault) => {
                    self.guard_state.stopped.set(ReadStop::Refused(fault));
                    return Poll::Ready(Err(UploadError::Refused(fault)));
                }
            }
        }
        Poll::Ready(Ok((!piece.is_empty()).then(|| piece.freeze())))
    }

    /// Drops unwanted content that has come. Returns true if that was all of it. So many records or chunks that
    /// they outlast a turn are not waited for, like so many bytes.
    pub(crate) fn forget_content(&mut self, cx: &mut Context<'_>) -> bool {
        let mut left = UNWANTED;
        // The end of the turn so far is not that nothing has come.
        if self.turn.is_over() {
            self.turn = Turn::default();
        }
        loop {
            let Poll::Ready(Ok(n)) = self.poll_passed(cx) else { return false };
            if n == 0 {
                return true;
            }
            if n > left {
                return false;
            }
            left -= n;
            self.take(n);
        }
    }

    /// Waits for the end of the client's direction while nothing is expected from it. Bytes that come are left
    /// where they lie; as long as they do, the end cannot be seen.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.held.is_empty() {
            return Poll::Pending;
        }
        match ready!(self.transport.poll_fill(cx)) {
            Ok([]) => self.ended = true,
            Ok(_) => return Poll::Pending,
            Err(error) => self.failed = Some(error),
        }
        Poll::Ready(())
    }

    /// Returns true if the guard has looked at all that is there.
    fn needs_more(&self) -> bool {
        self.seen || self.held.is_empty()
    }

    /// Waits for bytes of the transport. Not so at the end, which is noted.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match ready!(self.transport.poll_fill(cx)) {
            Ok([]) if self.held.is_empty() => self.ended = true,
            Ok([]) => self.failed = Some(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.guard_state.moved.set(coarse_ms());
                self.turn.spend(Work::Pieces(1));
                self.turn.spend(Work::Bytes(bytes.len()));
                return Poll::Ready(true);
            }
            Err(error) => self.failed = Some(error),
        }
        Poll::Ready(false)
    }

    /// Puts what the transport has behind what is held; `seen`: the guard knows it.
    fn hold(&mut self, cx: &mut Context<'_>, seen: bool) {
        // What was lent a moment ago is still there.
        if let Poll::Ready(Ok(bytes)) = self.transport.poll_fill(cx) {
            self.held.extend(bytes);
            let n = bytes.len();
            self.transport.consume(n);
        }
        self.seen = seen;
    }

    /// Waits until content has passed the guard, and says how much; 0 at its end.
    fn poll_passed(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, UploadError>> {
        loop {
            if self.passing > 0 {
                return Poll::Ready(Ok(self.passing));
            }
            if let ReadStop::Refused(fault) = self.guard_state.stopped.get() {
                return Poll::Ready(Err(UploadError::Refused(fault)));
            }
            if self.guard_state.phase() != Phase::Body {
                return Poll::Ready(Ok(0));
            }
            if self.ended || self.failed.is_some() {
                return Poll::Ready(Err(UploadError::Gone));
            }
            if self.needs_more() {
                ready!(self.turn.poll_rest(cx));
                if !ready!(self.poll_more(cx)) {
                    continue;
                }
                let alone = self.held.is_empty();
                if alone && let Poll::Ready(Ok(bytes)) = self.transport.poll_fill(cx) {
                    self.passing = self.guard_state.content(bytes);
                }
                if self.passing == 0 {
                    self.hold(cx, alone);
                }
                continue;
            }
            self.seen = true;
            self.passing = self.guard_state.content(self.held.filled());
        }
    }

    /// The content that has passed; not empty.
    fn front(&mut self, cx: &mut Context<'_>) -> Result<&[u8], UploadError> {
        let bytes = if self.held.is_empty() {
            // What was lent a moment ago is still there.
            let Poll::Ready(Ok(bytes)) = self.transport.poll_fill(cx) else {
                return Err(UploadError::Unreadable);
            };
            bytes
        } else {
            self.held.filled()
        };
        // Of records that have passed together, this is the first.
        Some(&bytes[..self.passing.min(bytes.len())])
            .filter(|front| !front.is_empty())
            .ok_or(UploadError::Unreadable)
    }

    /// Uses up the first `n` bytes of the content that has passed.
    fn take(&mut self, n: usize) {
        self.passing -= n;
        if self.held.is_empty() {
            self.transport.consume(n);
        } else {
            self.consume_held(n);
        }
    }

    fn consume_held(&mut self, n: usize) {
        self.held.consume(n);
        self.seen = false;
        if self.held.is_empty() {
            self.held.free();
        }
    }
}

#[cfg(test)]
mod tests;
