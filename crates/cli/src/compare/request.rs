//! Requests to be repeated, and the reasons for which recorded ones are not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Method, Uri};

/// A request that is sent to both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplayRequest {
    pub(super) method: Method,
    /// The host as recorded, with its port if it has one.
    pub(super) host: Option<String>,
    /// The path with its query.
    pub(super) target: String,
    /// Set where the recorded path had bytes that no URL has, which are sent as `%XX`.
    pub(super) is_escaped: bool,
    /// Fields beside `Host`.
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
}

impl ReplayRequest {
    /// The path without its query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// The reason for which a recorded request is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SkipReason {
    /// A line that does not have the format.
    Unparsed,
    /// A line without a request, such as another event.
    NoRequest,
    /// A method that was not allowed.
    Method,
    /// A method that opens a tunnel, echoes, or is none.
    NoReplay,
    /// A path that is none, such as a broken request line.
    Path,
    /// A host that is none.
    Host,
    /// Longer than [`LONGEST`].
    TooLong,
    /// Outside of `--since` and `--until`.
    Time,
    /// An entry of a HAR file that is not HTTP, or lacks its method or URL.
    Entry,
}

impl SkipReason {
    /// The reason in words, after a count.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Unparsed => "lines that do not have the format",
            Self::NoRequest => "lines without a request",
            Self::Method => "with a method that may change something; --methods names those to send",
            Self::NoReplay => "with a method that cannot be repeated (CONNECT, TRACE, or none)",
            Self::Path => "without a path that a URL can have",
            Self::Host => "with a host that is none",
            Self::TooLong => "with a URL longer than 16 KiB",
            Self::Time => "outside of --since and --until",
            Self::Entry => "entries that are no HTTP requests",
        }
    }

    /// The reason in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unparsed => "unparsed",
            Self::NoRequest => "no_request",
            Self::Method => "method",
            Self::NoReplay => "no_replay",
            Self::Path => "path",
            Self::Host => "host",
            Self::TooLong => "too_long",
            Self::Time => "time",
            Self::Entry => "entry",
        }
    }
}

/// Counts of requests that are not sent.
pub(super) type SkipCounts = BTreeMap<SkipReason, u64>;

/// A request as a log or a file has it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordedLine<'a> {
    pub(super) method: Option<&'a [u8]>,
    pub(super) host: Option<&'a [u8]>,
    pub(super) path: &'a [u8],
    pub(super) query: Option<&'a [u8]>,
}

/// Makes a request of what was recorded, if its method is one of `methods`.
///
/// # Errors
/// The reason for which it is not sent.
pub(super) fn admit(line: &RecordedLine<'_>, methods: &[Method]) -> Result<ReplayRequest, SkipReason> {
    let method =
        line.method.and_then(|method| Method::from_bytes(method).ok()).ok_or(SkipReason::NoReplay)?;
    if matches!(method, Method::CONNECT | Method::TRACE) {
        return Err(SkipReason::NoReplay);
    }
    if !methods.contains(&method) {
        return Err(SkipReason::Method);
    }
    if line.path.len() + line.query.map_or(0, <[u8]>::len) > LONGEST {
        return Err(SkipReason::TooLong);
    }
    if !line.path.starts_with(b"/") {
        return Err(SkipReason::Path);
    }
    let mut whole = line.path.to_vec();
    if let Some(query) = line.query {
        whole.push(b'?');
        whole.extend_from_slice(query);
    }
    let (target, is_escaped) = target(&whole).ok_or(SkipReason::Path)?;
    let host = match line.host {
        None | Some(b"" | b"-") => None,
        Some(host) => Some(authority(host).ok_or(SkipReason::Host)?),
    };
    Ok(ReplayRequest { method, host, target, is_escaped, fields: Vec::new(), body: Bytes::new() })
}

/// A host with or without port, without a user.
pub(super) fn authority(host: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(host).ok()?;
    // Logs have addresses of IPv6 without brackets, too.
    let bare = text.parse::<std::net::Ipv6Addr>().ok().map(|address| format!("[{address}]"));
    let text = bare.as_deref().unwrap_or(text);
    let parsed: Authority = text.parse().ok()?;
    let is_plain = !text.contains('@') && !parsed.host().is_empty();
    is_plain.then(|| text.to_ascii_lowercase())
}

