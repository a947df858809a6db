//! Sending a request of HTTP/2 once more: what has to be kept for it, and when it may be done.
//!
//! Only an idempotent request on a connection that has carried others is ever sent again after it was sent, and
//! only while nothing of its body was used. With HTTP/1 the connection itself keeps what it wrote; see
//! `Outbound`.

use std::rc::Rc;

use http::Request;
use http::request::Parts;

use super::line::{RequestBody, is_idempotent};
use super::mux::{Broken, Stream};
use super::outgoing::{Kept, Outgoing};
use crate::fault::{self, Fault};

/// What is kept of a request that may have to be sent once more.
pub(super) struct Copy<B> {
    head: Option<Box<Parts>>,
    body: Spare<B>,
}

/// A body that may have to be sent once more.
enum Spare<B> {
    /// It has nothing in it; hyper got a stand-in.
    Whole(B),
    /// Hyper got it, and gives it back if it has not used it.
    Lent(Rc<Kept<B>>),
    /// Hyper got it for good, unless the request comes back unsent.
    Gone,
}

/// Makes a request ready for a stream, and keeps what it takes to send it once more where that may
/// be needed. `pooled`: the server may have closed the connection.
pub(super) fn pack<B: RequestBody>(
    request: Request<B>,
    stream: &Stream<B>,
    pooled: bool,
) -> (Request<Outgoing<B>>, Copy<B>) {
    let (head, body) = request.into_parts();
    let progress = Rc::clone(stream.progress());
    let repeatable = pooled && is_idempotent(&head.method);
    let again = repeatable.then(|| Box::new(head.clone()));
    let (outgoing, spare) = if body.is_end_stream() {
        (Outgoing::empty(progress), Spare::Whole(body))
    } else if repeatable {
        let kept = Kept::new(body);
        (Outgoing::kept(Rc::clone(&kept), progress), Spare::Lent(kept))
    } else {
        (Outgoing::once(body, progress), Spare::Gone)
    };
    (Request::from_parts(head, outgoing), Copy { head: again, body: spare })
}

/// What a failed exchange comes to, and the request where it may be sent once more.
pub(super) fn judge<B: RequestBody>(
    broken: Broken<B>,
    copy: Copy<B>,
    stream: &Stream<B>,
) -> (Fault, Option<Request<B>>) {
    let (error, head, body) = match broken {
        Broken::Late => {
            // Who does not answer one request may answer none.
            stream.retire();
            return (Fault::ResponseTimeout, None);
        }
        // Nothing was sent: any request may be sent again.
        Broken::Unsent(error, request) => {
            let (head, outgoing) = request.into_parts();
            (error, Some(head), outgoing.into_body().or_else(|| copy.body.untouched()))
        }
        Broken::Sent(error) if !fault::spares_requests(&error) => return (Fault::of(error), None),
        Broken::Sent(error) => (error, copy.head.map(|head| *head), copy.body.untouched()),
    };
    let request = head.zip(body).map(|(head, body)| Request::from_parts(head, body));
    if request.is_some() {
        stream.retire();
    }
    (Fault::of(error), request)
}

impl<B> Spare<B> {
    fn untouched(self) -> Option<B> {
        match self {
            Self::Whole(body) => Some(body),
            Self::Lent(kept) => kept.untouched(),
            Self::Gone => None,
        }
    }
}
