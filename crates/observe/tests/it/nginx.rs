//! `combined` and `vhost` under a reader of our own, which knows them only from nginx's documentation.

use crate::samples;
use offramp_observe::facts::{Cause, Close, RequestFacts};
use offramp_observe::{EventFormat, EventStyle, Field, FieldHashKey, FieldSelection};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use regex::bytes::Regex;
use std::sync::LazyLock;
use std::time::Duration;

/// A line as the documentation of `ngx_http_log_module` describes it.
static LINE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = concat!(
        r#"(?-u)^(?<addr>\S+) - (?<user>[^"\[]*) \[(?<time>\d\d/[A-Z][a-z][a-z]/\d{4}(?::\d\d){3} \+0000)\] "#,
        r#""(?<request>[^"]*)" (?<status>\d{3}) (?<bytes>\d+) "(?<referer>[^"]*)" "(?<agent>[^"]*)""#,
        r#"(?: "(?<host>[^"]*)")?\n$"#
    );
    Regex::new(pattern).unwrap()
});

fn write(style: &EventStyle, facts: &RequestFacts) -> String {
    let mut out = Vec::new();
    style.write(&Box::new(facts.clone()).into(), &mut out);
    String::from_utf8(out).unwrap()
}

fn part(line: &str, name: &str) -> Option<Vec<u8>> {
    let parts = LINE.captures(line.as_bytes()).unwrap_or_else(|| panic!("no such line: {line:?}"));
    parts.name(name).map(|part| unescape(part.as_bytes()))
}

/// `\xNN` back to bytes; any other backslash is a fault.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        if first == b'\\' {
            let digits = after.strip_prefix(b"x").expect("a backslash begins an escape");
            assert!(digits[..2].iter().all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F')));
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits[..2]).unwrap(), 16).unwrap());
            rest = &digits[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}

#[test]
fn an_ordinary_request() {
    let combined = concat!(
        r#"192.0.2.1 - - [21/Nov/2026:20:51:00 +0000] "GET /explore/repos?sort=newest&q=tls HTTP/2.0" "#,
        r#"200 18423 "https://git.example.org/" "#,
        r#""Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0""#
    );
    let facts = samples::request();
    assert_eq!(write(&EventFormat::Combined.into(), &facts), format!("{combined}\n"));
    assert_eq!(write(&EventFormat::Vhost.into(), &facts), format!("{combined} \"git.example.org\"\n"));
}

#[test]
fn what_is_absent_and_what_is_hostile() {
    let mut facts = samples::aborted();
    facts.status = 0;
    facts.request.host = "".into();
    facts.request.user_agent = Some((*b"").into());
    facts.times.total = Duration::from_secs(3600);
    let expected = concat!(
        r#"192.0.2.1 - - [21/Nov/2026:21:51:00 +0000] "GET /big\x22file HTTP/1.1" 000 18423 "-" "" "-""#,
        "\n"
    );
    assert_eq!(write(&EventFormat::Vhost.into(), &facts), expected);
    facts.request.method = "".into();
    assert!(write(&EventFormat::Combined.into(), &facts).contains(r#"] "-" 000 "#));
}

#[test]
fn connections_have_no_line() {
    for format in [EventFormat::Combined, EventFormat::Vhost] {
        let mut out = Vec::new();
        EventStyle::from(format).write(&Box::new(samples::ordinary()).into(), &mut out);
        assert!(out.is_empty());
    }
}

#[test]
fn selections_keep_the_form() {
    let key = FieldHashKey::from([7; 16]);
    let selection = FieldSelection::default()
        .omit(Field::Referer)
        .omit(Field::Query)
        .hash([Field::UserAgent], key)
        .anonymize();
    let line = write(&EventStyle { format: EventFormat::Vhost, selection }, &samples::request());
    assert!(line.starts_with(r#"192.0.2.0 - - ["#), "{line}");
    assert!(line.contains(r#""GET /explore/repos HTTP/2.0" 200 18423 "-" ""#), "{line}");
    assert_eq!(part(&line, "agent").unwrap().len(), 16);
}

/// Whatever bytes a header may carry: the parser of HTTP lets fewer through.
fn any_request() -> impl Strategy<Value = RequestFacts> {
    let bytes = || vec(any::<u8>(), 0..20);
    let text = || vec(any::<char>(), 0..12).prop_map(String::from_iter);
    (option::of(bytes()), option::of(bytes()), text(), text(), 0_u16..1000, any::<u64>()).prop_map(
        |(referer, agent, target, host, status, sent)| {
            let mut facts = samples::request();
            facts.request.referer = referer.map(Into::into);
            facts.request.user_agent = agent.map(Into::into);
            facts.request.target = format!("/{target}").into();
            facts.request.host = host.into();
            facts.status = status;
            facts.traffic.to_client = sent;
            facts.close = Close::from(Cause::Completed);
            facts
        },
    )
}

proptest! {
    #[test]
    fn lines_read_back(facts in any_request()) {
        let line = write(&EventFormat::Vhost.into(), &facts);
        prop_assert!(line.is_ascii());
        let or_dash = |value: Option<&[u8]>| value.unwrap_or(b"-").to_vec();
        prop_assert_eq!(part(&line, "referer").unwrap(), or_dash(facts.request.referer.as_deref()));
        prop_assert_eq!(part(&line, "agent").unwrap(), or_dash(facts.request.user_agent.as_deref()));
        let request = format!("GET {} HTTP/2.0", facts.request.target);
        prop_assert_eq!(part(&line, "request").unwrap(), request.into_bytes());
        let host = Some(facts.request.host.as_bytes()).filter(|host| !host.is_empty());
        prop_assert_eq!(part(&line, "host").unwrap(), or_dash(host));
        prop_assert_eq!(part(&line, "status").unwrap(), format!("{:03}", facts.status).into_bytes());
        prop_assert_eq!(part(&line, "bytes").unwrap(), facts.traffic.to_client.to_string().into_bytes());
    }
}
