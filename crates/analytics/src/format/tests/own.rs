//! What Offramp itself writes is read back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use offramp_observe::facts::{
    ByteCounts, Cause, ClientScheme, ConnectionBrief, ConnectionFacts, HttpVersion, IdSource, RequestFacts,
    RequestSummary,
};
use offramp_observe::{Event, EventFormat, EventStyle, Field, FieldHashKey, FieldSelection};

use super::super::{InputFormat, Parser};
use super::parser;

const BEGUN: Duration = Duration::from_micros(1_795_309_323_250_000);
const TOTAL: Duration = Duration::from_micros(750_000);

fn connection() -> ConnectionFacts {
    let client: SocketAddr = "192.0.2.1:443".parse().unwrap();
    ConnectionFacts::new(IdSource::new(0, 0).next(UNIX_EPOCH), 0, "web".into(), UNIX_EPOCH, client.into())
}

fn request() -> RequestFacts {
    let line = RequestSummary {
        method: "GET".into(),
        scheme: ClientScheme::Https,
        host: "a.test".into(),
        target: "/a%20b?q=\"1\"".into(),
        version: HttpVersion::Http2,
        referer: None,
        user_agent: Some((*b"an \"agent\" \\ \x01").into()),
        user: None,
    };
    let brief = ConnectionBrief::from(&connection());
    let mut facts = RequestFacts::new("the-id".into(), Arc::new(brief), UNIX_EPOCH + BEGUN, line);
    facts.status = 200;
    facts.traffic = ByteCounts { from_client: 7, to_client: 512 };
    facts.times.total = TOTAL;
    facts.close = Cause::Completed.into();
    facts
}

fn written(style: &EventStyle, event: &Event) -> Vec<u8> {
    let mut out = Vec::new();
    style.write(event, &mut out);
    assert_eq!(out.pop(), Some(b'\n'));
    out
}

fn named(name: &str) -> Parser {
    parser(&InputFormat::named(name).unwrap())
}

#[test]
fn an_event_in_json() {
    let style = EventStyle::from(EventFormat::Json);
    let line = written(&style, &Event::Request(Box::new(request())));
    let mut json = named("json");
    let entry = json.parse(&line).unwrap().unwrap();
    assert_eq!(entry.time_us, BEGUN.as_micros() as i64);
    assert_eq!((entry.host, entry.client), (Some(&b"a.test"[..]), "192.0.2.1".parse().ok()));
    let asked = entry.request;
    assert_eq!(
        (asked.method, asked.path, asked.query),
        (Some(&b"GET"[..]), &b"/a%20b"[..], Some(&b"q=\"1\""[..]))
    );
    assert_eq!(asked.protocol, Some(&b"HTTP/2.0"[..]));
    let answer = entry.response;
    assert_eq!((answer.status, answer.bytes, answer.received), (200, 512, Some(7)));
    assert_eq!(answer.duration_us, Some(TOTAL.as_micros() as u64));
    assert_eq!(entry.agent, Some(&b"an \"agent\" \\ \x01"[..]));
    assert_eq!((entry.proxy.id, entry.proxy.cause), (Some(&b"the-id"[..]), None));

    let line = written(&style, &Event::Connection(Box::new(connection())));
    assert_eq!(json.parse(&line), Ok(None));
}

#[test]
fn a_hashed_client_is_none() {
    let selection = FieldSelection::default().hash([Field::Client], FieldHashKey::from([7; 16]));
    let style = EventStyle { format: EventFormat::Json, selection };
    let line = written(&style, &Event::Request(Box::new(request())));
    assert_eq!(named("json").parse(&line).unwrap().unwrap().client, None);
}

#[test]
fn a_request_as_nginx_writes_it() {
    let style = EventStyle::from(EventFormat::Vhost);
    let line = written(&style, &Event::Request(Box::new(request())));
    let mut vhost = named("vhost");
    let entry = vhost.parse(&line).unwrap().unwrap();
    assert_eq!(entry.time_us / 1_000_000, (BEGUN + TOTAL).as_secs() as i64);
    assert_eq!((entry.host, entry.request.path), (Some(&b"a.test"[..]), &b"/a%20b"[..]));
    assert_eq!(
        (entry.request.query, entry.agent),
        (Some(&b"q=\"1\""[..]), Some(&b"an \"agent\" \\ \x01"[..]))
    );
    assert_eq!((entry.response.status, entry.response.bytes), (200, 512));
}
