//! Checks of requests that a browser sends, without state: the name by which it reached the interface, the page that it
//! sends them for, and the cookie of the session.
//!
//! A browser on the machine of an operator reaches loopback addresses on behalf of any page. The name of a foreign page
//! may be made to point here (DNS rebinding), so the interface answers by its own names alone. An address in the place of
//! a name cannot be made to point anywhere.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::{COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use offramp_config::model::HostPattern;

use crate::api::ProblemDetails;

/// The name of cookies: the port follows. Browsers keep the cookies of all ports of a host together, so each interface has
/// a cookie of its own.
const COOKIE_NAME: &str = "offramp_session";
/// The field with the session's secret.
const CSRF: HeaderName = HeaderName::from_static("x-offramp-csrf");
/// The relation of the page that sends a request to this interface (W3C Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The name and port by which a browser has reached the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrowserAuthority {
    /// As in the `Host` field, in lower case.
    text: String,
    port: Option<u16>,
}

impl BrowserAuthority {
    /// Reads the authority of a request. `is_own` says of other names than addresses and `localhost` if the interface has
    /// them.
    ///
    /// # Errors
    /// There is none, or the interface is not called so.
    pub(super) fn of(head: &Parts, is_own: impl Fn(&str) -> bool) -> Result<Self, ProblemDetails> {
        let mut hosts = head.headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|_| hosts.next().is_none());
        let wrong = || ProblemDetails::wrong("the request needs one Host field, with a name or an address");
        let host = host.ok_or_else(wrong)?;
        // RFC 9112 §3.2.2: the form with a scheme wins over the field; browsers send it to proxies only.
        if head.uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host)) {
            return Err(wrong());
        }
        let (name, port) = split(host).ok_or_else(wrong)?;
        let is_address = name.parse::<Ipv4Addr>().is_ok()
            || name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).is_some_and(is_ipv6);
        if is_address || name.eq_ignore_ascii_case("localhost") || is_own(name) {
            return Ok(Self { text: host.to_ascii_lowercase(), port });
        }
        let detail = "this interface has another name: open it by its address, as localhost, by a name of its certificate, or write \
                      the name into `hosts` of [admin]";
        Err(ProblemDetails::new(StatusCode::MISDIRECTED_REQUEST, detail))
    }

    /// Refuses requests that another page has sent. A link on another page may lead here, but nothing may show this page
    /// within itself.
    ///
    /// # Errors
    /// The request is for another page.
    pub(super) fn check_page(&self, head: &Parts, encrypted: bool) -> Result<(), ProblemDetails> {
        let refused = || {
            let detail = "a page of another origin has sent this: only the page of this interface may";
            ProblemDetails::new(StatusCode::FORBIDDEN, detail)
        };
        for origin in head.headers.get_all(ORIGIN) {
            if !origin.to_str().is_ok_and(|origin| self.is_origin(origin, encrypted)) {
                return Err(refused());
            }
        }
        let said = |name: &HeaderName| head.headers.get(name).map(HeaderValue::as_bytes);
        match said(&FETCH_SITE) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) if is_read(&head.method) && said(&FETCH_DEST) == Some(b"document") => Ok(()),
            Some(_) => Err(refused()),
        }
    }

    /// Compares with an origin (RFC 6454 §6.2). A proxy with TLS may stand before an interface without.
    fn is_origin(&self, origin: &str, encrypted: bool) -> bool {
        let of = |scheme: &str| {
            let rest = origin.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
            rest.is_some_and(|authority| authority.eq_ignore_ascii_case(&self.text))
        };
        of("https") || (!encrypted && of("http"))
    }

    /// The name of the session's cookie.
    pub(super) fn cookie_name(&self) -> String {
        match self.port {
            Some(port) => format!("{COOKIE_NAME}_{port}"),
            None => COOKIE_NAME.to_owned(),
        }
    }

    /// The value of the session's cookie; `None` without one, or with several.
    pub(super) fn cookie<'h>(&self, headers: &'h HeaderMap) -> Option<&'h [u8]> {
        let name = self.cookie_name();
        let pairs =
            headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
        let mut own =
            pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        let value = own.next()?;
        own.next().is_none().then_some(value)
    }
}

/// Returns `true` if a configured name stands for this one. A wildcard has one label in the place of its `*`.
pub(super) fn is_for(host: &HostPattern, name: &str) -> bool {
    match host {
        HostPattern::Exact(host) => host.as_str().eq_ignore_ascii_case(name),
        HostPattern::Wildcard(base) => name
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && base.as_str().eq_ignore_ascii_case(rest)),
    }
}

