//! An HTTP/1 connection: one future that reads a head, serves the request, writes the response, and begins
//! anew.
//!
//! What a request needs, memory for its exchange and for what is written, is kept while there is something to
//! do. When a client has been quiet for a second it is given up: only the stream stays, and its first byte
//! brings the rest back. Where many connections of a worker are quiet at once, those above a number do not get
//! that second: memory that is freed later stays with the process.
//!
//! One timer does for all bounds of a connection ([`DeadlineTimer`]). It rings once a second, or more often where a bound is
//! shorter, and looks at when things began: a request costs no timer.

mod conversation;
mod outbox;
mod refuse;
mod response;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::StatusCode;
use offramp_http::h1::{HeadLimits, Phase};
use offramp_http::head::{self, Response};
use offramp_net::clock::coarse_ms;
use offramp_observe::{Cause, Close};
use tokio::time::{Instant, sleep, sleep_until};

use super::answer::ErrorReply;
use super::body::Reply;
use super::deadlines::{DeadlineTimer, Deadlines, Look, SOONEST, TICK};
use super::exchange::{self, IncomingRequest, RequestTransport};
use super::intake::{Ending, GuardState, ReadStop, RequestReader};
use super::line::ClientConnection;
use super::session::{Leave, Session};
use super::transport::Transport;
use super::tunnel::Switch;
use super::{h2, tunnel};
use crate::closing::farewell;
use crate::live::ConnectionProtocol;
use crate::snapshot::http::RequestLimits;
use conversation::Conversation;
use refuse::refuse;

/// Connections of a worker that may keep memory for requests while they are quiet.
const WARM: usize = 128;

/// The properties of a request that its response depends on.
#[derive(Clone, Copy, Debug, Default)]
struct ResponseTraits {
    /// The response has no body, by HEAD.
    head: bool,
    /// The client knows HTTP/1.0 only.
    http10: bool,
    /// The client may send another request.
    keep_alive: bool,
    /// The client wants trailers.
    trailers: bool,
}

/// The end of a turn with requests.
enum ServeEnd {
    /// The client is quiet.
    Idle,
    /// The client is done, or the last response said `close`, or another protocol follows.
    Done,
    /// The guard stopped it, and everything before was answered.
    Stopped,
    /// A head that the guard let pass is refused.
    Refused(ErrorReply, Box<head::Request>),
    /// The connection has to end.
    Ended(Close),
    /// The head of a request did not come in time.
    HeaderTimeout,
}

/// Serves the requests of a connection until it ends.
pub(crate) async fn serve(
    session: Rc<Session>,
    transport: Transport,
    limits: &RequestLimits,
    idle: Duration,
) -> Close {
    let deadlines = Deadlines::new(limits, idle);
    let guard_state = GuardState::new(HeadLimits {
        head: limits.request_header_size,
        target: limits.request_target_size,
        fields: u16::try_from(limits.request_headers).unwrap_or(u16::MAX),
        connect: false,
    });
    let line = ClientConnection::new(transport, guard_state, Rc::clone(&session.http.heads));
    let exchange =
        |request| exchange::serve(Rc::clone(&session), RequestTransport::Line(Rc::clone(&line)), request);
    let turn = loop {
        if let Some(close) = parked(&session, &line, deadlines).await {
            break ServeEnd::Ended(close);
        }
        match busy(&session, &line, &exchange, deadlines).await {
            ServeEnd::Idle => {}
            turn => break turn,
        }
    };
    // Bodies of requests do not keep the connection.
    let Some(line) = Rc::into_inner(line) else { return Cause::Internal.into() };
    let ClientConnection { guard_state, switch, intake, .. } = line;
    // What is left to do is rare, and as large as all the rest.
    let leftover = Leftover { guard_state, intake: intake.into_inner(), switch: switch.into_inner() };
    Box::pin(last(session, turn, leftover, limits, idle)).await
}

/// The parts of a connection that are left when its last request is over.
struct Leftover {
    guard_state: Rc<GuardState>,
    intake: RequestReader,
    switch: Option<Switch>,
}

