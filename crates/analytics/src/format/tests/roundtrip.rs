//! A line that a reference formatter wrote is parsed to what went in; and no bytes whatever make a parser panic.

use std::fmt::Write;
use std::net::IpAddr;

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::{collection, option};

use super::super::{InputFormat, NAMES};
use super::parser;
use crate::entry::{LogEntry, RequestPart, ResponsePart};

#[derive(Clone, Debug)]
struct KnownFiles {
    seconds: i64,
    offset_minutes: i32,
    client: IpAddr,
    user: Option<String>,
    method: &'static str,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    status: u16,
    bytes: u64,
    referer: Option<Vec<u8>>,
    agent: Option<Vec<u8>>,
    host: String,
}

/// Bytes that a header may have, none of which nginx writes as a dash alone.
fn text() -> impl Strategy<Value = Vec<u8>> {
    collection::vec(prop_oneof![8 => b' '..=b'~', 1 => any::<u8>()], 1..60)
        .prop_filter("absent", |text| text != b"-")
}

fn known() -> impl Strategy<Value = KnownFiles> {
    let time = (0i64..4_102_444_800, -14 * 60..=14 * 60i32);
    let client = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(|octets| IpAddr::from(octets).to_canonical())
    ];
    let target = (
        collection::vec(any::<u8>().prop_filter("ends the path", |byte| !matches!(byte, b'?')), 0..40),
        option::of(collection::vec(any::<u8>(), 1..20)),
    );
    let answer = (100u16..600, any::<u64>());
    let headers = (option::of(text()), option::of(text()), "[a-z]{1,10}\\.[a-z]{2,5}");
    let who = (
        client,
        option::of("[a-z][a-z ]{0,8}[a-z]"),
        prop_oneof![Just("GET"), Just("POST"), Just("M-SEARCH")],
    );
    (time, who, target, answer, headers).prop_map(|(time, who, target, answer, headers)| KnownFiles {
        seconds: time.0,
        offset_minutes: time.1,
        client: who.0,
        user: who.1,
        method: who.2,
        path: [b"/", &target.0[..]].concat(),
        query: target.1,
        status: answer.0,
        bytes: answer.1,
        referer: headers.0,
        agent: headers.1,
        host: headers.2,
    })
}

/// nginx's `escape=default`.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, &byte| {
        match byte {
            b'"' | b'\\' | 0..32 | 127.. => write!(out, "\\x{byte:02X}").unwrap(),
            _ => out.push(char::from(byte)),
        }
        out
    })
}

fn or_dash(text: Option<&[u8]>) -> String {
    text.map_or_else(|| "-".to_owned(), escaped)
}

/// The civil date, found by counting on from 1970: another way than the parser's.
fn local_time(seconds: i64, offset_minutes: i32) -> String {
    let local = seconds + i64::from(offset_minutes) * 60;
    let (mut days, of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let mut year = 1970;
    let length = |year: i64| if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 };
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    let months = [31, length(year) - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let (sign, offset) = (if offset_minutes < 0 { '-' } else { '+' }, offset_minutes.abs());
    format!(
        "{:02}/{}/{year}:{hour:02}:{minute:02}:{second:02} {sign}{:02}{:02}",
        days + 1,
        names[month],
        offset / 60,
        offset % 60
    )
}

fn vhost_line(known: &KnownFiles) -> String {
    let query = known.query.as_ref().map_or_else(String::new, |query| format!("?{}", escaped(query)));
    format!(
        "{} - {} [{}] \"{} {}{query} HTTP/1.1\" {} {} \"{}\" \"{}\" \"{}\"",
        known.client,
        known.user.as_deref().unwrap_or("-"),
        local_time(known.seconds, known.offset_minutes),
        known.method,
        escaped(&known.path),
        known.status,
        known.bytes,
        or_dash(known.referer.as_deref()),
        or_dash(known.agent.as_deref()),
        known.host
    )
}

fn entry(known: &KnownFiles) -> LogEntry<'_> {
    LogEntry {
        time_us: known.seconds * 1_000_000,
        host: Some(known.host.as_bytes()),
        client: Some(known.client),
        request: RequestPart {
            method: Some(known.method.as_bytes()),
            path: &known.path,
            query: known.query.as_deref(),
            protocol: Some(b"HTTP/1.1"),
        },
        response: ResponsePart {
            status: known.status,
            bytes: known.bytes,
            received: None,
            duration_us: None,
        },
        referer: known.referer.as_deref(),
        agent: known.agent.as_deref(),
        user: known.user.as_deref().map(str::as_bytes),
        ..LogEntry::default()
    }
}

fn every_format() -> Vec<InputFormat> {
    let mut formats: Vec<_> = NAMES.iter().map(|name| InputFormat::named(name).unwrap()).collect();
    for nginx in
        ["$msec $upstream_response_time $http_x_forwarded_for $scheme$request_uri", "[$time_local]$request"]
    {
        formats.push(InputFormat::nginx(nginx).unwrap());
    }
    formats.push(InputFormat::regex(r"(?s)(?P<time>[^ ]*) (?P<request>.*?)(?P<client>\S*)$").unwrap());
    formats
}

proptest! {
    #[test]
    fn a_vhost_line_says_what_was_written(all in collection::vec(known(), 1..4)) {
        let mut parser = parser(&InputFormat::named("vhost").unwrap());
        for known in &all {
            if known.seconds + i64::from(known.offset_minutes) * 60 < 0 {
                continue;
            }
            let line = vhost_line(known);
            assert_eq!(parser.parse(line.as_bytes()), Ok(Some(entry(known))), "{line}");
        }
    }

    #[test]
    fn nothing_panics(line in collection::vec(any::<u8>(), 0..300)) {
        for format in every_format() {
            if let Err(error) = parser(&format).parse(&line) {
                assert!(error.at <= line.len());
            }
        }
    }

    #[test]
    fn a_damaged_line_is_refused_or_read(known in known(), at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let mut line = vhost_line(&known).into_bytes();
        let length = line.len();
        line[at % length] = byte;
        line.truncate(1 + cut % length);
        for format in every_format() {
            if let Err(error) = parser(&format).parse(&line) {
                assert!(error.at <= line.len(), "{error}");
            }
        }
    }
}
