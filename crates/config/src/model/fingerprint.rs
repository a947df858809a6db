//! Fingerprints of TLS clients that routes refuse.

use std::fmt;
use std::str::FromStr;

use crate::error::{Problem, shown};

/// A JA4 fingerprint, or a prefix of one and a `*`.
///
/// Each character must be possible at its position in a fingerprint of TLS over TCP, so that a pattern
/// without possible matches is a mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ja4Pattern(String);

impl Ja4Pattern {
    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Ja4Pattern {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong =
            |help: &str| Err(Problem::new(format!("`{}` is not a JA4 fingerprint", shown(text))).help(help));
        let (begin, is_whole) = match text.strip_suffix('*') {
            Some("") => {
                return wrong("`*` alone would refuse every client: write what fingerprints begin with");
            }
            Some(begin) => (begin, false),
            None => (text, true),
        };
        if begin.starts_with(['q', 'd']) {
            return wrong("fingerprints of TLS over TCP begin with `t`: `q` is QUIC and `d` is DTLS");
        }
        let fits = begin.len() <= LENGTH && begin.bytes().enumerate().all(|(at, byte)| can_stand(at, byte));
        if !fits || is_whole && begin.len() < LENGTH {
            return wrong(
                "write one such as \"t13d1516h2_8daaf6152771_e5627efa2ab1\", or its beginning and `*`",
            );
        }
        Ok(Ja4Pattern(text.to_owned()))
    }
}

impl fmt::Display for Ja4Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The length of a fingerprint.
const LENGTH: usize = 36;

/// Returns `true` if a fingerprint can have this character at this position.
fn can_stand(at: usize, byte: u8) -> bool {
    match at {
        0 => byte == b't',
        1 => matches!(byte, b'0' | b'1' | b's' | b'd'),
        2 => byte.is_ascii_digit(),
        3 => matches!(byte, b'd' | b'i'),
        4..=7 => byte.is_ascii_digit(),
        8 | 9 => byte.is_ascii_alphanumeric(),
        10 | 23 => byte == b'_',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_ones_and_beginnings() {
        let whole = "t13d1516h2_8daaf6152771_e5627efa2ab1";
        for end in 1..=LENGTH {
            let begin = format!("{}*", &whole[..end]);
            assert_eq!(begin.parse::<Ja4Pattern>().unwrap().as_str(), begin);
            assert_eq!(whole[..end].parse::<Ja4Pattern>().is_ok(), end == LENGTH, "{end}");
        }
        for text in ["t12i280700_*", "ts3i0000002*", "t00i0000Zz_000000000000_000000000000"] {
            assert_eq!(text.parse::<Ja4Pattern>().is_ok(), !text.contains("002*"), "{text}");
        }
    }

    #[test]
    fn patterns_without_matches_are_mistakes() {
        let wrong = [
            "",
            "*",
            "t*3*",
            "T13d*",
            "q13d1516h3_*",
            "d13d*",
            "t13x*",
            "t13d1516h2-*",
            "t13d1516h2_8DAA*",
            "t13d1516h2_8daaf6152771_e5627efa2ab1f*",
            "t13d1516h2_8daaf6152771_e5627efa2ab1 ",
            "t13d15\u{e9}",
        ];
        for text in wrong {
            assert!(text.parse::<Ja4Pattern>().is_err(), "{text}");
        }
        let quic = "q13*".parse::<Ja4Pattern>().unwrap_err();
        assert!(format!("{quic:?}").contains("QUIC"), "{quic:?}");
    }
}
