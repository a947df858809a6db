//! Connection-specific fields, and their removal by a proxy (RFC 9110 §7.6.1, RFC 9113 §8.2.2).

use http::Method;

use crate::head::{Fields, Known, KnownSet};

/// Fields of a connection, and others that a server must not get from a client.
const OF_CONNECTION: KnownSet = KnownSet::of(&[
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::TransferEncoding,
    Known::Upgrade,
    Known::Te,
    Known::Proxy,
    Known::Http2Settings,
]);

/// Removes the connection-specific fields of a request. `TE: trailers` stays, because servers that send
/// trailers (gRPC) expect it. Returns the value of `Upgrade` for the server: the requested protocols that are
/// among `protocols`, in the client's order.
pub fn clean_request(fields: &mut Fields, protocols: &[Box<str>]) -> Option<Vec<u8>> {
    if !fields.may_have(OF_CONNECTION) {
        return None;
    }
    let upgrade = offered(fields, protocols);
    let trailers = fields.all(Known::Te).any(|value| names(value).any(|name| name == b"trailers"));
    clean(fields, OF_CONNECTION);
    if trailers {
        fields.append_known(Known::Te, b"trailers");
    }
    upgrade
}

/// Value of `Max-Forwards`, for the methods to which it applies (RFC 9110 §7.6.2).
#[must_use]
pub fn forwards_left(method: &Method, fields: &Fields) -> Option<u64> {
    if !matches!(*method, Method::OPTIONS | Method::TRACE) {
        return None;
    }
    let digits = fields.get(Known::MaxForwards)?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Saturates at the maximum.
    Some(std::str::from_utf8(digits).ok()?.parse().unwrap_or(u64::MAX))
}

/// Decrements `Max-Forwards` of a forwarded request.
pub fn count_forward(method: &Method, fields: &mut Fields) {
    if let Some(left) = forwards_left(method, fields) {
        fields.set_known(Known::MaxForwards, left.saturating_sub(1).to_string().as_bytes());
    }
}

/// Removes the connection-specific fields of a response.
pub fn clean_response(fields: &mut Fields) {
    clean(fields, RESPONSE);
}

/// Fields of a connection in a response, where `Proxy` and `HTTP2-Settings` have no meaning.
const RESPONSE: KnownSet = KnownSet::of(&[
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::TransferEncoding,
    Known::Upgrade,
    Known::Te,
]);

/// Removes the fields `names_out`, and those listed by `Connection` unless they frame or route the message.
fn clean(fields: &mut Fields, names_out: KnownSet) {
    if !fields.may_have(names_out) {
        return;
    }
    // Fast path: usually there are no other options.
    if !fields.all(Known::Connection).all(is_plain_option) {
        drop_named(fields);
    }
    fields.remove_all(names_out);
}

/// Removes the fields listed by `Connection`.
#[cold]
fn drop_named(fields: &mut Fields) {
    let options = fields.all(Known::Connection).flat_map(names).filter(|name| !is_plain_option(name));
    let named: Vec<Vec<u8>> = options.map(<[u8]>::to_ascii_lowercase).collect();
    if !named.is_empty() {
        fields.retain(|known, name| {
            matches!(known, Known::Host | Known::ContentLength) || !named.iter().any(|option| option == name)
        });
    }
}

/// Matches `close` and `keep-alive`, the usual options, which name no field to be removed.
fn is_plain_option(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"close") || name.eq_ignore_ascii_case(b"keep-alive")
}

/// Elements of a list, without parameters.
fn names(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(|part| part.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii())
        .filter(|name| !name.is_empty())
}

/// Protocols of a list (RFC 9110 §7.8).
fn protocols_in(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|protocol| !protocol.is_empty())
}

/// Value of `Upgrade` for the server: the requested protocols among `protocols`.
fn offered(fields: &Fields, protocols: &[Box<str>]) -> Option<Vec<u8>> {
    let passes = |asked: &&[u8]| protocols.iter().any(|known| asked.eq_ignore_ascii_case(known.as_bytes()));
    let asked = fields.all(Known::Upgrade).flat_map(protocols_in).filter(passes);
    asked.fold(None, |list: Option<Vec<u8>>, protocol| {
        Some(match list {
            None => protocol.to_vec(),
            Some(list) => [&list[..], b", ", protocol].concat(),
        })
    })
}

