//! The relay without TLS of ours: passthrough routes, and listeners without TLS.

use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use offramp_net::Socket;
use offramp_net::turn::{self, Turn, Work};
use offramp_observe::counters::Direction;
use offramp_observe::facts::Traffic;
use offramp_observe::{Cause, Close};
use tokio::time::Sleep;

use super::{Farewell, Farewells, Outcome, Progress, Waiting, drive, flush, poll_alarm};
use crate::failure;
use crate::worker::Worker;

/// The most that one read takes.
const READ: usize = 128 * 1024;

/// One direction.
#[derive(Default)]
struct Pipe {
    /// Bytes that the receiver has not taken yet.
    kept: Vec<u8>,
    end: End,
    moved: u64,
    /// What was read and dropped since then.
    dropped: u64,
}

/// How far a direction has come to its end.
#[derive(Default)]
enum End {
    /// More may come.
    #[default]
    Open,
    /// The sender has finished; the receiver does not know yet, as something may still wait for it.
    Ended,
    /// The receiver was told.
    Shut,
    /// The receiver takes no more, in this way, though the sender may have more to say: it is dropped.
    Refused(io::Error),
    /// The receiver took no more, and the sender has finished too.
    Over(io::Error),
}

impl End {
    /// Whether the sender has finished.
    fn is_ended(&self) -> bool {
        matches!(self, Self::Ended | Self::Shut | Self::Over(_))
    }

    /// Whether nothing more is written to the receiver.
    fn is_shut(&self) -> bool {
        matches!(self, Self::Shut | Self::Refused(_) | Self::Over(_))
    }

    /// How the receiver refused to take more, if it did.
    fn refusal(&self) -> Option<&io::Error> {
        match self {
            Self::Refused(error) | Self::Over(error) => Some(error),
            Self::Open | Self::Ended | Self::Shut => None,
        }
    }
}

impl Pipe {
    /// One step. An error is the sender's.
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        to: &Socket,
        room: &mut [u8],
    ) -> io::Result<Progress> {
        if !self.kept.is_empty() {
            match flush(to, &mut self.kept, cx) {
                Ok(true) => {}
                Ok(false) => return Ok(Progress::Blocked),
                Err(error) => return self.refuse(error),
            }
        }
        match self.end {
            End::Open | End::Refused(_) => {}
            End::Ended => {
                self.end = End::Shut;
                let _ = to.shutdown_write();
                return Ok(Progress::Done);
            }
            End::Shut | End::Over(_) => return Ok(Progress::Done),
        }
        let is_refused = self.end.is_shut();
        let n = match from.poll_read(cx, room) {
            // Whoever is not listened to any more is not waited for.
            Poll::Pending => return Ok(if is_refused { Progress::Done } else { Progress::Blocked }),
            Poll::Ready(n) => n?,
        };
        if n == 0 {
            self.end = match mem::take(&mut self.end) {
                End::Refused(error) => End::Over(error),
                _ => End::Ended,
            };
            return Ok(Progress::Moved);
        }
        if is_refused {
            self.dropped += n as u64;
            return Ok(Progress::Moved);
        }
        self.moved += n as u64;
        let written = match to.poll_write(cx, &room[..n]) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => return self.refuse(error),
            Poll::Pending => 0,
        };
        self.kept.extend_from_slice(&room[written..n]);
        Ok(Progress::Moved)
    }

    /// The receiver takes no more. What it has said itself may still be on its way, so only this
    /// direction is over, and what still comes for it is dropped.
    fn refuse(&mut self, error: io::Error) -> io::Result<Progress> {
        if failure::is_ours(&error) {
            return Err(error);
        }
        self.end = if self.end.is_ended() { End::Over(error) } else { End::Refused(error) };
        self.kept = Vec::new();
        Ok(Progress::Moved)
    }

    /// Whether the sender has finished in order, and not after its receiver took no more.
    fn has_ended_well(&self) -> bool {
        matches!(self.end, End::Ended | End::Shut)
    }

    /// The reset that the receiver told to a write: its own direction then looks like an orderly end,
    /// and is none.
    fn reset(&self) -> Option<&io::Error> {
        self.end.refusal().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }
}

