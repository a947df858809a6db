//! An HTTP/1 connection: hyper while there is something to do, next to nothing while there is not.
//!
//! hyper keeps buffers and state for as long as its connection lives. So when a client has been quiet for a
//! second, its connection is taken apart: only the stream stays, and its first byte has hyper built anew. Where
//! many connections of a worker are quiet at once, those above a number do not get that second: memory that is
//! freed later stays with the process.
//!
//! One timer does for all bounds of a connection. It rings once a second, or more often where a bound is
//! shorter, and looks at when things began: a request costs no timer.

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use offramp_net::clock::coarse_ms;
use offramp_observe::facts::{HttpVersion, RequestLine};
use offramp_observe::{Cause, Close};
use offramp_wire::http1::{Limits as GuardLimits, Phase};
use tokio::time::{Instant, Sleep, sleep};

use super::answer::{Refusal, written_error};
use super::exchange::{self, Line};
use super::inbound::Inbound;
use super::intake::{Gate, Intake, Stop};
use super::interim::Interim;
use super::record::Record;
use super::session::Session;
use super::transport::Transport;
use super::{h2, tunnel};
use crate::closing::farewell;
use crate::snapshot::http::HttpLimits;

/// How often bounds are looked at, at the least; also how long a client is quiet before hyper is taken apart.
const TICK: Duration = Duration::from_secs(1);
/// How many connections of a worker may keep hyper while they are quiet.
const WARM: usize = 128;
/// How much more than the guard hyper lets through, so that it is the guard who refuses.
const SLACK: usize = 16 * 1024;
/// How much of the request line of a refused request is told.
const LONGEST_TOLD: usize = 512;

/// How a turn with hyper ended.
enum Turn {
    /// The client is quiet.
    Idle,
    /// hyper is done with the connection.
    Done,
    /// The guard stopped it, and everything before was answered.
    Stopped,
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
    let gate = Gate::new(GuardLimits {
        head: limits.request_header_size,
        target: limits.request_target_size,
        fields: u16::try_from(limits.request_headers).unwrap_or(u16::MAX),
        connect: false,
    });
    let interim = Arc::new(Interim::default());
    let line = Rc::new(Line { gate: Rc::clone(&gate), interim: Arc::clone(&interim), switch: None.into() });
    let mut intake = Intake::new(transport, gate, interim);
    let builder = builder(limits);
    loop {
        if let Some(close) = parked(&session, &mut intake, bounds).await {
            return close_down(&session, &mut intake, close).await;
        }
        let turn;
        (intake, turn) = busy(&session, &line, &builder, intake, bounds).await;
        let close = match turn {
            Turn::Idle => continue,
            Turn::Done => done(&session, &line, &mut intake, bounds).await,
            Turn::Stopped => match line.gate.stopped.get() {
                Stop::Http2 => return upgrade_to_h2(session, intake, limits, idle).await,
                Stop::Refused(fault) if line.gate.told.get() => Some(Refusal::fault(fault).close),
                Stop::Refused(fault) => Some(refuse(&session, &mut intake, &Refusal::fault(fault)).await),
                Stop::Not => None,
            },
            Turn::HeaderTimeout => {
                let refusal = Refusal::new(StatusCode::REQUEST_TIMEOUT, Cause::RequestHeaderTimeout);
                Some(refuse(&session, &mut intake, &refusal).await)
            }
            Turn::Ended(close) => Some(close),
        };
        return close_down(&session, &mut intake, close.unwrap_or(Cause::ClientClosed.into())).await;
    }
}

fn builder(limits: &HttpLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(limits.request_header_size as usize + SLACK);
    // hyper's own bound of 100 costs no allocation.
    if limits.request_headers > 100 {
        builder.max_headers(limits.request_headers as usize);
    }
    builder
}

