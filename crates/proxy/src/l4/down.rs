//! From the server to the client: plaintext is read straight into the slots of a batch of records,
//! sealed there, and leaves with one write.

use std::task::{Context, Poll};

use offramp_observe::counters::Direction;
use offramp_observe::{Cause, Close};
use offramp_record::{Alert, Layout, Pressure};

use super::{Progress, Relay, flush};
use crate::failure;
use crate::slots::{BATCH, SPANS, TAKEN, with_slots};
use crate::worker::Scratch;

/// By how much the room for the next read grows when a read has filled it.
const GROWTH: usize = 4;
/// A batch above this size leaves in several packets, of which the last may wait to be filled up.
const PACKETS: usize = 64 * 1024;

impl Relay {
    /// One step: send what waits, else read, seal and send.
    pub(super) fn poll_down(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<Progress, Close> {
        if !self.down.pending.is_empty() {
            let before = self.down.pending.len();
            let gone = match flush(&self.client, &mut self.down.pending, cx) {
                Ok(gone) => gone,
                Err(error) => return self.left(&error),
            };
            if self.down.pending.len() != before {
                self.moved_ms = offramp_net::clock::coarse_ms();
            }
            if !gone {
                return Ok(Progress::Blocked);
            }
            self.down.answering = false;
        }
        if self.down.ended {
            return Ok(self.end_down(cx, scratch));
        }
        if self.session.pressure() != Pressure::None {
            return self.relieve();
        }
        let now = offramp_net::clock::coarse_ms();
        let slot = self.down.pacing.slot(now);
        let most = self.down.expected.div_ceil(slot).clamp(1, SPANS);
        let block = super::bytes(scratch);
        let layout = self.session.sealer.layout(slot, block.len(), most);
        let room = layout.capacity();
        let most = if self.down.taken >= TAKEN { block.len() } else { BATCH };
        match with_slots(&layout, block, 0..room, |slots| self.server.poll_readv(cx, slots)) {
            Poll::Pending => {
                if std::mem::take(&mut self.down.kept_back) {
                    self.client.push();
                }
                Ok(Progress::Blocked)
            }
            // A reset was told to the write that failed; here it looks like an orderly end, which it
            // must not look like to the client.
            Poll::Ready(Ok(0)) if self.first_end == Some(Cause::ServerReset) => {
                Err(Cause::ServerReset.into())
            }
            Poll::Ready(Ok(0)) => {
                self.ended(Cause::ServerClosed);
                self.down.ended = true;
                Ok(Progress::Moved)
            }
            Poll::Ready(Ok(n)) => {
                self.moved_ms = now;
                self.down.pacing.sent(n, now);
                self.down.expected = if n == room { (n * GROWTH).min(most) } else { n };
                self.send(cx, &layout, block, n)
            }
            Poll::Ready(Err(error)) => Err(failure::server(&error)),
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
        let wire = self.session.sealer.seal(layout, block, filled);
        self.traffic.to_client += filled as u64;
        self.worker.counters.bytes_relayed(Direction::ServerToClient, filled as u64);
        let records = filled.div_ceil(layout.capacity() / layout.count());
        self.worker.counters.records(Direction::ServerToClient, records as u64);
        // What fills its room is followed by more, most of the time.
        let more = filled == layout.capacity() && wire > PACKETS;
        let sent = if more {
            self.client.poll_write_more(cx, &block[..wire])
        } else {
            self.client.poll_write(cx, &block[..wire])
        };
        self.down.kept_back = more;
        let written = match sent {
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(error)) => return self.left(&error),
            Poll::Pending => 0,
        };
        if written < wire {
            self.down.pending.extend_from_slice(&block[written..wire]);
            // A client that is slower than its server keeps less waiting next time.
            self.down.expected = 0;
            self.down.taken = 0;
        } else {
            self.down.taken = self.down.taken.saturating_add(filled);
        }
        Ok(Progress::Moved)
    }

    /// The sending key is nearly used up.
    fn relieve(&mut self) -> Result<Progress, Close> {
        if self.session.pressure() == Pressure::Close {
            self.tell(Alert::CLOSE_NOTIFY);
            return Err(Cause::SequenceLimit.into());
        }
        self.session
            .update_sending(&mut self.down.pending)
            .map_err(|error| Close::from(Cause::Internal).with_detail(&error.to_string()))?;
        self.worker.counters.key_update(Direction::ServerToClient);
        Ok(Progress::Moved)
    }

    /// The client takes no more. What it said before it left may still be on its way to the server, so
    /// only this direction is over: the other finds the end of the client's stream by itself.
    fn left(&mut self, error: &std::io::Error) -> Result<Progress, Close> {
        if self.up.shut {
            return Err(failure::client(error));
        }
        self.down.left = Some(error.kind());
        self.down.ended = true;
        self.down.notified = true;
        self.down.pending = Vec::new();
        Ok(Progress::Moved)
    }

    /// Drops what the server still says, so that it is not kept from listening.
    fn drop_down(&self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Progress {
        match self.server.poll_read(cx, super::bytes(scratch)) {
            Poll::Ready(Ok(1..)) => Progress::Moved,
            Poll::Ready(_) | Poll::Pending => Progress::Done,
        }
    }

    fn end_down(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Progress {
        if self.down.left.is_some() {
            return self.drop_down(cx, scratch);
        }
        if !self.down.notified {
            self.down.notified = true;
            self.session.alert(Alert::CLOSE_NOTIFY, &mut self.down.pending);
            return Progress::Moved;
        }
        if !self.down.shut {
            self.down.shut = true;
            // Where the client's direction is over too, the close that follows says the same.
            if !self.up.shut {
                // One that is gone already needs not be told.
                let _ = self.client.shutdown_write();
            }
        }
        Progress::Done
    }
}
