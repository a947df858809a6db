//! The `server_name` extension (RFC 6066 §3).
//!
//! Host names are validated by the rules of `rustls-pki-types`, so that rustls and this crate see the same
//! name: letters, digits, hyphens and underscores in labels of 1 to 63 bytes, 253 bytes in all, no hyphen at
//! either end of a label, and a last label that is not a number. Nothing is decoded or mapped:
//! internationalised names come as A-labels.

use std::net::IpAddr;
use std::str;

use super::parse::{ByteCursor, MessageSpan};
use crate::HelloFault;

const FIELD: &str = "server_name";
const HOST_NAME: u8 = 0;
/// Longest host name, in bytes.
const MAX_NAME: usize = 253;
/// Longest label, in bytes (RFC 1035 §2.3.4).
const MAX_LABEL: usize = 63;

/// Parsed content of the extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SniContent {
    Absent,
    /// A name that is lower case already: borrowed from the message.
    AsSent(MessageSpan),
    /// Copy of a name that had capital letters.
    Lowered(Box<str>),
    IpAddress,
    Invalid,
}

/// Reads the body of a `server_name` extension.
pub(super) fn read(mut body: ByteCursor<'_>) -> Result<SniContent, HelloFault> {
    let mut list = body.vec16(FIELD)?;
    body.end(FIELD)?;
    let mut found = None;
    while list.left() > 0 {
        // Other name types are undefined, and so is the length of their entries.
        if list.u8(FIELD)? != HOST_NAME {
            break;
        }
        let name = list.vec16(FIELD)?;
        // "MUST NOT contain more than one name of the same name_type."
        if found.replace(classify(name)).is_some() {
            return Err(HelloFault::Malformed(FIELD));
        }
    }
    Ok(found.unwrap_or(SniContent::Invalid))
}

fn classify(name: ByteCursor<'_>) -> SniContent {
    if !is_host_name(name.bytes()) {
        let address = str::from_utf8(name.bytes()).ok().and_then(|text| text.parse::<IpAddr>().ok());
        return address.map_or(SniContent::Invalid, |_| SniContent::IpAddress);
    }
    let name = if name.bytes().ends_with(b".") { name.without_last() } else { name };
    if name.bytes().iter().any(u8::is_ascii_uppercase) {
        let lowered = name.bytes().iter().map(|byte| char::from(byte.to_ascii_lowercase()));
        SniContent::Lowered(lowered.collect::<String>().into_boxed_str())
    } else {
        SniContent::AsSent(name.span())
    }
}

/// Validates a host name, with or without a trailing dot.
fn is_host_name(name: &[u8]) -> bool {
    if name.len() > MAX_NAME {
        return false;
    }
    let name = name.strip_suffix(b".").unwrap_or(name);
    let mut last_is_number = true;
    for label in name.split(|&byte| byte == b'.') {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let ends = label.first() != Some(&b'-') && label.last() != Some(&b'-');
        if label.is_empty() || label.len() > MAX_LABEL || !ends || !label.iter().all(allowed) {
            return false;
        }
        last_is_number = label.iter().all(u8::is_ascii_digit);
    }
    !last_is_number
}

#[cfg(test)]
mod tests {
    use super::is_host_name;

    #[test]
    fn host_names() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(longest.len(), 253);
        for name in ["localhost", "a.example.org", "EXAMPLE.org.", "_srv.a-b.x1", "1.2.3.x", &longest, "x"] {
            assert!(is_host_name(name.as_bytes()), "{name}");
        }
        let (long_label, too_long) = ("a".repeat(64), format!("{longest}a"));
        for name in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a..",
            "-a.b",
            "a-.b",
            "a b",
            "a/b",
            "*.example.org",
            "10.0.0.1",
            "1",
            "a.1",
            "a.1.",
            "ä.org",
            "[::1]",
            "::1",
            "a\0b",
            &long_label,
            &too_long,
        ] {
            assert!(!is_host_name(name.as_bytes()), "{name}");
        }
    }
}
