//! An HTTP/2 connection (RFC 9113): frames, windows and streams, each of which has a task of the same thread, because
//! any of them may be the one that can go on. Tasks serve one stream after the other.
//!
//! The protocol is [`offramp_http::h2::Connection`], which has no I/O. [`connection`] moves its bytes, and the
//! [`table`] has it, which the tasks share: it says what there is room for ([`memory`]), and which streams read
//! before others. [`receive`] has requests served. A task ([`stream`], run by a [`runner`]) takes a request's
//! content from the table and puts its response there through its [`handle`]. A dropped stream is reset, so a
//! stream that stands still for too long is dropped.

mod connection;
mod content;
mod end;
mod handle;
mod hints;
mod memory;
mod receive;
mod rules;
mod runner;
mod stream;
mod table;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use offramp_http::h2::{Code, Faults, Violation};
use offramp_net::clock::coarse_ms;
use offramp_observe::{Cause, Close};
use tokio::time::{Instant, sleep};

use super::deadlines::{DeadlineTimer, Deadlines, Look, SOONEST, TICK};
use super::session::Session;
use super::transport::Transport;
use crate::closing::farewell;
use crate::snapshot::http::RequestLimits;
use connection::{Connection, Fall};
pub(crate) use content::StreamContent;
pub(crate) use hints::Hints;
pub(crate) use memory::{AHEAD as USUAL_AHEAD, WindowLoan};
pub(crate) use runner::Runners;

/// Event of a connection with a client that broke a rule.
fn broken_rule(violation: &Violation) -> Close {
    let cause =
        if violation.code == Code::ENHANCE_YOUR_CALM { Cause::H2Flood } else { Cause::H2ProtocolError };
    Close::from(cause).with_detail(&violation.to_string())
}

/// Serves the streams of a connection until it ends. `early` came already.
pub(crate) async fn serve(
    session: Rc<Session>,
    transport: Transport,
    early: Vec<u8>,
    limits: &RequestLimits,
    idle: Duration,
) -> Close {
    let mut connection = Box::new(Connection::new(Rc::clone(&session), transport, early, limits, idle));
    let close = drive(&session, &mut connection, Deadlines::new(limits, idle)).await;
    for record in session.requests.all_open() {
        record.cancel(match close.cause {
            cause @ (Cause::Drain | Cause::ClosedByOperator | Cause::MaxAge) => cause,
            _ => Cause::ClientAborted,
        });
    }
    let faults = {
        let table = &mut connection.table().borrow_mut();
        table.die();
        table.connection.faults()
    };
    end(&session, &mut connection, &close).await;
    outside_of_requests(&session, faults, close)
}

/// Event of a connection, if streams ended without a request that reports it.
fn outside_of_requests(session: &Session, faults: Faults, close: Close) -> Close {
    match faults.last {
        Some(code) if !matches!(close.cause, Cause::H2ProtocolError | Cause::H2Flood) => {
            session.unreported.set(true);
            let detail = format!("{} streams were reset, the last with {}", faults.count, code.name());
            Close::from(Cause::H2ProtocolError).with_detail(&detail)
        }
        _ => close,
    }
}

/// Polls a connection until it ends. A connection without streams gets GOAWAY and a moment to end.
async fn drive(session: &Rc<Session>, connection: &mut Connection, deadlines: Deadlines) -> Close {
    let alarm = pin!(sleep(deadlines.tick));
    let mut timer = DeadlineTimer::new(alarm);
    let (mut leaving, mut asleep) = (None, false);
    poll_fn(|cx| {
        if let Some(cause) = session.end() {
            if cause == Cause::ClosedByOperator {
                connection.hang_up(Code::NO_ERROR);
            }
            return Poll::Ready(cause.into());
        }
        if leaving.is_none()
            && let Some(leave) = session.leaves()
        {
            leaving = Some((leave.cause(), coarse_ms()));
            connection.leave();
        }
        loop {
            if let Poll::Ready(outcome) = connection.poll(cx) {
                let ordinary = leaving.map_or(Cause::ClientClosed, |(cause, _)| cause);
                return Poll::Ready(verdict(connection, outcome, ordinary));
            }
            // Something has come, or is to end: the bounds are looked at again.
            if asleep && (leaving.is_some() || !connection.is_quiet()) {
                asleep = false;
                timer.reset(Instant::now() + deadlines.tick);
            }
            let looked = timer.poll(cx, || {
                let look = look(session, connection, deadlines, &mut leaving);
                asleep = matches!(look, Look::Again(after) if after > deadlines.tick);
                look
            });
            if let Some(close) = ready!(looked) {
                return Poll::Ready(close);
            }
        }
    })
    .await
}

