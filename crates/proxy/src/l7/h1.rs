//! An HTTP/1 connection: one future that reads a head, serves the request, writes the response, and begins
//! anew.
//!
//! What a request needs, memory for its exchange and for what is written, is kept while there is something to
//! do. When a client has been quiet for a second it is given up: only the stream stays, and its first byte
//! brings the rest back. Where many connections of a worker are quiet at once, those above a number do not get
//! that second: memory that is freed later stays with the process.
//!
//! One timer does for all bounds of a connection. It rings once a second, or more often where a bound is
//! shorter, and looks at when things began: a request costs no timer.

mod conversation;
mod outbox;
mod refuse;
mod response;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use offramp_http::h1::{Limits as GuardLimits, Phase};
use offramp_http::head::{self, Response};
use offramp_net::clock::coarse_ms;
use offramp_observe::{Cause, Close};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::answer::Refusal;
use super::body::Reply;
use super::exchange::{self, Client, Request};
use super::intake::{Ending, GuardState, Intake, Stop};
use super::line::ClientConnection;
use super::session::{Leave, Session};
use super::transport::Transport;
use super::tunnel::Switch;
use super::{h2, tunnel};
use crate::closing::farewell;
use crate::live::Protocol;
use crate::snapshot::http::HttpLimits;
use conversation::Conversation;
use refuse::refuse;

/// How often bounds are looked at, at the least; also how long a client is quiet before it keeps nothing.
const TICK: Duration = Duration::from_secs(1);
/// How many connections of a worker may keep memory for requests while they are quiet.
const WARM: usize = 128;

/// How far before its time an alarm is asked, in milliseconds: more than what the coarse clock may lag behind.
const COARSE: u64 = 50;
/// The least time until a quiet connection is looked at again.
const SOONEST: Duration = Duration::from_millis(10);

/// What a response has to know of its request.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Whether the response has no body, by HEAD.
    head: bool,
    /// Whether the client knows HTTP/1.0 only.
    http10: bool,
    /// Whether the client may send another request.
    keep_alive: bool,
    /// Whether the client wants trailers.
    trailers: bool,
}

/// How a turn with requests ended.
enum Turn {
    /// The client is quiet.
    Idle,
    /// The client is done, or the last response said `close`, or another protocol follows.
    Done,
    /// The guard stopped it, and everything before was answered.
    Stopped,
    /// A head that the guard let pass is refused.
    Refused(Refusal, Box<head::Request>),
    /// The connection has to end.
    Ended(Close),
    /// The head of a request did not come in time.
    HeaderTimeout,
}

/// What bounds a connection.
#[derive(Clone, Copy)]
struct Bounds {
    header: Duration,
    keepalive: Duration,
    idle: Duration,
    tick: Duration,
}

impl Bounds {
    fn new(limits: &HttpLimits, idle: Duration) -> Self {
        let (header, keepalive) = (limits.request_header_timeout, limits.keepalive_timeout);
        let tick = TICK.min(header).min(keepalive).min(idle);
        Self { header, keepalive, idle, tick }
    }
}

/// Serves the requests of a connection until it ends.
pub(crate) async fn serve(
    session: Rc<Session>,
    transport: Transport,
    limits: &HttpLimits,
    idle: Duration,
) -> Close {
    let bounds = Bounds::new(limits, idle);
    let guard_state = GuardState::new(GuardLimits {
        head: limits.request_header_size,
        target: limits.request_target_size,
        fields: u16::try_from(limits.request_headers).unwrap_or(u16::MAX),
        connect: false,
    });
    let line = ClientConnection::new(transport, guard_state, Rc::clone(&session.worker.heads));
    let exchange = |request| exchange::serve(Rc::clone(&session), Client::Line(Rc::clone(&line)), request);
    let turn = loop {
        if let Some(close) = parked(&session, &line, bounds).await {
            break Turn::Ended(close);
        }
        match busy(&session, &line, &exchange, bounds).await {
            Turn::Idle => {}
            turn => break turn,
        }
    };
    // Bodies of requests do not keep the connection.
    let Some(line) = Rc::into_inner(line) else { return Cause::Internal.into() };
    let ClientConnection { guard_state, switch, intake, .. } = line;
    // What is left to do is rare, and as large as all the rest.
    Box::pin(last(session, turn, (guard_state, intake.into_inner()), switch.into_inner(), limits, idle)).await
}

