//! The relay where the server speaks TLS, whether the client does or not.
//!
//! Both directions are alike. What comes within TLS is opened in the worker's scratch. Where both sides speak the same
//! version it is sealed again where it lies, so that nothing is copied; towards a plain side it leaves from there. What
//! comes in plain text is read into the slots of a batch and sealed there.
//!
//! Half-closes pass through as close_notify and shutdown. If a side closes TCP between two records without
//! close_notify, its peer gets no close_notify either, so that the peer can see that the stream may have been cut.

mod flow;

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use offramp_net::turn::{self, Turn};
use offramp_net::{Buffer, Socket};
use offramp_observe::counters::Direction;
use offramp_observe::facts::ByteCounts;
use offramp_observe::{Cause, Close};
use offramp_record::Alert;
use offramp_tls::client::Secured;
use offramp_tls::{Sending, TlsSession};
use tokio::time::Sleep;

use self::flow::{FlowEnd, SecureFlow};
use super::{
    BlockedSides, Farewell, Farewells, Progress, RelayBounds, RelayOutcome, drive, poll_alarm, steps,
};
use crate::live::table::LiveSlotId;
use crate::resources::Resources;
use crate::slots::Scratch;

/// The parts of a relay to a server that speaks TLS.
pub(crate) struct SecureEnds {
    pub(crate) client: Socket,
    /// The client's TLS and the way to it, where tickets may be held back; `None`: it speaks plain text.
    pub(crate) session: Option<(TlsSession, Sending)>,
    /// Bytes that the client has sent already.
    pub(crate) early: Buffer,
    /// The error of a client that had left before it got its tickets.
    pub(crate) left: Option<io::ErrorKind>,
    pub(crate) server: Socket,
    pub(crate) secured: Box<Secured>,
}

/// One side of a relay, with its records.
struct Side {
    socket: Socket,
    tls: Option<TlsSide>,
    /// Plaintext that a plain side has not taken yet.
    kept: Vec<u8>,
}

/// The TLS of one side.
struct TlsSide {
    session: TlsSession,
    sending: Sending,
    /// Ciphertext that is not opened yet.
    sealed: Vec<u8>,
    /// `sealed` may hold whole records, which are opened before more is read.
    unopened: bool,
}

impl TlsSide {
    fn new(session: TlsSession, sending: Sending, sealed: Vec<u8>) -> Self {
        Self { session, sending, unopened: !sealed.is_empty(), sealed }
    }

    /// Seals all of `rest` behind what waits, which copies it.
    fn seal(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let once = std::iter::once(rest);
            let sealed = self.sending.seal(&mut self.session, once, usize::MAX, usize::MAX);
            rest = &rest[sealed..];
        }
    }
}

impl Side {
    /// Bytes that wait because this side takes no more.
    fn waiting(&self) -> usize {
        self.kept.len() + self.tls.as_ref().map_or(0, |tls| tls.sending.waiting())
    }

    /// Sends what waits; ready when all of it has gone.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            Some(tls) => tls.sending.poll_flush(&self.socket, cx),
            None => match super::flush(&self.socket, &mut self.kept, cx) {
                Ok(true) => Poll::Ready(Ok(())),
                Ok(false) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        }
    }

    /// Ready when tickets that are held back have to leave alone.
    fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.tls.as_mut().map_or(Poll::Pending, |tls| tls.sending.poll_hold(cx))
    }

    /// Gives up what waits.
    fn clear(&mut self) {
        self.kept = Vec::new();
        if let Some(tls) = &mut self.tls {
            tls.sending.clear();
        }
    }

    /// Seals an alert behind what waits; a plain side knows none.
    fn alert(&mut self, alert: Alert) {
        if let Some(TlsSide { session, sending, .. }) = &mut self.tls {
            sending.alert(session, alert);
        }
    }

    fn into_waiting(self) -> (Socket, Vec<u8>) {
        (self.socket, self.tls.map_or(self.kept, |tls| tls.sending.into_waiting()))
    }
}

