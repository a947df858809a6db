//! One HTTP/2 connection to a server, shared by the requests of a worker.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use offramp_net::clock::coarse_ms;
use tokio::task::{AbortHandle, spawn_local};

use super::line::RequestBody;
use super::outgoing::{Outgoing, Progress};
use super::watch::Deadline;
use crate::link::Link;

/// The streams of a server that has not said yet how many it allows.
const FIRST_STREAMS: usize = 100;
/// What a server may send ahead on one stream. All of them together have no other bound: with one, clients that take
/// nothing of their responses would hold up those of all others.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// A connection.
pub(crate) struct Mux<B> {
    sender: RefCell<SendRequest<Outgoing<B>>>,
    state: Rc<State>,
    task: AbortHandle,
}

/// What requests and the driver tell each other.
struct State {
    /// How many streams the server allows.
    allowed: Cell<usize>,
    /// How many are open.
    open: Cell<usize>,
    /// Whether no more may be opened: it is closed, closing or suspect.
    retired: Cell<bool>,
    /// Since when none is open.
    idle_since: Cell<u64>,
    /// Whether a stream was opened before.
    reused: Cell<bool>,
}

/// A stream; counted until it is dropped. It keeps the connection.
pub(crate) struct Stream<B> {
    mux: Rc<Mux<B>>,
    progress: Rc<Progress>,
    reused: bool,
}

/// What hyper says in the end of a request with this body.
pub(crate) type Sent<B> = Result<Response<Incoming>, TrySendError<Request<B>>>;

/// How an exchange failed.
pub(crate) enum Broken {
    /// The request was not sent.
    Unsent(hyper::Error),
    /// It was sent, or begun to be.
    Sent(hyper::Error),
    /// The deadline has come.
    Late,
}

/// Runs what hyper spawns on this thread.
#[derive(Clone, Copy)]
struct Here;

impl<F: Future<Output: 'static> + 'static> Executor<F> for Here {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

impl<B: RequestBody> Mux<B> {
    /// Takes over a connection.
    pub(crate) async fn open(link: Link) -> Result<Rc<Self>, hyper::Error> {
        let mut builder = Builder::new(Here);
        builder
            .initial_max_send_streams(FIRST_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = builder.handshake(TokioIo::new(link)).await?;
        let state = Rc::new(State {
            allowed: Cell::new(FIRST_STREAMS),
            open: Cell::new(0),
            retired: Cell::new(false),
            idle_since: Cell::new(coarse_ms()),
            reused: Cell::new(false),
        });
        let told = Rc::clone(&state);
        let driver = async move {
            let mut connection = pin!(connection);
            poll_fn(|cx| {
                let outcome = connection.as_mut().poll(cx);
                told.allowed.set(connection.current_max_send_streams());
                // How it ended is told to each of its requests.
                outcome.map(drop)
            })
            .await;
            told.retired.set(true);
        };
        let task = spawn_local(driver).abort_handle();
        Ok(Rc::new(Mux { sender: RefCell::new(sender), state, task }))
    }

    /// A stream, unless it is over or has as many as the server allows.
    pub(crate) fn stream(self: &Rc<Self>) -> Option<Stream<B>> {
        let open = self.state.open.get();
        if !self.is_alive() || open >= self.state.allowed.get() {
            return None;
        }
        self.state.open.set(open + 1);
        let reused = self.state.reused.replace(true);
        Some(Stream { mux: Rc::clone(self), progress: Rc::default(), reused })
    }

    /// Whether streams can be opened, now or when others have ended.
    pub(crate) fn is_alive(&self) -> bool {
        !self.state.retired.get() && !self.sender.borrow().is_closed()
    }

    /// Since when it has no streams, in milliseconds of the coarse clock.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        (self.state.open.get() == 0).then(|| self.state.idle_since.get())
    }
}

impl<B> Drop for Mux<B> {
    fn drop(&mut self) {
        // No stream is left; a driver that waits for a dead server would wait for ever.
        self.task.abort();
    }
}

impl<B: RequestBody> Stream<B> {
    /// Whether the connection has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// How its request comes along.
    pub(crate) fn progress(&self) -> &Rc<Progress> {
        &self.progress
    }

    /// Has no further streams opened beside this one.
    pub(crate) fn retire(&self) {
        self.mux.state.retired.set(true);
    }

    /// Hands over a request, which goes out as the response is waited for.
    pub(crate) fn send(
        &self,
        request: Request<Outgoing<B>>,
    ) -> impl Future<Output = Sent<Outgoing<B>>> + use<B> {
        self.progress.begin();
        self.mux.sender.borrow_mut().try_send_request(request)
    }

    /// Waits for the head of the response, until `due` says so.
    pub(crate) async fn hear(
        &self,
        mut response: Pin<&mut impl Future<Output = Sent<Outgoing<B>>>>,
        deadline: &mut Deadline,
        due: impl Fn(&Progress) -> Option<u64>,
    ) -> Result<Response<Incoming>, Broken> {
        poll_fn(|cx| match response.as_mut().poll(cx) {
            Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(broken(error))),
            Poll::Pending => {
                let late = due(&self.progress).is_some_and(|due| deadline.wait(due, cx.waker()));
                if late { Poll::Ready(Err(Broken::Late)) } else { Poll::Pending }
            }
        })
        .await
    }
}

/// What an error of hyper's leaves of the request.
fn broken<B>(mut error: TrySendError<Request<Outgoing<B>>>) -> Broken {
    match error.take_message() {
        Some(_) => Broken::Unsent(error.into_error()),
        None => Broken::Sent(error.into_error()),
    }
}

impl<B> Drop for Stream<B> {
    fn drop(&mut self) {
        let state = &self.mux.state;
        state.open.set(state.open.get() - 1);
        state.idle_since.set(coarse_ms());
    }
}
