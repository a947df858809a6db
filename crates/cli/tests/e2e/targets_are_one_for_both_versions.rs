//! What a request asks for is served by both versions of HTTP or by none, and the application gets it in one
//! form; rows of one version are replayed over the other.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::h2_follows_rfc9113::http_instance;
use crate::support::crowd::connect;
use crate::support::h2_client::kind::{GOAWAY, HEADERS, RST_STREAM};
use crate::support::h2_client::{END_HEADERS, END_STREAM, H2, WHOLE, data, headers};
use crate::support::smuggling_backend::Backend;
use crate::support::smuggling_rows::{SMUGGLED, codings, hosts, lengths};

/// Targets that are served with raw bytes in their query, and what the application is asked for.
const RAW: [(&str, &str); 6] = [
    ("/?q=\"x\"", "/?q=%22x%22"),
    ("/?<a>", "/?%3Ca%3E"),
    ("/?caf\u{e9}", "/?caf%C3%A9"),
    ("/?\u{1f600}=1", "/?%F0%9F%98%80=1"),
    (
        "/api/v1/query?query=rate(x{job=\"a\",code!~\"5..\"}[5m])>0.5",
        "/api/v1/query?query=rate(x{job=%22a%22,code!~%225..%22}[5m])%3E0.5",
    ),
    ("/?a=\"\\d+|`x`\"", "/?a=%22\\d+|`x`%22"),
];

/// Targets, and whether they are served: as they are.
const TARGETS: [(&str, bool); 40] = [
    ("/", true),
    ("/a%20b/%2e?c=d&e=f+g", true),
    ("/?", true),
    ("//a//b", true),
    ("/a?b?c/d", true),
    // What browsers send raw, though RFC 3986 has no place for it.
    ("/a|b", true),
    ("/[a]", true),
    ("/a^b", true),
    ("/it's", true),
    ("/?a|b", true),
    ("/?a[]=1", true),
    ("/?{a}", true),
    ("/?`a`", true),
    ("/?a^b", true),
    ("/?'a'", true),
    ("/?a\\b", true),
    // What command-line clients send raw.
    ("/{a}", true),
    ("/%", true),
    ("/%zz", true),
    ("/!$&'()*+,;=:@-._~", true),
    // What browsers encode, or write otherwise.
    ("/\"x\"", false),
    ("/\"?x", false),
    ("/<a>", false),
    ("/caf\u{e9}?\"", false),
    ("/?\"#", false),
    ("/a\\b", false),
    ("/`a`", false),
    ("/caf\u{e9}", false),
    ("/\u{a0}", false),
    ("/\u{feff}", false),
    ("/a#b", false),
    ("/#", false),
    ("/?a#b", false),
    ("#a", false),
    ("", false),
    ("a", false),
    ("?a", false),
    ("*", false),
    ("/a b", false),
    ("/a\u{7f}", false),
];

