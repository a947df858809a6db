//! What servers learn of the client and of the request as it came: `X-Forwarded-*`, `Forwarded`
//! (RFC 7239), `X-Real-IP`, `X-Request-Id`, `Via`.
//!
//! What an untrusted client says of itself is replaced; what a trusted proxy says is extended.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::rc::Rc;

use http::Version;
use offramp_http::head::{Fields, Known};
use offramp_observe::facts::ClientScheme;

use super::session::Session;

/// The address of the client alone, as nginx' users have it.
pub(crate) const X_REAL_IP: &[u8] = b"x-real-ip";

/// The longest id of a request that is kept from a trusted proxy.
const LONGEST_ID: usize = 128;

/// Extends what a trusted proxy tells of the client by our `own`. `named`: the client by the proxies. Where they
/// say it in one of the two ways only, it is said in the other one too, so that a server reads the same by both.
pub(crate) fn extend(fields: &mut Fields, own: &Fields, named: Option<IpAddr>) {
    if let Some(named) = named {
        if !fields.contains(Known::XForwardedFor) {
            fields.append_known(Known::XForwardedFor, address(Some(named)).as_bytes());
        }
        if !fields.contains(Known::Forwarded) {
            let mut text = String::with_capacity(48);
            forwarded_for(Some(named), &mut text);
            fields.append_known(Known::Forwarded, text.as_bytes());
        }
    }
    if let Some(named) = named {
        // It says the same as X-Forwarded-For, whatever a proxy let pass of its client's.
        fields.set(X_REAL_IP, address(Some(named)).as_bytes());
    }
    for (name, value) in own.iter() {
        match Known::of(name) {
            Known::Other if fields.named(name).next().is_none() => fields.append(name, value),
            Known::Other => {}
            list @ (Known::XForwardedFor | Known::Forwarded) => fields.extend_list(list, value),
            known if !fields.contains(known) => fields.append_known(known, value),
            _ => {}
        }
    }
}

/// Fields that tell servers of a client without trusted proxies: nothing of it may be among the fields of its
/// request. `host` is what the request asked for, as it came.
pub(crate) fn own(session: &Session, host: Option<&[u8]>) -> Rc<Fields> {
    session.forwarded.fields(host, || {
        let mut fields = Fields::new();
        fields.append_known(Known::XForwardedFor, session.forwarded.client.as_bytes());
        // One that has no address has none here: applications parse it.
        if session.ip.is_some() {
            fields.append(X_REAL_IP, session.forwarded.client.as_bytes());
        }
        fields.append_known(Known::XForwardedProto, session.scheme.name().as_bytes());
        if let Some(host) = host {
            fields.append_known(Known::XForwardedHost, host);
        }
        if let Some(port) = &session.forwarded.port {
            fields.append_known(Known::XForwardedPort, port.as_bytes());
        }
        fields.append_known(Known::Forwarded, forwarded(session.ip, session.scheme, host).as_bytes());
        fields
    })
}

/// An address for X-Forwarded-For.
pub(crate) fn address(ip: Option<IpAddr>) -> String {
    ip.map_or_else(|| "unknown".to_owned(), |ip| ip.to_string())
}

/// One element of `Forwarded` (RFC 7239 §4).
fn forwarded(ip: Option<IpAddr>, scheme: ClientScheme, host: Option<&[u8]>) -> String {
    let mut text = String::with_capacity(80);
    forwarded_for(ip, &mut text);
    text.push_str(";proto=");
    text.push_str(scheme.name());
    if let Some(host) = host.and_then(|host| std::str::from_utf8(host).ok()) {
        // A port makes it no token, so that it is quoted. Hosts have neither quotes nor backslashes.
        let token =
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        let quote = if token { "" } else { "\"" };
        let _ = write!(text, ";host={quote}{host}{quote}");
    }
    text
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

/// Adds this proxy to `Via` (RFC 9110 §7.6.3): `version` is that of the message as it was received.
pub(crate) fn via(fields: &mut Fields, version: Version) {
    fields.extend_list(Known::Via, element(version).as_bytes());
}

fn element(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2.0 offramp",
        Version::HTTP_10 => "1.0 offramp",
        _ => "1.1 offramp",
    }
}

/// The id that a trusted proxy gave the request, if it is one that may be kept.
pub(crate) fn given_id(fields: &Fields) -> Option<&str> {
    let id = std::str::from_utf8(fields.get(Known::XRequestId)?).ok()?;
    let plain = id.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';'));
    (!id.is_empty() && id.len() <= LONGEST_ID && plain).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_is_quoted_where_it_must_be() {
        let of = |ip: &str, host: Option<&'static str>| {
            forwarded(ip.parse().ok(), ClientScheme::Https, host.map(str::as_bytes))
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
        let mut fields = Fields::new();
        via(&mut fields, Version::HTTP_2);
        assert_eq!(fields.get(Known::Via), Some(&b"2.0 offramp"[..]));
        fields.append_known(Known::Via, b"1.1 other");
        via(&mut fields, Version::HTTP_11);
        assert_eq!(fields.get(Known::Via), Some(&b"2.0 offramp, 1.1 other, 1.1 offramp"[..]));
        assert_eq!(fields.len(), 1);
    }

    #[test]
    fn ids_that_are_kept() {
        let id = |value: &'static str| {
            given_id(&[("x-request-id", value)].into_iter().collect()).map(ToOwned::to_owned)
        };
        assert_eq!(id("abc-123").as_deref(), Some("abc-123"));
        for bad in ["", "with space", "a,b", "quo\"te"] {
            assert_eq!(id(bad), None, "{bad}");
        }
        let long = "x".repeat(LONGEST_ID + 1);
        assert_eq!(given_id(&[("x-request-id", long)].into_iter().collect()), None);
    }
}
