//! Long bodies go past the outbox: they are read from the server straight into the slots of a batch of records, as
//! in a relay, sealed there, and sent with one call.

use std::future::Future;
use std::task::{Context, Poll};

use offramp_http::head::Response;
use offramp_net::clock::coarse_ms;
use offramp_record::Layout;

use super::{Conversation, ServeEnd, broken_off, lost};
use crate::l7::body::Reply;
use crate::l7::exchange::IncomingRequest;
use crate::pressure::Pressure;
use crate::slots::{self, BATCH, SPANS, TAKEN, with_slots};

/// Bytes that are read at first, and after a client has not taken all of what was read: it keeps at most so many
/// waiting.
const FIRST: usize = 64 * 1024;
/// By how much that grows when a read has filled it and the client has taken it.
const GROWTH: usize = 4;
/// The most that goes out with the first of it. The smallest batch, 64 records of 512 bytes, has room for more.
const AHEAD: usize = 16 * 1024;
const _: () = assert!(AHEAD < SPANS * 512);
/// Bytes that go this way before others have their turn.
const TURN: usize = 8 * BATCH;
/// The most that goes this way at a time: more was no faster.
const MOST: usize = 2 * BATCH;

/// Amounts that go past the outbox, in bytes.
pub(super) struct DirectPace {
    /// Most that goes at a time; 0 where nothing can.
    stride: usize,
    /// Amount since the turn began.
    passed: usize,
    /// Amount since the client last had to be waited for.
    taken: usize,
}

impl DirectPace {
    /// Only records of TLS are laid out in advance.
    pub(super) fn new(is_tls: bool) -> Self {
        Self { stride: if is_tls { FIRST } else { 0 }, passed: 0, taken: 0 }
    }

    pub(super) fn begin_turn(&mut self) {
        self.passed = 0;
    }

    /// Lets others have their turn after this step.
    pub(super) fn end_turn(&mut self) {
        self.passed = TURN;
    }

    /// Returns true once others are to have their turn.
    pub(super) fn is_over(&self) -> bool {
        self.passed >= TURN
    }

    /// The client could not take all of it.
    fn restart(&mut self) {
        (self.stride, self.taken) = (FIRST, 0);
    }

    /// The client has taken all of `n` bytes, which have `filled` their room.
    fn grow(&mut self, n: usize, filled: bool, pressure: &Pressure) {
        self.taken = self.taken.saturating_add(n);
        let most = if self.taken >= TAKEN { MOST } else { BATCH };
        if filled {
            self.stride = (self.stride * GROWTH).min(slots::most(most, pressure));
        }
    }
}

impl<S, F> Conversation<'_, S, F>
where
    S: Fn(IncomingRequest) -> F,
    F: Future<Output = Response<Reply>>,
{
    /// Bytes of the body that may go past the outbox now: none, if it has to be asked for piece by piece.
    pub(super) fn direct(&self) -> usize {
        if self.over || self.outbox.len() > AHEAD {
            return 0;
        }
        let most = self.framing.direct().min(self.reply.direct()).min(self.pace.stride as u64);
        // It fits, as the last bound does.
        usize::try_from(most).unwrap_or_default()
    }

    /// Passes up to `most` bytes of the body on, behind what is in the outbox.
    pub(super) fn poll_direct(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Option<ServeEnd>> {
        let session = self.session;
        let block = &mut *session.worker.scratch.borrow_mut().bytes;
        let ahead = self.outbox.len();
        // Full records, where there is enough for them.
        let total = (ahead + most).min(self.pace.stride.max(ahead + 1));
        let layout = match self.poll_lay_out(cx, block.len(), total) {
            Poll::Ready(Ok(layout)) => layout,
            Poll::Ready(Err(turn)) => return Poll::Ready(Some(turn)),
            Poll::Pending => return self.watch(cx),
        };
        let room = total.min(layout.capacity()) - ahead;
        layout.fill(block, self.outbox.parts());
        // Nothing is borrowed of the line while the server's is polled.
        let read = with_slots(&layout, block, ahead..ahead + room, |slots| self.reply.poll_into(cx, slots));
        let (n, broken) = match read {
            Poll::Ready(Ok(n)) => (n, false),
            Poll::Ready(Err(_)) if ahead == 0 => return Poll::Ready(Some(broken_off())),
            Poll::Ready(Err(_)) => (0, true),
            Poll::Pending if ahead == 0 => {
                if let Some(stream) = self.line.intake.borrow_mut().transport.tls() {
                    stream.push();
                }
                return self.watch(cx);
            }
            Poll::Pending => (0, false),
        };
        self.framing.passed(n);
        self.pace.passed += n;
        self.over = !broken && self.reply.is_end_stream();
        self.outbox.clear();
        let filled = n == room;
        if let Err(turn) = self.send_batch(cx, &layout, block, ahead + n, filled && !self.over) {
            return Poll::Ready(Some(turn));
        }
        if self.line.guard_state.drained.get() {
            self.pace.grow(n, filled, &session.worker.shared.pressure);
        } else {
            self.pace.restart();
        }
        let whole = !broken && (!self.over || self.framing.end(None, &mut self.outbox).is_ok());
        Poll::Ready((!whole).then(broken_off))
    }

    /// Waits for room, and lays out a batch in it.
    fn poll_lay_out(
        &self,
        cx: &mut Context<'_>,
        block: usize,
        most: usize,
    ) -> Poll<Result<Layout, ServeEnd>> {
        let mut intake = self.line.intake.borrow_mut();
        let Some(stream) = intake.transport.tls() else { return Poll::Ready(Err(broken_off())) };
        let layout = stream.poll_lay_out(cx, block, most);
        self.line.guard_state.drained.set(layout.is_ready());
        layout.map(|layout| layout.map_err(|error| lost(&mut intake, error)))
    }

    /// Seals and sends what lies in the slots.
    fn send_batch(
        &self,
        cx: &mut Context<'_>,
        layout: &Layout,
        block: &mut [u8],
        filled: usize,
        more: bool,
    ) -> Result<(), ServeEnd> {
        let mut intake = self.line.intake.borrow_mut();
        let Some(stream) = intake.transport.tls() else { return Err(broken_off()) };
        let sent = stream.send_batch(cx, layout, block, filled, more);
        let guard_state = &self.line.guard_state;
        guard_state.moved.set(coarse_ms());
        guard_state.drained.set(stream.waiting() == 0);
        sent.map_err(|error| lost(&mut intake, error))
    }
}
