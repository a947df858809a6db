//! The relay without TLS of ours: passthrough routes, and listeners without TLS.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use offramp_net::Socket;
use offramp_net::turn::{self, Turn, Work};
use offramp_observe::counters::Direction;
use offramp_observe::facts::Traffic;
use offramp_observe::{Cause, Close};
use tokio::time::{Sleep, sleep};

use super::{Terms, Waiting, flush, poll_alarm};
use crate::failure;
use crate::worker::Worker;

/// The most that one read takes.
const READ: usize = 128 * 1024;

/// One direction.
#[derive(Default)]
struct Pipe {
    /// Bytes that the receiver has not taken yet.
    kept: Vec<u8>,
    ended: bool,
    shut: bool,
    /// How the receiver refused to take more, though the sender may have more to say.
    refused: Option<io::Error>,
    moved: u64,
    /// What was read and dropped since then.
    dropped: u64,
}

impl Pipe {
    /// One step: `None` when blocked, `Some(true)` when over. An error is the sender's.
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        to: &Socket,
        room: &mut [u8],
    ) -> io::Result<Option<bool>> {
        if !self.kept.is_empty() {
            match flush(to, &mut self.kept, cx) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return self.refuse(error).map(Some),
            }
        }
        if self.ended {
            if !self.shut {
                self.shut = true;
                let _ = to.shutdown_write();
            }
            return Ok(Some(true));
        }
        let n = match from.poll_read(cx, room) {
            // Whoever is not listened to any more is not waited for.
            Poll::Pending => return Ok(self.refused.is_some().then_some(true)),
            Poll::Ready(n) => n?,
        };
        if n == 0 {
            self.ended = true;
            return Ok(Some(false));
        }
        if self.refused.is_some() {
            self.dropped += n as u64;
            return Ok(Some(false));
        }
        self.moved += n as u64;
        let written = match to.poll_write(cx, &room[..n]) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => return self.refuse(error).map(Some),
            Poll::Pending => 0,
        };
        self.kept.extend_from_slice(&room[written..n]);
        Ok(Some(false))
    }

    /// The receiver takes no more. What it has said itself may still be on its way, so only this
    /// direction is over, and what still comes for it is dropped.
    fn refuse(&mut self, error: io::Error) -> io::Result<bool> {
        if failure::is_ours(&error) {
            return Err(error);
        }
        self.refused.get_or_insert(error);
        self.kept = Vec::new();
        self.shut = true;
        Ok(false)
    }

    /// The reset that the receiver told to a write: its own direction then looks like an orderly end,
    /// and is none.
    fn reset(&self) -> Option<&io::Error> {
        self.refused.as_ref().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }
}

struct Plain<'a> {
    worker: &'a Rc<Worker>,
    client: &'a Socket,
    server: &'a Socket,
    up: Pipe,
    down: Pipe,
    /// What the event will say where both directions end in order.
    first: Option<Cause>,
    /// When something last moved, in milliseconds of the coarse clock.
    moved_ms: u64,
}

/// To whom a last word is due after the relay, and what was kept for them: a reset must not overtake
/// what is still on its way to somebody who has more to say than is listened to.
pub(crate) enum Due {
    Nobody,
    Client(Vec<u8>),
    Server(Vec<u8>),
}

/// Relays until both directions are over. `early` is what the client has sent already.
pub(crate) async fn relay(
    worker: &Rc<Worker>,
    client: &Socket,
    server: &Socket,
    early: Vec<u8>,
    terms: Terms,
) -> (Close, Traffic, Due) {
    let up = Pipe { moved: early.len() as u64, kept: early, ..Pipe::default() };
    worker.counters.bytes_relayed(Direction::ClientToServer, up.moved);
    let (down, moved_ms) = (Pipe::default(), offramp_net::clock::coarse_ms());
    let mut plain = Plain { worker, client, server, up, down, first: None, moved_ms };
    let mut alarm = pin!(sleep(terms.idle_timeout));
    let mut place = None;
    let close = poll_fn(|cx| {
        if worker.cut.is_now() {
            return Poll::Ready(Cause::Drain.into());
        }
        place.get_or_insert_with(|| worker.cut.remember(cx.waker()));
        plain.poll(cx, alarm.as_mut(), terms.idle_timeout)
    })
    .await;
    if let Some(place) = place {
        worker.cut.forget(place);
    }
    let traffic = Traffic { from_client: plain.up.moved, to_client: plain.down.moved };
    let due = if plain.up.refused.is_some() {
        Due::Client(plain.down.kept)
    } else if plain.down.refused.is_some() && plain.up.shut {
        Due::Server(plain.up.kept)
    } else {
        Due::Nobody
    };
    (close, traffic, due)
}

impl Plain<'_> {
    fn poll(&mut self, cx: &mut Context<'_>, alarm: Pin<&mut Sleep>, idle: Duration) -> Poll<Close> {
        self.worker.counters.turn();
        let before = self.moved();
        let kept = self.up.kept.len() + self.down.kept.len();
        let pipes = [&self.up, &self.down].map(|pipe| (pipe.kept.len(), pipe.moved));
        let mut turn = Turn::default();
        loop {
            let taken = self.taken();
            match self.step(cx) {
                Err(close) => return Poll::Ready(self.broken(close)),
                Ok((Some(true), Some(true))) => return Poll::Ready(self.end()),
                Ok((None | Some(true), None | Some(true))) => {
                    self.pause(pipes);
                    break;
                }
                Ok(_) => {}
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
        for (pipe, from, before) in [(&self.up, self.client, before[0]), (&self.down, self.server, before[1])]
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
    fn step(&mut self, cx: &mut Context<'_>) -> Result<(Option<bool>, Option<bool>), Close> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let room = &mut scratch.bytes[..READ];
        let (sent, got) = (self.up.moved, self.down.moved);
        let rising = self.up.step(cx, self.client, self.server, room);
        let falling = self.down.step(cx, self.server, self.client, room);
        let counters = &self.worker.counters;
        counters.bytes_relayed(Direction::ClientToServer, self.up.moved - sent);
        counters.bytes_relayed(Direction::ServerToClient, self.down.moved - got);
        let rising = rising.map_err(|error| failure::client(&error))?;
        if let Some(error) = self.down.reset().filter(|_| self.up.ended) {
            return Err(failure::client(error));
        }
        if self.up.ended && self.up.refused.is_none() {
            self.first.get_or_insert(Cause::ClientClosed);
        }
        let falling = falling.map_err(|error| failure::server(&error))?;
        if let Some(error) = self.up.reset().filter(|_| self.down.ended) {
            return Err(failure::server(error));
        }
        if self.down.ended && self.down.refused.is_none() {
            self.first.get_or_insert(Cause::ServerClosed);
        }
        Ok((rising, falling))
    }

    /// An error after one side has said goodbye is no news, but neither side must take the end of the
    /// other for an orderly one.
    fn broken(&self, close: Close) -> Close {
        match close.cause {
            Cause::ClientReset if !self.up.shut => self.server.reset_on_close(),
            Cause::ServerReset if !self.down.shut && self.up.refused.is_none() => {
                self.client.reset_on_close();
            }
            _ => {}
        }
        self.first.map_or(close, Close::from)
    }

    /// Both directions are over: in order, or because one side refused to listen and said nothing more.
    fn end(&self) -> Close {
        let refusal = || {
            let server = self.up.refused.as_ref().map(failure::server);
            server.or_else(|| self.down.refused.as_ref().map(failure::client))
        };
        self.first.map(Close::from).or_else(refusal).unwrap_or_else(|| Cause::Internal.into())
    }
}
