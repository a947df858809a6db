//! An HTTP/2 connection: the `h2` library, behind a count of what costs us more than it costs the client.
//!
//! Each stream runs in a task of the same thread, because any of them may be the one that can go on; tasks serve
//! one stream after the other. A stream that is dropped is reset, so who stands still for too long is dropped.

mod content;
mod end;
mod flood;
mod hints;
mod outgoing;
mod rules;
mod runner;
mod stream;
mod wire;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake};
use offramp_net::clock::coarse_ms;
use offramp_observe::{Cause, Close};
use tokio::time::{Instant, sleep};

use super::session::Session;
use super::transport::Transport;
use crate::closing::farewell;
use crate::snapshot::http::HttpLimits;
pub(crate) use content::Content;
pub(crate) use rules::judge;
use runner::Job;
pub(crate) use runner::Runners;
use wire::{Pulse, Wire};

/// How often bounds are looked at, at the least.
const TICK: Duration = Duration::from_secs(1);
/// The window of a stream: what a client may send of a body before the server has taken it.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The window of a connection.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// What is kept of a response that a client has no window for.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that were reset before they were looked at; more end the connection (CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// Streams that we had to reset for a fault of the client's; more end the connection.
const ERROR_RESETS: usize = 100;

/// Serves the streams of a connection until it ends. `early` came already.
pub(crate) async fn serve(
    session: Rc<Session>,
    transport: Transport,
    early: Vec<u8>,
    limits: &HttpLimits,
    idle: Duration,
) -> Close {
    let pulse = Rc::new(Pulse::default());
    let wire = Wire::new(transport, early, Rc::clone(&pulse));
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.request_header_size)
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(Some(ERROR_RESETS))
        .enable_connect_protocol();
    let mut line = Box::new(Line::Greeting { handshake: builder.handshake(wire), leaving: false });
    let bounds = Bounds::new(limits, idle);
    let close = drive(&session, &pulse, &mut line, bounds).await;
    drop(line);
    for record in session.live() {
        record.cancel(if close.cause == Cause::Drain { Cause::Drain } else { Cause::ClientAborted });
    }
    if let Some(mut transport) = pulse.transport() {
        end(&session, &pulse, &mut transport, &close).await;
    }
    outside_of_requests(&session, &pulse, close)
}

/// What the event of the connection says where streams ended that no request tells of.
fn outside_of_requests(session: &Session, pulse: &Pulse, close: Close) -> Close {
    let told = pulse.told.get();
    if matches!(close.cause, Cause::H2ProtocolError | Cause::H2Flood) || !(told.refused || told.faults > 0) {
        return close;
    }
    session.untold.set(true);
    if told.refused {
        return Close::from(Cause::HeadersTooLarge).with_detail("larger than is unpacked");
    }
    let detail = format!("{} streams were reset, the last with {}", told.faults, told.name());
    Close::from(Cause::H2ProtocolError).with_detail(&detail)
}

/// What bounds a connection.
#[derive(Clone, Copy)]
struct Bounds {
    keepalive: Duration,
    idle: Duration,
    tick: Duration,
}

impl Bounds {
    fn new(limits: &HttpLimits, idle: Duration) -> Self {
        let keepalive = limits.keepalive_timeout;
        Self { keepalive, idle, tick: TICK.min(keepalive).min(idle) }
    }
}

/// A connection, as the library has it.
enum Line {
    /// The client's preface and settings have not come yet.
    Greeting { handshake: Handshake<Wire, Bytes>, leaving: bool },
    /// Streams come and go.
    Serving(Connection<Wire, Bytes>),
}

impl Line {
    /// Reads, writes, and has new streams served; ready when the connection is over.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        session: &Rc<Session>,
        idle: Duration,
    ) -> Poll<Result<(), h2::Error>> {
        loop {
            match self {
                Self::Greeting { handshake, leaving } => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    if *leaving {
                        connection.graceful_shutdown();
                    }
                    *self = Self::Serving(connection);
                }
                Self::Serving(connection) => match ready!(connection.poll_accept(cx)).transpose()? {
                    Some((request, respond)) => {
                        let job = Job { session: Rc::clone(session), request, respond, idle };
                        session.worker.runners.run(job);
                    }
                    None => return Poll::Ready(Ok(())),
                },
            }
        }
    }

    /// Takes no more streams, and ends when the last has ended.
    fn leave(&mut self) {
        match self {
            Self::Greeting { leaving, .. } => *leaving = true,
            Self::Serving(connection) => connection.graceful_shutdown(),
        }
    }
}

