//! From the bytes of a head that the guard accepted to a request. Values stay where they are: the head is
//! copied once, and all of them are parts of that.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, StatusCode, Version};
use offramp_http::h1::{Form, RequestHead, Version as Spoken};
use offramp_http::target;
use offramp_observe::{Cause, Close};

use super::Asked;
use crate::l7::answer::Refusal;
use crate::l7::inbound::Inbound;

/// Room for the fields that servers are told besides those of the request.
const TOLD: usize = 8;
/// The longest target that a URI can be.
const LONGEST_TARGET: usize = u16::MAX as usize - 1;

/// The request that `head` of `bytes` is the head of, without its body, and what its response has to know of
/// it. `spare` is empty, and used where it has room.
pub(super) fn request(
    head: &RequestHead,
    bytes: &Bytes,
    spare: HeaderMap,
) -> Result<(Request<Inbound>, Asked), Refusal> {
    let mut trailers = false;
    let room = usize::from(head.fields) + TOLD;
    // A new one costs less than one that has to grow.
    let fresh = || HeaderMap::try_with_capacity(room).map_err(|_| too_many());
    let mut headers = if spare.capacity() >= room { spare } else { fresh()? };
    for field in head.fields(bytes) {
        let name = HeaderName::from_bytes(&bytes[field.name]).map_err(|error| bad(&error))?;
        let value = HeaderValue::from_maybe_shared(bytes.slice(field.value)).map_err(|error| bad(&error))?;
        trailers |= name == http::header::TE && takes_trailers(&value);
        headers.try_append(name, value).map_err(|_| too_many())?;
    }
    let method = Method::from_bytes(&bytes[head.method.clone()]).map_err(|error| bad(&error))?;
    if head.target.len() > LONGEST_TARGET {
        return Err(Refusal::new(StatusCode::URI_TOO_LONG, Cause::TargetTooLong));
    }
    let uri = uri(head, &method, bytes.slice(head.target.clone())).map_err(|error| bad(&error))?;
    let http10 = head.version == Spoken::Http10;
    let asked = Asked { head: method == Method::HEAD, http10, keep_alive: head.keep_alive, trailers };
    let mut request = Request::new(Inbound::Empty);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = if http10 { Version::HTTP_10 } else { Version::HTTP_11 };
    *request.headers_mut() = headers;
    Ok((request, asked))
}

/// What is asked for. Behind an authority the path may be missing, which no server is to see.
fn uri(head: &RequestHead, method: &Method, text: Bytes) -> Result<Uri, http::Error> {
    if head.form == Form::Absolute
        && let Some((.., path)) = target::split(&text)
        && let Some(path) = target::origin_form(method.as_str().as_bytes(), path)
    {
        let mut parts = Uri::from_maybe_shared(text)?.into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(path)?);
        return Ok(Uri::from_parts(parts)?);
    }
    Ok(Uri::from_maybe_shared(text)?)
}

/// Whether a client wants to see trailers (RFC 9110 §10.1.4).
fn takes_trailers(value: &HeaderValue) -> bool {
    value
        .as_bytes()
        .split(|&byte| byte == b',')
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

#[cold]
fn bad(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Close::from(Cause::BadRequest).with_detail(&error.to_string()))
}

#[cold]
fn too_many() -> Refusal {
    Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Cause::HeadersTooLarge)
}

#[cfg(test)]
mod tests {
    use offramp_http::h1::{Guard, Limits, Outcome};

    use super::*;

    fn read(text: &str) -> Result<(Request<Inbound>, Asked), Refusal> {
        let Outcome::Head(head) = Guard::new(Limits::default()).inspect(text.as_bytes()).outcome else {
            panic!("{text:?}");
        };
        request(&head, &Bytes::copy_from_slice(text.as_bytes()), HeaderMap::new())
    }

    #[test]
    fn heads_become_requests() {
        let (request, asked) = read(
            "\r\nGET /a?b=c HTTP/1.1\r\nHost: a.test\r\nX-Two: 1\r\nTE: gzip, Trailers\r\nx-two:  2 \r\n\r\n",
        )
        .unwrap();
        assert_eq!((request.method(), request.version()), (&Method::GET, Version::HTTP_11));
        assert_eq!(request.uri(), "/a?b=c");
        let both: Vec<_> = request.headers().get_all("x-two").iter().collect();
        assert_eq!(both, ["1", "2"]);
        assert_eq!(request.headers()["host"], "a.test");
        assert!(asked.trailers && asked.keep_alive && !asked.head && !asked.http10);
        let (request, asked) = read("HEAD http://a.test:81/x HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!((request.uri().authority().unwrap().as_str(), request.uri().path()), ("a.test:81", "/x"));
        assert!(asked.head && asked.http10 && !asked.keep_alive && !asked.trailers);
        for (line, target) in [
            ("OPTIONS *", "*"),
            ("OPTIONS http://a", "*"),
            ("OPTIONS http://a/", "/"),
            ("OPTIONS http://a?x", "/?x"),
            ("GET http://a", "/"),
            ("GET HTTP://a?x/y?", "/?x/y?"),
        ] {
            let (request, _) = read(&format!("{line} HTTP/1.1\r\nhost: a\r\n\r\n")).unwrap();
            assert_eq!(request.uri().path_and_query().unwrap(), target, "{line}");
        }
    }

    #[test]
    fn what_a_uri_cannot_be_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(LONGEST_TARGET));
        let limits = Limits { head: 1 << 20, target: 1 << 20, ..Limits::default() };
        let Outcome::Head(head) = Guard::new(limits).inspect(long.as_bytes()).outcome else { panic!() };
        let refused = request(&head, &Bytes::from(long), HeaderMap::new()).map(drop).unwrap_err();
        assert_eq!(refused.status, StatusCode::URI_TOO_LONG);
    }
}