/// A relay to a server that speaks TLS.
pub(crate) struct Secure {
    worker: Rc<Resources>,
    /// Its place among the worker's connections.
    live: LiveSlotId,
    client: Side,
    server: Side,
    up: SecureFlow,
    down: SecureFlow,
    /// The time at which a byte last moved, in milliseconds of the coarse clock.
    moved_ms: u64,
    /// The cause of the end where both directions end in order.
    first_end: Option<Cause>,
    /// A client in plain text is reset at once, and gets nothing of what still waits for it: a FIN behind that
    /// would look like the end of the stream.
    cuts_client: bool,
}

impl Secure {
    /// A relay that has moved nothing yet.
    pub(crate) fn new(worker: Rc<Resources>, live: LiveSlotId, ends: SecureEnds) -> Box<Self> {
        let SecureEnds { client, session, early, left, server, secured } = ends;
        let Secured { session: ours, early: answer, record_size, .. } = *secured;
        let mut towards = TlsSide::new(ours, Sending::new(record_size, Vec::new()), answer.filled().to_vec());
        let (mut up, mut down) = (SecureFlow::default(), SecureFlow::default());
        let tls = match session {
            Some((session, sending)) => Some(TlsSide::new(session, sending, early.filled().to_vec())),
            None => {
                towards.seal(early.filled());
                up.moved = early.len() as u64;
                None
            }
        };
        worker.counters.bytes_relayed(Direction::ClientToServer, up.moved);
        if let Some(how) = left {
            down.end = FlowEnd::Refused(how);
        }
        Box::new(Self {
            client: Side { socket: client, tls, kept: Vec::new() },
            server: Side { socket: server, tls: Some(towards), kept: Vec::new() },
            up,
            down,
            moved_ms: offramp_net::clock::coarse_ms(),
            first_end: None,
            cuts_client: false,
            worker,
            live,
        })
    }

    /// Relays until both directions are over, one of them breaks, nothing moves for too long, or the greatest age.
    pub(crate) async fn run(&mut self, bounds: RelayBounds) -> Close {
        let worker = Rc::clone(&self.worker);
        drive(&worker, self.live, bounds, |cx, alarm| self.turn(cx, alarm, bounds)).await
    }

    /// One turn, and how much has moved by then.
    fn turn(&mut self, cx: &mut Context<'_>, alarm: Pin<&mut Sleep>, bounds: RelayBounds) -> Poll<Close> {
        let end = self.worker.end_of(self.live).or_else(|| bounds.end(self.moved_ms));
        let polled = self.poll(cx, alarm, bounds, end);
        self.worker.live.moved(self.live, self.traffic());
        polled
    }

    fn traffic(&self) -> ByteCounts {
        ByteCounts { from_client: self.up.moved, to_client: self.down.moved }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        alarm: Pin<&mut Sleep>,
        bounds: RelayBounds,
        end: Option<Cause>,
    ) -> Poll<Close> {
        if let Some(cause) = end {
            return Poll::Ready(cause.into());
        }
        let worker = Rc::clone(&self.worker);
        worker.counters.turn();
        let mut scratch = worker.scratch.borrow_mut();
        let kept = (self.server.waiting(), self.client.waiting());
        let moved = self.down.moved;
        let both = self.step_both(cx, &mut scratch, kept.0);
        drop(scratch);
        match both {
            Err(close) => Poll::Ready(self.verdict(close)),
            Ok((Progress::Done, Progress::Done)) => {
                let left = self.down.end.refusal().map(|_| Cause::ClientReset);
                Poll::Ready(Close::from(self.first_end.or(left).unwrap_or(Cause::Internal)))
            }
            Ok((Progress::Moved, _) | (_, Progress::Moved)) => {
                // Others first; the sockets may still be ready, so nothing else would wake this task.
                worker.counters.yielded();
                turn::poll_next(cx);
                Poll::Pending
            }
            Ok(_) => {
                // While the server takes no more, packets of the client would wake the worker for nothing.
                if self.server.waiting() > 0 {
                    self.client.socket.pause_reading();
                }
                // Blocked before, and nothing moved: it was the server that woke this task, for nothing.
                if kept.1 > 0 && (kept.1, moved) == (self.client.waiting(), self.down.moved) {
                    self.server.socket.pause_reading();
                }
                let waiting =
                    BlockedSides { server: self.server.waiting() > 0, client: self.client.waiting() > 0 };
                let sockets = [&self.client.socket, &self.server.socket];
                poll_alarm(cx, alarm, bounds, self.moved_ms, waiting, sockets)
            }
        }
    }

