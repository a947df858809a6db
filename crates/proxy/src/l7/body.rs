//! Bodies on their way through: counted, bounded, never collected.
//!
//! Nothing is read that the other side has not room for: the next piece is asked for when the last is gone.

mod reply;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use offramp_http::body::Frame;
use offramp_http::semantics::TrailerRules;
use offramp_http::semantics::protected::clean_request_trailers;
use offramp_net::clock::coarse_ms;
use offramp_observe::{Cause, Close};
use offramp_upstream::{Lent, PieceWriter, RequestBody};
use tokio::time::{Instant, Sleep, sleep_until};

use super::answer::Refusal;
use super::inbound::Inbound;
use super::intake::{GuardState, Stop};
use super::interim::Interim;
use super::mirror::RequestCopy;
use super::paced::PacedUpload;
use super::record::Record;
use crate::snapshot::Bandwidth;

pub(crate) use reply::Reply;

/// How long a body may come slowly before its rate is looked at.
const GRACE: Duration = Duration::from_secs(10);
/// How often a slow body's rate is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait for the first content of unknown length over HTTP/2, in which most clients say that there is none.
const FIRST: Duration = Duration::from_millis(500);
/// How long a server may take to ask for a body whose client waits to be asked; then it is asked for
/// anyway, because servers that know nothing of `Expect` never ask (RFC 9110 §10.1.1).
const ASK: Duration = Duration::from_secs(1);

/// The error of bodies; what it stands for is in the request's record.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// What bounds the body of a request.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Between two pieces.
    pub(crate) timeout: Duration,
    /// Bytes per second; 0: any.
    pub(crate) rate: u64,
    /// Bytes in all.
    pub(crate) most: Option<u64>,
}

/// The body of a request. Most have none, and cost nothing.
pub(crate) struct ClientBody(Content);

enum Content {
    None,
    Upload(Box<Upload>),
    /// The same on a route with a bandwidth.
    Paced(Box<PacedUpload>),
    /// It has come already: a copy.
    Whole(Box<Bytes>),
}

/// A body that comes.
pub(crate) struct Upload {
    incoming: Inbound,
    record: Rc<Record>,
    bounds: Bounds,
    /// The guard before the connection, where it is HTTP/1.
    guard_state: Option<Rc<GuardState>>,
    /// The fields that its trailers must not have, by the route that the request was given when it began.
    trailers: Option<Arc<TrailerRules>>,
    /// What another server gets too.
    copy: Option<RequestCopy>,
    /// Where the client waits to be asked for the body.
    unasked: Option<Arc<Interim>>,
    alarm: Option<Pin<Box<Sleep>>>,
    /// Since when the client has been waited for, in milliseconds of the coarse clock; 0 while it is not.
    waiting: u64,
    /// How long it was waited for in all, in milliseconds.
    waited: u64,
}

impl ClientBody {
    pub(crate) fn new(incoming: Inbound, record: Rc<Record>, bounds: Bounds) -> Self {
        let empty = incoming.is_end_stream();
        if empty {
            return Self(Content::None);
        }
        Self(Content::Upload(Box::new(Upload {
            incoming,
            record,
            bounds,
            guard_state: None,
            trailers: None,
            copy: None,
            unasked: None,
            alarm: None,
            waiting: 0,
            waited: 0,
        })))
    }

    /// A body that has come already.
    pub(crate) fn whole(body: Bytes) -> Self {
        Self(if body.is_empty() { Content::None } else { Content::Whole(Box::new(body)) })
    }

    /// Has `copy` grow with what comes, and leave at the end of it.
    pub(crate) fn copy_to(&mut self, copy: RequestCopy) {
        if let Content::Upload(upload) = &mut self.0 {
            upload.copy = Some(copy);
        }
    }

    /// The same body, whose trailers have none of these fields.
    pub(crate) fn without_trailers(mut self, rules: Option<&Arc<TrailerRules>>) -> Self {
        if let Content::Upload(upload) = &mut self.0 {
            upload.trailers = rules.cloned();
        }
        self
    }

    /// The same body behind a guard; `unasked` where the client waits for `100 Continue`.
    pub(crate) fn behind(mut self, guard_state: &Rc<GuardState>, unasked: Option<&Arc<Interim>>) -> Self {
        if let Content::Upload(upload) = &mut self.0 {
            upload.guard_state = Some(Rc::clone(guard_state));
            upload.unasked = unasked.cloned();
        }
        self
    }

    /// The same body, of which no more passes than may.
    pub(crate) fn paced(self, bandwidth: &Bandwidth) -> Self {
        Self(match self.0 {
            Content::Upload(upload) => Content::Paced(Box::new(PacedUpload::new(upload, bandwidth))),
            content => content,
        })
    }
}