/// Ends a connection after its last turn with requests, or goes on with another protocol.
async fn last(
    session: Rc<Session>,
    turn: ServeEnd,
    Leftover { guard_state, mut intake, switch }: Leftover,
    limits: &RequestLimits,
    idle: Duration,
) -> Close {
    let close = match (turn, guard_state.stopped.get()) {
        (ServeEnd::Done, _) => match switch {
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
        (ServeEnd::Stopped, ReadStop::Http2) => return upgrade_to_h2(session, intake, limits, idle).await,
        (ServeEnd::Stopped, ReadStop::Refused(fault)) if guard_state.reported.get() => {
            ErrorReply::fault(fault).close
        }
        (ServeEnd::Stopped, ReadStop::Refused(fault)) => {
            let held = intake.take_held();
            refuse(&session, &mut intake, &ErrorReply::fault(fault), &held).await
        }
        (ServeEnd::Refused(refusal, head), _) => refuse(&session, &mut intake, &refusal, head.bytes()).await,
        (ServeEnd::HeaderTimeout, _) => {
            let refusal = ErrorReply::new(StatusCode::REQUEST_TIMEOUT, Cause::RequestHeaderTimeout);
            let held = intake.take_held();
            refuse(&session, &mut intake, &refusal, &held).await
        }
        (ServeEnd::Ended(close), _) => close,
        (ServeEnd::Idle | ServeEnd::Stopped, _) => Cause::ClientClosed.into(),
    };
    close_down(&session, &mut intake, close).await
}

/// Waits for the first byte of a request. Gives how the connection ended, where it did. While the worker drains, and
/// when the connection has its greatest age, a client still has a moment to ask ([`Session::grace`]): its request may be
/// on its way, and it cannot know if one that gets no answer was served. The end of the client's certificate is the end
/// of the connection.
async fn parked(session: &Session, line: &ClientConnection, deadlines: Deadlines) -> Option<Close> {
    let fresh = session.requests.begun.get() == 0;
    let patience = if fresh { deadlines.header } else { deadlines.keepalive };
    let quiet = coarse_ms().saturating_sub(session.requests.touched.get());
    let mut end = Instant::now() + patience.saturating_sub(Duration::from_millis(quiet));
    let mut leaving = None;
    let alarm = pin!(sleep_until(next_look(session, end, leaving)));
    let mut timer = DeadlineTimer::new(alarm);
    poll_fn(|cx| {
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
                timer.reset(next_look(session, end, leaving));
            }
            let looked = timer.poll(cx, || {
                let now = Instant::now();
                if session.certificate_has_expired() {
                    Look::End(Cause::ClientCertificateExpired)
                } else if now >= end {
                    Look::End(leaving.unwrap_or(Cause::IdleTimeout))
                } else {
                    // The clock was set back, or the coarse one lags.
                    Look::Again(next_look(session, end, leaving) - now)
                }
            });
            if let Some(cause) = ready!(looked) {
                return Poll::Ready(Some(cause.into()));
            }
        }
    })
    .await
}

/// Says goodbye on a connection that is cut while nothing is under way on it, so that nothing is lost: as far as the
/// kernel takes it at once.
fn let_go(cx: &mut Context<'_>, session: &Session, intake: &mut RequestReader) {
    if session.worker.drain.is_cut() && session.requests.begun.get() > 0 {
        session.left.set(true);
        let _ = intake.transport.poll_shutdown(cx);
    }
}

/// Next time to look at a quiet connection: at its end, at that of the client's certificate, or at its greatest
/// age, unless it is `leaving` already.
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
        let count = &session.http.warm;
        count.set(count.get() + 1);
        Self { session, before: session.requests.begun.get() }
    }

    /// Returns true if there are more than may be quiet. Not before there was a request, or bytes that are none
    /// would have memory taken and given up without end.
    fn is_one_too_many(&self) -> bool {
        self.session.http.warm.get() > WARM && self.session.requests.begun.get() > self.before
    }
}

impl Drop for Warm<'_> {
    fn drop(&mut self) {
        let count = &self.session.http.warm;
        count.set(count.get() - 1);
    }
}