    /// Takes steps in both directions. `kept` bytes waited for the server before.
    fn step_both(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        kept: usize,
    ) -> Result<(Progress, Progress), Close> {
        let mut turn = Turn::default();
        let up = steps(&mut turn, |turn| self.step(Direction::ClientToServer, cx, scratch, turn))?;
        let down = steps(&mut turn, |turn| self.step(Direction::ServerToClient, cx, scratch, turn))?;
        // The server may have asked for an answer to a key update, which was not sent yet.
        if kept == 0 && self.server.waiting() > 0 && up != Progress::Moved {
            let up = match self.server.poll_flush(cx) {
                Poll::Ready(_) => Progress::Moved,
                Poll::Pending => Progress::Blocked,
            };
            return Ok((up, down));
        }
        Ok((up, down))
    }

    /// Neither side may take the break of the other for an orderly end.
    fn verdict(&mut self, close: Close) -> Close {
        let clients = matches!(close.cause, Cause::ClientReset | Cause::ClientTruncated);
        let servers =
            matches!(close.cause, Cause::ServerReset | Cause::ServerTruncated | Cause::ServerRecord);
        if clients && !self.up.is_over() {
            self.server.socket.reset_on_close();
        }
        if (servers || close.cause == Cause::ServerAlert) && !self.down.is_over() && self.client.tls.is_none()
        {
            self.client.socket.reset_on_close();
            // One that had an answer before its upload was over may still have to read it.
            self.cuts_client = self.up.end.refusal().is_none();
        }
        // A peer that got no close_notify may complain, and is right.
        let complains = match close.cause {
            Cause::ServerAlert => self.up.cut,
            Cause::AlertReceived => self.down.cut,
            cause => matches!(cause, Cause::ClientReset | Cause::ServerReset),
        };
        match self.first_end {
            Some(first) if complains => first.into(),
            _ => close,
        }
    }

    /// Ends the relay with `close`.
    pub(crate) fn finish(mut self: Box<Self>, close: Close) -> RelayOutcome {
        let old = close.cause == Cause::MaxAge;
        if old || matches!(close.cause, Cause::IdleTimeout | Cause::Drain | Cause::ClosedByOperator) {
            if !self.down.is_silent() {
                self.client.alert(Alert::CLOSE_NOTIFY);
            }
            if !self.up.is_silent() {
                self.server.alert(Alert::CLOSE_NOTIFY);
            }
        }
        // An alert fits, or the server does not listen.
        let _ = self.server.poll_flush(&mut Context::from_waker(Waker::noop()));
        let traffic = self.traffic();
        let broken = matches!(
            close.cause,
            Cause::ServerReset
                | Cause::ServerHung
                | Cause::ServerTruncated
                | Cause::ServerRecord
                | Cause::ServerAlert
        );
        let cut_short = self.down.end == FlowEnd::Shut || (broken && self.client.tls.is_some());
        let more = self.up.end.refusal().is_some() || (cut_short && !self.up.is_over());
        let waits = (more || old || self.client.waiting() > 0)
            && close.cause != Cause::ClientHung
            && !self.cuts_client;
        let listens = old || (self.down.end.refusal().is_some() && self.up.end == FlowEnd::Shut);
        let (client, pending) = self.client.into_waiting();
        let (server, unsent) = self.server.into_waiting();
        let farewells = Farewells {
            client: waits.then_some(Farewell { socket: client, pending }),
            server: listens
                .then_some(Farewell { socket: server, pending: if old { unsent } else { Vec::new() } }),
        };
        RelayOutcome { close, traffic, farewells: farewells.due() }
    }
}
