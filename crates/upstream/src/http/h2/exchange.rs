//! A request on a stream, and its response. The task that waits for the response drives both.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use offramp_http::body::Frame;
use offramp_http::h2::{Code, Connection, Unopened};
use offramp_http::head;
use offramp_net::clock::coarse_ms;

pub(crate) use super::inbox::FinalHead;
use super::inbox::Inbox;
use super::window::{ResponseWindow, SentAhead};
use super::{ConnectionEndCause, Http2Stream, StreamEndCause};
use crate::fault::UpstreamFault;
use crate::http::line::{InterimListener, RequestBody};
use crate::http::outgoing::{Outgoing, SendProgress};
use crate::http::watch::{Deadline, after};

/// Maximum size of a frame returned, in bytes.
const PIECE: usize = 16 * 1024;

/// A request and its response.
pub(crate) struct StreamExchange<B> {
    stream: Http2Stream,
    body: Outgoing<B>,
    /// Content of the request that waits for a window.
    waits: Bytes,
    /// Set once nothing more of the request will be sent, and once it was sent completely.
    over: bool,
    complete: bool,
    /// Remaining bytes of the content, if known.
    left: Option<u64>,
    window: ResponseWindow,
}

/// Failure of an exchange before the response began.
pub(crate) enum ExchangeError {
    /// The server does not know of the request.
    Unsent(StreamEndCause),
    /// The request was sent, at least in part.
    Sent(StreamEndCause),
    /// The request or its body failed.
    Request(Box<dyn StdError + Send + Sync>),
    /// The deadline has passed.
    Late,
}

impl<B: RequestBody> StreamExchange<B> {
    /// An exchange with this request body, not started.
    pub(crate) fn new(stream: Http2Stream, body: Outgoing<B>) -> Self {
        Self {
            stream,
            body,
            waits: Bytes::new(),
            over: false,
            complete: false,
            left: None,
            window: ResponseWindow::new(),
        }
    }

    /// Limits how far the server may send ahead: the size of a first read, or more.
    pub(crate) fn set_most(&mut self, most: usize) {
        self.window.limit(most);
    }

    /// Bytes beyond the initial window that the server may send ahead, and needs; `None` if that is enough.
    pub(crate) fn ahead(&self) -> Option<SentAhead> {
        self.window.ahead(self.left)
    }

    /// Gives the stream the window that its response needs.
    fn adapt(&mut self, cx: &Context<'_>) {
        if self.window.ahead(self.left).is_none() {
            return;
        }
        let (ended, stall) = self.inbox(|inbox| (inbox.ended, inbox.take_stall()));
        if ended {
            return;
        }
        if let Some(needed) = stall {
            self.window.stalls(needed);
            // The caller decides how much of that is allowed.
            cx.waker().wake_by_ref();
        }
        if let Some(wanted) = self.window.other(self.left) {
            let given = self.connection(|connection, id| connection.set_window(id, wanted));
            self.window.set(given);
        }
    }

    /// Returns `n` consumed bytes of the content to the window.
    fn took(&mut self, n: usize) {
        self.left = self.left.map(|left| left.saturating_sub(n as u64));
        let long = self.window.is_long(self.left);
        let waits = self.connection(|connection, id| {
            if long {
                connection.set_time(coarse_ms());
            }
            connection.release(id, n);
            connection.unreleased_of(id)
        });
        self.window.took(n, waits);
    }

    /// Stream of the exchange.
    pub(crate) fn stream(&self) -> &Http2Stream {
        &self.stream
    }

    /// Progress of the request.
    pub(crate) fn progress(&self) -> &SendProgress {
        self.body.progress()
    }

    /// Writes the head, which is sent while the response is awaited.
    pub(crate) fn send(&mut self, head: &head::Request) -> Result<(), ExchangeError> {
        self.progress().begin();
        let end = self.body.is_end_stream();
        let length = self.body.length();
        let length = length.filter(|length| *length > 0 || has_content(&head.method));
        let shared = self.stream.shared();
        let scheme = if shared.secure { "https" } else { "http" };
        let opened = shared.connection.borrow_mut().open(Inbox::default(), head, scheme, length, end);
        match opened {
            Ok(id) => {
                shared.wake();
                let early = !shared.connection.borrow().is_greeted();
                (self.stream.id, self.stream.early) = (id, early);
                (self.over, self.complete) = (end, end);
                Ok(())
            }
            Err((Unopened::Closed, _)) => Err(ExchangeError::Unsent(StreamEndCause::Ended(
                shared.ended().unwrap_or(ConnectionEndCause::Closed),
            ))),
            Err((Unopened::NoAuthority, _)) => Err(ExchangeError::Request(NO_AUTHORITY.into())),
        }
    }

