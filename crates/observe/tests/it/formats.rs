//! Events read back: whatever bytes a client sent, a line is one line, valid, and says what was meant.

use crate::samples;
use offramp_observe::facts::{
    Alert, Cause, Close, ConnectionFacts, EndpointAddress, FatalAlert, Fault, Handshake, IdSource, Mismatch,
    RequestFacts, TlsOffer, TlsVersion,
};
use offramp_observe::format::{Field, FieldHashKey, FieldKind, FieldOf, FieldSelection};
use offramp_observe::{Event, EventFormat, EventStyle};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Every form of a line that a request has, but for `combined`.
const LINES: [EventFormat; 5] =
    [EventFormat::Json, EventFormat::Logfmt, EventFormat::Text, EventFormat::Terminal, EventFormat::Vhost];

fn write<F: Clone>(format: EventFormat, facts: &F) -> String
where
    Event: From<Box<F>>,
{
    let mut out = Vec::new();
    EventStyle::from(format).write(&Box::new(facts.clone()).into(), &mut out);
    String::from_utf8(out).expect("events are UTF-8")
}

fn json<F: Clone>(facts: &F) -> Map<String, Value>
where
    Event: From<Box<F>>,
{
    serde_json::from_str(&write(EventFormat::Json, facts)).expect("an event is a JSON object")
}

/// A strict reader of logfmt: `key=value` separated by one space; a value is bare, or a JSON string.
fn logfmt(line: &str) -> Map<String, Value> {
    let mut rest = line.strip_suffix('\n').unwrap();
    let mut pairs = Map::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').unwrap();
        assert!(key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{key:?}");
        let value;
        if after.starts_with('"') {
            let mut stream = serde_json::Deserializer::from_str(after).into_iter::<String>();
            value = stream.next().unwrap().unwrap();
            rest = &after[stream.byte_offset()..];
        } else {
            let end = after.find(' ').unwrap_or(after.len());
            value = after[..end].to_owned();
            assert!(!value.is_empty() && !value.contains(['"', '=', '\\']), "{value:?}");
            rest = &after[end..];
        }
        assert!(pairs.insert(key.to_owned(), Value::String(value)).is_none(), "{key} twice");
        rest = rest.strip_prefix(' ').unwrap_or(rest);
    }
    pairs
}

#[test]
fn an_ordinary_connection_as_json() {
    let expected = concat!(
        r#"{"time":"2026-11-21T20:51:00.001234Z","event":"connection","#,
        r#""id":"01a1ffe0-6b21-7000-8000-00001a2b3c4d","worker":0,"listener":"web","#,
        r#""client":"192.0.2.1","client_port":51234,"sni":"git.example.org","ja4":"t13d1516h2_8daaf6152771_e5627efa2ab1","alpn":"h2","#,
        r#""tls_version":"TLSv1.3","tls_suite":"TLS_AES_128_GCM_SHA256","tls_group":"X25519MLKEM768","#,
        r#""tls_scheme":"ecdsa_secp256r1_sha256","resumed":false,"#,
        r#""route":"git.example.org","backend":"gitea","server":"unix:/run/gitea.sock","tries":1,"#,
        r#""bytes_from_client":517,"bytes_to_client":1258291,"#,
        r#""handshake_us":2311,"connect_us":48,"total_us":1204518,"#,
        r#""cause":"client_closed","fault":"nobody"}"#,
        "\n"
    );
    assert_eq!(write(EventFormat::Json, &samples::ordinary()), expected);
}

#[test]
fn an_ordinary_connection_as_text() {
    let facts = samples::ordinary();
    assert_eq!(
        write(EventFormat::Text, &facts),
        format!(
            "2026-11-21T20:51:00.001234Z 192.0.2.1:51234       git.example.org          TLSv1.3 full        \
             517 B in   1.2 MiB out  1.20 s  client_closed -> unix:/run/gitea.sock listener=web \
             route=git.example.org backend=gitea ja4=t13d1516h2_8daaf6152771_e5627efa2ab1 alpn=h2 suite=TLS_AES_128_GCM_SHA256 \
             group=X25519MLKEM768 handshake=2.3ms connect=48us id={}\n",
            facts.id
        )
    );
}

