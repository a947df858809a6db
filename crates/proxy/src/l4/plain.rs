//! The relay without TLS of ours: passthrough routes, and listeners without TLS.

mod flow;

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use offramp_net::Socket;
use offramp_net::turn::{self, Turn, Work};
use offramp_observe::counters::Direction;
use offramp_observe::facts::ByteCounts;
use offramp_observe::{Cause, Close};
use tokio::time::Sleep;

use super::{BlockedSides, Farewell, Farewells, Progress, RelayBounds, RelayOutcome, drive, poll_alarm};
use crate::failure;
use crate::live::table::LiveSlotId;
use crate::resources::Resources;
use flow::{PlainFlow, Tools};

/// The most that one read takes.
const READ: usize = 128 * 1024;

/// A relay of bytes as they come.
pub(crate) struct PlainRelay {
    worker: Rc<Resources>,
    /// Its place among the worker's connections.
    live: LiveSlotId,
    client: Socket,
    server: Socket,
    up: PlainFlow,
    down: PlainFlow,
    /// The cause of the end where both directions end in order.
    first: Option<Cause>,
    /// The time at which a byte last moved, in milliseconds of the coarse clock.
    moved_ms: u64,
}

/// The two sides of a relay of bytes that pass as they are.
pub(crate) struct PlainEnds {
    pub(crate) client: Socket,
    pub(crate) server: Socket,
}

impl PlainRelay {
    /// A relay that has moved nothing yet; `early` is what the client has sent already.
    pub(crate) fn new(
        worker: Rc<Resources>,
        live: LiveSlotId,
        PlainEnds { client, server }: PlainEnds,
        early: Vec<u8>,
    ) -> Box<Self> {
        let up = PlainFlow::beginning_with(early);
        worker.counters.bytes_relayed(Direction::ClientToServer, up.moved);
        let (down, moved_ms) = (PlainFlow::default(), offramp_net::clock::coarse_ms());
        Box::new(Self { worker, live, client, server, up, down, first: None, moved_ms })
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

    /// Ends the relay with `close`.
    pub(crate) fn finish(self: Box<Self>, close: Close) -> RelayOutcome {
        let traffic = self.traffic();
        let Self { worker, client, server, up, down, .. } = *self;
        let mut farewells = Farewells::default();
        if close.cause == Cause::MaxAge {
            farewells.client = Some(Farewell { socket: client, pending: down.into_waiting(&worker.pipes) });
            farewells.server = Some(Farewell { socket: server, pending: up.into_waiting(&worker.pipes) });
        } else if up.end.refusal().is_some() {
            farewells.client = Some(Farewell { socket: client, pending: down.into_waiting(&worker.pipes) });
            up.give_up(&worker.pipes);
        } else if down.end.refusal().is_some() && up.end.is_shut() {
            farewells.server = Some(Farewell { socket: server, pending: up.into_waiting(&worker.pipes) });
            down.give_up(&worker.pipes);
        } else {
            up.give_up(&worker.pipes);
            down.give_up(&worker.pipes);
        }
        RelayOutcome { close, traffic, farewells: farewells.due() }
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
        self.worker.counters.turn();
        let before = self.moved();
        let kept = self.up.waiting() + self.down.waiting();
        let flows = [&self.up, &self.down].map(|flow| (flow.waiting(), flow.moved));
        let mut turn = Turn::default();
        loop {
            let taken = self.taken();
            match self.step(cx) {
                Err(close) => return Poll::Ready(self.broken(close)),
                Ok((Progress::Done, Progress::Done)) => return Poll::Ready(self.end()),
                Ok((Progress::Moved, _) | (_, Progress::Moved)) => {}
                Ok(_) => {
                    self.pause(flows);
                    break;
                }
            }
            turn.spend(Work::Calls(2));
            turn.spend(Work::Bytes(usize::try_from(self.taken() - taken).unwrap_or(usize::MAX)));
            if turn.is_over() {
                // Others first; the sockets may still be ready, so nothing else would wake this task.
                self.worker.counters.yielded();
                turn::poll_next(cx);
                break;
            }
        }
        if self.moved() > before || self.up.waiting() + self.down.waiting() < kept {
            self.moved_ms = offramp_net::clock::coarse_ms();
        }
        let waiting = BlockedSides { server: self.up.waiting() > 0, client: self.down.waiting() > 0 };
        poll_alarm(cx, alarm, bounds, self.moved_ms, waiting, [&self.client, &self.server])
    }

    /// Takes interest away from a sender while its receiver takes nothing. While the server takes no more, each
    /// packet of the client would wake the worker for nothing. If the client takes no more, and was blocked before,
    /// it was the server that woke this task, for nothing.
    fn pause(&self, before: [(usize, u64); 2]) {
        if self.up.waiting() > 0 {
            self.client.pause_reading();
        }
        if before[1].0 > 0 && before[1] == (self.down.waiting(), self.down.moved) {
            self.server.pause_reading();
        }
    }

    /// Bytes that were read, both ways, dropped ones included.
    fn taken(&self) -> u64 {
        self.moved() + self.up.dropped + self.down.dropped
    }

    /// Bytes that were read to be passed on, both ways.
    fn moved(&self) -> u64 {
        self.up.moved + self.down.moved
    }

    /// One step in each direction.
    fn step(&mut self, cx: &mut Context<'_>) -> Result<(Progress, Progress), Close> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let mut tools = Tools { room: &mut scratch.bytes[..READ], pipes: &self.worker.pipes };
        let (sent, got) = (self.up.moved, self.down.moved);
        let rising = self.up.step(cx, &self.client, &self.server, &mut tools);
        let falling = self.down.step(cx, &self.server, &self.client, &mut tools);
        let counters = &self.worker.counters;
        counters.bytes_relayed(Direction::ClientToServer, self.up.moved - sent);
        counters.bytes_relayed(Direction::ServerToClient, self.down.moved - got);
        let rising = rising.map_err(|error| failure::client(&error))?;
        if let Some(error) = self.down.reset().filter(|_| self.up.end.is_ended()) {
            return Err(failure::client(error));
        }
        if self.up.has_ended_well() {
            self.first.get_or_insert(Cause::ClientClosed);
        }
        let falling = falling.map_err(|error| failure::server(&error))?;
        if let Some(error) = self.up.reset().filter(|_| self.down.end.is_ended()) {
            return Err(failure::server(error));
        }
        if self.down.has_ended_well() {
            self.first.get_or_insert(Cause::ServerClosed);
        }
        Ok((rising, falling))
    }

    /// An error after one side has ended changes no cause. But no side may take a break of the other side for an orderly
    /// end.
    fn broken(&self, close: Close) -> Close {
        match close.cause {
            Cause::ClientReset if !self.up.end.is_shut() => self.server.reset_on_close(),
            Cause::ServerReset if !self.down.end.is_shut() && self.up.end.refusal().is_none() => {
                self.client.reset_on_close();
            }
            _ => {}
        }
        self.first.map_or(close, Close::from)
    }

    /// Both directions are over: in order, or because one side refused to listen and said nothing more.
    fn end(&self) -> Close {
        let refusal = || {
            let server = self.up.end.refusal().map(failure::server);
            server.or_else(|| self.down.end.refusal().map(failure::client))
        };
        self.first.map(Close::from).or_else(refusal).unwrap_or_else(|| Cause::Internal.into())
    }
}
