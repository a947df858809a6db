//! Classification of texts in the place of a host: names, addresses, and lists of addresses from
//! `X-Forwarded-For`.

use super::address;

/// The kind of a text that may be a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostText {
    /// A name, with or without a port.
    Name,
    /// One address, which a host and `X-Forwarded-For` may both be.
    Address,
    /// Addresses that only `X-Forwarded-For` has: several, IPv6 without brackets, `unknown`.
    Forwarded,
    /// A text of any other kind.
    Other,
}

impl HostText {
    /// The kind of `text`, which must not be empty.
    pub(super) fn of(text: &[u8]) -> Self {
        if text == b"unknown" {
            return Self::Forwarded;
        }
        if memchr::memchr(b',', text).is_some() {
            let mut parts = text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            let is_list = parts.any(|part| matches!(Self::of(part), Self::Address | Self::Forwarded));
            return if is_list { Self::Forwarded } else { Self::Other };
        }
        match address::parse(text) {
            Ok(Some(found)) if found.is_ipv6() && text[0] != b'[' => Self::Forwarded,
            Ok(Some(_)) => Self::Address,
            _ if is_name(text) => Self::Name,
            _ => Self::Other,
        }
    }
}

/// The last label of a name is not all digits, so that numbers in a log do not count as names (RFC 3696 §2).
fn is_name(text: &[u8]) -> bool {
    let name = match memchr::memrchr(b':', text) {
        Some(colon) if text[colon + 1..].iter().all(u8::is_ascii_digit) => &text[..colon],
        _ => text,
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    // nginx and Apache escape non-ASCII bytes with a backslash.
    let sound = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'*' | b'\\') || !byte.is_ascii()
    };
    let last = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    !name.starts_with(b".") && name.iter().all(sound) && last.iter().any(|byte| !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::HostText::{self, Address, Forwarded, Name, Other};

    #[test]
    fn hosts_differ_from_other_last_fields() {
        for (text, kind) in [
            ("a.test", Name),
            ("A.Test:8443", Name),
            ("a.test.", Name),
            ("localhost", Name),
            ("_", Name),
            ("_default_:443", Name),
            (r"b\xC3\xBCcher.test", Name),
            ("1e100.net", Name),
            ("192.0.2.7", Address),
            ("192.0.2.7:8443", Address),
            ("[2001:db8::1]", Address),
            ("[2001:db8::1]:8443", Address),
            ("2001:db8::1", Forwarded),
            ("192.0.2.7, 10.0.0.1", Forwarded),
            ("192.0.2.7,10.0.0.1", Forwarded),
            ("2001:db8::1, 10.0.0.1", Forwarded),
            ("unknown, 10.0.0.1", Forwarded),
            ("unknown", Forwarded),
            ("0.003", Other),
            ("1.25", Other),
            ("443", Other),
            ("rt=0.003", Other),
            ("gzip, br", Other),
            ("two words", Other),
            (".a", Other),
            (":80", Other),
        ] {
            assert_eq!(HostText::of(text.as_bytes()), kind, "{text}");
        }
    }
}
