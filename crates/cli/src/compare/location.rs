//! Targets of redirects in a form that is the same for the same target, wherever a side is.

use hyper::Uri;
use hyper::header::HeaderValue;

/// The place that an answer came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerPlace {
    /// `http` or `https`.
    pub(super) scheme: &'static str,
    /// The host that was sent, with its port if it has one.
    pub(super) authority: String,
    /// Ports by which clients reach this side: of its URL, of its address.
    pub(super) ports: Vec<u16>,
    /// The path of the request.
    pub(super) path: String,
}

/// The target of a redirect; the scheme and the host of the side itself are `SITE`.
pub(super) fn resolved(location: &HeaderValue, place: &AnswerPlace) -> String {
    let text = String::from_utf8_lossy(location.as_bytes());
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("//") {
        return of_url(&format!("{}://{rest}", place.scheme), place);
    }
    if text.starts_with('/') {
        return format!("SITE{text}");
    }
    if text.contains("://") {
        return of_url(text, place);
    }
    if text.starts_with(['?', '#']) {
        return format!("SITE{}{text}", place.path);
    }
    let folder = place.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("SITE{folder}/{text}")
}

fn of_url(text: &str, place: &AnswerPlace) -> String {
    // A fragment is not part of what is parsed.
    let (url, fragment) = match text.split_once('#') {
        Some((url, fragment)) => (url, format!("#{fragment}")),
        None => (text, String::new()),
    };
    let Ok(uri) = url.parse::<Uri>() else { return text.to_owned() };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return text.to_owned() };
    let rest = uri.path_and_query().map_or("/", |rest| rest.as_str());
    let own: Option<hyper::http::uri::Authority> = place.authority.parse().ok();
    let is_host = own.as_ref().is_some_and(|own| own.host().eq_ignore_ascii_case(authority.host()));
    let is_port = match authority.port_u16() {
        None => true,
        port => {
            port == own.as_ref().and_then(hyper::http::uri::Authority::port_u16)
                || place.ports.iter().any(|own| Some(*own) == port)
        }
    };
    match (is_host && is_port, scheme == place.scheme) {
        (true, true) => format!("SITE{rest}{fragment}"),
        // The port of another scheme is a port of this machine, and differs from trial to use.
        (_, false) if is_host => format!("{scheme}://SITE{rest}{fragment}"),
        _ => format!("{scheme}://{}{rest}{fragment}", authority.as_str().to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_same_however_they_are_written() {
        let place = |scheme, port: u16| AnswerPlace {
            scheme,
            authority: "example.org".to_owned(),
            ports: vec![port],
            path: "/dir/page".to_owned(),
        };
        let (old, new) = (place("http", 8080), place("https", 8443));
        let cases = [
            ("/x", "SITE/x", "SITE/x"),
            ("next", "SITE/dir/next", "SITE/dir/next"),
            ("?a", "SITE/dir/page?a", "SITE/dir/page?a"),
            ("http://example.org:8080/x", "SITE/x", "http://SITE/x"),
            ("https://example.org:8443/x", "https://SITE/x", "SITE/x"),
            ("https://EXAMPLE.org/x?y#z", "https://SITE/x?y#z", "SITE/x?y#z"),
            ("//example.org/x", "SITE/x", "SITE/x"),
            ("https://other.test/x", "https://other.test/x", "https://other.test/x"),
            ("mailto:a@b.test", "SITE/dir/mailto:a@b.test", "SITE/dir/mailto:a@b.test"),
            ("https://exa mple/", "https://exa mple/", "https://exa mple/"),
        ];
        for (location, by_old, by_new) in cases {
            let value = HeaderValue::from_str(location).unwrap();
            assert_eq!(resolved(&value, &old), by_old, "{location}");
            assert_eq!(resolved(&value, &new), by_new, "{location}");
        }
        let other_port = HeaderValue::from_static("http://example.org:9999/x");
        assert_eq!(resolved(&other_port, &old), "http://example.org:9999/x");
    }
}
