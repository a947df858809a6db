//! Conversion of field sections.

use super::*;
use crate::hpack::{HpackDecoder, HpackEncoder, Indexing};

/// A section with these fields, HPACK-coded and decoded.
fn section(fields: &[(&str, &str)], most: usize) -> FieldSection {
    let (mut encoder, mut block) = (HpackEncoder::new(), Vec::new());
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Yes, &mut block);
    }
    let mut section = FieldSection::new(Fields::new(), most);
    HpackDecoder::new(4096).decode(&block, |field| section.take(field)).unwrap();
    let size: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    assert_eq!(section.size(), size);
    section
}

fn request(fields: &[(&str, &str)], most: usize) -> Option<(Request, ControlData)> {
    let mut head = Request::new();
    let control = section(fields, most).request(&mut head)?;
    Some((head, control))
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/x?y")];

fn text(fields: &Fields) -> Vec<(&str, &str)> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    fields.iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[test]
fn a_request_has_its_fields() {
    let fields = [&GET[..], &[("cookie", "a"), ("x-a", "1"), ("cookie", "b")]].concat();
    let (head, control) = request(&fields, 1000).unwrap();
    assert_eq!((head.method.as_str(), head.version), ("GET", Version::HTTP_2));
    assert_eq!((head.target(), head.path(), head.query()), ("/x?y", "/x", Some("y")));
    assert_eq!((head.authority(), head.host()), (Some("a.test"), Some(&b"a.test"[..])));
    let wanted = [("host", "a.test"), ("cookie", "a"), ("x-a", "1"), ("cookie", "b")];
    assert_eq!(text(&head.fields), wanted);
    assert_eq!(head.fields.all(Known::Cookie).count(), 2);
    assert_eq!(control, ControlData { scheme: Some(Scheme::Https), protocol: None, unserved: None });
    let mut out = Vec::new();
    head.write(super::super::KnownSet::default(), &mut out);
    assert_eq!(out, b"GET /x?y HTTP/1.1\r\nhost: a.test\r\ncookie: a\r\nx-a: 1\r\ncookie: b\r\n");
}

/// A `Host` beside `:authority` is kept, and so is one without.
#[test]
fn the_authority_is_the_host_unless_there_is_one() {
    let (head, _) = request(&[&GET[..], &[("host", "A.test:443")]].concat(), 1000).unwrap();
    assert_eq!((head.authority(), head.host()), (Some("a.test"), Some(&b"a.test"[..])));
    assert_eq!(text(&head.fields), [("host", "A.test:443")]);
    let both = [&GET[..], &[("host", "a"), ("host", "b")]].concat();
    let (head, _) = request(&both, 1000).unwrap();
    assert_eq!(head.fields.all(Known::Host).collect::<Vec<_>>(), [b"a", b"b"]);
    let asterisk = [(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), ("host", "a.test")];
    let (head, control) = request(&asterisk, 1000).unwrap();
    assert_eq!((head.target(), head.authority()), ("*", None));
    assert_eq!((head.host(), control.scheme), (Some(&b"a.test"[..]), Some(Scheme::Http)));
}

#[test]
fn malformed_requests() {
    for at in 0..GET.len() {
        let mut less = GET.to_vec();
        let gone = less.remove(at);
        assert_eq!(request(&less, 1000).is_some(), gone.0 == ":authority", "{gone:?}");
        let twice = [&GET[..], &[gone]].concat();
        assert!(request(&twice, 1000).is_none(), "{gone:?} twice");
        less.extend([("x", "y"), gone]);
        assert!(request(&less, 1000).is_none(), "{gone:?} behind a field");
    }
    for odd in [(":status", "200"), (":other", ""), ("Upper", "x"), ("te", "gzip"), ("x", " ")] {
        assert!(request(&[&GET[..], &[odd]].concat(), 1000).is_none(), "{odd:?}");
        assert!(request(&[&[odd], &GET[..]].concat(), 1000).is_none(), "{odd:?}");
    }
}

#[test]
fn unserved_requests_are_not_malformed() {
    for (name, value, fault) in
        [(":path", "/a#b", Http1Fault::TargetFragment), (":scheme", "ftp", Http1Fault::TargetForm)]
    {
        let fields = GET.map(|(field, plain)| (field, if field == name { value } else { plain }));
        let (head, control) = request(&fields, 1000).unwrap();
        assert_eq!(control.unserved, Some(Unserved::Target(fault)));
        assert_eq!(head.target(), if name == ":path" { "/" } else { "/x?y" });
    }
}

#[test]
fn connect_has_only_an_authority_without_a_protocol() {
    let plain = [(":method", "CONNECT"), (":authority", "a.test:1")];
    let (head, control) = request(&plain, 1000).unwrap();
    assert_eq!((head.authority(), head.target(), control.scheme), (Some("a.test:1"), "/", None));
    let fields = [&[(":method", "CONNECT"), (":protocol", "websocket")], &GET[1..]].concat();
    let (head, control) = request(&fields, 1000).unwrap();
    assert_eq!(control.protocol.as_deref(), Some(&b"websocket"[..]));
    assert_eq!((head.authority(), head.target()), (Some("a.test"), "/x?y"));
    assert!(request(&[&[(":protocol", "websocket")], &GET[..]].concat(), 1000).is_none());
    assert!(request(&[&[(":method", "CONNECT")], &GET[1..]].concat(), 1000).is_none());
    assert!(request(&[(":method", "CONNECT")], 1000).is_none());
}

#[test]
fn a_too_large_section_is_still_a_request() {
    let large = "y".repeat(900);
    for fields in [
        [&GET[..], &[("x", &large[..])]].concat(),
        [&[(":method", "CONNECT"), (":authority", "a.test:1")], &[("x", &large[..])][..]].concat(),
        vec![(":path", &large[..])],
    ] {
        let (head, control) = request(&fields, 800).unwrap();
        assert_eq!(control.unserved, Some(Unserved::TooLarge), "{fields:?}");
        assert!(!head.fields.iter().any(|(name, _)| name == b"x"));
        assert!(head.fields.memory() < 1000);
    }
    assert!(request(&[(":method", "CONNECT"), (":authority", &large[..])], 800).is_none());
    assert!(section(&[("x", &large[..])], 800).trailers().is_none());
}

#[test]
fn trailers_have_no_pseudo_fields() {
    let trailers = section(&[("x-sum", "1"), ("etag", "2")], 100).trailers().unwrap();
    assert_eq!(text(&trailers), [("x-sum", "1"), ("etag", "2")]);
    for field in GET.into_iter().chain([(":status", "200"), ("te", "x")]) {
        assert!(section(&[field], 100).trailers().is_none(), "{field:?}");
    }
}

#[test]
fn a_response_has_a_status() {
    let response = section(&[(":status", "404"), ("x-a", "1")], 100).response().unwrap();
    assert_eq!((response.status.as_u16(), response.version), (404, Version::HTTP_2));
    assert_eq!(text(&response.fields), [("x-a", "1")]);
    for fields in [
        &[("x-a", "1")][..],
        &[("x-a", "1"), (":status", "200")],
        &[(":status", "200"), (":status", "200")],
        &[(":status", "200"), ("connection", "x")],
        &[(":status", "20")],
        &[(":method", "GET"), (":status", "200")],
        &[(":status", "200"), ("x", "12345678901234567890123456789012345")],
    ] {
        assert!(section(fields, 100).response().is_none(), "{fields:?}");
    }
}

/// Memory is reused from head to head.
#[test]
fn memory_is_reused() {
    let (mut head, _) = request(&GET, 1000).unwrap();
    let memory = head.fields.memory();
    let mut section = FieldSection::new(std::mem::take(&mut head.fields), 1000);
    let mut decoder = HpackDecoder::new(4096);
    decoder.decode(&[0x82, 0x87, 0x84], |field| section.take(field)).unwrap();
    assert!(section.request(&mut head).is_some());
    assert_eq!((head.target(), head.authority(), head.fields.len()), ("/", None, 0));
    assert_eq!(head.fields.memory(), memory);
}

/// A rule that changes `Host` applies to HTTP/2 servers, however the request was received.
#[test]
fn a_changed_host_becomes_the_authority() {
    for fields in [&GET[..], &[&GET[..], &[("host", "A.test:443")]].concat()] {
        let (mut head, _) = request(fields, 1000).unwrap();
        head.settle_host();
        assert_eq!((head.host(), head.fields.get(Known::Host)), (Some(&b"a.test"[..]), Some(&b"a.test"[..])));
        head.fields.set_known(Known::Host, b"inside.test");
        assert_eq!((head.host(), head.authority()), (Some(&b"inside.test"[..]), None));
        assert_eq!(head.fields.all(Known::Host).count(), 1);
    }
}
