//! Host and port as in Host, `:authority` and absolute targets (RFC 3986 §3.2).
//!
//! Stricter than the RFC, which permits nearly any bytes in a host: names of letters, digits, hyphens and
//! underscores, IPv4 in four decimal parts, IPv6 in brackets. Percent-encoding, user information, zones,
//! empty labels, and names that other software would parse as a number are rejected.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str;

/// Longest name, in bytes, without the final dot (RFC 1035 §2.3.4).
pub const MAX_NAME: usize = 253;

/// Longest label, in bytes (RFC 1035 §2.3.4).
const MAX_LABEL: usize = 63;

/// A host with an optional port, as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    /// Without the final dot; with the brackets of IPv6.
    host: &'a str,
    address: Option<IpAddr>,
    port: Option<u16>,
}

/// Reason for which an authority is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostFault {
    /// The host is empty.
    Empty,
    /// The name or one of its labels is too long.
    TooLong,
    /// A byte that no host contains, such as `@` and `%`.
    Byte,
    /// A label of the name is empty.
    EmptyLabel,
    /// The last label is a number, and the host is no IPv4 address.
    Number,
    /// The brackets contain no IPv6 address, or are not closed.
    Ipv6,
    /// The port is no plain number from 1 to 65535.
    Port,
}

impl<'a> Authority<'a> {
    /// Parses `host` or `host:port`.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &'a [u8]) -> Result<Self, HostFault> {
        if let [b'[', rest @ ..] = text {
            return Self::ipv6(text, rest);
        }
        let (name, port, number) = split(text)?;
        let host = str::from_utf8(name).map_err(|_| HostFault::Byte)?;
        let address = if number {
            Some(IpAddr::V4(host.parse::<Ipv4Addr>().map_err(|_| HostFault::Number)?))
        } else {
            None
        };
        Ok(Self { host, address, port })
    }

    /// Returns true if [`parse`](Self::parse) succeeds; cheaper for names.
    #[inline]
    pub(crate) fn is_valid(text: &'a [u8]) -> bool {
        let plain = !text.starts_with(b"[") && matches!(split(text), Ok((_, _, false)));
        plain || Self::parse(text).is_ok()
    }

    fn ipv6(text: &'a [u8], inside: &'a [u8]) -> Result<Self, HostFault> {
        let end = inside.iter().position(|&byte| byte == b']').ok_or(HostFault::Ipv6)?;
        let address = str::from_utf8(&inside[..end]).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
        let address = address.ok_or(HostFault::Ipv6)?;
        let host = str::from_utf8(&text[..end + 2]).map_err(|_| HostFault::Ipv6)?;
        Ok(Self { host, address: Some(IpAddr::V6(address)), port: port(&inside[end + 1..])? })
    }

    /// The host as received, without a final dot, with the brackets of IPv6.
    #[must_use]
    pub fn host(&self) -> &'a str {
        self.host
    }

    /// The port, if it is present.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The address, if the host is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The host as in routes and logs: lower case, no final dot, no port, IPv6 in its shortest form and in
    /// brackets. Allocates only if the received form differs.
    #[must_use]
    pub fn normal(&self) -> Cow<'a, str> {
        match self.address {
            Some(IpAddr::V6(address)) => {
                let text = format!("[{address}]");
                if text == self.host { Cow::Borrowed(self.host) } else { Cow::Owned(text) }
            }
            _ if self.host.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Cow::Owned(self.host.to_ascii_lowercase())
            }
            _ => Cow::Borrowed(self.host),
        }
    }

    /// Returns true if host and port are equal, with `default` as the port of an authority without one.
    #[must_use]
    pub fn same(&self, other: &Authority<'_>, default: u16) -> bool {
        let hosts = match (self.address, other.address) {
            (None, None) => self.host.eq_ignore_ascii_case(other.host),
            (one, two) => one == two,
        };
        hosts && self.port.unwrap_or(default) == other.port.unwrap_or(default)
    }
}

/// Splits into the name without its final dot, the port, and a flag for names that parse as a number.
#[inline]
fn split(text: &[u8]) -> Result<(&[u8], Option<u16>, bool), HostFault> {
    let end = text.iter().position(|&byte| byte == b':').unwrap_or(text.len());
    let port = port(&text[end..])?;
    let name = text[..end].strip_suffix(b".").unwrap_or(&text[..end]);
    Ok((name, port, check_name(name)?))
}

/// Parses `:port`, or nothing; a port may be empty (RFC 3986 §3.2.3).
fn port(text: &[u8]) -> Result<Option<u16>, HostFault> {
    let digits = match text {
        [] | [b':'] => return Ok(None),
        [b':', digits @ ..] => digits,
        _ => return Err(HostFault::Byte),
    };
    let plain =
        matches!(digits, [b'1'..=b'9', rest @ ..] if rest.len() < 5 && rest.iter().all(u8::is_ascii_digit));
    if !plain {
        return Err(HostFault::Port);
    }
    let number = digits.iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'));
    u16::try_from(number).map(Some).map_err(|_| HostFault::Port)
}