/// A relay of bytes as they come.
pub(crate) struct Plain {
    worker: Rc<Worker>,
    client: Socket,
    server: Socket,
    up: Pipe,
    down: Pipe,
    /// What the event will say where both directions end in order.
    first: Option<Cause>,
    /// When something last moved, in milliseconds of the coarse clock.
    moved_ms: u64,
}

impl Plain {
    /// A relay that has moved nothing yet; `early` is what the client has sent already.
    pub(crate) fn new(worker: Rc<Worker>, client: Socket, server: Socket, early: Vec<u8>) -> Box<Self> {
        let up = Pipe { moved: early.len() as u64, kept: early, ..Pipe::default() };
        worker.counters.bytes_relayed(Direction::ClientToServer, up.moved);
        let (down, moved_ms) = (Pipe::default(), offramp_net::clock::coarse_ms());
        Box::new(Self { worker, client, server, up, down, first: None, moved_ms })
    }

    /// Relays until both directions are over, one of them breaks, or nothing moves for `idle`.
    pub(crate) async fn run(&mut self, idle: Duration) -> Close {
        let worker = Rc::clone(&self.worker);
        drive(&worker, idle, |cx, alarm| self.poll(cx, alarm, idle)).await
    }

    /// What is left to do.
    pub(crate) fn finish(self: Box<Self>, close: Close) -> Outcome {
        let Self { client, server, up, down, .. } = *self;
        let traffic = Traffic { from_client: up.moved, to_client: down.moved };
        let mut farewells = Farewells::default();
        if up.end.refusal().is_some() {
            farewells.client = Some(Farewell { socket: client, pending: down.kept });
        } else if down.end.refusal().is_some() && up.end.is_shut() {
            farewells.server = Some(Farewell { socket: server, pending: up.kept });
        }
        Outcome { close, traffic, farewells: farewells.due() }
    }

    fn poll(&mut self, cx: &mut Context<'_>, alarm: Pin<&mut Sleep>, idle: Duration) -> Poll<Close> {
        if self.worker.cut.is_now() {
            return Poll::Ready(Cause::Drain.into());
        }
        self.worker.counters.turn();
        let before = self.moved();
        let kept = self.up.kept.len() + self.down.kept.len();
        let pipes = [&self.up, &self.down].map(|pipe| (pipe.kept.len(), pipe.moved));
        let mut turn = Turn::default();
        loop {
            let taken = self.taken();
            match self.step(cx) {
                Err(close) => return Poll::Ready(self.broken(close)),
                Ok((Progress::Done, Progress::Done)) => return Poll::Ready(self.end()),
                Ok((Progress::Moved, _) | (_, Progress::Moved)) => {}
                Ok(_) => {
                    self.pause(pipes);
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
        if self.moved() > before || self.up.kept.len() + self.down.kept.len() < kept {
            self.moved_ms = offramp_net::clock::coarse_ms();
        }
        let waiting = Waiting { server: !self.up.kept.is_empty(), client: !self.down.kept.is_empty() };
        poll_alarm(cx, alarm, idle, self.moved_ms, waiting)
    }

    /// Where a direction was blocked before and nothing moved, it was its sender that woke this task, for nothing.
    fn pause(&self, before: [(usize, u64); 2]) {
        for (pipe, from, before) in
            [(&self.up, &self.client, before[0]), (&self.down, &self.server, before[1])]
        {
            if before.0 > 0 && before == (pipe.kept.len(), pipe.moved) {
                from.pause_reading();
            }
        }
    }

    /// How many bytes were read, both ways, those that were dropped among them.
    fn taken(&self) -> u64 {
        self.moved() + self.up.dropped + self.down.dropped
    }

    /// How many bytes were read to be passed on, both ways.
    fn moved(&self) -> u64 {
        self.up.moved + self.down.moved
    }

    /// One step in each direction.
    fn step(&mut self, cx: &mut Context<'_>) -> Result<(Progress, Progress), Close> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let room = &mut scratch.bytes[..READ];
        let (sent, got) = (self.up.moved, self.down.moved);
        let rising = self.up.step(cx, &self.client, &self.server, room);
        let falling = self.down.step(cx, &self.server, &self.client, room);
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

    /// An error after one side has said goodbye is no news, but neither side must take the end of the
    /// other for an orderly one.
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
