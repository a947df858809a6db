//! One request from its head to its last byte: its facts, and the one place that reports them.
//!
//! A [`RequestRecord`] is shared by all that carry a part of the request: the way to the server, the body that goes up,
//! the body that comes down. The first who knows an end ends it; when all have dropped it without one, the client
//! went away.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::Method;
use offramp_http::head::{Fields, Known, Request};
use offramp_net::clock::coarse_ms;
use offramp_observe::counters::Direction;
use offramp_observe::facts::{HttpVersion, PathFacts, RequestSummary, Trace};
use offramp_observe::{Cause, Close, RequestFacts};

use super::session::Session;

/// One request that is under way.
pub(crate) struct RequestRecord {
    session: Rc<Session>,
    facts: RefCell<Option<Box<RequestFacts>>>,
    begun: Instant,
    /// Of so many that went well one is reported.
    pub(crate) log_one_in: Cell<u32>,
    /// Bytes of body from the client.
    pub(crate) up: Cell<u64>,
    /// Bytes of body to the client.
    pub(crate) down: Cell<u64>,
    /// Since when nothing has moved.
    pub(crate) stillness: Stillness,
    /// The time for which nothing may move, where the route has one.
    pub(crate) idle: Cell<Option<Duration>>,
    /// The end of the token that the request came with, in milliseconds since 1970; 0: it has none. Shorter than an
    /// `Option<SystemTime>`, as every stream has one of these.
    token_end: Cell<u64>,
    /// Set if the end of the request cannot be foreseen: a tunnel, a call of gRPC, a response without a length.
    endless: Cell<bool>,
    /// The fault of the request's body, if there is one.
    pub(crate) body_fault: RefCell<Option<Close>>,
    /// That the stream is to be dropped.
    cancelled: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Maximum delay of a waiter that says again that it waits, in milliseconds: a worker has much to do.
const LATE: u64 = 1000;

/// The time that a response without a length has, even if its token ends: most are pages that are written as they are made.
const LEAST: Duration = Duration::from_secs(5);

/// Time when a byte of a body last moved, or until when one that could move waits for the bandwidth of the route,
/// in milliseconds of the coarse clock; 0 until the response begins.
#[derive(Default)]
pub(crate) struct Stillness(Cell<u64>);

impl Stillness {
    /// A byte has moved. The other direction may wait for its bandwidth beyond that.
    pub(crate) fn moved(&self, now: u64) {
        self.0.set(self.0.get().max(now));
    }

    /// Bytes that could move wait for the bandwidth of the route until then, or wait again: a waiter says so every
    /// tenth of a second, or as soon as the worker comes round. So the end of the wait needs no report, and a wait
    /// that is given up is forgotten.
    pub(crate) fn held_until(&self, moment: u64) {
        if self.0.get() > 0 {
            self.moved(moment + LATE);
        }
    }

    /// Since when nothing has moved: up to two seconds ahead of the clock where something waits for the bandwidth of the route. `None`
    /// before the response begins.
    pub(crate) fn since(&self) -> Option<u64> {
        Some(self.0.get()).filter(|moved| *moved > 0)
    }
}

impl RequestRecord {
    /// Begins a request with a head that came `late` after its first byte.
    pub(crate) fn new(session: &Rc<Session>, line: RequestSummary, id: Box<str>, late: Duration) -> Rc<Self> {
        let now = SystemTime::now();
        let begun = now.checked_sub(late).unwrap_or(now);
        let facts = RequestFacts::new(id, Arc::clone(&session.brief), begun, line);
        let instant = Instant::now();
        let record = Rc::new(Self {
            session: Rc::clone(session),
            facts: RefCell::new(Some(Box::new(facts))),
            begun: instant.checked_sub(late).unwrap_or(instant),
            log_one_in: Cell::new(1),
            up: Cell::new(0),
            down: Cell::new(0),
            stillness: Stillness::default(),
            idle: Cell::new(None),
            token_end: Cell::new(0),
            endless: Cell::new(false),
            body_fault: RefCell::default(),
            cancelled: Cell::new(false),
            waker: RefCell::default(),
        });
        session.worker.counters.request_begun();
        session.requests.begin(&record);
        record
    }

    /// The request's place in a distributed trace, if it has one and its end was not reported yet.
    pub(crate) fn trace(&self) -> Option<Trace> {
        self.facts.borrow().as_ref().and_then(|facts| facts.trace)
    }

    /// The path of the request, if its end was not reported yet.
    pub(crate) fn path(&self) -> Option<PathFacts> {
        self.facts.borrow().as_ref().map(|facts| facts.path.clone())
    }

    /// Number that identifies the request.
    pub(crate) fn id(&self) -> Box<str> {
        self.facts.borrow().as_ref().map(|facts| facts.id.clone()).unwrap_or_default()
    }

    /// Has a request say its id, if the end was not reported yet.
    pub(crate) fn tell_id(&self, fields: &mut Fields) {
        if let Some(facts) = self.facts.borrow().as_ref() {
            fields.set_known(Known::XRequestId, facts.id.as_bytes());
        }
    }

    /// Changes what is known, unless it has been reported already.
    pub(crate) fn note(&self, change: impl FnOnce(&mut RequestFacts)) {
        if let Some(facts) = self.facts.borrow_mut().as_mut() {
            change(facts);
        }
    }

    /// The time that the request has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Bytes of the request's body came.
    pub(crate) fn received(&self, n: usize) {
        self.up.set(self.up.get() + n as u64);
        if self.stillness.since().is_some() {
            self.stillness.moved(coarse_ms());
        }
    }

