//! Examples of Forwarded and X-Forwarded-For.

use std::net::IpAddr;

use super::{Element, ForwardedFault, MAX_HOPS, Node, OriginatingClient, client, elements, x_forwarded_for};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Trusts 10.0.0.0/8 and ::1.
fn trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.is_loopback(),
    }
}

fn bytes<'a>(values: &'a [&'a str]) -> impl DoubleEndedIterator<Item = &'a [u8]> {
    values.iter().map(|value| value.as_bytes())
}

#[test]
fn x_forwarded_for_is_read_from_the_right_while_trusted() {
    for (peer, values, address, hops) in [
        // An untrusted peer: the field is ignored.
        ("192.0.2.1", &["203.0.113.7"][..], "192.0.2.1", 0),
        ("10.0.0.1", &[], "10.0.0.1", 0),
        ("10.0.0.1", &["203.0.113.7"], "203.0.113.7", 1),
        ("::ffff:10.0.0.1", &["203.0.113.7"], "203.0.113.7", 1),
        ("10.0.0.1", &["198.51.100.9, 203.0.113.7,10.0.0.2"], "203.0.113.7", 2),
        ("10.0.0.1", &["198.51.100.9", "203.0.113.7", "10.0.0.2"], "203.0.113.7", 2),
        // All trusted: the farthest address.
        ("::1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3", 2),
        ("10.0.0.1", &["203.0.113.7:4711"], "203.0.113.7", 1),
        ("10.0.0.1", &["2001:db8::7"], "2001:db8::7", 1),
        ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7", 1),
        ("10.0.0.1", &["[2001:db8::7]:80"], "2001:db8::7", 1),
        ("10.0.0.1", &["::ffff:203.0.113.7"], "203.0.113.7", 1),
        ("10.0.0.1", &["203.0.113.7,, ,\t"], "203.0.113.7", 1),
        // An invalid element ends the chain.
        ("10.0.0.1", &["203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2", 1),
        ("10.0.0.1", &["203.0.113.7, 10.0.0.2; x"], "10.0.0.1", 0),
        ("10.0.0.1", &["010.0.0.1"], "10.0.0.1", 0),
        ("10.0.0.1", &["localhost"], "10.0.0.1", 0),
    ] {
        let found = x_forwarded_for(bytes(values), ip(peer), trusted);
        assert_eq!(found, OriginatingClient { address: ip(address), hops }, "{peer} {values:?}");
    }
}

#[test]
fn the_chain_is_bounded() {
    let long = "10.0.0.9,".repeat(10_000);
    let found = x_forwarded_for([long.as_bytes()], ip("10.0.0.1"), trusted);
    assert!(found.hops < MAX_HOPS);
    let long = "for=10.0.0.9,".repeat(10_000);
    assert_eq!(client([long.as_bytes()], ip("10.0.0.1"), trusted).hops, MAX_HOPS);
}

#[test]
fn forwarded_is_read_from_the_right_while_trusted() {
    for (values, address, hops) in [
        (&["for=203.0.113.7"][..], "203.0.113.7", 1),
        (&["For=\"[2001:db8::7]:4711\";proto=https"], "2001:db8::7", 1),
        (&["for=198.51.100.9, for=203.0.113.7;by=10.0.0.1, for=10.0.0.2"], "203.0.113.7", 2),
        (&["for=198.51.100.9", "for=203.0.113.7", "for=10.0.0.2"], "203.0.113.7", 2),
        (&["for=203.0.113.7, for=unknown, for=10.0.0.2"], "10.0.0.2", 1),
        (&["for=203.0.113.7, for=_hidden"], "10.0.0.1", 0),
        (&["for=203.0.113.7, proto=https"], "10.0.0.1", 0),
        // A comma in quotes does not end an element.
        (&["for=203.0.113.7;host=\"a,for=10.0.0.9\""], "203.0.113.7", 1),
        // A syntax error discards the rest of its value.
        (&["for=203.0.113.7", "for=10.0.0.2;host=\"a, for=10.0.0.3"], "10.0.0.1", 0),
        (&["for=203.0.113.7, for", "for=10.0.0.2"], "10.0.0.2", 1),
    ] {
        let found = client(bytes(values), ip("10.0.0.1"), trusted);
        assert_eq!(found, OriginatingClient { address: ip(address), hops }, "{values:?}");
    }
}

#[test]
fn elements_round_trip() {
    let text = "for=\"[2001:db8::1]:4711\";by=192.0.2.1;host=\"a.example:8443\";proto=https, \
        ,for=_x-1.y; by=\"unknown:_p\" ;ext=\"a\\\"b\",host=\"q\\\"\\\\,\"";
    let read: Vec<Element<'_>> = elements(text.as_bytes()).map(Result::unwrap).collect();
    assert_eq!(read.len(), 3);
    assert_eq!(read[0].client, Some(Node::Address { ip: ip("2001:db8::1"), port: Some(4711) }));
    assert_eq!(read[0].host.as_deref(), Some("a.example:8443"));
    assert_eq!(read[1].client, Some(Node::Obfuscated("_x-1.y".into())));
    assert_eq!(read[1].by, Some(Node::Unknown));
    assert_eq!(read[2].host.as_deref(), Some("q\"\\,"));
    let mut out = String::new();
    for (at, element) in read.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        element.write(&mut out);
    }
    assert_eq!(
        out,
        "for=\"[2001:db8::1]:4711\";by=192.0.2.1;host=\"a.example:8443\";proto=https, \
            for=_x-1.y;by=unknown, host=\"q\\\"\\\\,\""
    );
    let again: Vec<_> = elements(out.as_bytes()).map(Result::unwrap).collect();
    assert_eq!(again, read);
}

#[test]
fn syntax_errors() {
    for (text, fault) in [
        ("for", ForwardedFault::Syntax),
        ("for=", ForwardedFault::Syntax),
        ("=a", ForwardedFault::Syntax),
        ("for =a", ForwardedFault::Syntax),
        ("for= a", ForwardedFault::Syntax),
        ("for=192.0.2.1:80", ForwardedFault::Syntax),
        ("for=[::1]", ForwardedFault::Syntax),
        ("for=\"192.0.2.1", ForwardedFault::Syntax),
        ("host=\"a\\", ForwardedFault::Syntax),
        ("host=\"a\"b", ForwardedFault::Syntax),
        ("host=\"a\u{1}\"", ForwardedFault::Syntax),
        ("for=192.0.2.1;FOR=192.0.2.1", ForwardedFault::Repeated),
        ("proto=http;proto=https", ForwardedFault::Repeated),
        ("for=example.org", ForwardedFault::Node),
        ("for=_", ForwardedFault::Node),
        ("for=\"\"", ForwardedFault::Node),
        ("for=\"::1\"", ForwardedFault::Node),
        ("for=\"[::1\"", ForwardedFault::Node),
        ("for=\"[::1]x\"", ForwardedFault::Node),
        ("for=\"192.0.2.1:\"", ForwardedFault::Node),
        ("for=\"192.0.2.1:123456\"", ForwardedFault::Node),
        ("for=\"192.0.2.1:+80\"", ForwardedFault::Node),
    ] {
        let mut read = elements(text.as_bytes());
        assert_eq!(read.next(), Some(Err(fault)), "{text}");
        assert_eq!(read.next(), None, "{text}");
        assert!(fault.name().starts_with("forwarded_") && !fault.to_string().is_empty());
    }
    assert_eq!(elements(b" , ,").next(), None);
}