/// Polls a connection until it ends. A connection without streams gets GOAWAY and a moment to end.
async fn drive(session: &Rc<Session>, pulse: &Pulse, line: &mut Line, bounds: Bounds) -> Close {
    let mut alarm = pin!(sleep(bounds.tick));
    let cut = &session.worker.cut;
    let (mut place, mut leaving, mut dropped) = (None, None, 0);
    let close = poll_fn(|cx| {
        place.get_or_insert_with(|| cut.remember(cx.waker()));
        if cut.is_now() {
            return Poll::Ready(Cause::Drain.into());
        }
        if session.worker.is_draining() && leaving.is_none() {
            leaving = Some(Cause::Drain);
            line.leave();
        }
        if let Poll::Ready(outcome) = line.poll(cx, session, bounds.idle) {
            let ordinary = leaving.unwrap_or(Cause::ClientClosed);
            return Poll::Ready(pulse.verdict(outcome, ordinary));
        }
        while alarm.as_mut().poll(cx).is_ready() {
            let now = coarse_ms();
            // What was dropped is reset by now, unless it waits behind data for which there is no window. Then
            // nothing can be said to the client on that stream, and the connection ends with the others.
            let stuck = pulse.told.get().cancelled < dropped;
            dropped += stalled(session, now, bounds.idle);
            let since = |moment: u64| Duration::from_millis(now.saturating_sub(moment));
            let quiet = since(session.touched.get());
            // Heeded by the next look at the connection.
            pulse.quiet.set(session.in_flight() == 0 && quiet >= bounds.tick);
            if pulse.quiet.get() {
                session.rest();
            }
            let patience = if stuck { Duration::ZERO } else { bounds.keepalive };
            if stuck || session.in_flight() == 0 && quiet >= patience {
                if leaving.is_some() && session.in_flight() == 0 && quiet >= patience + TICK {
                    return Poll::Ready(leaving.unwrap_or(Cause::IdleTimeout).into());
                }
                leaving.get_or_insert(Cause::IdleTimeout);
                line.leave();
                if let Poll::Ready(outcome) = line.poll(cx, session, bounds.idle) {
                    return Poll::Ready(pulse.verdict(outcome, leaving.unwrap_or(Cause::IdleTimeout)));
                }
            }
            alarm.as_mut().reset(Instant::now() + bounds.tick);
        }
        Poll::Pending
    })
    .await;
    if let Some(place) = place {
        cut.forget(place);
    }
    close
}

/// Drops the streams on which nothing has moved for too long: a client that gives no window, or a server
/// that has no more to say. Gives their number.
fn stalled(session: &Session, now: u64, idle: Duration) -> u32 {
    let mut dropped = 0;
    for record in session.live() {
        let moved = record.moved.get();
        if moved > 0 && Duration::from_millis(now.saturating_sub(moved)) >= idle {
            record.cancel(Cause::IdleTimeout);
            dropped += 1;
        }
    }
    dropped
}

/// Tells the client why, where the library has no way to, and closes.
async fn end(session: &Session, pulse: &Pulse, transport: &mut Transport, close: &Close) {
    if session.worker.cut.is_now() || matches!(close.cause, Cause::ClientReset | Cause::ClientVanished) {
        return;
    }
    let mut last = (close.cause == Cause::H2Flood).then(|| pulse.goaway()).flatten().unwrap_or_default();
    let goodbye = poll_fn(|cx| {
        while !last.is_empty() {
            let n = std::task::ready!(transport.poll_write_vectored(cx, &[std::io::IoSlice::new(&last)]))?;
            last.drain(..n);
        }
        transport.poll_shutdown(cx)
    });
    let told: Result<std::io::Result<()>, _> = tokio::time::timeout(TICK, goodbye).await;
    // One that said GOAWAY may still be talking, and reading its last answer.
    if told.is_ok() && !pulse.heard_all.get() && close.cause != Cause::IdleTimeout {
        farewell(transport.socket(), &[]).await;
    }
}