#[test]
fn an_ordinary_request_as_json() {
    let expected = concat!(
        r#"{"time":"2026-11-21T20:51:00.003734Z","event":"request","#,
        r#""id":"01a1ffe0-6b23-7000-8000-00001a2b3c4d","#,
        r#""connection":"01a1ffe0-6b21-7000-8000-00001a2b3c4d","worker":0,"listener":"web","#,
        r#""client":"192.0.2.1","client_port":51234,"method":"GET","scheme":"https","#,
        r#""host":"git.example.org","path":"/explore/repos","query":"sort=newest&q=tls","#,
        r#""protocol":"HTTP/2.0","status":200,"referer":"https://git.example.org/","#,
        r#""user_agent":"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0","#,
        r#""sni":"git.example.org","ja4":"t13d1516h2_8daaf6152771_e5627efa2ab1","alpn":"h2","#,
        r#""tls_version":"TLSv1.3","tls_suite":"TLS_AES_128_GCM_SHA256","tls_group":"X25519MLKEM768","#,
        r#""tls_scheme":"ecdsa_secp256r1_sha256","resumed":false,"#,
        r#""route":"git.example.org","backend":"gitea","server":"unix:/run/gitea.sock","tries":1,"#,
        r#""bytes_from_client":0,"bytes_to_client":18423,"first_byte_us":8127,"total_us":8402,"#,
        r#""cause":"completed","fault":"nobody"}"#,
        "\n"
    );
    assert_eq!(write(EventFormat::Json, &samples::request()), expected);
}

#[test]
fn an_aborted_request_as_text_and_logfmt() {
    let facts = samples::aborted();
    let id = "id=01a1ffe0-6b23-7000-8000-00001a2b3c4d";
    let agent = r#"user_agent="Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0""#;
    assert_eq!(
        write(EventFormat::Text, &facts),
        format!(
            "2026-11-21T20:51:00.003734Z 192.0.2.1:51234       200       0 B in  18.0 KiB out  8.4 ms  \
             GET http://git.example.org/big\"file HTTP/1.1  client_aborted (client) -> unix:/run/gitea.sock \
             detail=\"connection reset\" {agent} listener=web route=git.example.org backend=gitea \
             first_byte=8.1ms {id}\n"
        )
    );
    let line = write(EventFormat::Logfmt, &facts);
    assert!(line.starts_with("time=2026-11-21T20:51:00.003734Z event=request id="), "{line}");
    assert!(line.contains(" path=\"/big\\\"file\" protocol=HTTP/1.1 status=200 "), "{line}");
    assert!(line.ends_with(" fault=client detail=\"connection reset\"\n"), "{line}");
}

/// Behind a proxy that is trusted nobody wants to read the address of the proxy in each line.
#[test]
fn every_format_names_the_client_that_trusted_proxies_name() {
    let mut facts = samples::request();
    facts.named = Some([203, 0, 113, 9].into());
    for format in LINES {
        let line = write(format, &facts);
        assert!(line.contains("203.0.113.9"), "{line}");
    }
}

#[test]
fn a_terminal_gets_short_lines() {
    assert_eq!(
        write(EventFormat::Terminal, &samples::request()),
        "20:51:00.003Z 192.0.2.1       200 18.0 KiB  8.4 ms GET git.example.org/explore/repos?sort=newest&q=…\n"
    );
    assert_eq!(
        write(EventFormat::Terminal, &samples::aborted()),
        "20:51:00.003Z 192.0.2.1       200 18.0 KiB  8.4 ms client_aborted (client) GET \
         git.example.org/big\"…\n"
    );
    let mut refused = samples::request();
    refused.close = Close::from(Cause::ServerRefused);
    let line = write(EventFormat::Terminal, &refused);
    assert!(line.contains(" server_refused: is it running? GET git.example."), "{line}");
    assert_eq!(
        write(EventFormat::Terminal, &samples::ordinary()),
        "20:51:00.001Z 192.0.2.1           517 B in  1.2 MiB out  1.20 s client_closed [git.example.org]\n"
    );
}

#[test]
fn a_failed_handshake_is_one_line_with_the_cause_and_the_remedy() {
    let mut facts = samples::mismatched();
    facts.close = Close::from(Cause::HandshakeAlert).with_alert(FatalAlert::Received(Alert::UNKNOWN_CA));
    assert_eq!(
        write(EventFormat::Terminal, &facts),
        "20:51:00.001Z 2001:db8::7     unknown_ca: the client does not trust it; run `offramp ca` \
         [git.examp…\n"
    );
    // What both sides offered is in the other formats.
    let line = write(EventFormat::Terminal, &samples::mismatched());
    assert!(line.contains("no_common_version: the client is too old") && !line.contains("TLSv1"), "{line}");
    facts.close = Close::from(Cause::PlainHttp);
    assert!(write(EventFormat::Terminal, &facts).contains("open https:// instead [git."));
    // A long address gives way to the advice.
    facts.close =
        Close::from(Cause::HandshakeAlert).with_alert(FatalAlert::Received(Alert::CERTIFICATE_UNKNOWN));
    facts.client.address =
        "[2001:db8:1111:2222:3333:4444:5555:6666]:1".parse::<std::net::SocketAddr>().unwrap().into();
    let line = write(EventFormat::Terminal, &facts);
    assert!(line.contains("… certificate_unknown: ") && line.contains("run `offramp ca`"), "{line}");
}