/// Validates a name; returns true if its last label is one that software parses as a number: of digits alone,
/// or `0x…`.
fn check_name(name: &[u8]) -> Result<bool, HostFault> {
    match name {
        [] | b"." => return Err(HostFault::Empty),
        _ if name.len() > MAX_NAME => return Err(HostFault::TooLong),
        _ => {}
    }
    let mut label = 0;
    for (at, &byte) in name.iter().enumerate() {
        if byte == b'.' {
            if at == label {
                return Err(HostFault::EmptyLabel);
            }
            if at - label > MAX_LABEL {
                return Err(HostFault::TooLong);
            }
            label = at + 1;
        } else if !NAME[usize::from(byte)] {
            return Err(HostFault::Byte);
        }
    }
    match &name[label..] {
        [] => Err(HostFault::EmptyLabel),
        last if last.len() > MAX_LABEL => Err(HostFault::TooLong),
        [b'0', b'x' | b'X', rest @ ..] if rest.iter().all(u8::is_ascii_hexdigit) => Err(HostFault::Number),
        [b'0'..=b'9', rest @ ..] => Ok(rest.iter().all(u8::is_ascii_digit)),
        _ => Ok(false),
    }
}

/// Bytes permitted in labels.
static NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let value = byte as u8;
        table[byte] = value.is_ascii_alphanumeric() || matches!(value, b'-' | b'_');
        byte += 1;
    }
    table
};

impl HostFault {
    /// Stable word for events and counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "host_empty",
            Self::TooLong => "host_too_long",
            Self::Byte => "host_byte",
            Self::EmptyLabel => "host_empty_label",
            Self::Number => "host_number",
            Self::Ipv6 => "host_ipv6",
            Self::Port => "host_port",
        }
    }
}

impl fmt::Display for HostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the host is empty",
            Self::TooLong => "the host is too long",
            Self::Byte => "the host has an invalid byte",
            Self::EmptyLabel => "the host has an empty label",
            Self::Number => "the host ends in a number and is no IPv4 address",
            Self::Ipv6 => "the brackets hold no IPv6 address",
            Self::Port => "the port is no number from 1 to 65535",
        })
    }
}

impl std::error::Error for HostFault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str) -> Result<(String, Option<u16>), HostFault> {
        Authority::parse(text.as_bytes()).map(|read| (read.normal().into_owned(), read.port()))
    }

    #[test]
    fn hosts_are_normalised() {
        for (text, host, port) in [
            ("example.org", "example.org", None),
            ("Example.ORG.", "example.org", None),
            ("example.org:8443", "example.org", Some(8443)),
            ("example.org.:1", "example.org", Some(1)),
            ("my_app-1", "my_app-1", None),
            ("127.0.0.1:65535", "127.0.0.1", Some(65535)),
            ("[::1]", "[::1]", None),
            ("a:", "a", None),
            ("a.:", "a", None),
            ("127.0.0.1:", "127.0.0.1", None),
            ("[::1]:", "[::1]", None),
            ("[2001:DB8:0:0::1]:443", "[2001:db8::1]", Some(443)),
            ("[::ffff:1.2.3.4]", "[::ffff:1.2.3.4]", None),
            ("1and1.com", "1and1.com", None),
            ("0xyz", "0xyz", None),
        ] {
            assert_eq!(normal(text), Ok((host.to_owned(), port)), "{text}");
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        let long_label = "a".repeat(64);
        let long_name = format!("{}.{}", "a.".repeat(126), "bc");
        for (text, fault) in [
            ("", HostFault::Empty),
            (".", HostFault::Empty),
            (":80", HostFault::Empty),
            ("a..b", HostFault::EmptyLabel),
            (".a", HostFault::EmptyLabel),
            ("a..", HostFault::EmptyLabel),
            ("user@example.org", HostFault::Byte),
            ("exa mple", HostFault::Byte),
            ("a%2eb", HostFault::Byte),
            ("*.example.org", HostFault::Byte),
            ("a/b", HostFault::Byte),
            ("a,b", HostFault::Byte),
            ("bücher.example", HostFault::Byte),
            ("a\0b", HostFault::Byte),
            ("127.1", HostFault::Number),
            ("1.2.3.04", HostFault::Number),
            ("1.2.3.256", HostFault::Number),
            ("2130706433", HostFault::Number),
            ("0x7f000001", HostFault::Number),
            ("1.0x2", HostFault::Number),
            ("[::1", HostFault::Ipv6),
            ("[::1%25eth0]", HostFault::Ipv6),
            ("[v1.a]", HostFault::Ipv6),
            ("[127.0.0.1]", HostFault::Ipv6),
            ("[]", HostFault::Ipv6),
            ("[::1]a", HostFault::Byte),
            (":", HostFault::Empty),
            ("a::", HostFault::Port),
            ("[::1]::", HostFault::Port),
            ("a:0", HostFault::Port),
            ("a:080", HostFault::Port),
            ("a:+80", HostFault::Port),
            ("a:65536", HostFault::Port),
            ("a:80:80", HostFault::Port),
            ("a:8 0", HostFault::Port),
            ("::1", HostFault::Port),
            (&long_label, HostFault::TooLong),
            (&long_name, HostFault::TooLong),
        ] {
            assert_eq!(normal(text), Err(fault), "{text}");
            assert!(fault.name().starts_with("host_") && !fault.to_string().is_empty());
        }
        assert!(Authority::parse(b"\xff").is_err());
    }

    #[test]
    fn a_missing_port_equals_the_default() {
        let same = |one: &str, other: &str| {
            let (one, other) = (Authority::parse(one.as_bytes()), Authority::parse(other.as_bytes()));
            one.unwrap().same(&other.unwrap(), 443)
        };
        assert!(same("a.example", "A.example.:443"));
        assert!(same("[::1]", "[0::1]:443"));
        assert!(!same("a.example", "a.example:80"));
        assert!(!same("a.example", "b.example"));
        assert!(!same("127.0.0.1", "[::1]"));
    }
}
