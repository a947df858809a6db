//! Another protocol after HTTP: bytes both ways, half-closes passed on, until both directions are over.
//!
//! WebSocket on HTTP/1.1 and over HTTP/2, and whatever else a client and its server agree on. Bytes are read
//! into the worker's scratch; a tunnel keeps of its own only what a side has not taken yet, and while one
//! does not take, the other is not read.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Buf as _;
use offramp_net::clock::coarse_ms;
use offramp_observe::Cause;
use offramp_upstream::Tunnel;
use tokio::time::sleep;

use super::deadlines::{DeadlineTimer, Look, SOONEST};
use super::record::RecordGuard;
use super::session::Session;
use super::transport::Transport;

/// The most that is read at a time.
const PIECE: usize = 64 * 1024;
/// Pieces that a direction moves before others have their turn.
const TURN: usize = 8;

/// A connection that is to go on with another protocol.
pub(crate) struct Switch {
    /// Side of the server.
    pub(crate) server: Tunnel,
    /// Guard that reports the request's end.
    pub(crate) record_guard: RecordGuard,
}

/// One end of a tunnel.
pub(crate) trait TunnelEnd {
    /// Reads; 0 is the end of the direction.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;
    /// Writes some of `bytes`.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Waits until what was written has left.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ends the direction of writing.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl TunnelEnd for Transport {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let bytes = ready!(self.poll_fill(cx))?;
        let n = bytes.len().min(buffer.len());
        buffer[..n].copy_from_slice(&bytes[..n]);
        self.consume(n);
        Poll::Ready(Ok(n))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self, cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_shutdown(self, cx)
    }
}

impl TunnelEnd for Tunnel {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.ahead.is_empty() {
            return self.link.poll_read(cx, buffer);
        }
        let n = self.ahead.len().min(buffer.len());
        self.ahead.split_to(n).copy_to_slice(&mut buffer[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.link.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_shutdown(cx)
    }
}

/// End of a direction that broke.
enum TunnelFault {
    Reading,
    Writing(io::ErrorKind),
}

/// One direction of a tunnel.
#[derive(Default)]
struct TunnelDirection {
    /// Bytes that the other side has not taken yet.
    kept: Vec<u8>,
    /// Set once the reading side has ended.
    ended: bool,
    /// Set once the writing side knows of the end.
    shut: bool,
    /// Set if a write has shown that the reading side was reset: what looks like the end of its stream is none
    /// then.
    reset: bool,
    moved: u64,
}

impl TunnelDirection {
    /// Moves what there is; `true` where there may be more at once.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut dyn TunnelEnd,
        to: &mut dyn TunnelEnd,
        scratch: &mut [u8],
    ) -> Result<bool, TunnelFault> {
        for _ in 0..TURN {
            if !self.kept.is_empty() {
                match to.poll_write(cx, &self.kept).map_err(|error| TunnelFault::Writing(error.kind()))? {
                    Poll::Ready(n) => drop(self.kept.drain(..n)),
                    Poll::Pending => return Ok(false),
                }
                if self.kept.is_empty() {
                    self.kept = Vec::new();
                }
                continue;
            }
            if self.shut {
                return Ok(false);
            }
            if self.ended {
                self.shut =
                    to.poll_shutdown(cx).map_err(|error| TunnelFault::Writing(error.kind()))?.is_ready();
                return Ok(false);
            }
            let read = from.poll_read(cx, &mut scratch[..PIECE]).map_err(|_| TunnelFault::Reading)?;
            let Poll::Ready(n) = read else {
                let _ = to.poll_flush(cx).map_err(|error| TunnelFault::Writing(error.kind()))?;
                return Ok(false);
            };
            if n == 0 && self.reset {
                return Err(TunnelFault::Reading);
            }
            if n == 0 {
                self.ended = true;
                continue;
            }
            self.moved += n as u64;
            let taken =
                match to.poll_write(cx, &scratch[..n]).map_err(|error| TunnelFault::Writing(error.kind()))? {
                    Poll::Ready(taken) => taken,
                    Poll::Pending => 0,
                };
            self.kept.extend_from_slice(&scratch[taken..n]);
        }
        Ok(true)
    }

    /// Gives up: nothing more is read, and what was not taken is forgotten.
    fn abandon(&mut self) {
        (self.kept, self.ended, self.shut) = (Vec::new(), true, true);
    }
}

/// Moves what there is both ways; `true` where there may be more at once.
fn both(
    cx: &mut Context<'_>,
    up: &mut TunnelDirection,
    down: &mut TunnelDirection,
    client: &mut dyn TunnelEnd,
    server: &mut dyn TunnelEnd,
    scratch: &mut [u8],
) -> Result<bool, Cause> {
    let upward = match up.poll(cx, client, server, scratch) {
        Ok(more) => more,
        Err(TunnelFault::Reading) => return Err(Cause::ClientAborted),
        // A server may be done listening and not yet with talking. If it is gone, reading from it says so.
        Err(TunnelFault::Writing(how)) => {
            up.abandon();
            down.reset = how == io::ErrorKind::ConnectionReset;
            false
        }
    };
    match down.poll(cx, server, client, scratch) {
        Ok(downward) => Ok(upward || downward),
        Err(TunnelFault::Reading) => Err(Cause::ServerAborted),
        Err(TunnelFault::Writing(_)) => Err(Cause::ClientAborted),
    }
}

