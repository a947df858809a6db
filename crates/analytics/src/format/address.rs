//! Client addresses in logs: a fast path for IPv4, IPv6 with brackets, zones and ports, and clients without
//! an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses an address. `Ok(None)` for clients without one: Unix sockets and host names.
///
/// # Errors
/// The offset at which the text stops being an address.
pub(super) fn parse(text: &[u8]) -> Result<Option<IpAddr>, usize> {
    if let Some(address) = ipv4(text) {
        return Ok(Some(IpAddr::V4(address)));
    }
    let bare = strip_port(text);
    if let Some(address) = ipv4(bare) {
        return Ok(Some(IpAddr::V4(address)));
    }
    if let Some(address) = ipv6(bare) {
        return Ok(Some(IpAddr::V6(address).to_canonical()));
    }
    // A name with a port is a server, as in Apache's `%v:%p` at the start of a line: no log writes a client
    // so.
    if text.starts_with(b"unix") || is_name(text) {
        return Ok(None);
    }
    let wrong = |byte: &u8| !(byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':' | b'[' | b']'));
    Err(text.iter().position(wrong).unwrap_or(0))
}

/// The first address of an `X-Forwarded-For` header: the client, according to the sender of the header.
pub(super) fn forwarded(list: &[u8]) -> Option<IpAddr> {
    list.split(|&byte| byte == b',').find_map(|one| parse(one.trim_ascii()).ok().flatten())
}

/// Parses dotted decimal: four numbers of at most 255 and nothing else.
fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    if !(7..=15).contains(&text.len()) {
        return None;
    }
    let (mut octets, mut dots, mut value, mut digits) = ([0u8; 4], 0, 0u32, 0);
    for &byte in text {
        match byte {
            b'0'..=b'9' if digits < 3 => {
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && dots < 3 => {
                octets[dots] = u8::try_from(value).ok()?;
                (dots, value, digits) = (dots + 1, 0, 0);
            }
            _ => return None,
        }
    }
    if dots != 3 || digits == 0 {
        return None;
    }
    octets[3] = u8::try_from(value).ok()?;
    Some(octets.into())
}

/// Parses IPv6. Brackets and the zone (RFC 4007 §11) are dropped: a zone is meaningless outside its host.
fn ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    let bare = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or(text);
    let end = memchr::memchr(b'%', bare).unwrap_or(bare.len());
    if end > 45 {
        return None;
    }
    std::str::from_utf8(&bare[..end]).ok()?.parse().ok()
}

/// Strips the port of `1.2.3.4:5` and `[::1]:5`. A bare IPv6 address with a port is ambiguous and stays.
fn strip_port(text: &[u8]) -> &[u8] {
    let Some(colon) = memchr::memrchr(b':', text) else { return text };
    let (before, port) = (&text[..colon], &text[colon + 1..]);
    let bare = before.ends_with(b"]") || memchr::memchr(b':', before).is_none();
    if bare && port.iter().all(u8::is_ascii_digit) { before } else { text }
}

/// Returns `true` for host names, which Apache writes with `HostnameLookups`, and for Offramp's hashes of 16
/// digits.
fn is_name(text: &[u8]) -> bool {
    text.len() <= 255
        && text.first().is_some_and(u8::is_ascii_alphanumeric)
        && text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        && (text.iter().any(u8::is_ascii_alphabetic)
            || text.len() == 16 && text.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::{forwarded, parse};

    #[test]
    fn reads_addresses_of_every_kind() {
        for (text, address) in [
            ("192.0.2.7", "192.0.2.7"),
            ("0.0.0.0", "0.0.0.0"),
            ("255.255.255.255", "255.255.255.255"),
            ("192.0.2.7:4711", "192.0.2.7"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("[::ffff:192.0.2.7]:4711", "192.0.2.7"),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(Some(address.parse().unwrap())), "{text}");
        }
    }

    #[test]
    fn knows_clients_without_an_address() {
        assert_eq!(parse(b"unix:"), Ok(None));
        assert_eq!(parse(b"0123456789012345"), Ok(None), "a hash");
        assert_eq!(parse(b"crawl-66-249.googlebot.com"), Ok(None));
    }

    #[test]
    fn refuses_what_is_no_address() {
        for (text, at) in [
            (&b"1.2.3"[..], 0),
            (b"1.2.3.256", 0),
            (b"1.2.3.4 ", 7),
            (b"\xff\xfe", 0),
            (b"1..2.3", 0),
            (b"example.org:443", 1),
        ] {
            assert_eq!(parse(text), Err(at), "{text:?}");
        }
    }

    #[test]
    fn takes_the_first_that_was_forwarded() {
        assert_eq!(forwarded(b"unknown, 203.0.113.9, 10.0.0.1"), "203.0.113.9".parse().ok());
        assert_eq!(forwarded(b"-"), None);
    }
}