/// What follows the last turn with requests.
async fn last(
    session: Rc<Session>,
    turn: Turn,
    (guard_state, mut intake): (Rc<GuardState>, Intake),
    switch: Option<Switch>,
    limits: &HttpLimits,
    idle: Duration,
) -> Close {
    let close = match (turn, guard_state.stopped.get()) {
        (Turn::Done, _) => match switch {
            Some(switch) => {
                guard_state.switched();
                let early = intake.take_held();
                let cause = tunnel::run(&session, &mut intake.transport, early, switch, idle).await;
                // A reset could destroy what the server said last.
                if cause == Cause::ServerAborted {
                    intake.ending = Ending::Unsaid;
                }
                cause.into()
            }
            // Closed after a response that said so, or because the client had ended.
            None => session.leaves().map_or(Cause::ClientClosed, Leave::cause).into(),
        },
        (Turn::Stopped, Stop::Http2) => return upgrade_to_h2(session, intake, limits, idle).await,
        (Turn::Stopped, Stop::Refused(fault)) if guard_state.reported.get() => Refusal::fault(fault).close,
        (Turn::Stopped, Stop::Refused(fault)) => {
            let held = intake.take_held();
            refuse(&session, &mut intake, &Refusal::fault(fault), &held).await
        }
        (Turn::Refused(refusal, head), _) => refuse(&session, &mut intake, &refusal, head.bytes()).await,
        (Turn::HeaderTimeout, _) => {
            let refusal = Refusal::new(StatusCode::REQUEST_TIMEOUT, Cause::RequestHeaderTimeout);
            let held = intake.take_held();
            refuse(&session, &mut intake, &refusal, &held).await
        }
        (Turn::Ended(close), _) => close,
        (Turn::Idle | Turn::Stopped, _) => Cause::ClientClosed.into(),
    };
    close_down(&session, &mut intake, close).await
}

/// Waits for the first byte of a request. Gives how the connection ended, where it did. While the worker drains, and
/// when the connection has its greatest age, a client still has a moment to ask ([`Session::grace`]): its request may be
/// on its way, and it cannot know if one that gets no answer was served. The end of the client's certificate is the end
/// of the connection.
async fn parked(session: &Session, line: &ClientConnection, bounds: Bounds) -> Option<Close> {
    let fresh = session.begun.get() == 0;
    let patience = if fresh { bounds.header } else { bounds.keepalive };
    let quiet = coarse_ms().saturating_sub(session.touched.get());
    let mut end = Instant::now() + patience.saturating_sub(Duration::from_millis(quiet));
    let (mut place, mut leaving) = (None, None);
    let mut alarm = pin!(sleep_until(next_look(session, end, leaving)));
    let cut = &session.worker.cut;
    let outcome = poll_fn(|cx| {
        place.get_or_insert_with(|| cut.remember(cx.waker()));
        let intake = &mut *line.intake.borrow_mut();
        if let Some(cause) = session.end() {
            let_go(cx, session, intake);
            return Poll::Ready(Some(cause.into()));
        }
        if let Poll::Ready(outcome) = intake.transport.poll_fill(cx) {
            let close = match outcome {
                Ok([]) if fresh => Some(Cause::ClientSilent.into()),
                Ok([]) => Some(Cause::ClientClosed.into()),
                Ok(_) => None,
                Err(error) => Some(intake.transport.close(&error)),
            };
            return Poll::Ready(close);
        }
        loop {
            if leaving.is_none()
                && let Some((cause, grace)) = session.grace()
            {
                leaving = Some(cause);
                let grace = if fresh { TICK } else { grace };
                end = end.min(Instant::now() + grace);
                alarm.as_mut().reset(next_look(session, end, leaving));
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if session.certificate_has_expired() {
                return Poll::Ready(Some(Cause::ClientCertificateExpired.into()));
            }
            if Instant::now() >= end {
                return Poll::Ready(Some(leaving.unwrap_or(Cause::IdleTimeout).into()));
            }
            // The clock was set back, or the coarse one lags.
            alarm.as_mut().reset(next_look(session, end, leaving));
        }
    })
    .await;
    if let Some(place) = place {
        cut.forget(place);
    }
    outcome
}

/// Says goodbye on a connection that is cut while nothing is under way on it, so that nothing is lost: as far as the
/// kernel takes it at once.
fn let_go(cx: &mut Context<'_>, session: &Session, intake: &mut Intake) {
    if session.worker.cut.is_now() && session.begun.get() > 0 {
        session.left.set(true);
        let _ = intake.transport.poll_shutdown(cx);
    }
}

/// When a quiet connection is looked at: at its end, at that of the client's certificate, or at its greatest age, unless
/// it is `leaving` already.
fn next_look(session: &Session, end: Instant, leaving: Option<Cause>) -> Instant {
    let age = session.age_left().filter(|_| leaving.is_none());
    let left = [session.certificate_left(), age].into_iter().flatten().min();
    left.map_or(end, |left| end.min(Instant::now() + left.max(SOONEST)))
}

/// A connection that has memory for requests.
struct Warm<'s> {
    session: &'s Session,
    /// Requests of the connection before that.
    before: u64,
}

