//! The cookie that ties a client to a server.
//!
//! Its value is a hash of the server's name under a secret of the installation, so that outsiders cannot test
//! which address it stands for. A client that changes it merely selects another server. Cookies of older
//! versions have a hash under a public key; they are honoured and replaced for a limited time after the
//! secret was created, because their effect would reveal if a guessed address is that of a server.

use std::fmt;
use std::hash::Hasher as _;
use std::time::SystemTime;

use http::header::HeaderValue;
use offramp_http::head::{Fields, Known};
use siphasher::sip::SipHasher13;

/// Secret of the cookies of all backends.
#[derive(Clone, PartialEq, Eq)]
pub struct StickyKey {
    secret: [u8; Self::BYTES],
    /// End of the time during which cookies under the public key are honoured.
    known_until: SystemTime,
}

impl StickyKey {
    /// Size of a secret in bytes.
    pub const BYTES: usize = 16;

    /// Creates the key of this secret; cookies of older versions are honoured until `known_until`.
    #[must_use]
    pub fn new(secret: [u8; Self::BYTES], known_until: SystemTime) -> Self {
        Self { secret, known_until }
    }
}

impl fmt::Debug for StickyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StickyKey")
    }
}

/// The sticky cookie of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// Name of the cookie: a token (RFC 6265 §4.1.1).
    pub cookie: Box<str>,
    /// Secret of its values.
    pub key: StickyKey,
}

/// The server selected by a request's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tie {
    /// Index of the server in its backend.
    pub server: usize,
    /// Set for a cookie of an older version, which is to be replaced.
    pub outdated: bool,
}

impl Sticky {
    /// Finds the server of the request's cookie among servers called `names`.
    pub fn server<'n>(&self, fields: &Fields, names: impl IntoIterator<Item = &'n str>) -> Option<Tie> {
        let (wanted, outdated) = parse(cookie(fields, &self.cookie)?)?;
        if outdated && self.key.known_until <= SystemTime::now() {
            return None;
        }
        let tag = |name: &str| if outdated { known_tag(name) } else { self.tag(name) };
        let server = names.into_iter().position(|name| tag(name) == wanted)?;
        Some(Tie { server, outdated })
    }

    /// The `Set-Cookie` that ties to the server called `server`; `None` if the cookie's name is not valid in
    /// a header. `secure` is set if the client uses TLS.
    #[must_use]
    pub fn set_cookie(&self, server: &str, secure: bool) -> Option<HeaderValue> {
        let secure = if secure { "; Secure" } else { "" };
        let (name, mark, tag) = (&self.cookie, char::from(MARK), self.tag(server));
        let value = format!("{name}={mark}{tag:016x}; Path=/; HttpOnly; SameSite=Lax{secure}");
        HeaderValue::try_from(value).ok()
    }

    fn tag(&self, server: &str) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.key.secret);
        hasher.write(server.as_bytes());
        hasher.finish()
    }
}

/// Prefix of values under the secret; those of older versions are 16 digits alone.
const MARK: u8 = b's';

/// Value of the first cookie called `name` (RFC 6265 §4.2.1), without surrounding quotes.
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

/// Hash of a value, with a flag for an older version.
fn parse(value: &[u8]) -> Option<(u64, bool)> {
    let (digits, outdated) = match value.strip_prefix(&[MARK]) {
        Some(digits) => (digits, false),
        None => (value, true),
    };
    let text = std::str::from_utf8(digits).ok()?;
    if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some((u64::from_str_radix(text, 16).ok()?, outdated))
}

/// Hash of older versions.
fn known_tag(server: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x6f66_6672_616d_7021, 0x7374_6963_6b79_0001);
    hasher.write(server.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::{Duration, UNIX_EPOCH};

    fn sticky(secret: u8, known_until: SystemTime) -> Sticky {
        Sticky { cookie: "srv".into(), key: StickyKey::new([secret; StickyKey::BYTES], known_until) }
    }

    const NAMES: [&str; 3] = ["unix:/run/a.sock", "10.0.0.7:3000", "[::1]:80"];

    fn headers(cookies: &[&str]) -> Fields {
        cookies.iter().map(|value| ("cookie", value)).collect()
    }

    #[test]
    fn cookies_round_trip() {
        let sticky = sticky(7, UNIX_EPOCH);
        for (index, name) in NAMES.iter().enumerate() {
            let set = sticky.set_cookie(name, true).unwrap();
            let set = set.to_str().unwrap();
            assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"), "{set}");
            assert!(!set.contains(name));
            let pair = set.split(';').next().unwrap();
            let sent = headers(&["a=b; c", &format!("other=1; {pair}; last=2")]);
            assert_eq!(sticky.server(&sent, NAMES), Some(Tie { server: index, outdated: false }));
        }
        let plain = sticky.set_cookie(NAMES[0], false).unwrap();
        assert!(!plain.to_str().unwrap().contains("Secure"));
    }

    #[test]
    fn the_value_depends_on_the_secret_and_on_nothing_else() {
        let value = |secret| sticky(secret, UNIX_EPOCH).set_cookie(NAMES[1], true).unwrap();
        assert_eq!(value(7), value(7));
        assert_ne!(value(7), value(8));
        let sent = |secret| headers(&[value(secret).to_str().unwrap().split(';').next().unwrap()]);
        assert_eq!(sticky(7, UNIX_EPOCH).server(&sent(8), NAMES), None);
        assert!(!format!("{:?}", sticky(77, UNIX_EPOCH)).contains("77"));
    }

    #[test]
    fn a_cookie_of_an_older_version_counts_for_a_while() {
        assert_eq!(format!("{:016x}", known_tag("10.0.0.7:3000")), "ae014c8cca8f057c");
        let sent = headers(&["srv=ae014c8cca8f057c"]);
        let later = SystemTime::now() + Duration::from_secs(3600);
        assert_eq!(sticky(7, later).server(&sent, NAMES), Some(Tie { server: 1, outdated: true }));
        assert_eq!(sticky(7, UNIX_EPOCH).server(&sent, NAMES), None);
        // Not a value under the secret.
        assert_eq!(sticky(7, later).server(&headers(&["srv=sae014c8cca8f057c"]), NAMES), None);
    }

    #[test]
    fn invalid_values_are_ignored() {
        let sticky = sticky(7, UNIX_EPOCH);
        for value in [
            "",
            "srv",
            "srv=",
            "srv=+000000000000000",
            "srv=00",
            "xsrv=0000000000000000",
            "srv=0000000000000000",
            "srv=s",
            "srv=s0000000000000000",
            "srv=S0000000000000000",
            "srv=ss000000000000000",
            "srv=s000000000000000g",
            "srv=s\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert_eq!(sticky.server(&headers(&[value]), NAMES), None, "{value}");
        }
        assert_eq!(sticky.server(&Fields::new(), NAMES), None);
        assert_eq!(cookie(&headers(&["a=\"x y\"; b = 2"]), "a"), Some(&b"x y"[..]));
        assert_eq!(cookie(&headers(&["a=1; b = 2 "]), "b"), Some(&b"2"[..]));
    }
}
