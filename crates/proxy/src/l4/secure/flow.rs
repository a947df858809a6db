//! One direction of a relay to a server that speaks TLS.

use std::io;
use std::ops::Range;
use std::task::{Context, Poll};

use offramp_net::turn::{Turn, Work};
use offramp_observe::counters::Direction;
use offramp_observe::{Cause, Close};
use offramp_record::{Alert, KeyDemand, PlaintextSpan, RecordEvent};
use offramp_tls::{FilledBatch, ReceiveAction, TlsClosure};

use super::{Progress, Secure, Side, TlsSide};
use crate::failure;
use crate::l4::opened::{Rest, note_key_update, write_or_keep};
use crate::slots::Scratch;
use crate::slots::{self, BATCH, BLOCK, SPANS, with_slots};

/// By how much the room for the next read grows when a read has filled it.
const GROWTH: usize = 4;

/// The state of a direction.
#[derive(Default)]
pub(super) struct SecureFlow {
    pub(super) end: FlowEnd,
    /// Bytes of plaintext that were moved.
    pub(super) moved: u64,
    /// The sender closed without close_notify.
    pub(super) cut: bool,
    /// Bytes for which the next read of plaintext makes room.
    expected: usize,
}

/// The end of a direction, in the order of its steps.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FlowEnd {
    #[default]
    Open,
    /// The sender has finished; the receiver does not know yet.
    Ended,
    /// close_notify was sealed, and may wait for the receiver.
    Notified,
    /// The receiver's socket was shut.
    Shut,
    /// The receiver takes no more, in this way, though the sender may have more to say.
    Refused(io::ErrorKind),
}

impl FlowEnd {
    /// The error of a receiver that takes no more.
    pub(super) fn refusal(self) -> Option<io::ErrorKind> {
        match self {
            Self::Refused(how) => Some(how),
            _ => None,
        }
    }
}

impl SecureFlow {
    /// Nothing more is read from the sender to be passed on.
    pub(super) fn is_over(&self) -> bool {
        self.end != FlowEnd::Open
    }

    /// Nothing more may be sealed for the receiver (RFC 8446 §6.1).
    pub(super) fn is_silent(&self) -> bool {
        !matches!(self.end, FlowEnd::Open | FlowEnd::Ended)
    }
}

/// Both sides of a direction, and its state.
struct FlowDirection<'r> {
    direction: Direction,
    from: &'r mut Side,
    to: &'r mut Side,
    flow: &'r mut SecureFlow,
    /// Nothing more may be sealed for the sender.
    mute: bool,
    /// A write has found the sender reset: the end of its stream is no orderly end then.
    reset: bool,
    first_end: &'r mut Option<Cause>,
    moved_ms: &'r mut u64,
    counters: &'r offramp_observe::WorkerCounters,
    pressure: &'r crate::pressure::Pressure,
}

impl Secure {
    /// One step: send what waits, else open what is kept, else read.
    pub(super) fn step(
        &mut self,
        direction: Direction,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        turn: &mut Turn,
    ) -> Result<Progress, Close> {
        let (from, to, flow, back) = match direction {
            Direction::ClientToServer => (&mut self.client, &mut self.server, &mut self.up, &self.down),
            Direction::ServerToClient => (&mut self.server, &mut self.client, &mut self.down, &self.up),
        };
        let mut way = FlowDirection {
            direction,
            from,
            to,
            flow,
            mute: back.is_silent(),
            reset: back.end.refusal() == Some(io::ErrorKind::ConnectionReset),
            first_end: &mut self.first_end,
            moved_ms: &mut self.moved_ms,
            counters: &self.worker.counters,
            pressure: &self.worker.shared.pressure,
        };
        way.step(cx, scratch, turn)
    }
}