impl Upload {
    /// Waits, for [`FIRST`] at the most, until it is known if there is any content.
    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.incoming.poll_begun(cx).is_pending() {
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + FIRST)));
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        self.alarm = None;
        Poll::Ready(())
    }

    /// The request that it belongs to.
    pub(crate) fn record(&self) -> &Rc<Record> {
        &self.record
    }

    /// Other requests of the connection are not to wait for this one.
    pub(crate) fn set_apart(&self) {
        self.incoming.set_apart();
    }

    /// Whether nothing is to come.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// How many bytes of data are to come, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.incoming.length()
    }

    fn fail(&self, close: impl Into<Close>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(Some(Err(self.break_off(close))))
    }

    /// Notes why the content must not go on.
    fn break_off(&self, close: impl Into<Close>) -> BodyError {
        let close = close.into();
        let error = close.cause.name();
        *self.record.body_fault.borrow_mut() = Some(close);
        error.into()
    }

    /// A part has come, or the end of all.
    fn copied(&mut self, frame: Option<&Frame>) {
        let Some(mut copy) = self.copy.take() else { return };
        if let Some(frame) = frame {
            let Some(grown) = copy.take(frame) else { return };
            copy = grown;
        }
        if frame.is_none() || self.incoming.is_end_stream() {
            copy.send();
        } else {
            self.copy = Some(copy);
        }
    }

    fn poll_lend(&mut self, cx: &mut Context<'_>, write: &mut PieceWriter<'_>) -> Poll<Lent> {
        // What is copied has to come here.
        if self.copy.is_some() {
            return Poll::Ready(Lent::Nothing);
        }
        if self.poll_asked(cx).is_pending() {
            return Poll::Pending;
        }
        let lent = self.incoming.poll_lend(cx, write);
        match &lent {
            Poll::Ready(Lent::Taken(n)) => {
                if let Some(cause) = self.arrived(*n) {
                    return Poll::Ready(Lent::Broken(self.break_off(cause)));
                }
            }
            Poll::Pending => {
                if let Poll::Ready(close) = self.poll_patience(cx) {
                    return Poll::Ready(Lent::Broken(self.break_off(close)));
                }
            }
            Poll::Ready(_) => {}
        }
        lent
    }

    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.poll_asked(cx).is_pending() {
            return Poll::Pending;
        }
        match self.incoming.poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(cause) = self.arrived(frame.data_len()) {
                    return self.fail(cause);
                }
                if let Frame::Trailers(trailers) = &mut frame {
                    clean_request_trailers(trailers, self.trailers.as_deref());
                }
                self.copied(Some(&frame));
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.copied(None);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                let refused = self.refused();
                let gone = || Close::from(Cause::ClientAborted).with_detail(&error.to_string());
                self.fail(refused.unwrap_or_else(gone))
            }
            Poll::Pending => match self.poll_patience(cx) {
                Poll::Ready(close) => self.fail(close),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    /// Whether the body may be asked for.
    fn poll_asked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(interim) = &self.unasked else { return Poll::Ready(()) };
        if !interim.may_read() {
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + ASK)));
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        self.unasked = None;
        self.alarm = None;
        Poll::Ready(())
    }

    fn arrived(&mut self, n: usize) -> Option<Cause> {
        self.record.received(n);
        if self.waiting > 0 {
            self.waited += coarse_ms().saturating_sub(self.waiting);
            self.waiting = 0;
        }
        let over = self.bounds.most.is_some_and(|most| self.record.up.get() > most);
        if over {
            return Some(Cause::BodyTooLarge);
        }
        self.is_slow(0).then_some(Cause::RequestTooSlow)
    }

    /// Whether the body comes too slowly, `more` milliseconds of waiting included.
    fn is_slow(&self, more: u64) -> bool {
        let waited = self.waited + more;
        u128::from(waited) >= GRACE.as_millis()
            && self.record.up.get().saturating_mul(1000) / waited.max(1) < self.bounds.rate
    }

    /// What the guard has refused, which this request will tell of.
    fn refused(&self) -> Option<Close> {
        let guard_state = self.guard_state.as_ref()?;
        let Stop::Refused(fault) = guard_state.stopped.get() else { return None };
        guard_state.reported.set(true);
        Some(Refusal::fault(fault).close)
    }

    /// Nothing has come: is it too long since something did?
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<Close> {
        let now = coarse_ms();
        if self.waiting == 0 {
            self.waiting = now.max(1);
        }
        let step = if self.bounds.rate > 0 { LOOK.min(self.bounds.timeout) } else { self.bounds.timeout };
        let mut fresh = false;
        let alarm = self.alarm.get_or_insert_with(|| {
            fresh = true;
            Box::pin(sleep_until(Instant::now() + step))
        });
        while alarm.as_mut().poll(cx).is_ready() {
            let waited = Duration::from_millis(now.saturating_sub(self.waiting));
            if waited >= self.bounds.timeout {
                return Poll::Ready(Cause::RequestBodyTimeout.into());
            }
            let left = (self.bounds.timeout - waited).min(step);
            alarm.as_mut().reset(Instant::now() + left);
        }
        if self.is_slow(now.saturating_sub(self.waiting)) {
            return Poll::Ready(Cause::RequestTooSlow.into());
        }
        Poll::Pending
    }
}

/// As servers get it.
impl RequestBody for ClientBody {
    type Error = BodyError;

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match &mut self.0 {
            Content::None => Poll::Ready(None),
            Content::Upload(upload) => upload.poll_frame(cx),
            Content::Paced(paced) => paced.poll_frame(cx),
            Content::Whole(body) => {
                let body = std::mem::take(&mut **body);
                Poll::Ready((!body.is_empty()).then_some(Ok(Frame::Data(body))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::None => true,
            Content::Upload(upload) => upload.is_end_stream(),
            Content::Paced(paced) => paced.is_end_stream(),
            Content::Whole(body) => body.is_empty(),
        }
    }

    fn length(&self) -> Option<u64> {
        match &self.0 {
            Content::None => Some(0),
            Content::Upload(upload) => upload.length(),
            Content::Paced(paced) => paced.length(),
            Content::Whole(body) => Some(body.len() as u64),
        }
    }

    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Content::Upload(upload) => upload.poll_begun(cx),
            Content::Paced(paced) => paced.poll_begun(cx),
            Content::None | Content::Whole(_) => Poll::Ready(()),
        }
    }

    fn poll_lend(&mut self, cx: &mut Context<'_>, write: &mut PieceWriter<'_>) -> Poll<Lent> {
        match &mut self.0 {
            Content::Upload(upload) => upload.poll_lend(cx, write),
            // What is due is a part of what has come.
            Content::None | Content::Paced(_) | Content::Whole(_) => Poll::Ready(Lent::Nothing),
        }
    }
}
