//! Sending a request of HTTP/2 once more: what has to be kept for it, and when it may be done.
//!
//! A request that the server refused unseen may be sent again whatever its method (RFC 9113 §8.7): one whose stream
//! was reset with REFUSED_STREAM, or is above the last one of a GOAWAY. For that what was sent of its body is kept, up
//! to [`KEPT`](super::outgoing::KEPT) and, of all requests of a worker, [`ALL_KEPT`](super::outgoing::ALL_KEPT), until
//! the response begins. Where the connection broke without a word, only an idempotent request on a connection that has
//! carried others is sent again, and only while nothing of its body was used. With HTTP/1 the connection itself keeps
//! what it wrote; see `Outbound`.

use std::rc::Rc;

use http::Method;
use offramp_http::semantics::is_idempotent;

use super::h2::{Broken, Http2Stream};
use super::line::RequestBody;
use super::outgoing::{Kept, KeptBytes, Outgoing};
use crate::fault::Fault;

/// What is kept of a request that may have to be sent once more.
///
/// The head is not among it: it stays where it came from, and is made once more.
pub(super) struct Copy<B> {
    /// None where there is none.
    body: Option<Rc<Kept<B>>>,
    /// Whether it may be sent again although the server may have seen it: it is idempotent, and on a connection of the
    /// pool, which the server may have closed before.
    repeatable: bool,
}

/// The body of a request that is back, and may be sent to whomever.
pub(super) struct Back<B> {
    body: Option<Rc<Kept<B>>>,
}

/// What a failed exchange comes to.
pub(super) enum Verdict<B> {
    /// The request must not be sent again.
    Over(Fault),
    /// The connection was closed, and the request is back.
    Stale(Fault, Back<B>),
    /// The server has done nothing with the request, and says so; it is back.
    Refused(Fault, Back<B>),
}

/// Keeps what it takes to send a body once more.
pub(super) fn keep<B: RequestBody>(body: B, all: &Rc<KeptBytes>) -> Back<B> {
    Back { body: (!body.is_end_stream()).then(|| Kept::new(body, all)) }
}

impl<B: RequestBody> Back<B> {
    /// Makes the body ready for a request with `method`. `pooled`: the server may have closed the connection.
    pub(super) fn pack(self, method: &Method, pooled: bool) -> (Outgoing<B>, Copy<B>) {
        let Self { body } = self;
        let outgoing = match &body {
            None => Outgoing::empty(),
            Some(kept) => Outgoing::kept(kept),
        };
        (outgoing, Copy { body, repeatable: pooled && is_idempotent(method) })
    }
}

impl<B: RequestBody> Copy<B> {
    /// The response begins: it is not sent again.
    pub(super) fn settle(self) {
        if let Some(body) = &self.body {
            body.forget();
        }
    }

    /// The request as it was, where all of it is still there.
    fn whole(self) -> Option<Back<B>> {
        let whole = self.body.as_ref().is_none_or(|body| body.is_whole());
        whole.then_some(Back { body: self.body })
    }

    /// The same, where nothing of its body was used besides.
    fn untouched(self) -> Option<Back<B>> {
        let untouched = self.body.as_ref().is_none_or(|body| !body.is_touched());
        untouched.then_some(Back { body: self.body })
    }
}

/// What a failed exchange comes to, and the request where it may be sent once more.
pub(super) fn judge<B: RequestBody>(broken: Broken, copy: Copy<B>, stream: &Http2Stream) -> Verdict<B> {
    let (cause, sent) = match broken {
        Broken::Late => {
            // Who does not answer one request may answer none.
            stream.retire();
            return Verdict::Over(Fault::ResponseTimeout);
        }
        Broken::Request(error) => return Verdict::Over(Fault::RequestBody(error)),
        // Nothing was sent: any request may be sent again.
        Broken::Unsent(cause) => (cause, false),
        Broken::Sent(cause) => (cause, true),
    };
    if sent && cause.refuses() {
        // Who refuses what there should be room for may be going; who says GOAWAY is closed to others anyway.
        return match copy.whole() {
            Some(back) => {
                if !stream.was_too_many() {
                    stream.retire();
                }
                Verdict::Refused(cause.into(), back)
            }
            None => Verdict::Over(cause.into()),
        };
    }
    let back = match sent {
        false => copy.whole(),
        true if copy.repeatable && cause.spares() => copy.untouched(),
        true => None,
    };
    match back {
        Some(back) => {
            stream.retire();
            Verdict::Stale(cause.into(), back)
        }
        None => Verdict::Over(cause.into()),
    }
}