/// An instance, and whom its clients trust.
struct Stage {
    backend: Backend,
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Stage {
    /// The status of the answer to what is said over HTTP/1.1; 0 where there is none.
    fn over_http1(&self, bytes: &[u8]) -> u16 {
        let mut tls = connect(&self.config, self.address, "localhost").unwrap();
        tls.write_all(bytes).and_then(|()| tls.flush()).unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n") && matches!(tls.read(&mut byte), Ok(1)) {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// The same over HTTP/2.
    fn over_http2(&self, fields: &[(&str, &str)], body: &[u8]) -> u16 {
        let mut h2 = H2::open(&self.config, self.address, &[]);
        if body.is_empty() {
            h2.send(&headers(1, WHOLE, fields));
        } else {
            h2.send(&[headers(1, END_HEADERS, fields), data(1, END_STREAM, body)].concat());
        }
        let end = h2.find("end", |frame| matches!(frame.kind, RST_STREAM | GOAWAY | HEADERS));
        if end.kind == HEADERS { end.status() } else { 0 }
    }

    /// What the application was asked for since this was last asked.
    fn asked(&self) -> Vec<String> {
        let target = |head: &str| head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.backend.take().1.iter().map(|request| target(&request.head)).collect()
    }
}

fn stage() -> (Stage, crate::support::instance::Instance) {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    (Stage { backend, address: instance.address(), config }, instance)
}

fn get(target: &str) -> [(&str, &str); 4] {
    [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", target)]
}

#[test]
fn a_target_is_served_by_both_versions_or_by_none() {
    let (stage, instance) = stage();
    let mut wrong = Vec::new();
    let rows = TARGETS.into_iter().map(|(target, served)| (target, target, served));
    for (target, asked, served) in rows.chain(RAW.into_iter().map(|(target, asked)| (target, asked, true))) {
        let first = stage.over_http1(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let by_first = stage.asked();
        let second = stage.over_http2(&get(target), b"");
        let by_second = stage.asked();
        let expected = if served { vec![asked.to_owned()] } else { Vec::new() };
        let right =
            if served { first == 200 && second == 200 } else { first == 400 && matches!(second, 0 | 400) };
        if !right || by_first != expected || by_second != expected {
            wrong.push(format!("{target:?}: {first} {by_first:?}, {second} {by_second:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    instance.stop();
}

/// What stands behind an authority, or a scheme, and what the application is asked for.
#[test]
fn the_application_is_asked_in_one_form() {
    let (stage, instance) = stage();
    for (method, target, asked) in [
        ("GET", "http://localhost?y", Some("/?y")),
        ("GET", "https://localhost?y#z", None),
        ("GET", "http://localhost", Some("/")),
        ("GET", "HTTPS://localhost/a?b", Some("/a?b")),
        ("GET", "http://localhost/a\\b", None),
        ("GET", "ftp://localhost/", None),
        ("OPTIONS", "http://localhost", Some("*")),
        ("OPTIONS", "http://localhost/", Some("/")),
        ("OPTIONS", "*", Some("*")),
    ] {
        let status =
            stage.over_http1(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert_eq!(status, if asked.is_some() { 200 } else { 400 }, "{method} {target}");
        assert_eq!(stage.asked(), Vec::from_iter(asked), "{method} {target}");
    }
    for (method, scheme, path, status) in [
        ("GET", "http", "/", 200),
        ("GET", "HTTPS", "/", 200),
        ("GET", "ftp", "/", 400),
        ("OPTIONS", "https", "*", 200),
    ] {
        let fields = [(":method", method), (":scheme", scheme), (":authority", "localhost"), (":path", path)];
        assert_eq!(stage.over_http2(&fields, b""), status, "{method} {scheme} {path}");
        let expected = if status == 200 { vec![path.to_owned()] } else { Vec::new() };
        assert_eq!(stage.asked(), expected, "{method} {scheme} {path}");
    }
    instance.stop();
}

/// A row of HTTP/1 as a request of HTTP/2, where it can be said there: its lines are fields.
fn as_http2(row: &[u8]) -> Option<Vec<(String, String)>> {
    let text = std::str::from_utf8(row).ok()?;
    let (head, _) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let scheme = target.split_once("://").map_or("https", |(scheme, _)| scheme);
    let mut fields =
        vec![(":method".to_owned(), method.to_owned()), (":scheme".to_owned(), scheme.to_owned())];
    // An absolute target is an authority and a path there.
    let path = match target.split_once("://").and_then(|(_, rest)| rest.split_once('/')) {
        Some((authority, path)) => {
            fields.push((":authority".to_owned(), authority.to_owned()));
            format!("/{path}")
        }
        None => target.to_owned(),
    };
    fields.push((":path".to_owned(), path));
    for line in lines {
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Some(fields)
}

#[test]
fn what_smuggles_over_http_1_does_not_over_http_2() {
    let (stage, instance) = stage();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for row in lengths().into_iter().chain(codings()).chain(hosts()) {
        let Some(fields) = as_http2(&row.bytes) else { continue };
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        count += 1;
        let status = stage.over_http2(&fields, SMUGGLED.as_bytes());
        // A well request on a connection to the application that was used before finds nothing left over.
        H2::open(&stage.config, stage.address, &[]).is_well(1);
        let (raw, whole) = stage.backend.take();
        let passed = status < 400 && status != 0;
        let bad = whole.iter().any(|one| !one.head.starts_with("GET /well "));
        if passed || bad || raw.windows(9).any(|bytes| bytes == b"/smuggled") {
            wrong.push(format!("{fields:?}: {status}, {}", raw.escape_ascii()));
        }
    }
    assert!(count > 60, "{count} rows");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    instance.stop();
}
