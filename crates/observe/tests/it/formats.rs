//! Events read back: whatever bytes a client sent, a line is one line, valid, and says what was meant.

use crate::samples;
use offramp_observe::EventFormat;
use offramp_observe::facts::{
    Address, Alert, Cause, Close, ConnectionFacts, Fault, Handshake, IdSource, Mismatch, Offer, TlsVersion,
};
use offramp_observe::format::{FIELDS, FieldKind};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

fn write(format: EventFormat, facts: &ConnectionFacts) -> String {
    let mut out = Vec::new();
    format.write(facts, &mut out);
    String::from_utf8(out).expect("events are UTF-8")
}

fn json(facts: &ConnectionFacts) -> Map<String, Value> {
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
        r#""client":"192.0.2.1","client_port":51234,"sni":"git.example.org","alpn":"h2","#,
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
             route=git.example.org backend=gitea alpn=h2 suite=TLS_AES_128_GCM_SHA256 \
             group=X25519MLKEM768 handshake=2.3ms connect=48us id={}\n",
            facts.id
        )
    );
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
    facts.close.alert = Some(Alert::Received("internal_error"));
    lines.push(write(EventFormat::Json, &facts));
    let documented: Vec<_> = FIELDS.iter().map(|field| field.key).collect();
    let mut seen = vec![false; FIELDS.len()];
    for line in lines {
        let event: Map<String, Value> = serde_json::from_str(&line).unwrap();
        let mut last = 0;
        for (index, field) in FIELDS.iter().enumerate() {
            let Some(value) = event.get(field.key) else { continue };
            seen[index] = true;
            let at = line.find(&format!("\"{}\":", field.key)).unwrap();
            assert!(at > last, "{} is out of order", field.key);
            last = at;
            match field.kind {
                FieldKind::Time | FieldKind::Text => assert!(value.is_string(), "{}", field.key),
                FieldKind::Number => assert!(value.is_u64(), "{}", field.key),
                FieldKind::Flag => assert!(value.is_boolean(), "{}", field.key),
                FieldKind::List => assert!(value.is_array(), "{}", field.key),
            }
        }
        assert!(event.keys().all(|key| documented.contains(&key.as_str())));
    }
    let unseen: Vec<_> = FIELDS.iter().zip(seen).filter(|(_, seen)| !seen).map(|(f, _)| f.key).collect();
    assert!(unseen.is_empty(), "documented, but no event has them: {unseen:?}");
}

#[test]
fn what_was_omitted_is_told() {
    let mut facts = samples::mismatched();
    let many = (0..100).map(|n| format!("0x{n:04x}"));
    let offered = Offer { suites: many.collect(), ..Offer::default() };
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
        facts.client.peer = client.1.map(|path| Address::Unix(path.then(|| "/run/a b".into())));
        facts.tls.sni = Some(String::from_utf8_lossy(&sni).into());
        facts.tls.alpn = Some(alpn.into());
        facts.tls.client_cn = Some(cn.into());
        facts.tls.version = end.2.then_some(TlsVersion::Tls12);
        facts.tls.handshake = end.2.then_some(Handshake::Resumed);
        facts.traffic.from_client = numbers.0;
        facts.times.total = Duration::from_micros(numbers.1);
        facts.close = Close::from(end.0).with_fault(end.1).with_detail(&String::from_utf8_lossy(&detail));
        let offered = Offer { alpn: offered.into_iter().collect(), ..Offer::default() };
        facts.mismatch = Some(Box::new(Mismatch { offered, configured: Arc::default() }));
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
        for format in [EventFormat::Json, EventFormat::Logfmt, EventFormat::Text] {
            let line = write(format, &facts);
            prop_assert!(line.ends_with('\n'));
            let body = &line[..line.len() - 1];
            prop_assert!(!body.chars().any(|c| c.is_control() || "\u{2028}\u{202e}".contains(c)), "{:?}", body);
        }
    }
}