impl FlowDirection<'_> {
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        turn: &mut Turn,
    ) -> Result<Progress, Close> {
        let before = self.to.waiting();
        if before > 0
            && let Some(outcome) = self.flush(cx, before, turn)
        {
            return outcome;
        }
        let relieved = self.relieve()?;
        if relieved {
            return Ok(Progress::Moved);
        }
        let Scratch { bytes, spans } = scratch;
        let Some(tls) = &mut self.from.tls else {
            return match self.flow.end {
                FlowEnd::Open => self.seal(cx, bytes, turn),
                _ => Ok(self.end(cx, bytes, turn)),
            };
        };
        if tls.unopened && self.flow.end == FlowEnd::Open {
            let mut sealed = std::mem::take(&mut tls.sealed);
            let rest = self.open(cx, &mut sealed, spans, turn)?;
            self.keep(&sealed, rest);
            return Ok(Progress::Moved);
        }
        if self.flow.is_over() {
            return Ok(self.end(cx, bytes, turn));
        }
        let kept = tls.sealed.len();
        match self.from.socket.poll_read(cx, &mut bytes[kept..BLOCK]) {
            Poll::Pending => Ok(self.hold(cx)),
            Poll::Ready(Ok(0)) if self.reset => {
                Err(self.senders([Cause::ClientReset, Cause::ServerReset]).into())
            }
            Poll::Ready(Ok(0)) if kept > 0 => Err(self.truncated()),
            Poll::Ready(Ok(0)) => {
                self.flow.cut = true;
                self.ended([Cause::ClientVanished, Cause::ServerVanished]);
                Ok(Progress::Moved)
            }
            Poll::Ready(Ok(n)) => {
                bytes[..kept].copy_from_slice(&tls.sealed);
                self.moves();
                let buffer = &mut bytes[..kept + n];
                let rest = self.open(cx, buffer, spans, turn)?;
                self.keep(buffer, rest);
                Ok(Progress::Moved)
            }
            Poll::Ready(Err(error)) => Err(self.broken(&error)),
        }
    }

    /// Sends the `before` bytes that wait. Gives the outcome of the step where they have not all left.
    fn flush(
        &mut self,
        cx: &mut Context<'_>,
        before: usize,
        turn: &mut Turn,
    ) -> Option<Result<Progress, Close>> {
        let flushed = match self.to.poll_flush(cx) {
            Poll::Ready(Err(error)) => return Some(self.refuse(&error)),
            flushed => flushed,
        };
        let gone = before - self.to.waiting();
        turn.spend(Work::Bytes(gone));
        if gone > 0 {
            self.moves();
        }
        flushed.is_pending().then_some(Ok(Progress::Blocked))
    }

    /// Waits for the sender.
    fn hold(&mut self, cx: &mut Context<'_>) -> Progress {
        match self.to.poll_hold(cx) {
            Poll::Ready(()) => Progress::Moved,
            Poll::Pending => {
                // Nothing waits for the receiver: when it reads, that is no news.
                self.to.socket.pause_writing();
                Progress::Blocked
            }
        }
    }

    fn is_up(&self) -> bool {
        self.direction == Direction::ClientToServer
    }

    /// Of a client's and a server's cause the sender's.
    fn senders(&self, [client, server]: [Cause; 2]) -> Cause {
        if self.is_up() { client } else { server }
    }

    fn moves(&mut self) {
        *self.moved_ms = offramp_net::clock::coarse_ms();
    }

    /// The sender has finished.
    fn ended(&mut self, causes: [Cause; 2]) {
        let cause = self.senders(causes);
        self.first_end.get_or_insert(cause);
        self.flow.end = FlowEnd::Ended;
    }

    fn truncated(&self) -> Close {
        self.senders([Cause::ClientTruncated, Cause::ServerTruncated]).into()
    }

    /// Reading from the sender failed.
    fn broken(&self, error: &io::Error) -> Close {
        if self.is_up() { failure::client(error) } else { failure::server(error) }
    }

    /// The receiver takes no more. What it has said itself may still be on its way, so only this direction is over.
    fn refuse(&mut self, error: &io::Error) -> Result<Progress, Close> {
        let close = if self.is_up() { failure::server(error) } else { failure::client(error) };
        if failure::is_ours(error) || self.mute {
            return Err(close);
        }
        // Where its end came before its refusal, the kernel says so by EPIPE: what it said is whole.
        if self.is_up() && error.kind() != io::ErrorKind::BrokenPipe {
            self.first_end.get_or_insert(close.cause);
        }
        self.flow.end = FlowEnd::Refused(error.kind());
        self.to.clear();
        Ok(Progress::Moved)
    }

    /// Tells the receiver of the end, and drops what comes for one that refuses.
    fn end(&mut self, cx: &mut Context<'_>, bytes: &mut [u8], turn: &mut Turn) -> Progress {
        match self.flow.end {
            FlowEnd::Open | FlowEnd::Ended => {
                self.flow.end = FlowEnd::Notified;
                if !self.flow.cut {
                    self.to.alert(Alert::CLOSE_NOTIFY);
                }
                Progress::Moved
            }
            FlowEnd::Notified => {
                self.flow.end = FlowEnd::Shut;
                // It may be gone already.
                let _ = self.to.socket.shutdown_write();
                Progress::Done
            }
            FlowEnd::Shut => Progress::Done,
            FlowEnd::Refused(_) if self.is_up() => Progress::Done,
            // The server is not to be kept from listening.
            FlowEnd::Refused(_) => match self.from.socket.poll_read(cx, bytes) {
                Poll::Ready(Ok(n @ 1..)) => {
                    turn.spend(Work::Bytes(n));
                    Progress::Moved
                }
                Poll::Ready(_) | Poll::Pending => Progress::Done,
            },
        }
    }

    /// Changes the sending key of the receiver's side where it is nearly used up; whether it did.
    fn relieve(&mut self) -> Result<bool, Close> {
        let Some(TlsSide { session, sending, .. }) = &mut self.to.tls else { return Ok(false) };
        if self.flow.is_silent() {
            return Ok(false);
        }
        match session.pressure() {
            KeyDemand::None => Ok(false),
            KeyDemand::UpdateKey => {
                sending.update(session).map_err(|error| internal(&error))?;
                self.counters.key_update(self.direction);
                Ok(true)
            }
            KeyDemand::Close => {
                sending.alert(session, Alert::CLOSE_NOTIFY);
                Err(Cause::SequenceLimit.into())
            }
        }
    }

    /// Reads plaintext of the sender into the slots of a batch for the receiver, which is sealed there.
    fn seal(&mut self, cx: &mut Context<'_>, block: &mut [u8], turn: &mut Turn) -> Result<Progress, Close> {
        // One of both sides speaks TLS.
        let Some(TlsSide { session, sending, .. }) = &mut self.to.tls else {
            return Err(Cause::Internal.into());
        };
        let slot = sending.slot();
        let most = self.flow.expected.div_ceil(slot).clamp(1, SPANS);
        let layout = session.sealer.layout(slot, block.len(), most);
        let room = layout.capacity();
        let read = with_slots(&layout, block, 0..room, |slots| self.from.socket.poll_readv(cx, slots));
        let n = match read {
            Poll::Pending => {
                sending.push(&self.to.socket);
                self.to.socket.pause_writing();
                return Ok(Progress::Blocked);
            }
            Poll::Ready(Ok(0)) if self.reset => {
                return Err(self.senders([Cause::ClientReset, Cause::ServerReset]).into());
            }
            Poll::Ready(Ok(0)) => {
                self.ended([Cause::ClientClosed, Cause::ServerClosed]);
                return Ok(Progress::Moved);
            }
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(error)) => return Err(self.broken(&error)),
        };
        let most = || slots::most(BATCH, self.pressure);
        self.flow.expected = if n == room { (n * GROWTH).min(most()) } else { n };
        turn.spend(Work::Calls(1));
        turn.spend(Work::Pieces(n.div_ceil(slot)));
        let batch = FilledBatch { layout: &layout, block, filled: n, more: n == room };
        let sent = sending.send(session, &self.to.socket, cx, batch);
        self.count(n, n.div_ceil(slot), turn);
        self.moves();
        match sent {
            Ok(0) => {}
            Ok(_) => self.flow.expected = 0,
            Err(error) => return self.refuse(&error),
        }
        Ok(Progress::Moved)
    }

    /// So much plaintext is passed on.
    fn count(&mut self, bytes: usize, records: usize, turn: &mut Turn) {
        turn.spend(Work::Calls(1));
        turn.spend(Work::Bytes(bytes));
        self.flow.moved += bytes as u64;
        self.counters.bytes_relayed(self.direction, bytes as u64);
        self.counters.records(self.direction, records as u64);
    }

    /// Opens the records at the front of `buffer` and passes their plaintext on, until the turn is over.
    fn open(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        spans: &mut [PlaintextSpan],
        turn: &mut Turn,
    ) -> Result<Rest, Close> {
        let mut at = 0;
        loop {
            let Some(tls) = &mut self.from.tls else { return Ok(Rest::Nothing) };
            let opened = tls.session.opener.open(&mut buffer[at..], spans);
            turn.spend(Work::Pieces(opened.records));
            self.deliver(cx, &mut buffer[at..], &spans[..opened.spans], turn)?;
            if self.flow.end.refusal().is_some() {
                return Ok(Rest::Nothing);
            }
            at += opened.consumed;
            match opened.event {
                RecordEvent::NeedMore(_) => return Ok(Rest::Part(at)),
                RecordEvent::CloseNotify => {
                    self.ended([Cause::ClientClosed, Cause::ServerClosed]);
                    return Ok(Rest::Nothing);
                }
                event => self.heed(event, turn)?,
            }
            if self.to.waiting() > 0 || self.is_pressed() || turn.is_over() {
                return Ok(Rest::Records(at));
            }
        }
    }

    /// Changes the key of the receiver's side where that is due first.
    fn is_pressed(&self) -> bool {
        self.to.tls.as_ref().is_some_and(|tls| tls.session.pressure() != KeyDemand::None)
    }

    /// Does what an event in the sender's records demands.
    fn heed(&mut self, event: RecordEvent, turn: &mut Turn) -> Result<(), Close> {
        let Some(TlsSide { session, sending, .. }) = &mut self.from.tls else { return Ok(()) };
        match session.receive(event, sending, self.mute).map_err(|error| internal(&error))? {
            ReceiveAction::Incomplete | ReceiveAction::More | ReceiveAction::End(TlsClosure::CloseNotify) => {
                Ok(())
            }
            ReceiveAction::KeyUpdate { answered } => {
                turn.spend(Work::KeyUpdate { answered });
                note_key_update(self.counters, self.direction, answered);
                Ok(())
            }
            ReceiveAction::End(TlsClosure::PeerAlert(alert)) => {
                let cause = self.senders([Cause::AlertReceived, Cause::ServerAlert]);
                Err(failure::received(cause, alert))
            }
            ReceiveAction::End(TlsClosure::Fault(fault)) if self.is_up() => Err(failure::record(fault)),
            ReceiveAction::End(TlsClosure::Fault(fault)) => Err(failure::server_record(fault)),
        }
    }

    /// Keeps the rest of a buffer after the records at its front were opened.
    fn keep(&mut self, buffer: &[u8], rest: Rest) {
        let Some(tls) = &mut self.from.tls else { return };
        let (at, unopened) = rest.place(buffer.len());
        tls.unopened = unopened;
        tls.sealed = buffer[at..].to_vec();
    }

    /// Passes plaintext on; what the receiver does not take waits on its side.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        spans: &[PlaintextSpan],
        turn: &mut Turn,
    ) -> Result<(), Close> {
        if spans.is_empty() {
            return Ok(());
        }
        self.count(spans.iter().map(|span| span.len).sum(), spans.len(), turn);
        let in_place = match (&self.from.tls, &self.to.tls) {
            (Some(from), Some(to)) => to.session.sealer.matches(&from.session.opener),
            _ => false,
        };
        let sent = match &mut self.to.tls {
            None => write_or_keep(&self.to.socket, cx, buffer, spans, &mut self.to.kept),
            Some(tls) if in_place => reseal(tls, &self.to.socket, cx, buffer, spans),
            Some(tls) => {
                spans.iter().for_each(|span| tls.seal(span.of(buffer)));
                match tls.sending.poll_flush(&self.to.socket, cx) {
                    Poll::Ready(outcome) => outcome,
                    Poll::Pending => Ok(()),
                }
            }
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) => self.refuse(&error).map(drop),
        }
    }
}

/// Seals plaintext where it was opened, and sends the records.
fn reseal(
    tls: &mut TlsSide,
    socket: &offramp_net::Socket,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
    spans: &[PlaintextSpan],
) -> io::Result<()> {
    // Records that touch each other leave as one run.
    let mut runs: [Range<usize>; SPANS] = std::array::from_fn(|_| 0..0);
    let mut count = 0;
    for span in spans {
        let record = tls.session.sealer.reseal(buffer, *span);
        if count > 0 && runs[count - 1].end == record.start {
            runs[count - 1].end = record.end;
        } else {
            runs[count] = record;
            count += 1;
        }
    }
    tls.sending.send_records(socket, cx, buffer, &runs[..count]).map(drop)
}

fn internal(error: &offramp_tls::SessionError) -> Close {
    Close::from(Cause::Internal).with_detail(&error.to_string())
}