#[test]
fn selections_leave_out_and_hash_in_every_format() {
    let key = FieldHashKey::from([7; 16]);
    let selection = FieldSelection::default()
        .omit(Field::UserAgent)
        .omit(Field::Time)
        .hash([Field::Client, Field::Status, Field::Sni, Field::OfferedVersions], key)
        .anonymize();
    let told = |format, event: &Event| {
        let mut out = Vec::new();
        EventStyle { format, selection: selection.clone() }.write(event, &mut out);
        String::from_utf8(out).unwrap()
    };
    let request = Box::new(samples::request()).into();
    let event: Map<String, Value> = serde_json::from_str(&told(EventFormat::Json, &request)).unwrap();
    assert!(!event.contains_key("user_agent") && !event.contains_key("time"));
    let hash = |event: &Map<String, Value>, key: &str| {
        let hash = event[key].as_str().unwrap().to_owned();
        assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        hash
    };
    let client = hash(&event, "client");
    hash(&event, "status");
    let sni = hash(&event, "sni");
    assert_eq!(event["host"], "git.example.org");
    let line = told(EventFormat::Logfmt, &request);
    assert!(line.starts_with("event=request ") && line.contains(&format!(" client={client} ")), "{line}");
    let line = told(EventFormat::Text, &request);
    assert!(line.starts_with(&format!("- {client}:51234 ")) && !line.contains("Mozilla"), "{line}");
    let line = told(EventFormat::Terminal, &request);
    assert!(line.starts_with(&format!("-Z {client} ")) && !line.contains("200"), "{line}");
    let connection = Box::new(samples::mismatched()).into();
    let line = told(EventFormat::Text, &connection);
    assert!(line.contains(&format!(" {sni} ")) && !line.contains("TLSv1.1"), "{line}");
    let everything = Field::ALL.into_iter().fold(FieldSelection::default(), FieldSelection::omit);
    for (format, expected) in [(EventFormat::Json, "{}\n"), (EventFormat::Logfmt, "\n")] {
        let mut out = Vec::new();
        EventStyle { format, selection: everything.clone() }.write(&request, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn a_mismatch_shows_both_sides() {
    let facts = samples::mismatched();
    let line = write(EventFormat::Text, &facts);
    let told = "no_common_version (policy) alert_sent=protocol_version \
                offered_versions=TLSv1.1,TLSv1.0 configured_versions=TLSv1.3,TLSv1.2";
    assert!(line.contains(told), "{line}");
    let event = json(&facts);
    assert_eq!(event["offered_versions"], serde_json::json!(["TLSv1.1", "TLSv1.0"]));
    assert_eq!(event["configured_versions"], serde_json::json!(["TLSv1.3", "TLSv1.2"]));
    assert_eq!(event["alert_sent"], "protocol_version");
    assert!(!event.contains_key("tls_version") && !event.contains_key("resumed"));
}

#[test]
fn the_table_of_fields_is_what_events_have_in_order_and_type() {
    let mut facts = samples::everything();
    let mut lines = vec![write(EventFormat::Json, &facts)];
    facts.close.alert = Some(FatalAlert::Received(Alert::INTERNAL_ERROR));
    lines.push(write(EventFormat::Json, &facts));
    for (lines, has) in [
        (lines, FieldOf::connections as fn(FieldOf) -> bool),
        (samples::requests().iter().map(request_json_line).collect(), FieldOf::requests),
    ] {
        let fields: Vec<_> = Field::ALL.into_iter().filter(|field| has(field.of())).collect();
        let mut seen = BTreeSet::new();
        for line in lines {
            let event: Map<String, Value> = serde_json::from_str(&line).unwrap();
            let mut last = 0;
            for field in &fields {
                let Some(value) = event.get(field.key()) else { continue };
                seen.insert(field.key());
                let at = line.find(&format!("\"{}\":", field.key())).unwrap();
                assert!(at > last, "{} is out of order", field.key());
                last = at;
                match field.kind() {
                    FieldKind::Time | FieldKind::Text => assert!(value.is_string(), "{}", field.key()),
                    FieldKind::Number => assert!(value.is_u64(), "{}", field.key()),
                    FieldKind::Flag => assert!(value.is_boolean(), "{}", field.key()),
                    FieldKind::List => assert!(value.is_array(), "{}", field.key()),
                }
            }
            let documented = |key: &String| fields.iter().any(|field| field.key() == key);
            assert!(event.keys().all(documented));
        }
        let unseen: Vec<_> = fields.iter().map(|f| f.key()).filter(|key| !seen.contains(key)).collect();
        assert!(unseen.is_empty(), "documented, but no event has them: {unseen:?}");
    }
}

fn request_json_line(facts: &RequestFacts) -> String {
    write(EventFormat::Json, facts)
}

#[test]
fn what_was_omitted_is_told() {
    let mut facts = samples::mismatched();
    let many = (0..100).map(|n| format!("0x{n:04x}"));
    let offered = TlsOffer { suites: many.collect(), ..TlsOffer::default() };
    facts.mismatch = Some(Box::new(Mismatch { offered, configured: Arc::default() }));
    let event = json(&facts);
    let suites = event["offered_suites"].as_array().unwrap();
    assert_eq!((suites.len(), suites.last().unwrap().as_str()), (65, Some("+36 more")));
    let line = logfmt(&write(EventFormat::Logfmt, &facts));
    assert!(line["offered_suites"].as_str().unwrap().ends_with(",0x003f,+36 more"));
}

/// Bytes as an attacker picks them: any, and often enough those that mean something to a reader.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let nasty =
        ["\"", "\\", "\n", "\r", "\0", "\x1b[2J", "=", " ", "\u{202e}", "\u{2028}", "\u{85}", "ü", ","];
    let piece = prop::strategy::Union::new([
        vec(any::<u8>(), 0..8).boxed(),
        select(nasty.to_vec()).prop_map(|text| text.as_bytes().to_vec()).boxed(),
    ]);
    vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn any_facts() -> impl Strategy<Value = ConnectionFacts> {
    let names = (hostile(), hostile(), hostile(), hostile(), vec(hostile(), 0..5));
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u16>());
    let end = (select(Cause::ALL.to_vec()), select(Fault::ALL.to_vec()), any::<bool>());
    let client = (any::<std::net::SocketAddr>(), prop::option::of(any::<bool>()));
    (names, numbers, end, client).prop_map(|(names, numbers, end, client)| {
        let (sni, alpn, cn, detail, offered) = names;
        let accepted = UNIX_EPOCH + Duration::from_secs(numbers.2.into());
        let id = IdSource::new(numbers.3, numbers.0).next(accepted);
        let mut facts = ConnectionFacts::new(id, numbers.3, "a listener".into(), accepted, client.0.into());
        facts.client.peer = client.1.map(|path| EndpointAddress::Unix(path.then(|| b"/run/a b"[..].into())));
        facts.tls.sni = Some(String::from_utf8_lossy(&sni).into());
        facts.tls.alpn = Some(alpn.into());
        facts.tls.client_cn = Some(cn.into());
        facts.tls.version = end.2.then_some(TlsVersion::Tls12);
        facts.tls.handshake = end.2.then_some(Handshake::Resumed);
        facts.traffic.from_client = numbers.0;
        facts.times.total = Duration::from_micros(numbers.1);
        facts.close = Close::from(end.0).with_fault(end.1).with_detail(&String::from_utf8_lossy(&detail));
        let offered = TlsOffer { alpn: offered.into_iter().collect(), ..TlsOffer::default() };
        facts.mismatch = Some(Box::new(Mismatch { offered, configured: Arc::default() }));
        facts
    })
}

/// A request with whatever a client may put into it.
fn any_request() -> impl Strategy<Value = RequestFacts> {
    let names = (hostile(), hostile(), hostile(), hostile());
    let client = any::<std::net::SocketAddr>();
    (names, client, any::<u64>(), any::<u16>()).prop_map(|(names, client, number, status)| {
        let (target, host, referer, agent) = names;
        let mut facts = samples::request();
        let mut brief = (*facts.connection).clone();
        brief.client.address = client.into();
        brief.id = u128::from(number).into();
        facts.connection = Arc::new(brief);
        facts.request.target = format!("/{}", String::from_utf8_lossy(&target)).into();
        facts.request.host = String::from_utf8_lossy(&host).into();
        facts.request.referer = Some(referer.into());
        facts.request.user_agent = Some(agent.into());
        facts.status = status;
        facts.traffic.to_client = number;
        facts.times.total = Duration::from_micros(number);
        facts
    })
}

fn lossy(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap()).into_owned()
}

proptest! {
    #[test]
    fn json_reads_back(facts in any_facts()) {
        let event = json(&facts);
        prop_assert_eq!(event["sni"].as_str(), facts.tls.sni.as_deref());
        prop_assert_eq!(event["alpn"].as_str().unwrap(), lossy(facts.tls.alpn.as_deref()));
        prop_assert_eq!(event["client_cn"].as_str().unwrap(), lossy(facts.tls.client_cn.as_deref()));
        prop_assert_eq!(event["detail"].as_str(), facts.close.detail.as_deref());
        prop_assert_eq!(event["bytes_from_client"].as_u64(), Some(facts.traffic.from_client));
        prop_assert_eq!(u128::from(event["total_us"].as_u64().unwrap()), facts.times.total.as_micros());
        prop_assert_eq!(event["cause"].as_str(), Some(facts.close.cause.name()));
        prop_assert_eq!(event["fault"].as_str(), Some(facts.close.fault.name()));
        let names: Vec<_> = facts.mismatch.as_ref().unwrap().offered.alpn.iter().map(|n| lossy(Some(n))).collect();
        if !names.is_empty() {
            prop_assert_eq!(&event["offered_alpn"], &serde_json::json!(names));
        }
    }

    #[test]
    fn requests_read_back_from_json_and_logfmt(facts in any_request()) {
        let event = json(&facts);
        prop_assert_eq!(event["path"].as_str(), Some(facts.request.path()));
        prop_assert_eq!(event.get("query").and_then(Value::as_str), facts.request.query());
        prop_assert_eq!(event["host"].as_str(), Some(&*facts.request.host));
        prop_assert_eq!(event["referer"].as_str().unwrap(), lossy(facts.request.referer.as_deref()));
        prop_assert_eq!(event["user_agent"].as_str().unwrap(), lossy(facts.request.user_agent.as_deref()));
        prop_assert_eq!(event["status"].as_u64(), Some(facts.status.into()));
        prop_assert_eq!(event["bytes_to_client"].as_u64(), Some(facts.traffic.to_client));
        prop_assert_eq!(event["total_us"].as_u64(), Some(facts.traffic.to_client));
        prop_assert_eq!(event["client"].as_str().unwrap(), facts.connection.client.ip().unwrap().to_string());
        prop_assert_eq!(event["connection"].as_str().unwrap(), facts.connection.id.to_string());
        let pairs = logfmt(&write(EventFormat::Logfmt, &facts));
        prop_assert_eq!(pairs.keys().collect::<Vec<_>>(), event.keys().collect::<Vec<_>>());
        for (key, value) in &event {
            let expected = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            prop_assert_eq!(pairs[key].as_str(), Some(expected.as_str()));
        }
    }

    #[test]
    fn a_request_is_one_harmless_line(facts in any_request()) {
        for format in LINES {
            let line = write(format, &facts);
            let body = line.strip_suffix('\n').unwrap();
            prop_assert!(format != EventFormat::Terminal || body.chars().count() <= 100, "{:?}", body);
            prop_assert!(!body.chars().any(|c| c.is_control() || "\u{2028}\u{202e}".contains(c)), "{:?}", body);
        }
    }

    #[test]
    fn logfmt_tells_the_same_as_json(facts in any_facts()) {
        let (pairs, event) = (logfmt(&write(EventFormat::Logfmt, &facts)), json(&facts));
        prop_assert_eq!(pairs.keys().collect::<Vec<_>>(), event.keys().collect::<Vec<_>>());
        for (key, value) in &event {
            let expected = match value {
                // Joined as bytes, before what is no UTF-8 is replaced.
                Value::Array(_) => continue,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            prop_assert_eq!(pairs[key].as_str(), Some(expected.as_str()));
        }
    }

    #[test]
    fn an_event_is_one_harmless_line(facts in any_facts()) {
        for format in LINES.into_iter().filter(|format| *format != EventFormat::Vhost) {
            let line = write(format, &facts);
            prop_assert!(line.ends_with('\n'));
            let body = &line[..line.len() - 1];
            prop_assert!(format != EventFormat::Terminal || body.chars().count() <= 100, "{:?}", body);
            prop_assert!(!body.chars().any(|c| c.is_control() || "\u{2028}\u{202e}".contains(c)), "{:?}", body);
        }
    }
}
