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

use super::answer::ErrorReply;
use super::inbound::Inbound;
use super::intake::{GuardState, ReadStop};
use super::interim::Interim;
use super::mirror::RequestCopy;
use super::paced::PacedUpload;
use super::record::RequestRecord;
use crate::snapshot::Bandwidth;

pub(crate) use reply::{Reply, ReplyContent};

/// The time for which a body may come slowly before its rate is looked at.
const GRACE: Duration = Duration::from_secs(10);
/// The interval at which a slow body's rate is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The longest wait for the first content of unknown length over HTTP/2, in which most clients say that there is none.
const FIRST: Duration = Duration::from_millis(500);
/// Time for a server to ask for a body with `Expect`; then it is asked for anyway, because servers that know
/// nothing of `Expect` never ask (RFC 9110 §10.1.1).
const ASK: Duration = Duration::from_secs(1);

/// The error of bodies; what it stands for is in the request's record.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The bounds of the body of a request.
#[derive(Clone, Copy)]
pub(crate) struct UploadLimits {
    /// Maximum time between two pieces.
    pub(crate) timeout: Duration,
    /// Bytes per second; 0: any.
    pub(crate) rate: u64,
    /// Maximum length in bytes.
    pub(crate) most: Option<u64>,
}

/// The body of a request. Most have none, and cost nothing.
pub(crate) struct ClientBody(ClientContent);

enum ClientContent {
    None,
    Upload(Box<PolicedUpload>),
    /// The same on a route with a bandwidth.
    Paced(Box<PacedUpload>),
    /// It has come already: a copy.
    Whole(Box<Bytes>),
}

/// A body that comes.
pub(crate) struct PolicedUpload {
    incoming: Inbound,
    record: Rc<RequestRecord>,
    bounds: UploadLimits,
    /// The guard before the connection, where it is HTTP/1.
    guard_state: Option<Rc<GuardState>>,
    /// The fields that its trailers must not have, by the route that the request was given when it began.
    trailers: Option<Arc<TrailerRules>>,
    /// The copy for another server.
    copy: Option<RequestCopy>,
    /// The interim responses by which the client is asked for the body, if it waits for that.
    unasked: Option<Arc<Interim>>,
    alarm: Option<Pin<Box<Sleep>>>,
    /// Since when the client has been waited for, in milliseconds of the coarse clock; 0 while it is not.
    waiting: u64,
    /// Time for which it was waited for in all, in milliseconds.
    waited: u64,
}

impl ClientBody {
    pub(crate) fn new(incoming: Inbound, record: Rc<RequestRecord>, bounds: UploadLimits) -> Self {
        let empty = incoming.is_end_stream();
        if empty {
            return Self(ClientContent::None);
        }
        Self(ClientContent::Upload(Box::new(PolicedUpload {
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
        Self(if body.is_empty() { ClientContent::None } else { ClientContent::Whole(Box::new(body)) })
    }

    /// Has `copy` grow with what comes, and leave at the end of it.
    pub(crate) fn copy_to(&mut self, copy: RequestCopy) {
        if let ClientContent::Upload(upload) = &mut self.0 {
            upload.copy = Some(copy);
        }
    }

    /// The same body, without these fields in its trailers.
    pub(crate) fn without_trailers(mut self, rules: Option<&Arc<TrailerRules>>) -> Self {
        if let ClientContent::Upload(upload) = &mut self.0 {
            upload.trailers = rules.cloned();
        }
        self
    }

    /// The same body behind a guard; `unasked` where the client waits for `100 Continue`.
    pub(crate) fn behind(mut self, guard_state: &Rc<GuardState>, unasked: Option<&Arc<Interim>>) -> Self {
        if let ClientContent::Upload(upload) = &mut self.0 {
            upload.guard_state = Some(Rc::clone(guard_state));
            upload.unasked = unasked.cloned();
        }
        self
    }

    /// The same body, of which no more passes than may.
    pub(crate) fn paced(self, bandwidth: &Bandwidth) -> Self {
        Self(match self.0 {
            ClientContent::Upload(upload) => {
                ClientContent::Paced(Box::new(PacedUpload::new(upload, bandwidth)))
            }
            content => content,
        })
    }
}

impl PolicedUpload {
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
    pub(crate) fn record(&self) -> &Rc<RequestRecord> {
        &self.record
    }

    /// Other requests of the connection are not to wait for this one.
    pub(crate) fn set_apart(&self) {
        self.incoming.set_apart();
    }

    /// Nothing is to come.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// The bytes of data that are to come, where that is known.
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

    /// The body may be asked for.
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
        if self.is_conversation() {
            self.waiting = 0;
        } else if self.waiting > 0 {
            self.waited += coarse_ms().saturating_sub(self.waiting);
            self.waiting = 0;
        }
        let over = self.bounds.most.is_some_and(|most| self.record.up.get() > most);
        if over {
            return Some(Cause::BodyTooLarge);
        }
        self.is_slow(0).then_some(Cause::RequestTooSlow)
    }

    /// Returns true once the response has begun: the client may listen before it has more to say, and `idle_timeout`
    /// bounds both directions.
    fn is_conversation(&self) -> bool {
        self.record.still_since().is_some()
    }

    /// Returns true if the body comes too slowly, `more` milliseconds of waiting included.
    fn is_slow(&self, more: u64) -> bool {
        let waited = self.waited + more;
        u128::from(waited) >= GRACE.as_millis()
            && !self.is_conversation()
            && self.record.up.get().saturating_mul(1000) / waited.max(1) < self.bounds.rate
    }

    /// The fault that the guard has found, which this request will report.
    fn refused(&self) -> Option<Close> {
        let guard_state = self.guard_state.as_ref()?;
        let ReadStop::Refused(fault) = guard_state.stopped.get() else { return None };
        guard_state.reported.set(true);
        Some(ErrorReply::fault(fault).close)
    }

    /// Waits until nothing has come for too long, or too little.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<Close> {
        if self.is_conversation() {
            (self.waiting, self.alarm) = (0, None);
            return Poll::Pending;
        }
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
            ClientContent::None => Poll::Ready(None),
            ClientContent::Upload(upload) => upload.poll_frame(cx),
            ClientContent::Paced(paced) => paced.poll_frame(cx),
            ClientContent::Whole(body) => {
                let body = std::mem::take(&mut **body);
                Poll::Ready((!body.is_empty()).then_some(Ok(Frame::Data(body))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            ClientContent::None => true,
            ClientContent::Upload(upload) => upload.is_end_stream(),
            ClientContent::Paced(paced) => paced.is_end_stream(),
            ClientContent::Whole(body) => body.is_empty(),
        }
    }

    fn length(&self) -> Option<u64> {
        match &self.0 {
            ClientContent::None => Some(0),
            ClientContent::Upload(upload) => upload.length(),
            ClientContent::Paced(paced) => paced.length(),
            ClientContent::Whole(body) => Some(body.len() as u64),
        }
    }

    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            ClientContent::Upload(upload) => upload.poll_begun(cx),
            ClientContent::Paced(paced) => paced.poll_begun(cx),
            ClientContent::None | ClientContent::Whole(_) => Poll::Ready(()),
        }
    }

    fn poll_lend(&mut self, cx: &mut Context<'_>, write: &mut PieceWriter<'_>) -> Poll<Lent> {
        match &mut self.0 {
            ClientContent::Upload(upload) => upload.poll_lend(cx, write),
            // What is due is a part of what has come.
            ClientContent::None | ClientContent::Paced(_) | ClientContent::Whole(_) => {
                Poll::Ready(Lent::Nothing)
            }
        }
    }
}
