//! What of a request is well-formed in HTTP/2, and a server of HTTP/1 must not get (RFC 9113 §8.3.1, §10.3).
//!
//! The same rules hold before HTTP/1, where the guard has them.

use http::header::{CONTENT_LENGTH, HOST};
use http::{Method, Request, StatusCode};
use offramp_http::Http1Fault;
use offramp_http::h1::{content_length, is_ambiguous};
use offramp_http::host::Authority;
use offramp_observe::Cause;

use super::head::{TooLarge, Unfit};
use crate::l7::answer::Refusal;

/// Says whether a request of HTTP/2 has one reading in HTTP/1.
pub(super) fn judge<B>(request: &Request<B>) -> Result<(), Refusal> {
    if request.extensions().get::<TooLarge>().is_some() {
        return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Cause::HeadersTooLarge));
    }
    if let Some(Unfit(fault)) = request.extensions().get() {
        return Err(Refusal::fault(*fault));
    }
    length(request).and_then(|()| host(request)).and_then(|()| names(request)).map_err(Refusal::fault)
}

/// One length at the most, in one form.
fn length<B>(request: &Request<B>) -> Result<(), Http1Fault> {
    let mut lengths = request.headers().get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(()) };
    content_length(first.as_bytes())?;
    match lengths.next() {
        Some(second) if second == first => Err(Http1Fault::ContentLengthRepeated),
        Some(_) => Err(Http1Fault::ContentLengthConflict),
        None => Ok(()),
    }
}

/// One host, and a target that has a meaning for its method.
fn host<B>(request: &Request<B>) -> Result<(), Http1Fault> {
    let uri = request.uri();
    if uri.path() == "*" && request.method() != Method::OPTIONS {
        return Err(Http1Fault::TargetForm);
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    match (uri.authority(), first) {
        _ if second.is_some() => Err(Http1Fault::HostRepeated),
        (None, None) => Err(Http1Fault::HostMissing),
        // One that cannot be read is refused by whoever reads it.
        (None, Some(host)) if host.is_empty() => Err(Http1Fault::HostMalformed),
        (Some(authority), Some(host)) if authority.as_str().as_bytes() != host.as_bytes() => {
            let authority =
                Authority::parse(authority.as_str().as_bytes()).map_err(|_| Http1Fault::HostMalformed)?;
            let host = Authority::parse(host.as_bytes()).map_err(|_| Http1Fault::HostMalformed)?;
            let port = if uri.scheme_str() == Some("http") { 80 } else { 443 };
            if host.same(&authority, port) { Ok(()) } else { Err(Http1Fault::HostContradicts) }
        }
        _ => Ok(()),
    }
}

/// No name that some servers take for one that frames the message.
fn names<B>(request: &Request<B>) -> Result<(), Http1Fault> {
    let mut names = request.headers().keys().map(|name| name.as_str().as_bytes());
    if names.any(is_ambiguous) { Err(Http1Fault::AmbiguousName) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(uri: &str, method: &str, fields: &[(&str, &str)]) -> String {
        let mut request = Request::builder().uri(uri).method(method);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let judged = judge(&request.body(()).unwrap());
        judged
            .err()
            .and_then(|refusal| refusal.close.detail)
            .map(|detail| detail.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn requests_with_two_readings_are_refused() {
        let whole = "https://a.test/";
        assert_eq!(cause(whole, "GET", &[("host", "A.test:443"), ("content-length", "5")]), "");
        assert_eq!(cause("/", "GET", &[("host", "a.test")]), "");
        for (uri, fields, wanted) in [
            (whole, &[("content-length", "05")][..], "http1_content_length_zeros"),
            (whole, &[("content-length", "5"), ("content-length", "5")], "http1_content_length_repeated"),
            (whole, &[("content-length", "5"), ("content-length", "6")], "http1_content_length_conflict"),
            (whole, &[("host", "b.test")], "http1_host_contradicts"),
            (whole, &[("host", "a b")], "http1_host_malformed"),
            (whole, &[("host", "a.test"), ("host", "a.test")], "http1_host_repeated"),
            ("/", &[], "http1_host_missing"),
            ("/", &[("host", "")], "http1_host_malformed"),
            (whole, &[("host", "")], "http1_host_malformed"),
            ("*", &[("host", "a.test")], "http1_target_form"),
            (whole, &[("content_length", "5")], "http1_ambiguous_name"),
            (whole, &[("transfer_encoding", "chunked")], "http1_ambiguous_name"),
        ] {
            let told = cause(uri, "GET", fields);
            assert!(told.starts_with(&format!("{wanted}:")), "{uri} {fields:?}: {told}");
        }
        assert_eq!(cause("*", "OPTIONS", &[("host", "a.test")]), "");
    }
}
