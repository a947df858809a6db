//! The cookie that ties a client to a server.
//!
//! Its value is a hash of the server's name under a key of the program's: the same after a restart and
//! on every machine of a fleet, and it does not show the address. It is no secret and no signature: a
//! client that changes it merely chooses another server.

use std::hash::Hasher as _;

use http::header::HeaderValue;
use offramp_http::head::{Fields, Known};
use siphasher::sip::SipHasher13;

/// The sticky cookie of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// The cookie's name: a token (RFC 6265 §4.1.1).
    pub cookie: Box<str>,
}

impl Sticky {
    /// The index of the server that the request's cookie names, of servers called `names`.
    pub fn server<'n>(&self, fields: &Fields, names: impl IntoIterator<Item = &'n str>) -> Option<usize> {
        let value = cookie(fields, &self.cookie)?;
        let wanted = parse(value)?;
        names.into_iter().position(|name| tag(name) == wanted)
    }

    /// The `Set-Cookie` that ties to the server called `server`; `None` where the cookie's name cannot
    /// be put into a header. `secure`: the client came over TLS.
    #[must_use]
    pub fn set_cookie(&self, server: &str, secure: bool) -> Option<HeaderValue> {
        let secure = if secure { "; Secure" } else { "" };
        let value = format!("{}={:016x}; Path=/; HttpOnly; SameSite=Lax{secure}", self.cookie, tag(server));
        HeaderValue::try_from(value).ok()
    }
}

/// The value of the first cookie called `name` (RFC 6265 §4.2.1), without quotes around it.
#[must_use]
pub fn cookie<'h>(fields: &'h Fields, name: &str) -> Option<&'h [u8]> {
    for line in fields.all(Known::Cookie) {
        for pair in line.split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
            if pair[..at].trim_ascii() == name.as_bytes() {
                let value = pair[at + 1..].trim_ascii();
                let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
                return Some(bare.unwrap_or(value));
            }
        }
    }
    None
}

fn parse(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

fn tag(server: &str) -> u64 {
    // Fixed for ever: cookies in browsers depend on it.
    let mut hasher = SipHasher13::new_with_keys(0x6f66_6672_616d_7021, 0x7374_6963_6b79_0001);
    hasher.write(server.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["unix:/run/a.sock", "10.0.0.7:3000", "[::1]:80"];

    fn headers(cookies: &[&str]) -> Fields {
        cookies.iter().map(|value| ("cookie", value)).collect()
    }

    #[test]
    fn what_is_set_leads_back() {
        let sticky = Sticky { cookie: "srv".into() };
        for (index, name) in NAMES.iter().enumerate() {
            let set = sticky.set_cookie(name, true).unwrap();
            let set = set.to_str().unwrap();
            assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"), "{set}");
            assert!(!set.contains(name));
            let pair = set.split(';').next().unwrap();
            let sent = headers(&["a=b; c", &format!("other=1; {pair}; last=2")]);
            assert_eq!(sticky.server(&sent, NAMES), Some(index));
        }
        let plain = sticky.set_cookie(NAMES[0], false).unwrap();
        assert!(!plain.to_str().unwrap().contains("Secure"));
    }

    #[test]
    fn the_value_never_changes() {
        assert_eq!(format!("{:016x}", tag("10.0.0.7:3000")), "ae014c8cca8f057c");
    }

    #[test]
    fn nonsense_ties_to_nothing() {
        let sticky = Sticky { cookie: "srv".into() };
        for value in [
            "",
            "srv",
            "srv=",
            "srv=+000000000000000",
            "srv=00",
            "xsrv=0000000000000000",
            "srv=0000000000000000",
        ] {
            assert_eq!(sticky.server(&headers(&[value]), NAMES), None, "{value}");
        }
        assert_eq!(sticky.server(&Fields::new(), NAMES), None);
        assert_eq!(cookie(&headers(&["a=\"x y\"; b = 2"]), "a"), Some(&b"x y"[..]));
        assert_eq!(cookie(&headers(&["a=1; b = 2 "]), "b"), Some(&b"2"[..]));
    }
}