/// Waits for the first byte of a request. Gives how the connection ended, where it did. While the worker
/// drains, whoever has asked before is let go at once; a new client has [`TICK`] to ask, because it cannot know
/// that its request will not be answered, and may not repeat it.
async fn parked(session: &Session, intake: &mut Intake, bounds: Bounds) -> Option<Close> {
    let fresh = session.begun.get() == 0;
    let patience = if fresh { bounds.header } else { bounds.keepalive };
    let quiet = coarse_ms().saturating_sub(session.touched.get());
    let mut alarm = pin!(sleep(patience.saturating_sub(Duration::from_millis(quiet))));
    let (mut place, mut leaving) = (None, false);
    let cut = &session.worker.cut;
    let outcome = poll_fn(|cx| {
        place.get_or_insert_with(|| cut.remember(cx.waker()));
        if cut.is_now() {
            return Poll::Ready(Some(Cause::Drain.into()));
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
        if session.worker.is_draining() && !std::mem::replace(&mut leaving, true) {
            if !fresh {
                return Poll::Ready(Some(Cause::Drain.into()));
            }
            let soon = Instant::now() + TICK;
            if soon < alarm.deadline() {
                alarm.as_mut().reset(soon);
            }
        }
        let cause = if leaving { Cause::Drain } else { Cause::IdleTimeout };
        alarm.as_mut().poll(cx).map(|()| Some(cause.into()))
    })
    .await;
    if let Some(place) = place {
        cut.forget(place);
    }
    outcome
}

/// A connection that has hyper.
struct Warm<'s> {
    session: &'s Session,
    /// Requests of the connection before hyper had it.
    before: u64,
}

impl<'s> Warm<'s> {
    fn new(session: &'s Session) -> Self {
        let count = &session.worker.warm;
        count.set(count.get() + 1);
        Self { session, before: session.begun.get() }
    }

