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
use offramp_observe::facts::Traffic;
use offramp_observe::{Cause, Close};
use offramp_record::Alert;
use offramp_tls::client::Secured;
use offramp_tls::{Sending, Session};
use tokio::time::Sleep;

use self::flow::{Flow, FlowEnd};
use super::{Farewell, Farewells, Outcome, Progress, RelayBounds, Waiting, drive, poll_alarm, steps};
use crate::live::table::Place;
use crate::worker::Worker;

/// What such a relay is made of.
pub(crate) struct SecureEnds {
    pub(crate) client: Socket,
    /// The client's TLS and the way to it, where tickets may be held back; `None`: it speaks plain text.
    pub(crate) session: Option<(Session, Sending)>,
    /// What the client sent already.
    pub(crate) early: Buffer,
    /// How the client refused its tickets, where it had left already.
    pub(crate) left: Option<io::ErrorKind>,
    pub(crate) server: Socket,
    pub(crate) secured: Box<Secured>,
}

/// One side.
struct Side {
    socket: Socket,
    tls: Option<Tls>,
    /// Plaintext that a plain side has not taken yet.
    kept: Vec<u8>,
}

/// The TLS of one side.
struct Tls {
    session: Session,
    sending: Sending,
    /// Ciphertext that is not opened yet.
    sealed: Vec<u8>,
    /// Whether `sealed` may hold whole records, so that it is opened before more is read.
    unopened: bool,
}

impl Tls {
    fn new(session: Session, sending: Sending, sealed: Vec<u8>) -> Self {
        Self { session, sending, unopened: !sealed.is_empty(), sealed }
    }

    /// Seals all of `rest` behind what waits, which copies it.
    fn seal(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let room = (usize::MAX, usize::MAX);
            let sealed = self.sending.seal(&mut self.session, std::iter::once(rest), room);
            rest = &rest[sealed..];
        }
    }
}

impl Side {
    /// How many bytes wait because this side takes no more.
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
        if let Some(Tls { session, sending, .. }) = &mut self.tls {
            sending.alert(session, alert);
        }
    }

    fn into_waiting(self) -> (Socket, Vec<u8>) {
        (self.socket, self.tls.map_or(self.kept, |tls| tls.sending.into_waiting()))
    }
}

/// A relay to a server that speaks TLS.
pub(crate) struct Secure {
    worker: Rc<Worker>,
    /// Its place among the worker's connections.
    live: Place,
    client: Side,
    server: Side,
    up: Flow,
    down: Flow,
    /// When something last moved, in milliseconds of the coarse clock.
    moved_ms: u64,
    /// What the event will say where both directions end in order.
    first_end: Option<Cause>,
    /// Whether a client in plain text is reset at once, and gets nothing of what still waits for it: a FIN behind that
    /// would look like the end of the stream.
    cuts_client: bool,
}

impl Secure {
    /// A relay that has moved nothing yet.
    pub(crate) fn new(worker: Rc<Worker>, live: Place, ends: SecureEnds) -> Box<Self> {
        let SecureEnds { client, session, early, left, server, secured } = ends;
        let Secured { session: ours, early: answer, record_size, .. } = *secured;
        let mut towards = Tls::new(ours, Sending::new(record_size, Vec::new()), answer.filled().to_vec());
        let (mut up, mut down) = (Flow::default(), Flow::default());
        let tls = match session {
            Some((session, sending)) => Some(Tls::new(session, sending, early.filled().to_vec())),
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

    fn traffic(&self) -> Traffic {
        Traffic { from_client: self.up.moved, to_client: self.down.moved }
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
        let mut turn = Turn::default();
        let both = steps(&mut turn, |turn| self.step(Direction::ClientToServer, cx, &mut scratch, turn))
            .and_then(|up| {
                Ok((
                    up,
                    steps(&mut turn, |turn| self.step(Direction::ServerToClient, cx, &mut scratch, turn))?,
                ))
            });
        drop(scratch);
        // The server may have asked for an answer to a key update, which nobody has sent yet.
        let both = both.map(|both| {
            if kept.0 == 0 && self.server.waiting() > 0 && both.0 != Progress::Moved {
                let up = match self.server.poll_flush(cx) {
                    Poll::Ready(_) => Progress::Moved,
                    Poll::Pending => Progress::Blocked,
                };
                return (up, both.1);
            }
            both
        });
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
                    Waiting { server: self.server.waiting() > 0, client: self.client.waiting() > 0 };
                let sockets = [&self.client.socket, &self.server.socket];
                poll_alarm(cx, alarm, bounds, self.moved_ms, waiting, sockets)
            }
        }
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

    /// What is left to do.
    pub(crate) fn finish(mut self: Box<Self>, close: Close) -> Outcome {
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
        Outcome { close, traffic, farewells: farewells.due() }
    }
}
