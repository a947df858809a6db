//! Sending a request once more: what has to be kept for it, and when it may be done.
//!
//! Only an idempotent request on a connection of the pool is ever sent again after it was sent, and only
//! while nothing of its body was used. Copying every such head would cost more than all the rest of
//! choosing a server; so an HTTP/1 connection keeps the bytes that it sends instead, and in the rare case
//! they are read back.

use std::rc::Rc;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderName, HeaderValue, Method, Request};

use super::body::Carrier;
use super::line::{Broken, RequestBody};
use super::outgoing::{Kept, Outgoing};
use crate::fault::{self, Fault};

/// The most headers that a request may have to be read back.
const MOST_HEADERS: usize = 256;

/// What is kept of a request that may have to be sent once more.
pub(super) struct Copy<B> {
    head: Head,
    body: Spare<B>,
}

/// A head that may have to be sent once more.
enum Head {
    /// It must not be.
    None,
    Cloned(Box<Parts>),
    /// The connection has its bytes; these are what bytes cannot say.
    Sent(Extensions),
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

/// Makes a request ready for a connection, and keeps what it takes to send it once more where that may
/// be needed. `pooled`: the server may have closed the connection.
pub(super) fn pack<B: RequestBody>(
    request: Request<B>,
    carrier: &Carrier<B>,
    pooled: bool,
) -> (Request<Outgoing<B>>, Copy<B>) {
    let (head, body) = request.into_parts();
    let progress = Rc::clone(carrier.progress());
    let repeatable = pooled && is_idempotent(&head.method);
    let empty = body.is_end_stream();
    let again = match carrier {
        _ if !repeatable => Head::None,
        Carrier::Line(line, _) if empty => {
            line.keep_bytes();
            Head::Sent(head.extensions.clone())
        }
        _ => Head::Cloned(Box::new(head.clone())),
    };
    let (outgoing, spare) = if empty {
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
    carrier: &Carrier<B>,
) -> (Fault, Option<Request<B>>) {
    let (error, head, body) = match broken {
        Broken::Late => {
            carrier.retire();
            return (Fault::ResponseTimeout, None);
        }
        // Nothing was sent: any request may be sent again.
        Broken::Unsent(error, request) => {
            let (head, outgoing) = request.into_parts();
            (error, Some(head), outgoing.into_body().or_else(|| copy.body.untouched()))
        }
        Broken::Sent(error) if carrier.has_heard() || !fault::spares_requests(&error) => {
            return (Fault::of(error), None);
        }
        Broken::Sent(error) => (error, copy.head.again(carrier), copy.body.untouched()),
    };
    let request = head.zip(body).map(|(head, body)| Request::from_parts(head, body));
    if request.is_some() {
        carrier.retire();
    }
    (Fault::of(error), request)
}

impl Head {
    fn again<B: RequestBody>(self, carrier: &Carrier<B>) -> Option<Parts> {
        match (self, carrier) {
            (Self::Cloned(head), _) => Some(*head),
            (Self::Sent(extensions), Carrier::Line(line, _)) => {
                let mut head = read_back(&line.bytes()?)?;
                head.extensions = extensions;
                Some(head)
            }
            _ => None,
        }
    }
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

/// RFC 9110 §9.2.2, as far as methods are known by name.
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

/// The head that hyper wrote as `bytes`; `None` where it is not there as a whole.
fn read_back(bytes: &Bytes) -> Option<Parts> {
    let mut headers = vec![httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    if !parsed.parse(bytes).ok()?.is_complete() {
        return None;
    }
    let (mut head, ()) =
        Request::builder().method(parsed.method?).uri(parsed.path?).body(()).ok()?.into_parts();
    for header in parsed.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        head.headers.append(name, HeaderValue::from_maybe_shared(bytes.slice_ref(header.value)).ok()?);
    }
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_back_as_it_was() {
        let bytes = Bytes::from_static(
            b"OPTIONS /a%20b?c=d HTTP/1.1\r\nhost: app.test\r\ncookie: a=1\r\ncookie: b=\xff\r\nx: \r\n\r\n",
        );
        let head = read_back(&bytes).unwrap();
        assert_eq!((head.method, head.uri.to_string()), (Method::OPTIONS, "/a%20b?c=d".to_owned()));
        assert_eq!(head.headers.len(), 4);
        let cookies: Vec<_> = head.headers.get_all("cookie").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(cookies, [&b"a=1"[..], b"b=\xff"]);
        assert_eq!(head.headers["x"], "");
        assert!(read_back(&bytes.slice(..bytes.len() - 1)).is_none());
    }
}
