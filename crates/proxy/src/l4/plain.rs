//! The relay without TLS of ours: passthrough routes, and listeners without TLS.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use offramp_net::Socket;
use offramp_observe::counters::Direction;
use offramp_observe::facts::Traffic;
use offramp_observe::{Cause, Close};
use tokio::time::{Instant, sleep};

use super::{TURN, Terms, flush};
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
    moved: u64,
}

/// Why a pipe broke.
enum Broken {
    Source(io::Error),
    Sink(io::Error),
}

impl Pipe {
    /// One step: `None` when blocked, `Some(true)` when over.
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        to: &Socket,
        room: &mut [u8],
    ) -> Result<Option<bool>, Broken> {
        if !self.kept.is_empty() && !flush(to, &mut self.kept, cx).map_err(Broken::Sink)? {
            return Ok(None);
        }
        if self.ended {
            if !self.shut {
                self.shut = true;
                let _ = to.shutdown_write();
            }
            return Ok(Some(true));
        }
        let n = match from.poll_read(cx, room) {
            Poll::Pending => return Ok(None),
            Poll::Ready(n) => n.map_err(Broken::Source)?,
        };
        if n == 0 {
            self.ended = true;
            return Ok(Some(false));
        }
        self.moved += n as u64;
        let written = match to.poll_write(cx, &room[..n]) {
            Poll::Ready(written) => written.map_err(Broken::Sink)?,
            Poll::Pending => 0,
        };
        self.kept.extend_from_slice(&room[written..n]);
        Ok(Some(false))
    }
}

/// Relays until both directions are over. `early` is what the client has sent already.
pub(crate) async fn relay(
    worker: &Rc<Worker>,
    client: &Socket,
    server: &Socket,
    early: Vec<u8>,
    terms: Terms,
) -> (Close, Traffic) {
    let mut up = Pipe { moved: early.len() as u64, kept: early, ..Pipe::default() };
    worker.counters.bytes_relayed(Direction::ClientToServer, up.moved);
    let mut down = Pipe::default();
    let mut first = None;
    let mut moved_ms = offramp_net::clock::coarse_ms();
    let mut alarm = pin!(sleep(terms.idle_timeout));
    let mut place = None;
    let close = poll_fn(|cx| {
        if worker.cut.is_now() {
            return Poll::Ready(Cause::Drain.into());
        }
        place.get_or_insert_with(|| worker.cut.remember(cx.waker()));
        let before = up.moved + down.moved;
        for turn in 0.. {
            let mut scratch = worker.scratch.borrow_mut();
            let room = &mut scratch.bytes[..READ];
            let (sent, got) = (up.moved, down.moved);
            let outcome = up.step(cx, client, server, room).and_then(|rising| {
                first = first.or(up.ended.then_some(Cause::ClientClosed));
                Ok((rising, down.step(cx, server, client, room).map_err(Broken::turned)?))
            });
            worker.counters.bytes_relayed(Direction::ClientToServer, up.moved - sent);
            worker.counters.bytes_relayed(Direction::ServerToClient, down.moved - got);
            first = first.or(down.ended.then_some(Cause::ServerClosed));
            match outcome {
                Err(broken) => {
                    let close = match broken {
                        Broken::Source(error) => failure::client(&error),
                        Broken::Sink(error) => failure::server(&error),
                    };
                    return Poll::Ready(first.map_or(close, Close::from));
                }
                Ok((Some(true), Some(true))) => {
                    return Poll::Ready(first.unwrap_or(Cause::Internal).into());
                }
                Ok((None | Some(true), None | Some(true))) => break,
                Ok(_) if turn == TURN => {
                    cx.waker().wake_by_ref();
                    break;
                }
                Ok(_) => {}
            }
        }
        let now = offramp_net::clock::coarse_ms();
        if up.moved + down.moved > before {
            moved_ms = now;
        }
        while alarm.as_mut().poll(cx).is_ready() {
            let quiet = std::time::Duration::from_millis(now.saturating_sub(moved_ms));
            let left = terms.idle_timeout.saturating_sub(quiet);
            if left.is_zero() {
                return Poll::Ready(Cause::IdleTimeout.into());
            }
            alarm.as_mut().reset(Instant::now() + left);
        }
        Poll::Pending
    })
    .await;
    if let Some(place) = place {
        worker.cut.forget(place);
    }
    (close, Traffic { from_client: up.moved, to_client: down.moved })
}

impl Broken {
    /// The same seen from the client's side: what the other direction reads from is the server.
    fn turned(self) -> Self {
        match self {
            Self::Source(error) => Self::Sink(error),
            Self::Sink(error) => Self::Source(error),
        }
    }
}
