//! One HTTP/1.1 connection to a server.
//!
//! It has no task. Whoever has sent a request drives it until the response has ended; in the pool it
//! lies still, and whether the server has closed it is seen when it is taken out or swept.

use std::error::Error as StdError;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use offramp_net::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::bell::Bell;
use super::outgoing::{Outgoing, Progress};
use super::watch::Deadline;

/// What can be the body of a request. It belongs to one worker and need not be `Send`.
pub trait RequestBody:
    Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
}

impl<B> RequestBody for B where
    B: Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
}

/// The most that one read takes: large bodies come in few calls, and small ones in small buffers, as
/// hyper's buffer grows with what it gets. Also the bound on the head of a response.
const READ_MOST: usize = 128 * 1024;

/// How often a connection is polled again at once because one end of it woke the other.
const TURNS: usize = 8;

/// A connection.
pub(crate) struct Line<B: RequestBody> {
    sender: SendRequest<Outgoing<B>>,
    /// hyper's connection with upgrades, whose type has no name.
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>>>>,
    bell: Arc<Bell>,
    /// The bell, as a waker.
    waker: Waker,
    progress: Rc<Progress>,
    /// Whom the bell wakes.
    owner: Option<Waker>,
    /// How the driver ended, when it has.
    ended: Option<Option<hyper::Error>>,
    reused: bool,
}

/// What hyper says in the end of a request with this body.
pub(crate) type Sent<B> = Result<Response<Incoming>, TrySendError<Request<B>>>;

/// How an exchange failed. Large, and moved once.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Broken<B> {
    /// The request, unsent.
    Unsent(hyper::Error, Request<Outgoing<B>>),
    /// It was sent, or begun to be.
    Sent(hyper::Error),
    /// The deadline has come.
    Late,
}

impl<B: RequestBody> Line<B> {
    /// Takes over a socket that is connected.
    pub(crate) async fn open(socket: Socket) -> Result<Self, hyper::Error> {
        let bell = Arc::new(Bell::default());
        let io = TokioIo::new(Io { socket, bell: Arc::clone(&bell) });
        let (sender, driver) = Builder::new().max_buf_size(READ_MOST).handshake(io).await?;
        let waker = Waker::from(Arc::clone(&bell));
        let driver = Box::pin(driver.with_upgrades());
        Ok(Line {
            sender,
            driver,
            bell,
            waker,
            progress: Rc::default(),
            owner: None,
            ended: None,
            reused: false,
        })
    }

    /// Whether it has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Whether a byte has come since the latest request was sent.
    pub(crate) fn has_heard(&self) -> bool {
        self.bell.has_heard()
    }

    /// Has the head of the next request kept as it is sent.
    pub(crate) fn keep_bytes(&self) {
        self.bell.keep_bytes();
    }

