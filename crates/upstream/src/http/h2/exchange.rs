//! A request on a stream, and its response. Whoever waits for the response moves both.

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

pub(crate) use super::inbox::Head;
use super::inbox::Inbox;
use super::{CONFIG, Cause, Ended, Http2Stream, MOST_WINDOW};
use crate::fault::Fault;
use crate::http::line::{InterimListener, RequestBody};
use crate::http::outgoing::{Outgoing, Progress};
use crate::http::watch::{Deadline, after};

/// The most data that is given at once.
const PIECE: usize = 16 * 1024;

/// A request and its response.
pub(crate) struct Exchange<B> {
    stream: Http2Stream,
    body: Outgoing<B>,
    /// Content of the request that waits for a window.
    waits: Bytes,
    /// Whether nothing more of the request is to be sent, and whether it was sent to its end.
    over: bool,
    complete: bool,
    /// What is left of the content, where that is known.
    left: Option<u64>,
    /// The window of the stream, how large it may become, and how much was taken of the response.
    window: u32,
    most: u32,
    taken: usize,
}

/// How an exchange failed before the response began.
pub(crate) enum Broken {
    /// The server knows nothing of the request.
    Unsent(Cause),
    /// It was sent, or begun to be.
    Sent(Cause),
    /// The request or its body failed.
    Request(Box<dyn StdError + Send + Sync>),
    /// The deadline has come.
    Late,
}

impl<B: RequestBody> Exchange<B> {
    /// A request with this body, which has not begun.
    pub(crate) fn new(stream: Http2Stream, body: Outgoing<B>) -> Self {
        let (window, most) = (CONFIG.stream_window, MOST_WINDOW);
        Self {
            stream,
            body,
            waits: Bytes::new(),
            over: false,
            complete: false,
            left: None,
            window,
            most,
            taken: 0,
        }
    }

    /// Has the server send at most so much of the response ahead: the first read's worth, or more.
    pub(crate) fn set_most(&mut self, most: usize) {
        self.most = u32::try_from(most).unwrap_or(MOST_WINDOW).clamp(CONFIG.stream_window, MOST_WINDOW);
    }

    /// How much the server may have sent ahead beyond what it may for any stream; nothing where that is enough.
    pub(crate) fn ahead(&self) -> Option<usize> {
        let ahead = self.window - CONFIG.stream_window;
        (ahead > 0 || self.is_long()).then_some(ahead as usize)
    }

    /// Whether the response needs a larger window than the first. One of unknown length that may be small does not: the
    /// messages of a call would cost a frame more.
    fn is_long(&self) -> bool {
        let first = CONFIG.stream_window;
        self.left.map_or(self.taken >= first as usize / 2, |left| left > first.into())
    }

    /// Gives the stream the window that its response needs.
    fn adapt(&mut self) {
        if self.ahead().is_none() || self.inbox(|inbox| inbox.ended) {
            return;
        }
        let left = self.left.map_or(MOST_WINDOW, |left| u32::try_from(left).unwrap_or(MOST_WINDOW));
        let wanted = left.min(self.most).max(CONFIG.stream_window);
        if wanted != self.window {
            self.window = self.connection(|connection, id| connection.set_window(id, wanted));
        }
    }

    /// The stream.
    pub(crate) fn stream(&self) -> &Http2Stream {
        &self.stream
    }

    /// How the request comes along.
    pub(crate) fn progress(&self) -> &Progress {
        self.body.progress()
    }

