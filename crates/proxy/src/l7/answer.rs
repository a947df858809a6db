//! Responses of our own: errors, redirects, fixed ones.
//!
//! An error says its status in words and carries the request's id; why it came to that is in the event only. Browsers
//! get a page, programs JSON or text, as they ask for it ([`page`]).

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use offramp_http::Http1Fault;
use offramp_http::head::{Known, KnownSet, Response};
use offramp_http::semantics::accept::{self, MessageFormat};
use offramp_observe::{Cause, Close};

use crate::snapshot::http::Respond;
use crate::snapshot::pages::ErrorPages;

mod page;

/// A request that is answered with an error of our own.
#[derive(Debug)]
pub(crate) struct ErrorReply {
    /// The status of the answer.
    pub(crate) status: StatusCode,
    /// The end in the event.
    pub(crate) close: Close,
    /// In how many seconds it may be tried again.
    pub(crate) retry_after: Option<u32>,
    /// One more field of the answer.
    pub(crate) field: Option<Box<(&'static [u8], String)>>,
}

impl ErrorReply {
    pub(crate) fn new(status: StatusCode, close: impl Into<Close>) -> Self {
        Self { status, close: close.into(), retry_after: None, field: None }
    }

    /// The same with one more field.
    pub(crate) fn with_field(mut self, name: &'static [u8], value: impl Into<String>) -> Self {
        self.field = Some(Box::new((name, value.into())));
        self
    }

    /// The refusal of a request by the guard.
    pub(crate) fn fault(fault: Http1Fault) -> Self {
        let status = StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let cause = match status {
            StatusCode::URI_TOO_LONG => Cause::TargetTooLong,
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Cause::HeadersTooLarge,
            _ => Cause::BadRequest,
        };
        Self::new(status, Close::from(cause).with_detail(&format!("{}: {fault}", fault.name())))
    }
}

/// The form in which a client wants errors (RFC 9110 §12.5.1).
pub(crate) fn form<'a>(accept: impl IntoIterator<Item = &'a [u8]>) -> MessageFormat {
    accept::form(accept)
}

/// The media type and the body for an error with this status, of the request with this id.
pub(crate) fn body(
    form: MessageFormat,
    status: StatusCode,
    id: &str,
    pages: Option<&ErrorPages>,
) -> (Cow<'static, str>, Bytes) {
    if let Some(page) = pages.and_then(|pages| pages.page(status, form)) {
        return (page.kind.to_string().into(), page::fill(page, status, id));
    }
    let (kind, body) = page::render(form, status, id);
    (kind.into(), body.into())
}

/// The response that tells a client of an error.
pub(crate) fn error(
    refusal: &ErrorReply,
    form: MessageFormat,
    id: &str,
    pages: Option<&ErrorPages>,
) -> Response<Bytes> {
    let (kind, body) = body(form, refusal.status, id, pages);
    let mut response = Response::new(refusal.status, body);
    let fields = &mut response.fields;
    fields.append(b"content-type", kind.as_bytes());
    fields.append(b"cache-control", b"no-store");
    fields.append_known(Known::XRequestId, id.as_bytes());
    if let Some(seconds) = refusal.retry_after {
        fields.append(b"retry-after", seconds.to_string().as_bytes());
    }
    if let Some((name, value)) = refusal.field.as_deref() {
        fields.append(name, value.as_bytes());
    }
    response
}

/// The bytes of [`error`] for a request that was never served; the connection is closed after it.
pub(crate) fn written_error(refusal: &ErrorReply, id: &str) -> Vec<u8> {
    let response = error(refusal, MessageFormat::Text, id, None);
    let status = refusal.status;
    let reason = status.canonical_reason().unwrap_or("Error");
    let mut out = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    response.fields.write(KnownSet::default(), &mut out);
    out.extend_from_slice(
        format!("content-length: {}\r\nconnection: close\r\n\r\n", response.body.len()).as_bytes(),
    );
    out.extend_from_slice(&response.body);
    out
}

/// The response that sends a client elsewhere.
pub(crate) fn redirect(status: StatusCode, to: String) -> Option<Response<Bytes>> {
    let mut response = Response::new(status, Bytes::new());
    response.fields.append(b"location", HeaderValue::try_from(to).ok()?.as_bytes());
    Some(response)
}

/// The response to OPTIONS or TRACE that may be forwarded no farther (RFC 9110 §7.6.2). A request is not shown to
/// its client again (RFC 9110 §9.3.8): it may say what scripts must not see.
pub(crate) fn last_hop(method: &Method) -> Response<Bytes> {
    let status =
        if *method == Method::OPTIONS { StatusCode::NO_CONTENT } else { StatusCode::METHOD_NOT_ALLOWED };
    let mut response = Response::new(status, Bytes::new());
    response.fields.append(b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    response
}

/// A response that is always the same.
pub(crate) fn fixed(respond: &Respond) -> Response<Bytes> {
    let mut response = Response::new(respond.status, respond.body.clone());
    if let Some(kind) = &respond.content_type {
        response.fields.append(b"content-type", kind.as_bytes());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_carry_the_id_and_nothing_else() {
        let refusal = ErrorReply {
            status: StatusCode::TOO_MANY_REQUESTS,
            close: Close::from(Cause::TooManyRequests).with_detail("secret"),
            retry_after: Some(3),
            field: None,
        };
        let text = error(&refusal, MessageFormat::Text, "id-1", None);
        assert_eq!(&text.body[..], b"429 Too Many Requests\nrequest id-1\n");
        assert_eq!(text.fields.named(b"retry-after").collect::<Vec<_>>(), [b"3"]);
        let json = error(&refusal, MessageFormat::Json, "id-1", None);
        assert_eq!(
            &json.body[..],
            b"{\"status\":429,\"error\":\"Too Many Requests\",\"request_id\":\"id-1\"}\n"
        );
        let written = String::from_utf8(written_error(&refusal, "id-1")).unwrap();
        assert!(written.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{written}");
        assert!(written.contains("content-length: 35\r\nconnection: close\r\n\r\n429"), "{written}");
        assert!(!written.contains("secret"));
    }

    #[test]
    fn faults_have_statuses_and_causes() {
        let of = |fault| {
            let refusal = ErrorReply::fault(fault);
            (refusal.status.as_u16(), refusal.close.cause)
        };
        assert_eq!(of(Http1Fault::BothLengths), (400, Cause::BadRequest));
        assert_eq!(of(Http1Fault::TargetTooLong), (414, Cause::TargetTooLong));
        assert_eq!(of(Http1Fault::TooManyFields), (431, Cause::HeadersTooLarge));
        assert_eq!(of(Http1Fault::Version), (505, Cause::BadRequest));
    }
}
