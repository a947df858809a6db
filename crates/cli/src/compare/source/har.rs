//! HAR files (HTTP Archive 1.2), as the developer tools of browsers save them.
//!
//! They have the cookies and passwords of a person. Those are neither sent nor shown unless the command line says so: only
//! fields that choose among answers are sent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::compare::request::{RecordedLine, ReplayRequest, SkipReason, admit, parts_of_url};

/// Reads the file.
///
/// # Errors
/// Says what to give instead.
pub(super) fn read(path: &Path) -> Result<Value, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err("it is larger than 256 MiB; save one without the contents of answers".to_owned());
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    serde_json::from_slice(text).map_err(|error| {
        // The error has a place, and no text of the file.
        format!("it is no HAR file: no JSON at line {}, column {}; {ADVICE}", error.line(), error.column())
    })
}

/// The entries of a file.
///
/// # Errors
/// It is another kind of JSON.
pub(super) fn entries(file: &Value) -> Result<&[Value], String> {
    let entries = file.get("log").and_then(|log| log.get("entries")).and_then(Value::as_array);
    entries.map(Vec::as_slice).ok_or_else(|| format!("it is no HAR file: it has no log.entries; {ADVICE}"))
}

/// Fields of requests that are not sent, by their names.
#[derive(Debug, Default)]
pub(super) struct UnsentFields(BTreeMap<String, u64>);

impl UnsentFields {
    /// The names, in a sentence.
    pub(super) fn note(&self) -> Option<String> {
        let mut names: Vec<(&String, &u64)> = self.0.iter().collect();
        names.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown: Vec<String> =
            names.iter().take(10).map(|(name, count)| format!("{name} ({count})")).collect();
        let more = if names.len() > shown.len() { ", and others" } else { "" };
        (!shown.is_empty()).then(|| {
            format!("fields of the file that were not sent (--send-credentials): {}{more}", shown.join(", "))
        })
    }
}

/// Makes a request of an entry.
///
/// # Errors
/// The reason for which it is not sent.
pub(super) fn request(
    entry: &Value,
    methods: &[Method],
    with_credentials: bool,
    unsent: &mut UnsentFields,
) -> Result<ReplayRequest, SkipReason> {
    let recorded = entry.get("request").ok_or(SkipReason::Entry)?;
    let text = |name: &str| recorded.get(name).and_then(Value::as_str).ok_or(SkipReason::Entry);
    let (method, url) = (text("method")?, text("url")?);
    let (host, path, query) = parts_of_url(url).ok_or(SkipReason::Entry)?;
    let line = RecordedLine {
        method: Some(method.as_bytes()),
        host: Some(host.as_bytes()),
        path: path.as_bytes(),
        query: query.as_deref().map(str::as_bytes),
    };
    let mut request = admit(&line, methods)?;
    let fields = recorded.get("headers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for field in fields.iter().take(MOST_FIELDS) {
        let part = |name: &str| field.get(name).and_then(Value::as_str).unwrap_or_default();
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(part("name").as_bytes()),
            HeaderValue::from_bytes(part("value").as_bytes()),
        ) else {
            continue;
        };
        let known = name.as_str();
        if OF_CONNECTION.contains(&known) {
            continue;
        }
        if with_credentials || CHOOSING.contains(&known) {
            request.fields.push((name, value));
        } else if !of_browser(known) {
            *unsent.0.entry(known.to_owned()).or_default() += 1;
        }
    }
    let body = recorded.get("postData").and_then(|data| data.get("text")).and_then(Value::as_str);
    request.body = body.map_or_else(Bytes::new, |body| Bytes::copy_from_slice(body.as_bytes()));
    Ok(request)
}

/// Fields by which browsers describe themselves and the page, which few servers look at.
fn of_browser(name: &str) -> bool {
    name.starts_with("sec-") || matches!(name, "priority" | "dnt" | "pragma" | "upgrade-insecure-requests")
}

const ADVICE: &str = "in the developer tools of a browser, choose `Save all as HAR` in the list of requests";

/// Bounds memory: a file with the contents of answers has a few MiB.
const LARGEST: u64 = 256 << 20;
const MOST_FIELDS: usize = 100;

/// Fields that are made anew for each connection.
const OF_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields by which servers choose among answers, and which are no secrets.
const CHOOSING: [&str; 15] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-method",
    "cache-control",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "origin",
    "range",
    "user-agent",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(method: &str, url: &str) -> Value {
        json!({"request": {"method": method, "url": url, "headers": [
            {"name": ":authority", "value": "example.org"},
            {"name": "Host", "value": "other.test"},
            {"name": "Accept-Language", "value": "de"},
            {"name": "Cookie", "value": "sid=hidden"},
            {"name": "Authorization", "value": "Bearer hidden"},
            {"name": "X-Api-Key", "value": "hidden"},
            {"name": "Sec-Fetch-Mode", "value": "navigate"},
            {"name": 7},
        ], "postData": {"text": "a=b"}}})
    }

    #[test]
    fn credentials_are_sent_only_if_told() {
        let mut unsent = UnsentFields::default();
        let names = |request: &ReplayRequest| -> Vec<String> {
            request.fields.iter().map(|(name, _)| name.to_string()).collect()
        };
        let one = entry("GET", "https://example.org/a?b");
        let without = request(&one, &[Method::GET], false, &mut unsent).unwrap();
        assert_eq!(names(&without), ["accept-language"]);
        assert_eq!((without.host.as_deref(), without.target.as_str()), (Some("example.org"), "/a?b"));
        let note = unsent.note().unwrap();
        assert!(note.contains("cookie (1)") && note.contains("x-api-key (1)"), "{note}");
        assert!(!note.contains("hidden") && !note.contains("sec-fetch"), "{note}");
        let with = request(&one, &[Method::GET], true, &mut UnsentFields::default()).unwrap();
        assert_eq!(
            names(&with),
            ["accept-language", "cookie", "authorization", "x-api-key", "sec-fetch-mode"]
        );
    }

    #[test]
    fn bodies_go_with_methods_that_are_allowed() {
        let one = entry("POST", "https://example.org/");
        let mut unsent = UnsentFields::default();
        assert_eq!(request(&one, &[Method::GET], false, &mut unsent), Err(SkipReason::Method));
        assert_eq!(request(&one, &[Method::POST], false, &mut unsent).unwrap().body, "a=b");
    }

    #[test]
    fn what_is_no_entry_is_skipped() {
        let mut unsent = UnsentFields::default();
        for one in
            [json!({}), json!(7), json!({"request": {}}), entry("GET", "data:,a"), entry("GET", "wss://a/")]
        {
            assert_eq!(request(&one, &[Method::GET], false, &mut unsent), Err(SkipReason::Entry), "{one}");
        }
        for file in [json!([]), json!({"log": {}}), json!({"log": {"entries": 7}}), json!("log")] {
            assert!(entries(&file).unwrap_err().contains("no HAR file"), "{file}");
        }
    }

    #[test]
    fn files_that_are_none_are_named_without_their_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.har");
        for text in [&b"\x00\xff\x01secret"[..], b"secret", b"{\"log\": {\"entries\": [secret", b""] {
            std::fs::write(&path, text).unwrap();
            let refusal = read(&path).unwrap_err();
            assert!(refusal.contains("no JSON at line") && !refusal.contains("secret"), "{refusal}");
        }
        std::fs::write(&path, b"\xef\xbb\xbf{\"log\": {\"entries\": []}}").unwrap();
        assert!(entries(&read(&path).unwrap()).unwrap().is_empty());
    }
}
