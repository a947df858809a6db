//! How a request comes along on its way to a server, and its body for hyper, which speaks HTTP/2.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use offramp_net::clock::coarse_ms;

/// A request's body as hyper gets it: tells how it comes along, and gives itself back where none of it
/// was used.
#[derive(Debug)]
pub(crate) struct Outgoing<B> {
    body: Inner<B>,
    progress: Rc<Progress>,
}

#[derive(Debug)]
enum Inner<B> {
    Empty,
    Once(B),
    Kept(Rc<Kept<B>>),
}

/// A body that may have to be sent again.
#[derive(Debug)]
pub(crate) struct Kept<B> {
    body: RefCell<Option<B>>,
    touched: Cell<bool>,
}

/// How a request comes along.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// When the latest piece was taken, in milliseconds of the coarse clock.
    moved: Cell<u64>,
    /// Whether the next piece is not there yet: the wait is the client's, not the server's.
    starved: Cell<bool>,
}

impl Progress {
    /// A request begins.
    pub(crate) fn begin(&self) {
        self.moved.set(coarse_ms());
        self.starved.set(false);
    }

    /// Since when the server is waited for; `None` where the client is.
    pub(crate) fn since(&self) -> Option<u64> {
        (!self.starved.get()).then(|| self.moved.get())
    }

    /// A piece was there, or was taken.
    pub(crate) fn note(&self) {
        self.moved.set(coarse_ms());
        self.starved.set(false);
    }

    /// All that there was is taken, and the next piece is not there yet.
    pub(crate) fn starve(&self) {
        self.starved.set(true);
    }
}

impl<B> Kept<B> {
    pub(crate) fn new(body: B) -> Rc<Self> {
        Rc::new(Kept { body: RefCell::new(Some(body)), touched: Cell::new(false) })
    }

    /// The body, if none of it was used.
    pub(crate) fn untouched(&self) -> Option<B> {
        if self.touched.get() { None } else { self.body.borrow_mut().take() }
    }
}

impl<B> Outgoing<B> {
    pub(crate) fn empty(progress: Rc<Progress>) -> Self {
        Outgoing { body: Inner::Empty, progress }
    }

    pub(crate) fn once(body: B, progress: Rc<Progress>) -> Self {
        Outgoing { body: Inner::Once(body), progress }
    }

    pub(crate) fn kept(body: Rc<Kept<B>>, progress: Rc<Progress>) -> Self {
        Outgoing { body: Inner::Kept(body), progress }
    }

    /// The body again, if hyper never looked at it.
    pub(crate) fn into_body(self) -> Option<B> {
        match self.body {
            Inner::Empty => None,
            Inner::Once(body) => Some(body),
            Inner::Kept(kept) => kept.untouched(),
        }
    }
}

impl<B: Body + Unpin> Body for Outgoing<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let frame = match &mut this.body {
            Inner::Empty => Poll::Ready(None),
            Inner::Once(body) => Pin::new(body).poll_frame(cx),
            Inner::Kept(kept) => match &mut *kept.body.borrow_mut() {
                Some(body) => {
                    let frame = Pin::new(body).poll_frame(cx);
                    if frame.is_ready() {
                        kept.touched.set(true);
                    }
                    frame
                }
                None => Poll::Ready(None),
            },
        };
        this.progress.starved.set(frame.is_pending());
        if frame.is_ready() {
            this.progress.moved.set(coarse_ms());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Inner::Empty => true,
            Inner::Once(body) => body.is_end_stream(),
            Inner::Kept(kept) => kept.body.borrow().as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Inner::Empty => SizeHint::with_exact(0),
            Inner::Once(body) => body.size_hint(),
            Inner::Kept(kept) => {
                kept.body.borrow().as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
            }
        }
    }
}
