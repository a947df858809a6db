//! From the server to the client: plaintext is read straight into the slots of a batch of records,
//! sealed there, and leaves with one write.

use std::io::ErrorKind;
use std::task::{Context, Poll};

use offramp_net::turn::{Turn, Work};
use offramp_observe::counters::Direction;
use offramp_observe::{Cause, Close};
use offramp_record::{Alert, KeyDemand, Layout};
use offramp_tls::FilledBatch;

use super::{DownEnd, Progress, TlsRelay};
use crate::failure;
use crate::slots::Scratch;
use crate::slots::{self, BATCH, SPANS, TAKEN, with_slots};

/// By how much the room for the next read grows when a read has filled it.
const GROWTH: usize = 4;

impl TlsRelay {
    /// One step: send what waits, else read, seal and send.
    pub(super) fn poll_down(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        turn: &mut Turn,
    ) -> Result<Progress, Close> {
        let before = self.down.sending.waiting();
        if before > 0
            && let Some(outcome) = self.flush_down(cx, before, turn)
        {
            return outcome;
        }
        if self.down.end != DownEnd::Open {
            return Ok(self.end_down(cx, scratch, turn));
        }
        if self.session.pressure() != KeyDemand::None {
            return self.relieve();
        }
        let now = offramp_net::clock::coarse_ms();
        let slot = self.down.sending.slot();
        let most = self.down.expected.div_ceil(slot).clamp(1, SPANS);
        let block = super::bytes(scratch);
        let layout = self.session.sealer.layout(slot, block.len(), most);
        let room = layout.capacity();
        let most = if self.down.taken >= TAKEN { block.len() } else { BATCH };
        match with_slots(&layout, block, 0..room, |slots| self.server.poll_readv(cx, slots)) {
            Poll::Pending => Ok(self.hold_down(cx)),
            // The write that failed got the reset; here it looks like an orderly end, which it must not look like
            // to the client.
            Poll::Ready(Ok(0)) if self.up.end.refusal() == Some(ErrorKind::ConnectionReset) => {
                Err(Cause::ServerReset.into())
            }
            Poll::Ready(Ok(0)) => {
                self.ended(Cause::ServerClosed);
                self.down.end = DownEnd::Ended;
                Ok(Progress::Moved)
            }
            Poll::Ready(Ok(n)) => {
                self.moved_ms = now;
                let most = || slots::most(most, &self.worker.shared.pressure);
                self.down.expected = if n == room { (n * GROWTH).min(most()) } else { n };
                turn.spend(Work::Calls(1));
                turn.spend(Work::Bytes(n));
                turn.spend(Work::Pieces(n.div_ceil(slot)));
                self.send(cx, &layout, block, n)
            }
            Poll::Ready(Err(error)) => Err(failure::server(&error)),
        }
    }

    /// Sends the `before` bytes that wait. Gives the outcome of the step where they have not all left.
    fn flush_down(
        &mut self,
        cx: &mut Context<'_>,
        before: usize,
        turn: &mut Turn,
    ) -> Option<Result<Progress, Close>> {
        let flushed = match self.down.sending.poll_flush(&self.client, cx) {
            Poll::Ready(Err(error)) => return Some(self.left(&error)),
            flushed => flushed,
        };
        let after = self.down.sending.waiting();
        turn.spend(Work::Bytes(before - after));
        if after != before {
            self.moved_ms = offramp_net::clock::coarse_ms();
        }
        flushed.is_pending().then_some(Ok(Progress::Blocked))
    }

    /// Waits for the server.
    fn hold_down(&mut self, cx: &mut Context<'_>) -> Progress {
        self.down.sending.push(&self.client);
        match self.down.sending.poll_hold(cx) {
            Poll::Ready(()) => Progress::Moved,
            Poll::Pending => {
                // Nothing waits for a client on a Unix socket: when it reads, that is no news.
                self.client.pause_writing();
                Progress::Blocked
            }
        }
    }

    /// Seals `filled` bytes of the slots and sends them; what the client does not take is kept.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        layout: &Layout,
        block: &mut [u8],
        filled: usize,
    ) -> Result<Progress, Close> {
        self.traffic.to_client += filled as u64;
        self.worker.counters.bytes_relayed(Direction::ServerToClient, filled as u64);
        let records = filled.div_ceil(layout.capacity() / layout.count());
        self.worker.counters.records(Direction::ServerToClient, records as u64);
        // What fills its room is followed by more, most of the time.
        let more = filled == layout.capacity();
        let batch = FilledBatch { layout, block, filled, more };
        match self.down.sending.send(&mut self.session, &self.client, cx, batch) {
            Ok(0) => self.down.taken = self.down.taken.saturating_add(filled),
            // A client that is slower than its server keeps less waiting next time.
            Ok(_) => {
                self.down.expected = 0;
                self.down.taken = 0;
            }
            Err(error) => return self.left(&error),
        }
        Ok(Progress::Moved)
    }

    /// The sending key is nearly used up.
    fn relieve(&mut self) -> Result<Progress, Close> {
        if self.session.pressure() == KeyDemand::Close {
            self.tell(Alert::CLOSE_NOTIFY);
            return Err(Cause::SequenceLimit.into());
        }
        self.down
            .sending
            .update(&mut self.session)
            .map_err(|error| Close::from(Cause::Internal).with_detail(&error.to_string()))?;
        self.worker.counters.key_update(Direction::ServerToClient);
        Ok(Progress::Moved)
    }

    /// The client takes no more. What it said before it left may still be on its way to the server, so
    /// only this direction is over: the other finds the end of the client's stream by itself.
    fn left(&mut self, error: &std::io::Error) -> Result<Progress, Close> {
        if self.up.end.is_shut() || failure::is_ours(error) {
            return Err(failure::client(error));
        }
        self.down.end = DownEnd::Left(error.kind());
        self.down.sending.clear();
        Ok(Progress::Moved)
    }

    /// Drops what the server still says, so that it is not kept from listening.
    fn drop_down(&self, cx: &mut Context<'_>, scratch: &mut Scratch, turn: &mut Turn) -> Progress {
        match self.server.poll_read(cx, super::bytes(scratch)) {
            Poll::Ready(Ok(n @ 1..)) => {
                turn.spend(Work::Bytes(n));
                Progress::Moved
            }
            Poll::Ready(_) | Poll::Pending => Progress::Done,
        }
    }

    fn end_down(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch, turn: &mut Turn) -> Progress {
        match self.down.end {
            DownEnd::Left(_) => self.drop_down(cx, scratch, turn),
            DownEnd::Open | DownEnd::Ended => {
                self.down.end = DownEnd::Notified;
                self.down.sending.alert(&mut self.session, Alert::CLOSE_NOTIFY);
                Progress::Moved
            }
            DownEnd::Notified => {
                self.down.end = DownEnd::Shut;
                // Where the client's direction is over too, the close that follows says the same.
                if !self.up.end.is_shut() {
                    // It may be gone already.
                    let _ = self.client.shutdown_write();
                }
                Progress::Done
            }
            DownEnd::Shut => Progress::Done,
        }
    }
}