    /// The head of the latest request, if it was kept and got as far as the socket.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        Some(self.bell.bytes()).filter(|bytes| !bytes.is_empty())
    }

    /// How its latest request comes along.
    pub(crate) fn progress(&self) -> &Rc<Progress> {
        &self.progress
    }

    /// Whether it can take a request: the server has not closed it as far as is known, nor sent
    /// anything unasked. Had it done so, the bell would have rung.
    pub(crate) fn is_alive(&mut self) -> bool {
        !self.bell.has_rung() || (self.drive().is_pending() && self.sender.is_ready())
    }

    /// Whether it can be kept now that a response has ended.
    pub(crate) fn settle(&mut self) -> bool {
        if self.ended.is_none() && (self.bell.has_rung() || !self.sender.is_ready()) {
            let _ = self.drive();
            // Whatever that was about, it has been seen to.
            self.bell.has_rung();
        }
        self.ended.is_none() && self.sender.is_ready()
    }

    /// Has nobody woken, now that it has been idle for a while: a task that has ended would be kept in
    /// memory by it.
    pub(crate) fn forget_owner(&mut self) {
        if self.owner.take().is_some() {
            self.bell.belongs_to(None);
            self.bell.forget_bytes();
        }
    }

    /// Hands over a request, which goes out as the response is waited for. Not `async`: a future would hold
    /// the request first.
    pub(crate) fn send(
        &mut self,
        request: Request<Outgoing<B>>,
    ) -> impl Future<Output = Sent<Outgoing<B>>> + use<B> {
        self.bell.listen();
        self.progress.begin();
        self.reused = true;
        self.sender.try_send_request(request)
    }

    /// Waits for the head of the response, until `due` says so.
    pub(crate) async fn hear(
        &mut self,
        mut response: Pin<&mut impl Future<Output = Sent<Outgoing<B>>>>,
        deadline: &mut Deadline,
        due: impl Fn(&Progress) -> Option<u64>,
    ) -> Result<Response<Incoming>, Broken<B>> {
        poll_fn(|cx| {
            let outcome = self.poll_turns(cx, |line| {
                // The driver first: the response is its doing.
                let _ = line.drive();
                response.as_mut().poll(&mut Context::from_waker(&line.waker))
            });
            match outcome {
                Poll::Ready(outcome) => Poll::Ready(outcome.map_err(broken)),
                Poll::Pending => {
                    let late = due(&self.progress).is_some_and(|due| deadline.wait(due, cx.waker()));
                    if late { Poll::Ready(Err(Broken::Late)) } else { Poll::Pending }
                }
            }
        })
        .await
    }

    /// Drives it until hyper has given its socket to whoever asked for the upgrade.
    pub(crate) async fn hand_over(mut self) {
        poll_fn(|cx| self.poll_turns(cx, Self::drive)).await;
    }

    /// Polls for the body of the response, and drives the connection while it has nothing.
    pub(crate) fn poll_body<T>(
        &mut self,
        cx: &Context<'_>,
        mut body: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.poll_turns(cx, |line| {
            let frame = body(&mut Context::from_waker(&line.waker));
            if frame.is_pending() {
                // If this brings something, the bell rings.
                let _ = line.drive();
            }
            frame
        })
    }

    /// The error that the driver ended with, if it did.
    pub(crate) fn take_error(&mut self) -> Option<hyper::Error> {
        self.ended.as_mut().and_then(Option::take)
    }

    /// Takes steps while the connection calls for them itself.
    fn poll_turns<T>(&mut self, cx: &Context<'_>, mut step: impl FnMut(&mut Self) -> Poll<T>) -> Poll<T> {
        if !self.owner.as_ref().is_some_and(|owner| owner.will_wake(cx.waker())) {
            self.owner = Some(cx.waker().clone());
            self.bell.belongs_to(self.owner.clone());
        }
        self.bell.enter();
        let mut outcome = step(self);
        for _ in 1..TURNS {
            if outcome.is_ready() || !self.bell.has_rung() {
                break;
            }
            outcome = step(self);
        }
        // Where it calls once more after so many turns, others come first.
        if self.bell.leave() && outcome.is_pending() {
            cx.waker().wake_by_ref();
        }
        outcome
    }

    /// Moves what can be moved; ready when the connection is over.
    fn drive(&mut self) -> Poll<()> {
        if self.ended.is_some() {
            return Poll::Ready(());
        }
        let outcome = ready!(self.driver.as_mut().poll(&mut Context::from_waker(&self.waker)));
        self.ended = Some(outcome.err());
        Poll::Ready(())
    }
}

/// What an error of hyper's leaves of the request.
pub(super) fn broken<B>(mut error: TrySendError<Request<Outgoing<B>>>) -> Broken<B> {
    match error.take_message() {
        Some(request) => Broken::Unsent(error.into_error(), request),
        None => Broken::Sent(error.into_error()),
    }
}

/// A socket that tells when it hears something.
pub(crate) struct Io {
    socket: Socket,
    bell: Arc<Bell>,
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.bell.hear();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.bell.sends(bytes);
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(first) = parts.first() {
            self.bell.sends(first);
        }
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
