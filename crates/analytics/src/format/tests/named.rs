//! Lines of every named format, read by the right name and by every other one: the client and the host are right, or
//! the line is refused.

use super::super::{InputFormat, NAMES, Parser, recognise};

/// A line, its client and its host.
type Row = (&'static str, Option<&'static str>, Option<&'static str>);

/// Some lines of a log in each format.
const LOGS: &[(&str, &[Row])] = &[
    (
        "combined",
        &[
            (r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#, Some("192.0.2.7"), None),
            (r#"192.0.2.7 - frank [T] "GET /a HTTP/1.1" 200 1 "-" "ua [en]""#, Some("192.0.2.7"), None),
            (r#"192.0.2.7 - john doe [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#, Some("192.0.2.7"), None),
            (r#"2001:db8::7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#, Some("2001:db8::7"), None),
            (r#"client.example.net - frank [T] "GET /a HTTP/1.1" 200 - "-" "ua""#, None, None),
            (r#"192.0.2.7:4711 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#, Some("192.0.2.7"), None),
        ],
    ),
    (
        "common",
        &[
            (r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1"#, Some("192.0.2.7"), None),
            (r#"192.0.2.7 - john doe [T] "GET /a HTTP/1.1" 200 1"#, Some("192.0.2.7"), None),
            (r#"client.example.net - - [T] "GET /a HTTP/1.1" 200 -"#, None, None),
        ],
    ),
    (
        "vhost",
        &[
            (
                r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "Example.org:443""#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "203.0.113.80""#,
                Some("192.0.2.7"),
                Some("203.0.113.80"),
            ),
            (
                r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "[2001:db8::80]:8443""#,
                Some("192.0.2.7"),
                Some("[2001:db8::80]"),
            ),
            (r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 400 1 "-" "-" "-""#, Some("192.0.2.7"), None),
            (
                r#"192.0.2.8 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "localhost""#,
                Some("192.0.2.8"),
                Some("localhost"),
            ),
        ],
    ),
    (
        "main",
        &[
            (
                r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "203.0.113.9, 198.51.100.1""#,
                Some("203.0.113.9"),
                None,
            ),
            (
                r#"192.0.2.7 - frank [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "203.0.113.9""#,
                Some("203.0.113.9"),
                None,
            ),
            (r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "-""#, Some("192.0.2.7"), None),
            (
                r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "2001:db8::9""#,
                Some("2001:db8::9"),
                None,
            ),
            (
                r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "unknown, 203.0.113.9""#,
                Some("203.0.113.9"),
                None,
            ),
            (
                r#"192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua" "whatever a client says""#,
                Some("192.0.2.7"),
                None,
            ),
        ],
    ),
    (
        "vhost_combined",
        &[
            (
                r#"example.org:443 192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"example.org:443 192.0.2.7 - frank [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"example.org 2001:db8::7 - john doe [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#,
                Some("2001:db8::7"),
                Some("example.org"),
            ),
            (
                r#"203.0.113.80:443 192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#,
                Some("192.0.2.7"),
                Some("203.0.113.80"),
            ),
            (
                r#"example.org:443 client.example.net - - [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#,
                None,
                Some("example.org"),
            ),
            (
                r#"example.org client.example.net - frank [T] "GET /a HTTP/1.1" 200 1 "-" "ua""#,
                None,
                Some("example.org"),
            ),
        ],
    ),
    (
        "vhost_common",
        &[
            (
                r#"example.org 192.0.2.7 - frank [T] "GET /a HTTP/1.1" 200 1"#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"example.org 192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 -"#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"203.0.113.80 192.0.2.7 - - [T] "GET /a HTTP/1.1" 200 1"#,
                Some("192.0.2.7"),
                Some("203.0.113.80"),
            ),
            (r#"example.org client.example.net - - [T] "GET /a HTTP/1.1" 200 1"#, None, Some("example.org")),
        ],
    ),
    (
        "httplog",
        &[
            (
                r#"192.0.2.7:33317 [D] in b/s 0/0/0/1/2 200 2750 - - ---- 1/1/1/1/0 0/0 {203.0.113.9|example.org} {} "GET /a HTTP/1.1""#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"192.0.2.7:33317 [D] in b/s 0/0/0/1/2 200 2750 - - ---- 1/1/1/1/0 0/0 {203.0.113.9|1.25} "GET /a HTTP/1.1""#,
                Some("192.0.2.7"),
                None,
            ),
            (
                r#"2001:db8::7:33317 [D] in b/s 0/0/0/1/2 200 2750 - - ---- 1/1/1/1/0 0/0 "GET https://example.org/a HTTP/2.0""#,
                Some("2001:db8::7"),
                Some("example.org"),
            ),
        ],
    ),
    (
        "httpslog",
        &[
            (
                r#"192.0.2.7:33317 [D] in~ b/s 0/0/0/1/2 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /a HTTP/1.1" 0/0/0/0/0 example.org/TLSv1.3/TLS_AES_256_GCM_SHA384"#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"192.0.2.7:33317 [D] in~ b/s 0/0/0/1/2 200 2750 - - ---- 1/1/1/1/0 0/0 {example.org} "GET /a HTTP/1.1" 0/1A000086/0/0/1 other.example.org/TLSv1.2/ECDHE-RSA-AES128-GCM-SHA256"#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"192.0.2.7:33317 [D] in~ b/s 0/0/0/1/2 200 2750 - - ---- 1/1/1/1/0 0/0 "GET https://example.org/a HTTP/2.0" 0/0/0/0/0 other.example.org/TLSv1.3/TLS_AES_256_GCM_SHA384"#,
                Some("192.0.2.7"),
                Some("example.org"),
            ),
            (
                r#"192.0.2.7:33317 [D] in~ in/<NOSRV> -1/-1/-1/-1/0 400 0 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>" -/-/-/-/0 -/-/-"#,
                Some("192.0.2.7"),
                None,
            ),
        ],
    ),
];

/// A log with times in the place of their marks.
fn log(rows: &[Row]) -> Vec<Vec<u8>> {
    let written = |line: &str| {
        line.replace("[T]", "[22/Nov/2026:01:02:03 +0000]").replace("[D]", "[22/Nov/2026:01:02:03.655]")
    };
    rows.iter().map(|(line, ..)| written(line).into_bytes()).collect()
}

/// A parser that has seen how a log begins.
fn parser(name: &str, lines: &[Vec<u8>]) -> Parser {
    let mut parser = InputFormat::named(name).unwrap().parser(0);
    parser.begin(&lines.join(&b'\n'));
    parser
}

#[test]
fn every_log_is_read_by_its_name() {
    for (name, rows) in LOGS {
        let lines = log(rows);
        let mut parser = parser(name, &lines);
        for (line, (_, client, host)) in lines.iter().zip(*rows) {
            let shown = line.escape_ascii();
            let entry = parser.parse(line).unwrap_or_else(|error| panic!("{name} {shown}: {error}")).unwrap();
            assert_eq!(entry.client, client.map(|client| client.parse().unwrap()), "{name} {shown}");
            assert_eq!(entry.host, host.map(str::as_bytes), "{name} {shown}");
            assert!(matches!(entry.request.path, b"/a" | b"<BADREQ>"), "{name} {shown}");
        }
        assert_eq!(recognise(&lines), Some(*name));
    }
}

#[test]
fn by_another_name_client_and_host_are_right_or_the_line_is_refused() {
    for (right, rows) in LOGS {
        let lines = log(rows);
        for name in NAMES {
            // Every line alone, so that none depends on those before it; and the log as a whole. Of an address at the end
            // of a single line nobody can say whether that was a host or a client, who then is more likely.
            let alone = if (*right, *name) == ("vhost", "main") { 0 } else { lines.len() };
            let parts = (0..alone).map(|at| at..at + 1).chain(std::iter::once(0..lines.len()));
            for part in parts {
                let mut parser = parser(name, &lines[part.clone()]);
                for (line, (_, client, host)) in lines[part.clone()].iter().zip(&rows[part]) {
                    let Ok(Some(entry)) = parser.parse(line) else { continue };
                    let (shown, client) = (line.escape_ascii(), client.map(|client| client.parse().unwrap()));
                    assert!(entry.client == client || entry.client.is_none(), "{right} as {name}: {shown}");
                    let host = host.map(str::as_bytes);
                    assert!(entry.host == host || entry.host.is_none(), "{right} as {name}: {shown}");
                    assert!(
                        entry.user.is_none_or(|user| !user.starts_with(b"-")),
                        "{right} as {name}: {shown}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_refusal_names_the_format_that_fits() {
    for (name, line, word) in [
        (
            "combined",
            r#"203.0.113.80:443 192.0.2.7 - - [T] "GET / HTTP/1.1" 200 1 "-" "-""#,
            "`vhost_combined`",
        ),
        ("combined", r#"example.org 192.0.2.7 - - [T] "GET / HTTP/1.1" 200 1 "-" "-""#, "`vhost_combined`"),
        ("common", r#"example.org 192.0.2.7 - - [T] "GET / HTTP/1.1" 200 1"#, "`vhost_common`"),
        ("vhost", r#"192.0.2.7 - - [T] "GET / HTTP/1.1" 200 1 "-" "-" "203.0.113.9, 10.0.0.1""#, "`main`"),
        ("vhost", r#"192.0.2.7 - - [T] "GET / HTTP/1.1" 200 1 "-" "-" "203.0.113.9""#, "`main`"),
        ("vhost", r#"192.0.2.7 - - [T] "GET / HTTP/1.1" 200 1 "-" "-" "0.003""#, "a host"),
        ("main", r#"192.0.2.7 - - [T] "GET / HTTP/1.1" 200 1 "-" "-" "example.org""#, "`vhost`"),
        ("vhost_combined", r#"192.0.2.7 - john doe [T] "GET / HTTP/1.1" 200 1 "-" "-""#, "`combined`"),
        (
            "httplog",
            r#"192.0.2.7:1 [D] in b/s 0/0/0/1/2 200 1 - - ---- 1/1/1/1/0 0/0 "GET /" 0/0/0/0/0 a.test/TLSv1.3/X"#,
            "`httpslog`",
        ),
        ("httpslog", r#"192.0.2.7:1 [D] in b/s 0/0/0/1/2 200 1 - - ---- 1/1/1/1/0 0/0 "GET /""#, "`httplog`"),
    ] {
        let lines = log(&[(line, None, None)]);
        let error = parser(name, &lines).parse(&lines[0]).unwrap_err();
        assert!(error.expected.contains(word), "{name} {line}: {error}");
    }
}

#[test]
fn a_log_that_is_gone_on_with_may_begin_with_addresses() {
    let line = log(&[(r#"192.0.2.7 - - [T] "GET / HTTP/1.1" 200 1 "-" "-" "203.0.113.80""#, None, None)]);
    let mut vhost = InputFormat::named("vhost").unwrap().parser(0);
    assert!(vhost.parse(&line[0]).is_err());
    vhost.go_on();
    assert_eq!(vhost.parse(&line[0]).unwrap().unwrap().host, Some(&b"203.0.113.80"[..]));
}