/// Serves requests until there is a reason to stop.
async fn busy<S, F>(
    session: &Session,
    line: &Rc<ClientConnection>,
    exchange: &S,
    deadlines: Deadlines,
) -> ServeEnd
where
    S: Fn(IncomingRequest) -> F,
    F: Future<Output = Response<Reply>>,
{
    line.intake.borrow_mut().transport.keep_buffer(true);
    let warm = Warm::new(session);
    let mut conversation = Box::new(Conversation::new(session, line, exchange));
    let alarm = pin!(sleep(deadlines.tick));
    let mut timer = DeadlineTimer::new(alarm);
    let mut driven = false;
    let turn = poll_fn(|cx| {
        if !std::mem::replace(&mut driven, true) {
            line.driven_by(cx.waker());
        }
        if let Some(cause) = session.end() {
            if conversation.is_quiet() && line.guard_state.phase() == Phase::Idle {
                let_go(cx, session, &mut line.intake.borrow_mut());
            }
            return Poll::Ready(ServeEnd::Ended(cause.into()));
        }
        if session.leaves().is_some() {
            conversation.leave();
        }
        let outcome = conversation.poll(cx);
        // Only streams of HTTP/2 claim their records.
        session.requests.unclaimed.take();
        if outcome.is_ready() {
            return outcome;
        }
        let quiet = conversation.is_quiet() && session.requests.in_flight() == 0;
        if quiet && warm.is_one_too_many() && line.guard_state.phase() == Phase::Idle {
            return Poll::Ready(ServeEnd::Idle);
        }
        timer.poll_end(cx, || look(session, &line.guard_state, deadlines, quiet))
    })
    .await;
    if matches!(turn, ServeEnd::Ended(_)) && conversation.is_cut() {
        line.intake.borrow_mut().ending = Ending::Reset;
    }
    drop((conversation, warm));
    line.intake.borrow_mut().rest();
    session.rest();
    turn
}

/// Looks at the bounds of a connection with memory for requests; `quiet` if none is under way.
fn look(session: &Session, guard_state: &GuardState, deadlines: Deadlines, quiet: bool) -> Look<ServeEnd> {
    let now = coarse_ms();
    let since = |moment: u64| Duration::from_millis(now.saturating_sub(moment));
    let mut next = deadlines.tick;
    let begun = guard_state.head_since.get();
    if begun > 0 && session.requests.in_flight() == 0 {
        let left = deadlines.header.saturating_sub(since(begun));
        if left.is_zero() {
            return Look::End(ServeEnd::HeaderTimeout);
        }
        next = next.min(left);
    }
    if quiet && guard_state.phase() == Phase::Idle {
        let left =
            deadlines.tick.saturating_sub(since(session.requests.touched.get().max(guard_state.moved.get())));
        if left.is_zero() {
            return Look::End(ServeEnd::Idle);
        }
        next = next.min(left);
    }
    if !guard_state.drained.get() && since(guard_state.moved.get()) >= deadlines.idle {
        return Look::End(ServeEnd::Ended(hung(session)));
    }
    if session.is_overdue() {
        session.requests.all_open().iter().for_each(|record| record.end(Cause::MaxAge));
        return Look::End(ServeEnd::Ended(Cause::MaxAge.into()));
    }
    for record in session.requests.all_open() {
        if let Some(cause) = deadlines.end_of(&record, now, guard_state.moved.get()) {
            record.end(cause);
            return Look::End(ServeEnd::Ended(cause.into()));
        }
    }
    Look::Again(next)
}

/// The client takes nothing of what waits for it.
fn hung(session: &Session) -> Close {
    for record in session.requests.all_open() {
        record.end(Cause::ClientHung);
    }
    Cause::ClientHung.into()
}

/// A client that speaks HTTP/2 at once (RFC 9113 §3.3).
async fn upgrade_to_h2(
    session: Rc<Session>,
    mut intake: RequestReader,
    limits: &RequestLimits,
    idle: Duration,
) -> Close {
    // Over TLS it is agreed on by ALPN only.
    if session.brief.tls.is_some() {
        let close = Close::from(Cause::BadRequest).with_detail("HTTP/2 without ALPN");
        let refusal = ErrorReply::new(StatusCode::BAD_REQUEST, close);
        let held = intake.take_held();
        let close = refuse(&session, &mut intake, &refusal, &held).await;
        return close_down(&session, &mut intake, close).await;
    }
    let early = intake.take_held();
    session.worker.live.speaks(session.live, ConnectionProtocol::H2);
    h2::serve(session, intake.transport, early, limits, idle).await
}

/// Says goodbye. The client may be in the middle of sending, and must not be reset while it reads what was
/// said last.
async fn close_down(session: &Session, intake: &mut RequestReader, close: Close) -> Close {
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
    if gone || session.worker.drain.is_cut() {
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
        // A request may be on its way: its client is to see an end and no reset. A client that sends none needs no
        // long wait.
        let _ = tokio::time::timeout(TICK, farewell).await;
    } else {
        farewell.await;
    }
    close
}
