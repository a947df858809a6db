//! Negotiation of content codings (RFC 9110 §12.5.3).
//!
//! Only offered codings are considered. It never fails, and reads at most [`MAX_MEMBERS`] members of all
//! fields together; invalid members are skipped.

use super::accept::quality;

/// Maximum number of members that are read.
pub const MAX_MEMBERS: usize = 32;

/// A supported content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Zstandard (RFC 8878), named `zstd`.
    Zstd,
    /// Brotli (RFC 7932), named `br`.
    Brotli,
    /// gzip (RFC 1952), named `gzip`.
    Gzip,
}

impl Coding {
    /// Name of the coding in `Content-Encoding`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    fn of(name: &[u8]) -> Option<Self> {
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"br") => Some(Self::Brotli),
            4 if name.eq_ignore_ascii_case(b"gzip") => Some(Self::Gzip),
            4 if name.eq_ignore_ascii_case(b"zstd") => Some(Self::Zstd),
            // An alias (RFC 9110 §8.4.1.3).
            6 if name.eq_ignore_ascii_case(b"x-gzip") => Some(Self::Gzip),
            _ => None,
        }
    }
}

/// The coding of `offered` preferred by the values of the Accept-Encoding fields; of several with equal
/// weight the one that is offered first. `None` means no coding.
pub fn choose<'a>(values: impl IntoIterator<Item = &'a [u8]>, offered: &[Coding]) -> Option<Coding> {
    let mut weights = [None; 3];
    let (mut identity, mut others) = (None, None);
    let members = values.into_iter().flat_map(|value| value.split(|&byte| byte == b','));
    for member in members.take(MAX_MEMBERS) {
        let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let Some(weight) = quality(parts) else { continue };
        match Coding::of(name) {
            Some(coding) => weights[coding as usize] = Some(weight),
            None if name == b"*" => others = Some(weight),
            None if name.eq_ignore_ascii_case(b"identity") => identity = Some(weight),
            None => {}
        }
    }
    let weight = |coding: Coding| weights[coding as usize].or(others).unwrap_or(0);
    let mut best = None;
    for &coding in offered {
        let more = best.is_none_or(|best| weight(coding) > weight(best));
        if weight(coding) > 0 && weight(coding) >= identity.unwrap_or(0) && more {
            best = Some(coding);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    #[test]
    fn weights_choose_and_the_first_offer_breaks_ties() {
        let (zstd, brotli, gzip) = (Some(Coding::Zstd), Some(Coding::Brotli), Some(Coding::Gzip));
        for (accept, expected) in [
            ("", None),
            ("identity", None),
            ("gzip", gzip),
            ("x-gzip", gzip),
            ("GZIP , Br", brotli),
            ("gzip, deflate, br, zstd", zstd),
            ("gzip;q=1.0, br;q=0.9, zstd;q=0.8", gzip),
            ("gzip;q=0", None),
            ("*", zstd),
            ("*;q=0", None),
            ("zstd;q=0, *", brotli),
            ("gzip, *;q=0", gzip),
            ("identity;q=0", None),
            ("identity;q=0, *;q=0.1", zstd),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", gzip),
            ("gzip;q=NaN", None),
            ("gzip;q=NaN, br;q=0.1", brotli),
            ("gzip;q=-1", None),
            ("gzip;q=1e3", None),
            ("deflate", None),
            (",,;;q=,", None),
        ] {
            assert_eq!(choose([accept.as_bytes()], &ALL), expected, "{accept}");
        }
        assert_eq!(choose([&b"deflate"[..], b"br"], &ALL), brotli);
        assert_eq!(choose([&b"zstd, br"[..]], &[Coding::Gzip]), None);
        assert_eq!(choose([&b"zstd, gzip"[..]], &[Coding::Gzip, Coding::Zstd]), gzip);
        assert_eq!(choose([], &ALL), None);
    }

    #[test]
    fn the_number_of_members_is_bounded() {
        let far = format!("{}gzip", "x,".repeat(MAX_MEMBERS));
        assert_eq!(choose([far.as_bytes()], &ALL), None);
    }
}