    /// Bytes of the response's body go.
    pub(crate) fn sent(&self, n: usize) {
        self.down.set(self.down.get() + n as u64);
        self.stillness.moved(coarse_ms());
    }

    /// See [`Stillness::held_until`].
    pub(crate) fn held_until(&self, moment: u64) {
        self.stillness.held_until(moment);
    }

    /// Time of the last movement; see [`Stillness::since`].
    pub(crate) fn still_since(&self) -> Option<u64> {
        self.stillness.since()
    }

    /// Records that the response begins.
    pub(crate) fn answered(&self, status: u16) {
        self.stillness.moved(coarse_ms().max(1));
        self.note(|facts| facts.status = status);
    }

    /// A tunnel begins. Over HTTP/2 it is noted as over HTTP/1.1: the 200 there says the same as a 101 (RFC 8441 §5).
    pub(crate) fn opened(&self) {
        self.answered(101);
        self.note(|facts| facts.is_open_ended = true);
    }

    /// The request has ended; only the first end counts.
    pub(crate) fn end(&self, close: impl Into<Close>) {
        let Some(mut facts) = self.facts.borrow_mut().take() else { return };
        facts.close = close.into();
        if facts.is_open_ended && has_left(facts.close.cause) {
            facts.close = Cause::ClientLeft.into();
        }
        facts.times.total = self.begun.elapsed();
        facts.traffic.from_client = self.up.get();
        facts.traffic.to_client = self.down.get();
        let worker = &self.session.worker;
        worker.counters.bytes_relayed(Direction::ClientToServer, self.up.get());
        worker.counters.bytes_relayed(Direction::ServerToClient, self.down.get());
        worker.count_request(&facts);
        worker.live.requested(self.session.live, &facts.path, facts.traffic);
        self.session.requests.end(self);
        let one_in = u64::from(self.log_one_in.get());
        if one_in <= 1 || facts.is_failure() || worker.random().is_multiple_of(one_in) {
            worker.log_request(facts);
        }
    }

    /// The client has given up work that cost more than the request: it counts as so many control frames of HTTP/2.
    pub(crate) fn abandon(&self, frames: u32) {
        let owed = &self.session.requests.owed;
        owed.set(owed.get().saturating_add(frames));
    }

    /// Notes the end of the request's token, which ends what is [endless](Self::set_endless).
    pub(crate) fn end_with_token(&self, end: Option<SystemTime>) {
        let since = end.map(|end| end.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis());
        self.token_end.set(since.map_or(0, |since| u64::try_from(since).unwrap_or(u64::MAX).max(1)));
    }

    /// Notes whether the request has no known end.
    pub(crate) fn set_endless(&self, endless: bool) {
        self.endless.set(endless);
    }

    /// See [`RequestRecord::end_with_token`].
    pub(crate) fn token_end(&self) -> Option<SystemTime> {
        let since = Some(self.token_end.get()).filter(|since| *since > 0)?;
        UNIX_EPOCH.checked_add(Duration::from_millis(since))
    }

    /// The reason to end the request now, if there is one: its token, or the age of its connection.
    pub(crate) fn overdue(&self) -> Option<Cause> {
        if self.session.is_overdue() {
            return Some(Cause::MaxAge);
        }
        let lapsed = self.endless.get()
            && self.begun.elapsed() >= LEAST
            && self.token_end().is_some_and(|end| end <= SystemTime::now());
        lapsed.then_some(Cause::TokenExpired)
    }

    /// The end was reported.
    pub(crate) fn has_ended(&self) -> bool {
        self.facts.borrow().is_none()
    }

    /// Ends the request and has its stream dropped.
    pub(crate) fn cancel(&self, close: impl Into<Close>) {
        self.cancelled.set(true);
        self.end(close);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The stream is to be dropped; else `waker` learns of it.
    pub(crate) fn is_cancelled(&self, waker: &Waker) -> bool {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
        self.cancelled.get()
    }
}

/// Set for the ends of a client that is gone, which only matters where something was still to come.
const fn has_left(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ClientAborted | Cause::ClientReset | Cause::ClientVanished | Cause::ClientTruncated
    )
}

/// Ends the request when its exchange is dropped: by then the client is gone, or the worker ends.
pub(crate) struct RecordGuard(pub(crate) Rc<RequestRecord>);

impl Drop for RecordGuard {
    fn drop(&mut self) {
        if self.0.has_ended() {
            return;
        }
        self.0.end(self.0.session.end().unwrap_or(Cause::ClientAborted));
    }
}

/// The request line, as events have it.
pub(crate) fn line(session: &Session, request: &Request, host: Arc<str>) -> RequestSummary {
    let version = match request.version {
        http::Version::HTTP_2 => HttpVersion::Http2,
        http::Version::HTTP_10 => HttpVersion::Http10,
        _ => HttpVersion::Http11,
    };
    RequestSummary {
        method: method(&request.method),
        scheme: session.scheme,
        host,
        target: request.target().into(),
        version,
        referer: request.fields.get(Known::Referer).map(Into::into),
        user_agent: request.fields.get(Known::UserAgent).map(|agent| session.agent(agent)),
        user: None,
    }
}

/// A method's name, without a copy where it is a usual one.
fn method(method: &Method) -> Cow<'static, str> {
    match *method {
        Method::GET => "GET".into(),
        Method::POST => "POST".into(),
        Method::PUT => "PUT".into(),
        Method::DELETE => "DELETE".into(),
        Method::HEAD => "HEAD".into(),
        Method::OPTIONS => "OPTIONS".into(),
        Method::PATCH => "PATCH".into(),
        _ => method.as_str().to_owned().into(),
    }
}