/// Returns `true` if the page that sends a request came over TLS.
pub(super) fn is_of_https(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// The secret that a page sends with a change.
pub(super) fn csrf(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(CSRF).map(HeaderValue::as_bytes)
}

/// Returns `true` for methods that change nothing.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The host and the port of an authority. IPv6 addresses keep their brackets.
fn split(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            (host, Some(port.parse().ok().filter(|_| is_number)?))
        }
        _ => (authority, None),
    };
    (!host.is_empty()).then_some((host, port))
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn head(method: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/ui/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn authority(host: &str) -> Result<BrowserAuthority, ProblemDetails> {
        BrowserAuthority::of(&head("GET", &[("host", host)]), |name| name == "admin.example.org")
    }

    #[test]
    fn addresses_localhost_and_own_names_are_answered() {
        for host in [
            "127.0.0.1:9901",
            "127.0.0.1",
            "[::1]:9901",
            "[::1]",
            "192.0.2.7:1",
            "localhost",
            "LocalHost:80",
            "admin.example.org:9901",
        ] {
            assert!(authority(host).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9901",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9901",
            "127.1:9901",
            "2130706433",
            "0x7f000001",
            "admin.example.org.evil.example",
        ] {
            assert_eq!(authority(host).unwrap_err().status, StatusCode::MISDIRECTED_REQUEST, "{host}");
        }
        for host in ["", ":80", "localhost:", "localhost:x", "localhost:65536", "localhost:+80"] {
            assert_eq!(authority(host).unwrap_err().status, StatusCode::BAD_REQUEST, "{host}");
        }
        let twice = head("GET", &[("host", "localhost"), ("host", "localhost")]);
        assert!(
            BrowserAuthority::of(&twice, |_| true).is_err()
                && BrowserAuthority::of(&head("GET", &[]), |_| true).is_err()
        );
        let mut absolute = head("GET", &[("host", "localhost")]);
        absolute.uri = "http://evil.example/ui/".parse().unwrap();
        assert!(BrowserAuthority::of(&absolute, |_| false).is_err());
    }

    #[test]
    fn configured_names_are_whole_and_wildcards_one_label() {
        for (host, name, is_own) in [
            ("admin.example.org", "Admin.Example.org", true),
            ("admin.example.org", "a.admin.example.org", false),
            ("*.example.org", "admin.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "a.b.example.org", false),
            ("*.example.org", ".example.org", false),
            ("*.example.org", "admin.example.org.evil.example", false),
        ] {
            assert_eq!(is_for(&host.parse().unwrap(), name), is_own, "{host} {name}");
        }
    }

    #[test]
    fn only_the_own_page_may_send_and_a_link_may_lead_here() {
        let own = authority("127.0.0.1:9901").unwrap();
        let judge = |method: &str, fields: &[(&str, &str)], encrypted| {
            own.check_page(&head(method, fields), encrypted).is_ok()
        };
        assert!(judge("POST", &[], false), "a program");
        for origin in ["http://127.0.0.1:9901", "https://127.0.0.1:9901"] {
            assert!(judge("POST", &[("origin", origin)], false), "{origin}");
        }
        assert!(judge("POST", &[("origin", "https://127.0.0.1:9901")], true));
        for origin in [
            "http://127.0.0.1:9901",
            "null",
            "",
            "https://127.0.0.1",
            "https://127.0.0.1:9902",
            "https://localhost:9901",
            "https://evil.example",
            "https://127.0.0.1:9901.evil.example",
            "https://127.0.0.1:9901/",
        ] {
            assert!(!judge("POST", &[("origin", origin)], true), "{origin}");
            assert!(!judge("GET", &[("origin", origin)], true), "{origin}");
        }
        for (site, dest, is_admitted) in [
            ("same-origin", "empty", true),
            ("none", "document", true),
            ("cross-site", "document", true),
            ("same-site", "document", true),
            ("cross-site", "iframe", false),
            ("same-site", "empty", false),
            ("cross-site", "image", false),
            ("cross-site", "script", false),
        ] {
            let fields = [("sec-fetch-site", site), ("sec-fetch-dest", dest)];
            assert_eq!(judge("GET", &fields, false), is_admitted, "{site} {dest}");
            assert!(
                judge("POST", &fields, false) == (site == "same-origin" || site == "none"),
                "{site} {dest}"
            );
        }
    }

    #[test]
    fn a_cookie_is_that_of_the_port() {
        let own = authority("127.0.0.1:9901").unwrap();
        let cookie = |value: &str| {
            let head = head("GET", &[("cookie", value)]);
            own.cookie(&head.headers).map(|value| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(cookie("a=b; offramp_session_9901=x; offramp_session=y").as_deref(), Some("x"));
        assert_eq!(cookie("offramp_session_9901=x;offramp_session_9901=y"), None);
        assert_eq!((cookie("offramp_session=x"), cookie("xofframp_session_9901=x")), (None, None));
        assert_eq!(authority("localhost").unwrap().cookie_name(), "offramp_session");
    }
}