    /// Waits for the head of the response, for at most `limit` while the server is awaited.
    pub(crate) async fn head(
        &mut self,
        listener: Option<&Arc<dyn InterimListener>>,
        deadline: &mut Deadline,
        limit: Duration,
    ) -> Result<Box<FinalHead>, ExchangeError> {
        let head = poll_fn(|cx| match self.poll_head(cx, listener) {
            Poll::Ready(head) => Poll::Ready(head),
            Poll::Pending => {
                let since = self.progress().since();
                let late = since.is_some_and(|since| deadline.wait(after(since, limit), cx.waker()));
                if late { Poll::Ready(Err(ExchangeError::Late)) } else { Poll::Pending }
            }
        })
        .await?;
        self.left = head.length;
        Ok(head)
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        listener: Option<&Arc<dyn InterimListener>>,
    ) -> Poll<Result<Box<FinalHead>, ExchangeError>> {
        loop {
            self.poll_upload(cx).map_err(ExchangeError::Request)?;
            let interim = match self.inbox(|inbox| inbox.take_interim().ok_or_else(|| inbox.take_head())) {
                Ok(interim) => interim,
                Err(Some(head)) => return Poll::Ready(Ok(head)),
                Err(None) => {
                    let cause = ready!(self.poll_cause(cx));
                    let left = self.stream.shared().connection.borrow_mut().has_left(self.stream.id);
                    return Poll::Ready(Err(if left {
                        ExchangeError::Sent(cause)
                    } else {
                        ExchangeError::Unsent(cause)
                    }));
                }
            };
            // The listener's budget may permit reading more of the body.
            if let Some(listener) = listener {
                listener.interim(interim.status, &interim.fields);
            }
        }
    }

    /// Waits for an event, or returns the reason for which none will come.
    fn poll_cause(&mut self, cx: &Context<'_>) -> Poll<StreamEndCause> {
        let reset = self.inbox(|inbox| {
            inbox.wait(cx);
            inbox.reset.clone()
        });
        if let Some(reset) = reset {
            return Poll::Ready(StreamEndCause::Reset(reset));
        }
        match self.stream.shared().ended() {
            Some(ended) => Poll::Ready(StreamEndCause::Ended(ended)),
            None => Poll::Pending,
        }
    }

    /// Sends as much of the request as possible.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), Box<dyn StdError + Send + Sync>> {
        if self.over {
            return Ok(());
        }
        let mut wrote = false;
        let moved = loop {
            match self.upload_some(cx) {
                Ok(true) => wrote = true,
                Ok(false) => break Ok(()),
                Err(error) => {
                    self.over = true;
                    self.stream.reset(Code::CANCEL);
                    break Err(error);
                }
            }
        };
        if wrote {
            self.stream.shared().wake();
        }
        moved
    }

    /// Sends a frame, if there is one and windows permit.
    fn upload_some(&mut self, cx: &mut Context<'_>) -> Result<bool, Box<dyn StdError + Send + Sync>> {
        if self.over {
            return Ok(false);
        }
        if self.waits.is_empty() && !self.body.is_end_stream() {
            let Poll::Ready(frame) = self.body.poll_frame(cx) else { return Ok(false) };
            match frame.transpose().map_err(Into::into)?.map(Frame::into_data) {
                Some(Ok(data)) => self.waits = data,
                Some(Err(trailers)) => {
                    self.connection(|connection, id| connection.trailers(id, trailers.iter()));
                    (self.over, self.complete) = (true, true);
                    return Ok(true);
                }
                None => {}
            }
        }
        let capacity = self.connection(Connection::capacity);
        if capacity == 0 && !self.waits.is_empty() {
            // From the arrival of the piece on, the server is awaited.
            self.over = self.inbox(|inbox| {
                inbox.wait(cx);
                inbox.reset.is_some()
            });
            return Ok(false);
        }
        let piece = self.waits.split_to(self.waits.len().min(capacity));
        let end = self.waits.is_empty() && self.body.is_end_stream();
        if piece.is_empty() && !end {
            // An empty piece; there may be another one.
            return Ok(true);
        }
        let lives = self.connection(|connection, id| connection.data(id, piece, end));
        self.over = end || !lives;
        self.complete = end && lives;
        self.progress().note();
        Ok(true)
    }

    /// Returns the next frame of the content.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, UpstreamFault>>> {
        if let Err(error) = self.poll_upload(cx) {
            return Poll::Ready(Some(Err(UpstreamFault::RequestBody(error))));
        }
        let data = self.inbox(|inbox| inbox.take_data(PIECE));
        if let Some(data) = &data {
            self.took(data.len());
        }
        self.adapt(cx);
        let shared = self.stream.shared();
        if !shared.connection.borrow().output().is_empty() {
            shared.wake();
        }
        if let Some(data) = data {
            return Poll::Ready(Some(Ok(Frame::Data(data))));
        }
        if self.inbox(|inbox| inbox.ended) {
            let trailers = self.inbox(Inbox::take_trailers);
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::Trailers(trailers))));
        }
        self.poll_cause(cx).map(|cause| Some(Err(cause.into())))
    }

    /// Returns true if all of the response was received and taken.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.inbox(|inbox| inbox.is_taken())
    }

    /// Ends the exchange after the response. The server does not need the rest of the request, but its
    /// END_STREAM may be ready to be sent.
    pub(crate) fn finish(mut self) {
        let _ = self.poll_upload(&mut Context::from_waker(Waker::noop()));
        if !self.complete {
            self.stream.reset(Code::CANCEL);
        }
    }

    /// Remaining length of the response, if known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.left
    }

    fn connection<T>(&self, with: impl FnOnce(&mut Connection<Inbox>, u32) -> T) -> T {
        with(&mut self.stream.shared().connection.borrow_mut(), self.stream.id)
    }

    fn inbox<T>(&self, with: impl FnOnce(&mut Inbox) -> T) -> T {
        // It exists until the stream is dropped.
        self.connection(|connection, id| connection.stream(id).map(with).expect("the stream was opened"))
    }
}

/// Returns true if a request with this method has empty content rather than none (RFC 9110 §8.6).
fn has_content(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT)
}

/// Error for a request without a host, which is not sent.
const NO_AUTHORITY: &str = "the request has no host that can be an authority";
