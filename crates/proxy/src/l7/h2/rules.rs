//! What of a request is well-formed in HTTP/2, and a server of HTTP/1 must not get (RFC 9113 §8.3.1, §10.3).
//!
//! The same rules hold before HTTP/1, where the guard has them.

use http::{Method, StatusCode};
use offramp_http::Http1Fault;
use offramp_http::h1::{content_length, is_ambiguous};
use offramp_http::head::{ControlData, Fields, Known, Request, Unserved};
use offramp_http::host::Authority;
use offramp_http::target::Scheme;
use offramp_observe::Cause;

use crate::l7::answer::ErrorReply;

/// Says whether a request of HTTP/2 has one reading in HTTP/1.
pub(super) fn judge(request: &Request, control: &ControlData) -> Result<(), ErrorReply> {
    match control.unserved {
        Some(Unserved::TooLarge) => {
            return Err(ErrorReply::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Cause::HeadersTooLarge));
        }
        Some(Unserved::Target(fault)) => return Err(ErrorReply::fault(fault)),
        None => {}
    }
    length(&request.fields)
        .and_then(|()| host(request, control.scheme))
        .and_then(|()| names(&request.fields))
        .map_err(ErrorReply::fault)
}

/// One length at the most, in one form.
fn length(fields: &Fields) -> Result<(), Http1Fault> {
    let mut lengths = fields.all(Known::ContentLength);
    let Some(first) = lengths.next() else { return Ok(()) };
    content_length(first)?;
    match lengths.next() {
        Some(second) if second == first => Err(Http1Fault::ContentLengthRepeated),
        Some(_) => Err(Http1Fault::ContentLengthConflict),
        None => Ok(()),
    }
}

/// One host, and a target that has a meaning for its method.
fn host(request: &Request, scheme: Option<Scheme>) -> Result<(), Http1Fault> {
    if request.target() == "*" && request.method != Method::OPTIONS {
        return Err(Http1Fault::TargetForm);
    }
    // Where no field says it, the one that is there is the authority.
    let mut hosts = request.fields.all(Known::Host);
    let (first, second) = (hosts.next(), hosts.next());
    match (request.authority(), first) {
        _ if second.is_some() => Err(Http1Fault::HostRepeated),
        (_, None) => Err(Http1Fault::HostMissing),
        // One that cannot be read is refused by its reader.
        (None, Some(b"")) => Err(Http1Fault::HostMalformed),
        (Some(authority), Some(host)) if authority.as_bytes() != host => {
            let authority = Authority::parse(authority.as_bytes()).map_err(|_| Http1Fault::HostMalformed)?;
            let host = Authority::parse(host).map_err(|_| Http1Fault::HostMalformed)?;
            let port = scheme.unwrap_or(Scheme::Https).port();
            if host.same(&authority, port) { Ok(()) } else { Err(Http1Fault::HostContradicts) }
        }
        _ => Ok(()),
    }
}

/// No name that some servers take for one that frames the message.
fn names(fields: &Fields) -> Result<(), Http1Fault> {
    if fields.iter().any(|(name, _)| is_ambiguous(name)) { Err(Http1Fault::AmbiguousName) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use offramp_http::head::FieldSection;
    use offramp_http::hpack::{HpackDecoder, HpackEncoder, Indexing};

    use super::*;

    /// Why a request for `target` is refused, `https://a.test` before it or nothing.
    fn cause((authority, target): (bool, &str), method: &str, fields: &[(&str, &str)]) -> String {
        let pseudo = [(":method", method), (":scheme", "https"), (":authority", "a.test"), (":path", target)];
        let pseudo = pseudo.into_iter().filter(|(name, _)| authority || *name != ":authority");
        let (mut encoder, mut block) = (HpackEncoder::new(), Vec::new());
        for (name, value) in pseudo.chain(fields.iter().copied()) {
            encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Yes, &mut block);
        }
        let (mut section, mut head) = (FieldSection::new(Fields::new(), 10_000), Request::new());
        HpackDecoder::new(4096).decode(&block, |field| section.take(field)).unwrap();
        let control = section.request(&mut head).unwrap();
        judge(&head, &control)
            .err()
            .and_then(|refusal| refusal.close.detail)
            .map(|detail| detail.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn requests_with_two_readings_are_refused() {
        let (whole, path, asterisk) = ((true, "/"), (false, "/"), (false, "*"));
        assert_eq!(cause(whole, "GET", &[("host", "A.test:443"), ("content-length", "5")]), "");
        assert_eq!(cause(whole, "GET", &[]), "");
        assert_eq!(cause(path, "GET", &[("host", "a.test")]), "");
        for (target, fields, wanted) in [
            (whole, &[("content-length", "05")][..], "http1_content_length_zeros"),
            (whole, &[("content-length", "5"), ("content-length", "5")], "http1_content_length_repeated"),
            (whole, &[("content-length", "5"), ("content-length", "6")], "http1_content_length_conflict"),
            (whole, &[("host", "b.test")], "http1_host_contradicts"),
            (whole, &[("host", "A.test:80")], "http1_host_contradicts"),
            (whole, &[("host", "a b")], "http1_host_malformed"),
            (whole, &[("host", "a.test"), ("host", "a.test")], "http1_host_repeated"),
            (path, &[("host", "a.test"), ("host", "a.test")], "http1_host_repeated"),
            (path, &[], "http1_host_missing"),
            (path, &[("host", "")], "http1_host_malformed"),
            (whole, &[("host", "")], "http1_host_malformed"),
            (asterisk, &[("host", "a.test")], "http1_target_form"),
            (whole, &[("content_length", "5")], "http1_ambiguous_name"),
            (whole, &[("content.length", "5")], "http1_ambiguous_name"),
            (whole, &[("transfer~encoding", "chunked")], "http1_ambiguous_name"),
            (whole, &[("transfer_encoding", "chunked")], "http1_ambiguous_name"),
        ] {
            let detail = cause(target, "GET", fields);
            assert!(detail.starts_with(&format!("{wanted}:")), "{target:?} {fields:?}: {detail}");
        }
        assert_eq!(cause(asterisk, "OPTIONS", &[("host", "a.test")]), "");
    }
}