    /// Whether there are more than may be quiet. Not before hyper has had a request, or bytes that are none
    /// would have it built and taken apart without end.
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

/// Has hyper serve the connection until there is a reason to stop.
async fn busy(
    session: &Rc<Session>,
    line: &Rc<Line>,
    builder: &http1::Builder,
    intake: Intake,
    bounds: Bounds,
) -> (Intake, Turn) {
    let service = service_fn({
        let (session, line) = (Rc::clone(session), Rc::clone(line));
        move |request: Request<Incoming>| {
            let request = request.map(Inbound::Http1);
            exchange::serve(Rc::clone(&session), Some(Rc::clone(&line)), request)
        }
    });
    let mut intake = intake;
    intake.transport.keep_buffer(true);
    let warm = Warm::new(session);
    let mut connection = Box::new(builder.serve_connection(intake, service));
    let mut alarm = pin!(sleep(bounds.tick));
    let cut = &session.worker.cut;
    let (mut place, mut told) = (None, false);
    let turn = poll_fn(|cx| {
        place.get_or_insert_with(|| cut.remember(cx.waker()));
        if cut.is_now() {
            return Poll::Ready(Turn::Ended(Cause::Drain.into()));
        }
        let mut outcome = Pin::new(&mut *connection).poll(cx);
        // Not before hyper has read what is there: one that has read nothing would close at once.
        if session.worker.is_draining() && outcome.is_pending() && !std::mem::replace(&mut told, true) {
            Pin::new(&mut *connection).graceful_shutdown();
            outcome = Pin::new(&mut *connection).poll(cx);
        }
        // Only streams of HTTP/2 are taken over by somebody.
        session.newborn.take();
        if let Poll::Ready(outcome) = outcome {
            return Poll::Ready(outcome.map_or_else(|error| failed(&error), |()| Turn::Done));
        }
        let quiet = session.in_flight() == 0
            && line.gate.passed.get() == session.begun.get()
            && line.gate.drained.get();
        if quiet && line.gate.stopped.get() != Stop::Not {
            return Poll::Ready(Turn::Stopped);
        }
        if quiet && warm.is_one_too_many() && line.gate.phase() == Phase::Idle {
            return Poll::Ready(Turn::Idle);
        }
        poll_alarm(cx, alarm.as_mut(), session, &line.gate, bounds, quiet)
    })
    .await;
    if let Some(place) = place {
        cut.forget(place);
    }
    drop(warm);
    let mut intake = connection.into_parts().io;
    intake.transport.keep_buffer(false);
    (intake, turn)
}

/// hyper gave up. What failed below it is remembered by the intake, what failed above was told.
fn failed(error: &hyper::Error) -> Turn {
    let cause = if error.is_parse() { Cause::BadRequest } else { Cause::ClientAborted };
    Turn::Ended(Close::from(cause).with_detail(&error.to_string()))
}

/// Looks at the bounds when the alarm rings.
fn poll_alarm(
    cx: &mut Context<'_>,
    mut alarm: Pin<&mut Sleep>,
    session: &Session,
    gate: &Gate,
    bounds: Bounds,
    quiet: bool,
) -> Poll<Turn> {
    while alarm.as_mut().poll(cx).is_ready() {
        let now = coarse_ms();
        let since = |moment: u64| Duration::from_millis(now.saturating_sub(moment));
        let mut next = bounds.tick;
        let begun = gate.head_since.get();
        if begun > 0 && session.in_flight() == 0 {
            let left = bounds.header.saturating_sub(since(begun));
            if left.is_zero() {
                return Poll::Ready(Turn::HeaderTimeout);
            }
            next = next.min(left);
        }
        if quiet && gate.phase() == Phase::Idle {
            let left = bounds.tick.saturating_sub(since(session.touched.get().max(gate.moved.get())));
            if left.is_zero() {
                return Poll::Ready(Turn::Idle);
            }
            next = next.min(left);
        }
        if !gate.drained.get() && since(gate.moved.get()) >= bounds.idle {
            return Poll::Ready(Turn::Ended(hung(session)));
        }
        for record in session.live() {
            let moved = record.moved.get();
            if moved > 0 && since(moved.max(gate.moved.get())) >= bounds.idle {
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

/// hyper is done: the connection goes on with another protocol, or ends.
async fn done(session: &Session, line: &Line, intake: &mut Intake, bounds: Bounds) -> Option<Close> {
    let Some(switch) = line.switch.take() else {
        // Closed after a response that said so, or because the client had ended.
        let cause = if session.worker.is_draining() { Cause::Drain } else { Cause::ClientClosed };
        return Some(cause.into());
    };
    line.gate.switched();
    let early = intake.take_held();
    Some(tunnel::run(session, &mut intake.transport, early, switch, bounds.idle).await.into())
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
        let close = refuse(&session, &mut intake, &refusal).await;
        return close_down(&session, &mut intake, close).await;
    }
    let early = intake.take_held();
    h2::serve(session, intake.transport, early, limits, idle).await
}

/// Answers a request that never reached hyper, and tells of it.
async fn refuse(session: &Rc<Session>, intake: &mut Intake, refusal: &Refusal) -> Close {
    let held = intake.take_held();
    let id = session.next_id();
    let record = Record::new(session, told_line(session, &held), id.clone(), Duration::ZERO);
    session.newborn.take();
    record.answered(refusal.status.as_u16());
    let bytes = written_error(refusal, &id);
    let sending = poll_fn(|cx| {
        let mut gone = 0;
        while gone < bytes.len() {
            match intake.transport.poll_write_vectored(cx, &[IoSlice::new(&bytes[gone..])]) {
                Poll::Ready(Ok(n)) => gone += n,
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        intake.transport.poll_flush(cx)
    });
    // One that takes nothing needs no answer.
    let _ = tokio::time::timeout(TICK, sending).await;
    record.end(refusal.close.clone());
    refusal.close.clone()
}

/// What can be told of a request whose head was refused.
fn told_line(session: &Session, held: &[u8]) -> RequestLine {
    let line =
        held.split(|byte| matches!(byte, b'\r' | b'\n')).find(|line| !line.is_empty()).unwrap_or_default();
    let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_TOLD)]);
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    RequestLine {
        method: words.next().unwrap_or_default().into(),
        scheme: session.scheme,
        host: Box::default(),
        target: words.next().unwrap_or_default().into(),
        version: HttpVersion::Http11,
        referer: None,
        user_agent: None,
        user: None,
    }
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
    if gone || session.worker.cut.is_now() {
        return close;
    }
    let goodbye = poll_fn(|cx| intake.transport.poll_shutdown(cx));
    if tokio::time::timeout(TICK, goodbye).await.is_ok() && !intake.ended && close.cause != Cause::IdleTimeout
    {
        farewell(intake.transport.socket(), &[]).await;
    }
    close
}
