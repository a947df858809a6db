//! Long bodies go past the outbox: they are read from the server straight into the slots of a batch of records, as
//! in a relay, sealed there, and sent with one call.

use std::future::Future;
use std::task::{Context, Poll};

use offramp_http::head::Response;
use offramp_net::clock::coarse_ms;
use offramp_record::Layout;

use super::{Conversation, Turn, broken_off, lost};
use crate::l7::body::Reply;
use crate::l7::exchange::Request;
use crate::slots::{self, BATCH, SPANS, TAKEN, with_slots};

/// How much is read at first, and after a client has not taken all of what was read: so much it keeps waiting.
pub(super) const FIRST: usize = 64 * 1024;
/// By how much that grows when a read has filled it and the client has taken it.
const GROWTH: usize = 4;
/// The most that goes out with the first of it. The smallest batch, 64 records of 512 bytes, has room for more.
const AHEAD: usize = 16 * 1024;
const _: () = assert!(AHEAD < SPANS * 512);
/// How much goes this way before others have their turn.
pub(super) const TURN: usize = 8 * BATCH;
/// The most that goes this way at a time: more was no faster.
const MOST: usize = 2 * BATCH;

impl<S, F> Conversation<'_, S, F>
where
    S: Fn(Request) -> F,
    F: Future<Output = Response<Reply>>,
{
    /// How much of the body may go past the outbox now: nothing, where it has to be asked for piece by piece.
    pub(super) fn direct(&self) -> usize {
        if self.over || self.outbox.len() > AHEAD {
            return 0;
        }
        let most = self.framing.direct().min(self.reply.direct()).min(self.stride as u64);
        // It fits, as the last bound does.
        usize::try_from(most).unwrap_or_default()
    }

    /// Passes up to `most` bytes of the body on, behind what is in the outbox.
    pub(super) fn poll_direct(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Option<Turn>> {
        let session = self.session;
        let block = &mut *session.worker.scratch.borrow_mut().bytes;
        let ahead = self.outbox.len();
        // Full records, where there is enough for them.
        let total = (ahead + most).min(self.stride.max(ahead + 1));
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
        self.passed += n;
        self.over = !broken && self.reply.is_end_stream();
        self.outbox.clear();
        let filled = n == room;
        if let Err(turn) = self.send_batch(cx, &layout, block, ahead + n, filled && !self.over) {
            return Poll::Ready(Some(turn));
        }
        self.pace(n, filled);
        let whole = !broken && (!self.over || self.framing.end(None, &mut self.outbox).is_ok());
        Poll::Ready((!whole).then(broken_off))
    }

    /// How much goes next time, after `n` bytes that have `filled` their room.
    fn pace(&mut self, n: usize, filled: bool) {
        if !self.line.guard_state.drained.get() {
            (self.stride, self.taken) = (FIRST, 0);
            return;
        }
        self.taken = self.taken.saturating_add(n);
        let most = if self.taken >= TAKEN { MOST } else { BATCH };
        if filled {
            let most = slots::most(most, &self.session.worker.shared.pressure);
            self.stride = (self.stride * GROWTH).min(most);
        }
    }

    /// Waits for room, and lays out a batch in it.
    fn poll_lay_out(&self, cx: &mut Context<'_>, block: usize, most: usize) -> Poll<Result<Layout, Turn>> {
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
    ) -> Result<(), Turn> {
        let mut intake = self.line.intake.borrow_mut();
        let Some(stream) = intake.transport.tls() else { return Err(broken_off()) };
        let sent = stream.send_batch(cx, layout, block, filled, more);
        let guard_state = &self.line.guard_state;
        guard_state.moved.set(coarse_ms());
        guard_state.drained.set(stream.waiting() == 0);
        sent.map_err(|error| lost(&mut intake, error))
    }
}