    /// Writes the head, which goes out as the response is waited for.
    pub(crate) fn send(&mut self, head: &head::Request) -> Result<(), Broken> {
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
            Err((Unopened::Closed, _)) => {
                Err(Broken::Unsent(Cause::Ended(shared.ended().unwrap_or(Ended::Closed))))
            }
            Err((Unopened::NoAuthority, _)) => Err(Broken::Request(NO_AUTHORITY.into())),
        }
    }

    /// Waits for the head of the response, for at most `limit` while it is the server that is waited for.
    pub(crate) async fn head(
        &mut self,
        listener: Option<&Arc<dyn InterimListener>>,
        deadline: &mut Deadline,
        limit: Duration,
    ) -> Result<Box<Head>, Broken> {
        let head = poll_fn(|cx| match self.poll_head(cx, listener) {
            Poll::Ready(head) => Poll::Ready(head),
            Poll::Pending => {
                let since = self.progress().since();
                let late = since.is_some_and(|since| deadline.wait(after(since, limit), cx.waker()));
                if late { Poll::Ready(Err(Broken::Late)) } else { Poll::Pending }
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
    ) -> Poll<Result<Box<Head>, Broken>> {
        loop {
            self.poll_upload(cx).map_err(Broken::Request)?;
            let interim = match self.inbox(|inbox| inbox.take_interim().ok_or_else(|| inbox.take_head())) {
                Ok(interim) => interim,
                Err(Some(head)) => return Poll::Ready(Ok(head)),
                Err(None) => {
                    let cause = ready!(self.poll_cause(cx));
                    let left = self.stream.shared().connection.borrow_mut().has_left(self.stream.id);
                    return Poll::Ready(Err(if left { Broken::Sent(cause) } else { Broken::Unsent(cause) }));
                }
            };
            // What the listener allows may be asked of the body then.
            if let Some(listener) = listener {
                listener.interim(interim.status, &interim.fields);
            }
        }
    }

    /// Waits until something comes, or gives why nothing does.
    fn poll_cause(&mut self, cx: &Context<'_>) -> Poll<Cause> {
        let reset = self.inbox(|inbox| {
            inbox.wait(cx);
            inbox.reset.clone()
        });
        if let Some(reset) = reset {
            return Poll::Ready(Cause::Reset(reset));
        }
        match self.stream.shared().ended() {
            Some(ended) => Poll::Ready(Cause::Ended(ended)),
            None => Poll::Pending,
        }
    }

    /// Moves what can be moved of the request.
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

    /// Writes a frame, if there is one and it may be sent.
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
            // It is the server that is waited for, from when the piece came.
            self.over = self.inbox(|inbox| {
                inbox.wait(cx);
                inbox.reset.is_some()
            });
            return Ok(false);
        }
        let piece = self.waits.split_to(self.waits.len().min(capacity));
        let end = self.waits.is_empty() && self.body.is_end_stream();
        if piece.is_empty() && !end {
            // A piece of nothing; there may be another one.
            return Ok(true);
        }
        let lives = self.connection(|connection, id| connection.data(id, piece, end));
        self.over = end || !lives;
        self.complete = end && lives;
        self.progress().note();
        Ok(true)
    }

    /// The next frame of the content.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if let Err(error) = self.poll_upload(cx) {
            return Poll::Ready(Some(Err(Fault::RequestBody(error))));
        }
        let data = self.inbox(|inbox| inbox.take_data(PIECE));
        if let Some(data) = &data {
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
            self.taken = self.taken.saturating_add(data.len());
            self.connection(|connection, id| connection.release(id, data.len()));
        }
        self.adapt();
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

    /// Whether all of the response has come and was taken.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.inbox(|inbox| inbox.is_taken())
    }

    /// The response is over. What is left of the request the server does not need; perhaps its end just waits to be
    /// written.
    pub(crate) fn finish(mut self) {
        let _ = self.poll_upload(&mut Context::from_waker(Waker::noop()));
        if !self.complete {
            self.stream.reset(Code::CANCEL);
        }
    }

    /// What is known of the length of the rest of the response.
    pub(crate) fn length(&self) -> Option<u64> {
        self.left
    }

    fn connection<T>(&self, with: impl FnOnce(&mut Connection<Inbox>, u32) -> T) -> T {
        with(&mut self.stream.shared().connection.borrow_mut(), self.stream.id)
    }

    fn inbox<T>(&self, with: impl FnOnce(&mut Inbox) -> T) -> T {
        // It is there until the stream is dropped.
        self.connection(|connection, id| connection.stream(id).map(with).expect("the stream was opened"))
    }
}

/// Whether a request with this method has content of length 0 rather than none (RFC 9110 §8.6).
fn has_content(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT)
}

/// Why a request without a host is not sent.
const NO_AUTHORITY: &str = "the request has no host that can be an authority";
