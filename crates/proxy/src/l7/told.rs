//! What a server is told of the client and of the request as it came: `X-Forwarded-*`, `Forwarded`
//! (RFC 7239), `X-Request-Id`, `Via`.
//!
//! What an untrusted client says of itself is replaced; what a trusted proxy says is extended.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::rc::Rc;

use http::Version;
use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue, VIA};
use offramp_observe::facts::Scheme;

use super::session::Session;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
/// The id of a request, for servers and in answers.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id of a request that is kept from a trusted proxy.
const LONGEST_ID: usize = 128;

/// Tells a server of the client. `host` is what the request asked for, as it came. Of an untrusted client nothing of
/// it is in the header before.
pub(crate) fn tell(headers: &mut HeaderMap, session: &Session, host: Option<&HeaderValue>) {
    let proto = HeaderValue::from_static(session.scheme.name());
    headers.insert(X_FORWARDED_FOR, session.told.client.clone());
    headers.insert(X_FORWARDED_PROTO, proto);
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    if let Some(port) = &session.told.port {
        headers.insert(X_FORWARDED_PORT, port.clone());
    }
    headers.insert(FORWARDED, own(session, host));
}

/// Extends what a trusted proxy tells of the client. `named`: whom the proxies name. Where they say it in one of the
/// two ways only, it is said in the other one too, so that a server reads the same by both.
pub(crate) fn extend_told(
    headers: &mut HeaderMap,
    session: &Session,
    host: Option<&HeaderValue>,
    named: Option<IpAddr>,
) {
    if let Some(named) = named {
        if !headers.contains_key(X_FORWARDED_FOR) {
            headers.insert(X_FORWARDED_FOR, address(Some(named)));
        }
        if !headers.contains_key(FORWARDED) {
            let mut text = String::with_capacity(48);
            forwarded_for(Some(named), &mut text);
            headers.insert(FORWARDED, HeaderValue::try_from(text).unwrap_or(UNKNOWN));
        }
    }
    extend(headers, X_FORWARDED_FOR, &session.told.client);
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(session.scheme.name()));
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
    }
    if let Some(port) = &session.told.port {
        headers.entry(X_FORWARDED_PORT).or_insert_with(|| port.clone());
    }
    extend(headers, FORWARDED, &own(session, host));
}

/// An address for X-Forwarded-For.
pub(crate) fn address(ip: Option<IpAddr>) -> HeaderValue {
    let text = ip.map_or_else(|| "unknown".to_owned(), |ip| ip.to_string());
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("unknown"))
}

/// Our own element of `Forwarded`.
fn own(session: &Session, host: Option<&HeaderValue>) -> HeaderValue {
    session.told.forwarded(host, || forwarded(session.ip, session.scheme, host))
}

/// Puts `value` behind those that are there, in one field: not every server reads more than one.
fn extend(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    let mut all = Vec::new();
    for one in headers.get_all(&name).iter().filter(|one| !one.is_empty()).chain([value]) {
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(one.as_bytes());
    }
    headers.insert(name, HeaderValue::from_bytes(&all).unwrap_or_else(|_| value.clone()));
}

/// The fields that servers are told of an untrusted client, as they are sent. The id of the request is not among
/// them.
pub(crate) fn written(session: &Session, host: Option<&HeaderValue>) -> Rc<[u8]> {
    session.told.written(host, || {
        let mut headers = HeaderMap::new();
        tell(&mut headers, session, host);
        let mut text = Vec::with_capacity(256);
        for (name, value) in &headers {
            write_field(name, value, &mut text);
        }
        text.into()
    })
}

/// Writes a field with its line end.
pub(crate) fn write_field(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One element of `Forwarded` (RFC 7239 §4).
fn forwarded(ip: Option<IpAddr>, scheme: Scheme, host: Option<&HeaderValue>) -> HeaderValue {
    let mut text = String::with_capacity(80);
    forwarded_for(ip, &mut text);
    text.push_str(";proto=");
    text.push_str(scheme.name());
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        // A port makes it no token, so that it is quoted. Hosts have neither quotes nor backslashes.
        let token =
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        let quote = if token { "" } else { "\"" };
        let _ = write!(text, ";host={quote}{host}{quote}");
    }
    HeaderValue::try_from(text).unwrap_or(UNKNOWN)
}

/// The node of an element of `Forwarded` (RFC 7239 §5.2, §6).
fn forwarded_for(ip: Option<IpAddr>, text: &mut String) {
    // Writing to a string cannot fail.
    let _ = match ip {
        Some(IpAddr::V4(ip)) => write!(text, "for={ip}"),
        Some(IpAddr::V6(ip)) => write!(text, "for=\"[{ip}]\""),
        None => write!(text, "for=unknown"),
    };
}

/// An element of `Forwarded` that says nothing.
const UNKNOWN: HeaderValue = HeaderValue::from_static("for=unknown");

/// Adds this proxy to `Via` (RFC 9110 §7.6.3): `version` is that of the message as it was received.
pub(crate) fn via(headers: &mut HeaderMap, version: Version) {
    let element = match version {
        Version::HTTP_2 => "2.0 offramp",
        Version::HTTP_10 => "1.0 offramp",
        _ => "1.1 offramp",
    };
    extend(headers, VIA, &HeaderValue::from_static(element));
}

/// The id that a trusted proxy gave the request, if it is one that may be kept.
pub(crate) fn given_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(X_REQUEST_ID)?.to_str().ok()?;
    let plain = id.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';'));
    (!id.is_empty() && id.len() <= LONGEST_ID && plain).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_is_quoted_where_it_must_be() {
        let of = |ip: &str, host: Option<&'static str>| {
            let host = host.map(HeaderValue::from_static);
            let value = forwarded(ip.parse().ok(), Scheme::Https, host.as_ref());
            value.to_str().unwrap().to_owned()
        };
        assert_eq!(of("192.0.2.1", Some("a.test")), "for=192.0.2.1;proto=https;host=a.test");
        assert_eq!(
            of("2001:db8::1", Some("a.test:8443")),
            "for=\"[2001:db8::1]\";proto=https;host=\"a.test:8443\""
        );
        assert_eq!(of("", None), "for=unknown;proto=https");
    }

    #[test]
    fn lists_grow_in_one_field() {
        let mut headers = HeaderMap::new();
        via(&mut headers, Version::HTTP_2);
        assert_eq!(headers[VIA], "2.0 offramp");
        headers.append(VIA, HeaderValue::from_static("1.1 other"));
        via(&mut headers, Version::HTTP_11);
        assert_eq!(headers[VIA], "2.0 offramp, 1.1 other, 1.1 offramp");
        assert_eq!(headers.get_all(VIA).iter().count(), 1);
    }

    #[test]
    fn ids_that_are_kept() {
        let id = |value: &'static str| {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::from_static(value))]);
            given_id(&headers).map(ToOwned::to_owned)
        };
        assert_eq!(id("abc-123").as_deref(), Some("abc-123"));
        for bad in ["", "with space", "a,b", "quo\"te"] {
            assert_eq!(id(bad), None, "{bad}");
        }
        let long = HeaderValue::try_from("x".repeat(LONGEST_ID + 1)).unwrap();
        assert_eq!(given_id(&HeaderMap::from_iter([(X_REQUEST_ID, long)])), None);
    }
}