/// The target as it is sent; bytes that no URL has are escaped, which is `true` then.
fn target(whole: &[u8]) -> Option<(String, bool)> {
    let plain = std::str::from_utf8(whole).ok().filter(|text| text.is_ascii() && !text.contains('#'));
    if let Some(text) = plain
        && text.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == text)
    {
        return Some((text.to_owned(), false));
    }
    let mut text = String::with_capacity(whole.len());
    for byte in whole {
        if byte.is_ascii_alphanumeric() || b"/?%-._~!$&'()*+,;=:@".contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text.parse::<PathAndQuery>().ok().map(|parsed| (parsed.as_str().to_owned(), true))
}

/// The URL of a HAR entry in its parts: host, path and query.
pub(super) fn parts_of_url(url: &str) -> Option<(String, String, Option<String>)> {
    // A fragment is never sent.
    let url = url.split('#').next().unwrap_or_default();
    let parsed: Uri = url.parse().ok()?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) {
        return None;
    }
    let authority = parsed.authority()?.as_str();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some((host.to_owned(), parsed.path().to_owned(), parsed.query().map(str::to_owned)))
}

/// The longest URL that is sent, which bounds the memory of a sample.
const LONGEST: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(method: &str, path: &[u8]) -> Result<ReplayRequest, SkipReason> {
        let line = RecordedLine { method: Some(method.as_bytes()), path, ..RecordedLine::default() };
        admit(&line, &[Method::GET, Method::HEAD])
    }

    #[test]
    fn requests_are_admitted_or_skipped_for_a_reason() {
        let cases: [(&str, &[u8], Result<&str, SkipReason>); 11] = [
            ("GET", b"/a/b", Ok("/a/b")),
            ("HEAD", b"/a%2fb", Ok("/a%2fb")),
            ("GET", b"/\xff\xfe", Ok("/%FF%FE")),
            ("GET", "/\u{e4}".as_bytes(), Ok("/%C3%A4")),
            ("GET", b"/a b#c", Ok("/a%20b%23c")),
            ("POST", b"/", Err(SkipReason::Method)),
            ("CONNECT", b"/", Err(SkipReason::NoReplay)),
            ("GE T", b"/", Err(SkipReason::NoReplay)),
            ("GET", b"\x16\x03\x01", Err(SkipReason::Path)),
            ("GET", b"http://other.test/", Err(SkipReason::Path)),
            ("OPTIONS", b"*", Err(SkipReason::Method)),
        ];
        for (method, path, expected) in cases {
            let got = of(method, path).map(|request| request.target);
            assert_eq!(got.as_deref().map_err(|reason| *reason), expected, "{method} {path:?}");
        }
        assert_eq!(of("GET", &[&b"/"[..], &[b'a'; LONGEST]].concat()), Err(SkipReason::TooLong));
        assert!(admit(&RecordedLine { path: b"/", ..RecordedLine::default() }, &[Method::GET]).is_err());
    }

    #[test]
    fn hosts_are_authorities() {
        let cases: [(&[u8], Option<&str>); 8] = [
            (b"Example.ORG", Some("example.org")),
            (b"example.org:8443", Some("example.org:8443")),
            (b"::1", Some("[::1]")),
            (b"[::1]:80", Some("[::1]:80")),
            (b"user@example.org", None),
            (b"a b", None),
            (b"\xff", None),
            (b"a/b", None),
        ];
        for (host, expected) in cases {
            assert_eq!(authority(host).as_deref(), expected, "{host:?}");
        }
    }

    #[test]
    fn urls_of_har_files_are_taken_apart() {
        let parts = parts_of_url("https://anna:secret@example.org:444/a?b=c#d").unwrap();
        assert_eq!(parts, ("example.org:444".into(), "/a".into(), Some("b=c".into())));
        for url in ["wss://example.org/", "data:text/plain,a", "blob:x", "", "/a"] {
            assert!(parts_of_url(url).is_none(), "{url}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_sent_as_a_url_or_skipped(path in prop::collection::vec(any::<u8>(), 0..40), query in prop::option::of(prop::collection::vec(any::<u8>(), 0..20))) {
            let line = RecordedLine { method: Some(b"GET"), path: &path, query: query.as_deref(), host: None };
            match admit(&line, &[Method::GET]) {
                Ok(request) => {
                    prop_assert!(request.target.starts_with('/') && request.target.is_ascii());
                    prop_assert!(request.target.parse::<Uri>().is_ok());
                }
                Err(reason) => prop_assert!(!path.starts_with(b"/"), "{:?}", reason),
            }
        }
    }
}