impl<'s> Warm<'s> {
    fn new(session: &'s Session) -> Self {
        let count = &session.worker.warm;
        count.set(count.get() + 1);
        Self { session, before: session.begun.get() }
    }

    /// Whether there are more than may be quiet. Not before there was a request, or bytes that are none would
    /// have memory taken and given up without end.
    fn is_one_too_many(&self) -> bool {
        self.session.worker.warm.get() > WARM && self.session.begun.get() > self.before
    }
}

impl Drop for Warm<'_> {
    fn drop(&mut self) {
        let count = &self.session.worker.warm;
        count.set(count.get() - 1);
    }
}

/// Serves requests until there is a reason to stop.
async fn busy<S, F>(session: &Session, line: &Rc<ClientConnection>, exchange: &S, bounds: Bounds) -> Turn
where
    S: Fn(Request) -> F,
    F: Future<Output = Response<Reply>>,
{
    line.intake.borrow_mut().transport.keep_buffer(true);
    let warm = Warm::new(session);
    let mut conversation = Box::new(Conversation::new(session, line, exchange));
    let mut alarm = pin!(sleep(bounds.tick));
    let (cut, mut place, mut due) = (&session.worker.cut, None, 0);
    let turn = poll_fn(|cx| {
        place.get_or_insert_with(|| {
            line.driven_by(cx.waker());
            cut.remember(cx.waker())
        });
        if let Some(cause) = session.end() {
            if conversation.is_quiet() && line.guard_state.phase() == Phase::Idle {
                let_go(cx, session, &mut line.intake.borrow_mut());
            }
            return Poll::Ready(Turn::Ended(cause.into()));
        }
        if session.leaves().is_some() {
            conversation.leave();
        }
        let outcome = conversation.poll(cx);
        // Only streams of HTTP/2 are taken over by somebody.
        session.newborn.take();
        if outcome.is_ready() {
            return outcome;
        }
        let quiet = conversation.is_quiet() && session.in_flight() == 0;
        if quiet && warm.is_one_too_many() && line.guard_state.phase() == Phase::Idle {
            return Poll::Ready(Turn::Idle);
        }
        // It was asked when it was set, and asking costs more than the time of day.
        let now = coarse_ms();
        if now + COARSE < due {
            return Poll::Pending;
        }
        let turn = poll_alarm(cx, alarm.as_mut(), session, &line.guard_state, bounds, quiet);
        let left = alarm.deadline().saturating_duration_since(Instant::now());
        due = now + u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2);
        turn
    })
    .await;
    if let Some(place) = place {
        cut.forget(place);
    }
    if matches!(turn, Turn::Ended(_)) && conversation.is_cut() {
        line.intake.borrow_mut().ending = Ending::Reset;
    }
    drop((conversation, warm));
    line.intake.borrow_mut().rest();
    session.rest();
    turn
}