/// Returns true if a 101 response names protocols, and only ones of `offered`, the `Upgrade` of its request
/// (RFC 9110 §15.2.2).
#[must_use]
pub fn agrees(response: &Fields, offered: &[u8]) -> bool {
    let mut agreed = response.all(Known::Upgrade).flat_map(protocols_in).peekable();
    let was_offered = |protocol: &[u8]| protocols_in(offered).any(|one| one.eq_ignore_ascii_case(protocol));
    agreed.peek().is_some() && agreed.all(was_offered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(fields: &[(&str, &str)], protocols: &[&str]) -> (Vec<String>, Option<Vec<u8>>) {
        let mut fields: Fields = fields.iter().copied().collect();
        let protocols: Vec<Box<str>> = protocols.iter().map(|protocol| (*protocol).into()).collect();
        let upgrade = clean_request(&mut fields, &protocols);
        let mut names: Vec<_> =
            fields.iter().map(|(name, _)| String::from_utf8(name.to_vec()).unwrap()).collect();
        names.sort();
        (names, upgrade)
    }

    #[test]
    fn fields_of_the_connection_are_removed() {
        let headers = [
            ("host", "a.test"),
            ("connection", "close, X-Private, Host"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip"),
            ("proxy", "http://evil"),
            ("accept", "*/*"),
        ];
        assert_eq!(left(&headers, &[]), (vec!["accept".to_owned(), "host".to_owned()], None));
    }

    #[test]
    fn te_trailers_is_kept() {
        let mut fields: Fields = [("te", "gzip;q=0.5, trailers"), ("connection", "te")].into_iter().collect();
        clean_request(&mut fields, &[]);
        assert_eq!(fields.iter().collect::<Vec<_>>(), [(&b"te"[..], &b"trailers"[..])]);
    }

    #[test]
    fn permitted_protocols_are_offered_to_the_server() {
        let both = &["websocket", "foo/2"][..];
        for (asked, passed, offered) in [
            (&["websocket"][..], &["websocket"][..], Some("websocket")),
            (&["WebSocket"], &["websocket"], Some("WebSocket")),
            (&["websocket"], &[], None),
            (&["h2c"], &["websocket"], None),
            (&["h2c, websocket"], &["websocket"], Some("websocket")),
            (&["h2c", "foo/2 ,, websocket"], both, Some("foo/2, websocket")),
            (&["foo"], both, None),
            (&["foo/1, Foo/2"], both, Some("Foo/2")),
            (&["websocket/13"], both, None),
            (&[""], both, None),
        ] {
            let asked: Vec<_> = asked.iter().map(|value| ("upgrade", *value)).collect();
            let headers = [&[("connection", "Upgrade")][..], &asked].concat();
            let (names, upgrade) = left(&headers, passed);
            assert!(names.is_empty(), "{names:?}");
            assert_eq!(upgrade.as_deref(), offered.map(str::as_bytes), "{asked:?} of {passed:?}");
        }
    }

    #[test]
    fn a_server_may_agree_to_offered_protocols_only() {
        for (agreed, offered, agrees) in [
            (&["websocket"][..], "websocket", true),
            (&["WEBSOCKET"], "websocket", true),
            (&["b"], "a, b", true),
            (&["a, b"], "a, b", true),
            (&["a", "b"], "a,b", true),
            (&[], "websocket", false),
            (&[""], "websocket", false),
            (&["h2c"], "websocket", false),
            (&["websocket, h2c"], "websocket", false),
            (&["websocket", "h2c"], "websocket", false),
            (&["websocket"], "", false),
        ] {
            let response: Fields = agreed.iter().map(|value| ("upgrade", *value)).collect();
            assert_eq!(super::agrees(&response, offered.as_bytes()), agrees, "{agreed:?} of {offered}");
        }
    }

    #[test]
    fn forwards_are_counted_down_for_two_methods() {
        let after = |method: Method, value: &'static str| {
            let mut fields: Fields = [("max-forwards", value)].into_iter().collect();
            let left = forwards_left(&method, &fields);
            count_forward(&method, &mut fields);
            let said = fields.get(Known::MaxForwards).unwrap().to_vec();
            (left, String::from_utf8(said).unwrap())
        };
        for method in [Method::OPTIONS, Method::TRACE] {
            assert_eq!(after(method.clone(), "10"), (Some(10), "9".to_owned()));
            assert_eq!(after(method.clone(), "0"), (Some(0), "0".to_owned()));
            assert_eq!(after(method.clone(), "99999999999999999999").0, Some(u64::MAX));
            for none in ["", "-1", "+1", "1 ", "x", "1,2"] {
                assert_eq!(after(method.clone(), none), (None, none.to_owned()));
            }
        }
        assert_eq!(after(Method::GET, "10"), (None, "10".to_owned()));
        assert_eq!(forwards_left(&Method::OPTIONS, &Fields::new()), None);
    }

    #[test]
    fn every_connection_field_is_read() {
        let all = [("connection", "x-a"), ("connection", "x-b"), ("x-a", "1"), ("x-b", "2")];
        let mut fields: Fields = all.into_iter().collect();
        clean_response(&mut fields);
        assert!(fields.is_empty(), "{fields:?}");
    }
}