/// The pause until a tunnel is looked at: `idle`, or the time that its token or the age of its connection leaves.
fn until(session: &Session, ends: Option<SystemTime>, idle: Duration) -> Duration {
    let token = ends.map(|end| end.duration_since(SystemTime::now()).unwrap_or_default());
    [token, session.overdue_in()].into_iter().flatten().fold(idle, Duration::min)
}

/// Looks at the bounds of a tunnel in which a byte last moved at `since`.
fn look(session: &Session, ends: Option<SystemTime>, since: u64, idle: Duration) -> Look<Cause> {
    if ends.is_some_and(|end| end <= SystemTime::now()) {
        return Look::End(Cause::TokenExpired);
    }
    if session.is_overdue() {
        return Look::End(Cause::MaxAge);
    }
    let left = idle.saturating_sub(Duration::from_millis(coarse_ms().saturating_sub(since)));
    if left.is_zero() {
        return Look::End(Cause::IdleTimeout);
    }
    Look::Again(until(session, ends, left).max(SOONEST))
}

/// Moves bytes between `client` and the server until both directions are over, one breaks, nothing moves
/// for `idle`, or the token of the request or the grace behind the greatest age of the connection has ended. `early` came
/// from the client already.
pub(crate) async fn run(
    session: &Session,
    client: &mut dyn TunnelEnd,
    early: Vec<u8>,
    switch: Switch,
    idle: Duration,
) -> Cause {
    let Switch { mut server, record_guard } = switch;
    let ends = record_guard.0.token_end();
    let idle = record_guard.0.idle.get().unwrap_or(idle);
    let worker = Rc::clone(&session.worker);
    let mut up = TunnelDirection { moved: early.len() as u64, kept: early, ..TunnelDirection::default() };
    let mut down = TunnelDirection::default();
    let alarm = pin!(sleep(until(session, ends, idle)));
    let mut timer = DeadlineTimer::new(alarm);
    let (mut seen, mut since) = (0, coarse_ms());
    let mut place = None;
    let cause = poll_fn(|cx| {
        place.get_or_insert_with(|| worker.drain.subscribe(cx.waker()));
        if let Some(cause) = session.end() {
            return Poll::Ready(cause);
        }
        let mut scratch = worker.scratch.borrow_mut();
        let more = match both(cx, &mut up, &mut down, &mut *client, &mut server, &mut scratch.bytes) {
            Ok(more) => more,
            Err(cause) => return Poll::Ready(cause),
        };
        record_guard.0.up.set(up.moved);
        record_guard.0.down.set(down.moved);
        if up.shut && down.shut {
            return Poll::Ready(Cause::Completed);
        }
        if up.moved + down.moved != seen {
            (seen, since) = (up.moved + down.moved, coarse_ms());
            record_guard.0.stillness.moved(since);
        }
        if more {
            offramp_net::turn::poll_next(cx);
            return Poll::Pending;
        }
        record_guard.0.held_until(server.link.socket().waited_for_pace_until());
        timer.poll_end(cx, || {
            let since = since.max(server.link.socket().waited_for_pace_until());
            look(session, ends, since, idle)
        })
    })
    .await;
    if let Some(place) = place {
        worker.drain.unsubscribe(place);
    }
    record_guard.0.end(cause);
    cause
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Has these bytes to give, and then its end; what it is given is refused in this way, if in any.
    struct Fake(Vec<u8>, Option<io::ErrorKind>);

    impl TunnelEnd for Fake {
        fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
            let n = self.0.len();
            buffer[..n].copy_from_slice(&std::mem::take(&mut self.0));
            Poll::Ready(Ok(n))
        }

        fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(self.1.map_or(Ok(bytes.len()), |kind| Err(kind.into())))
        }

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The kernel tells a reset once: to the write. The read that follows finds the end of the stream.
    #[test]
    fn a_server_that_was_reset_has_not_ended() {
        for (how, expected) in [
            (Some(io::ErrorKind::ConnectionReset), Err(Cause::ServerAborted)),
            // It had closed before, and its answer is whole.
            (Some(io::ErrorKind::BrokenPipe), Ok(false)),
            (None, Ok(false)),
        ] {
            let (mut up, mut down) = (TunnelDirection::default(), TunnelDirection::default());
            let (mut client, mut server) = (Fake(b"question".to_vec(), None), Fake(b"half".to_vec(), how));
            let cx = &mut Context::from_waker(Waker::noop());
            let outcome = both(cx, &mut up, &mut down, &mut client, &mut server, &mut vec![0; PIECE]);
            assert_eq!((outcome, down.moved), (expected, 4), "{how:?}");
            assert_eq!(down.shut, expected.is_ok(), "{how:?}");
        }
    }
}
