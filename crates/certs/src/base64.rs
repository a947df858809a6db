//! Base64 with padding (RFC 4648 §4), as hashes and certificates in text have it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// With padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// `None` for what is not base64 with its padding.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_rfc_has_it() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        for bad in ["Zg", "Zg=", "Z===", "Zg==Zg==", "Zm9-", "Zm9v\n"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