/// Looks at the bounds of a connection. If nothing is under way on it, the next look is when it is to end: a quiet
/// connection causes no wake-ups.
fn look(
    session: &Session,
    connection: &mut Connection,
    deadlines: Deadlines,
    leaving: &mut Option<(Cause, u64)>,
) -> Look<Close> {
    let now = coarse_ms();
    let since = |moment: u64| Duration::from_millis(now.saturating_sub(moment));
    // A client that takes nothing more gets no GOAWAY.
    if connection.stuck_since().is_some_and(|moment| since(moment) >= deadlines.idle) {
        return Look::End(Cause::IdleTimeout.into());
    }
    let awaiting = connection.awaiting_since().map(|moment| deadlines.header.saturating_sub(since(moment)));
    if awaiting.is_some_and(|left| left.is_zero()) {
        connection.hang_up(Code::NO_ERROR);
        session.unreported.set(true);
        return Look::End(Cause::RequestHeaderTimeout.into());
    }
    // Streams that were dropped for it have had a tick to say so.
    if session.is_overdue() && session.requests.in_flight() == 0 {
        return Look::End(Cause::MaxAge.into());
    }
    drop_late(session, now, deadlines);
    let idle = {
        let table = &mut connection.table().borrow_mut();
        // A stream may still get its response after its request was reported.
        table.end_lingering(now);
        table.save_memory();
        table.drop_blocked(now, u64::try_from(deadlines.idle.as_millis()).unwrap_or(u64::MAX));
        session.requests.in_flight() == 0 && table.is_empty() && table.connection.output().is_empty()
    };
    let quiet = since(session.requests.touched.get());
    let resting = idle && quiet >= deadlines.tick;
    connection.rest(resting);
    if resting {
        session.rest();
    }
    match *leaving {
        None if idle && quiet >= deadlines.keepalive => {
            *leaving = Some((Cause::IdleTimeout, now));
            connection.leave();
        }
        None if resting => {
            let left = (deadlines.keepalive - quiet).min(awaiting.unwrap_or(Duration::MAX));
            let left = left.min(session.certificate_left().unwrap_or(Duration::MAX));
            let left = left.min(session.age_left().unwrap_or(Duration::MAX));
            return Look::Again(left.max(SOONEST));
        }
        // One that does not answer the PING has had time enough.
        Some((cause, moment)) if since(moment) >= TICK => {
            connection.part();
            if idle && matches!(cause, Cause::IdleTimeout | Cause::ClientCertificateExpired | Cause::MaxAge) {
                return Look::End(cause.into());
            }
        }
        _ => {}
    }
    Look::Again(deadlines.tick)
}

/// Cause of the end of a connection: `ordinary`, unless something failed.
fn verdict(connection: &Connection, outcome: Result<(), Fall>, ordinary: Cause) -> Close {
    match outcome {
        Ok(()) => ordinary.into(),
        Err(Fall::Violation(violation)) => broken_rule(&violation),
        Err(Fall::Io(error)) => connection.transport.close(&error),
    }
}

/// Drops the streams that are over their time, and those on which nothing has moved for too long: a client that gives no
/// window, or a server that has no more to say.
fn drop_late(session: &Session, now: u64, deadlines: Deadlines) {
    for record in session.requests.all_open() {
        if let Some(cause) = deadlines.end_of(&record, now, 0) {
            record.cancel(cause);
        }
    }
}

/// Sends what waits, and closes.
async fn end(session: &Session, connection: &mut Connection, close: &Close) {
    if session.worker.drain.is_cut() || matches!(close.cause, Cause::ClientReset | Cause::ClientVanished) {
        return;
    }
    session.left.set(true);
    let goodbye = poll_fn(|cx| {
        ready!(connection.poll_send(cx))?;
        connection.transport.poll_shutdown(cx)
    });
    let sent: Result<std::io::Result<()>, _> = tokio::time::timeout(TICK, goodbye).await;
    if sent.is_err() || connection.received_all {
        return;
    }
    // One that got GOAWAY may still be sending, and reading its last response.
    let farewell = farewell(&session.worker, connection.transport.socket(), &[]);
    if close.cause == Cause::IdleTimeout {
        // A request may be on its way: its client is to see an end and no reset.
        let _ = tokio::time::timeout(TICK, farewell).await;
    } else {
        farewell.await;
    }
}
