//! Retries of HTTP/2 requests: the state kept for them, and the conditions.
//!
//! A request that the server refused unseen may be sent again whatever its method (RFC 9113 §8.7): its stream
//! was reset with REFUSED_STREAM, or is above the last one of a GOAWAY. For that, the sent part of its body
//! is kept until the response begins, up to [`KEPT`](super::outgoing::KEPT) bytes and, over all requests of a
//! worker, [`ALL_KEPT`](super::outgoing::ALL_KEPT). If the connection broke without a word, only an
//! idempotent request on a connection that has carried others is sent again, and only while nothing of its
//! body was used. With HTTP/1 the connection itself keeps what it wrote; see `Outbound`.

use std::rc::Rc;

use http::Method;
use offramp_http::semantics::is_idempotent;

use super::h2::{ExchangeError, Http2Stream};
use super::line::RequestBody;
use super::outgoing::{KeptBytes, Outgoing, ReplayableBody};
use crate::fault::UpstreamFault;

/// State kept of a request that may have to be sent again.
///
/// The head is not part of it: the caller has it, and it is encoded again.
pub(super) struct Copy<B> {
    /// The body, if there is one.
    body: Option<Rc<ReplayableBody<B>>>,
    /// Set if the request may be repeated although the server may have seen it: it is idempotent, and on a
    /// pooled connection that the server may have closed before.
    repeatable: bool,
}

/// A request body that was returned and may be sent to any server.
pub(super) struct Back<B> {
    body: Option<Rc<ReplayableBody<B>>>,
}

/// Verdict on a failed exchange.
pub(super) enum RetryVerdict<B> {
    /// The request must not be sent again.
    Over(UpstreamFault),
    /// The connection was closed, and the request was returned.
    Stale(UpstreamFault, Back<B>),
    /// The server has refused the request unprocessed; it was returned.
    Refused(UpstreamFault, Back<B>),
}

/// Keeps a body for repeated sending.
pub(super) fn keep<B: RequestBody>(body: B, all: &Rc<KeptBytes>) -> Back<B> {
    Back { body: (!body.is_end_stream()).then(|| ReplayableBody::new(body, all)) }
}

impl<B: RequestBody> Back<B> {
    /// Prepares the body for a request with `method`. `pooled` is set if the server may have closed the
    /// connection.
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
    /// Releases the copy: the response begins.
    pub(super) fn settle(self) {
        if let Some(body) = &self.body {
            body.forget();
        }
    }

    /// The whole request, if all of it is still kept.
    fn whole(self) -> Option<Back<B>> {
        let whole = self.body.as_ref().is_none_or(|body| body.is_whole());
        whole.then_some(Back { body: self.body })
    }

    /// The whole request, if nothing of its body was used.
    fn untouched(self) -> Option<Back<B>> {
        let untouched = self.body.as_ref().is_none_or(|body| !body.is_touched());
        untouched.then_some(Back { body: self.body })
    }
}

/// Decides on a failed exchange, and returns the request if it may be sent again.
pub(super) fn judge<B: RequestBody>(
    broken: ExchangeError,
    copy: Copy<B>,
    stream: &Http2Stream,
) -> RetryVerdict<B> {
    let (cause, sent) = match broken {
        ExchangeError::Late => {
            // A server that does not answer one request may answer none.
            stream.retire();
            return RetryVerdict::Over(UpstreamFault::ResponseTimeout);
        }
        ExchangeError::Request(error) => return RetryVerdict::Over(UpstreamFault::RequestBody(error)),
        // Nothing was sent: any request may be sent again.
        ExchangeError::Unsent(cause) => (cause, false),
        ExchangeError::Sent(cause) => (cause, true),
    };
    if sent && cause.refuses() {
        // A server that refuses a stream within its limit may be shutting down; one that sends GOAWAY is
        // closed to others anyway.
        return match copy.whole() {
            Some(back) => {
                if !stream.was_too_many() {
                    stream.retire();
                }
                RetryVerdict::Refused(cause.into(), back)
            }
            None => RetryVerdict::Over(cause.into()),
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
            RetryVerdict::Stale(cause.into(), back)
        }
        None => RetryVerdict::Over(cause.into()),
    }
}
