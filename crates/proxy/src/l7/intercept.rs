//! The error of a server that gives way to the page of its route.
//!
//! The status stays, and every field that says nothing of the body: a client still learns of `WWW-Authenticate`,
//! `Retry-After` and cookies. The body is dropped; a short one is read first, so that the connection to the server can be
//! used again.

use http::Method;
use offramp_http::head::{Fields, Known, Response};
use offramp_upstream::ServerBody;

use super::answer;
use super::body::{ClientBody, ReplyContent};
use super::exchange::own;
use super::forward::ForwardedRequest;
use super::record::RequestRecord;
use super::unwanted::{UNWANTED, forget as forget_body};
use crate::snapshot::pages::ErrorPages;

/// The fields that describe the body of a response (RFC 9110 §8, §14; RFC 9530).
const OF_BODIES: [&[u8]; 12] = [
    b"content-type",
    b"content-encoding",
    b"content-language",
    b"content-location",
    b"content-range",
    b"content-disposition",
    b"content-digest",
    b"repr-digest",
    b"digest",
    b"etag",
    b"last-modified",
    b"accept-ranges",
];

/// The page in place of the body that a server sent. That of a request with a body is not read to its end: the rest of the
/// request's is not sent behind the end of its response.
pub(super) fn replaced(
    response: Response<ServerBody<ClientBody>>,
    pages: &ErrorPages,
    request: ForwardedRequest<'_>,
    record: &RequestRecord,
) -> Response<ReplyContent> {
    let form = answer::form(request.head.fields.all(Known::Accept));
    let (kind, body) = answer::body(form, response.status, &record.id(), Some(pages));
    let status = response.status;
    let Response { mut fields, body: sent, .. } = response;
    describe(&mut fields, &kind);
    if request.bodiless {
        forget(sent);
    }
    let mut response = Response::new(status, body);
    response.fields = fields;
    own(response, request.head.method == Method::HEAD)
}

/// Has the fields describe another body.
fn describe(fields: &mut Fields, kind: &str) {
    for name in OF_BODIES {
        fields.remove_named(name);
    }
    fields.append(b"content-type", kind.as_bytes());
}

/// Reads a short body to its end.
fn forget(mut body: ServerBody<ClientBody>) {
    if body.is_end_stream() || body.length().is_some_and(|length| length > UNWANTED as u64) {
        return;
    }
    forget_body(move |cx| body.poll_frame(cx));
}