/// Looks at the bounds when the alarm rings.
fn poll_alarm(
    cx: &mut Context<'_>,
    mut alarm: Pin<&mut Sleep>,
    session: &Session,
    guard_state: &GuardState,
    bounds: Bounds,
    quiet: bool,
) -> Poll<Turn> {
    while alarm.as_mut().poll(cx).is_ready() {
        let now = coarse_ms();
        let since = |moment: u64| Duration::from_millis(now.saturating_sub(moment));
        let mut next = bounds.tick;
        let begun = guard_state.head_since.get();
        if begun > 0 && session.in_flight() == 0 {
            let left = bounds.header.saturating_sub(since(begun));
            if left.is_zero() {
                return Poll::Ready(Turn::HeaderTimeout);
            }
            next = next.min(left);
        }
        if quiet && guard_state.phase() == Phase::Idle {
            let left = bounds.tick.saturating_sub(since(session.touched.get().max(guard_state.moved.get())));
            if left.is_zero() {
                return Poll::Ready(Turn::Idle);
            }
            next = next.min(left);
        }
        if !guard_state.drained.get() && since(guard_state.moved.get()) >= bounds.idle {
            return Poll::Ready(Turn::Ended(hung(session)));
        }
        for record in session.live() {
            if let Some(moved) = record.still_since()
                && since(moved.max(guard_state.moved.get())) >= record.idle.get().unwrap_or(bounds.idle)
            {
                record.end(Cause::IdleTimeout);
                return Poll::Ready(Turn::Ended(Cause::IdleTimeout.into()));
            }
        }
        alarm.as_mut().reset(Instant::now() + next);
    }
    Poll::Pending
}

/// The client takes nothing of what waits for it.
fn hung(session: &Session) -> Close {
    for record in session.live() {
        record.end(Cause::ClientHung);
    }
    Cause::ClientHung.into()
}

/// A client that speaks HTTP/2 at once (RFC 9113 §3.3).
async fn upgrade_to_h2(
    session: Rc<Session>,
    mut intake: Intake,
    limits: &HttpLimits,
    idle: Duration,
) -> Close {
    // Over TLS it is agreed on by ALPN only.
    if session.brief.tls.is_some() {
        let close = Close::from(Cause::BadRequest).with_detail("HTTP/2 without ALPN");
        let refusal = Refusal::new(StatusCode::BAD_REQUEST, close);
        let held = intake.take_held();
        let close = refuse(&session, &mut intake, &refusal, &held).await;
        return close_down(&session, &mut intake, close).await;
    }
    let early = intake.take_held();
    session.worker.live.speaks(session.live, Protocol::H2);
    h2::serve(session, intake.transport, early, limits, idle).await
}

/// Says goodbye. The client may be in the middle of sending, and must not be reset while it reads what was
/// said last.
async fn close_down(session: &Session, intake: &mut Intake, close: Close) -> Close {
    let close = match intake.failed.take() {
        Some(error) if close.cause != Cause::Drain => intake.transport.close(&error),
        _ => close,
    };
    let gone = matches!(
        close.cause,
        Cause::ClientReset | Cause::ClientVanished | Cause::ClientTruncated | Cause::ClientHung
    );
    if intake.ending == Ending::Reset {
        intake.transport.socket().reset_on_close();
        return close;
    }
    if gone || session.worker.cut.is_now() {
        return close;
    }
    session.left.set(true);
    let is_unsaid = intake.ending == Ending::Unsaid;
    let goodbye = poll_fn(|cx| match is_unsaid {
        true => intake.transport.poll_flush(cx),
        false => intake.transport.poll_shutdown(cx),
    });
    if tokio::time::timeout(TICK, goodbye).await.is_err() || intake.ended {
        return close;
    }
    let farewell = farewell(&session.worker, intake.transport.socket(), &[]);
    if close.cause == Cause::IdleTimeout {
        // A request may be on its way: its client is to see an end and no reset. Who sends none needs no long wait.
        let _ = tokio::time::timeout(TICK, farewell).await;
    } else {
        farewell.await;
    }
    close
}
