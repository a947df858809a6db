//! Normal form of a path, by which routes, redirects, rules and files are selected.
//!
//! In the normal form (RFC 3986 §6.2.2, §5.2.4) escapes are decoded once, and only characters that need an
//! escape have one, in upper case; repeated slashes are merged; dot segments are removed; a trailing slash
//! stays. The result is a path again, in ASCII, and its own normal form.
//!
//! A server may read a path in another way: without decoding it, without merging slashes, without the
//! parameters of its segments, with a host behind two slashes, or up to an escaped `?`. [`other_reading`]
//! enumerates these readings, so that a rule applies to all of them. Some paths remain ambiguous even so;
//! [`Spelling::ambiguity`] gives the reason. Their escapes stay in the normal form.
//!
//! Letters keep their case, and no Unicode normalization is applied: both are up to applications.

mod escape;
mod reading;

use std::borrow::Cow;
use std::fmt;

pub use reading::{judged_forms, loosest, other_reading};

pub(crate) use escape::unescape;

use reading::PathReading;

/// The normal form of a path, and the spelling of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath<'p> {
    /// The normal form; borrowed if it equals the path.
    pub text: Cow<'p, str>,
    /// Spelling of the original path.
    pub spelling: Spelling,
}

/// Features of a path that can be read in more than one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spelling {
    ambiguity: Option<Ambiguity>,
    /// Bits of the constants below.
    seen: u8,
}

impl Spelling {
    /// Spelling of a path with a single reading.
    pub(crate) const SINGLE: Self = Self { ambiguity: None, seen: 0 };
    /// Escaped characters that need no escape.
    const ESCAPES: u8 = 1;
    /// Empty segments, except the last.
    const EMPTY: u8 = 1 << 1;
    /// Dot segments, with or without parameters.
    const DOTS: u8 = 1 << 2;
    /// Parameters: `;` in a segment.
    const PARAMETERS: u8 = 1 << 3;
    /// An escaped `;` in a segment.
    const ESCAPED_PARAMETERS: u8 = 1 << 4;
    /// An escaped `?` or `#` in a segment.
    const DELIMITERS: u8 = 1 << 5;

    /// Reason for which the path is ambiguous; the gravest one.
    #[must_use]
    pub fn ambiguity(self) -> Option<Ambiguity> {
        self.ambiguity
    }

    /// Returns true if servers can read the path in the normal form only.
    #[must_use]
    pub fn is_single(self) -> bool {
        self == Self::SINGLE
    }

    /// Returns true for dot segments together with features that determine which segments they remove: empty
    /// segments, parameters, and unnecessary escapes, also of the dots. Servers remove dot segments before or
    /// after handling these, and some do it twice.
    #[must_use]
    pub fn has_mixed_dots(self) -> bool {
        let beside =
            Self::ESCAPES | Self::EMPTY | Self::PARAMETERS | Self::ESCAPED_PARAMETERS | Self::DELIMITERS;
        self.has_dots() && self.has(beside)
    }

    /// Returns true for dot segments, with or without parameters.
    #[must_use]
    pub fn has_dots(self) -> bool {
        self.has(Self::DOTS)
    }

    /// Returns true for segments with parameters.
    #[must_use]
    pub fn has_parameters(self) -> bool {
        self.has(Self::PARAMETERS | Self::ESCAPED_PARAMETERS)
    }

    fn note(&mut self, ambiguity: Ambiguity) {
        self.ambiguity = self.ambiguity.max(Some(ambiguity));
    }

    fn has(self, bits: u8) -> bool {
        self.seen & bits != 0
    }
}

/// Reason for which a path is ambiguous, in order of gravity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ambiguity {
    /// More readings than are examined for its length; see [`other_reading`].
    TooLong,
    /// `%25` before two hexadecimal digits: another escape if decoded twice.
    DoubleEscape,
    /// A `%` without two hexadecimal digits.
    BadEscape,
    /// Escapes that are not UTF-8, including overlong forms.
    NotUtf8,
    /// `%2F`: a character of a segment or a separator, depending on the server.
    EscapedSlash,
    /// `\` or `%5C`: a separator for some servers.
    Backslash,
    /// A `..` above the root.
    AboveRoot,
    /// A control character, raw or escaped.
    Control,
}

impl Ambiguity {
    /// Returns true if the key that permits escaped slashes can apply.
    #[must_use]
    pub fn may_pass(self) -> bool {
        !matches!(self, Self::Control | Self::AboveRoot | Self::TooLong)
    }
}

impl fmt::Display for Ambiguity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EscapedSlash => "an escaped slash (%2F)",
            Self::Backslash => "a backslash (%5C)",
            Self::DoubleEscape => "an escape that is escaped again (%25 before two digits)",
            Self::Control => "a control character",
            Self::AboveRoot => "a `..` above the root",
            Self::BadEscape => "a `%` without two hexadecimal digits",
            Self::TooLong => "too many possible readings for its length",
            Self::NotUtf8 => "escapes that are not UTF-8",
        })
    }
}

/// Computes the normal form of `path`, which has no query. A path without a leading slash, such as `*`, is
/// returned unchanged.
#[must_use]
#[inline]
pub fn normalize(path: &str) -> NormalPath<'_> {
    if is_plain(path.as_bytes()) {
        return NormalPath { text: Cow::Borrowed(path), spelling: Spelling::SINGLE };
    }
    normalize_odd(path)
}

#[cold]
fn normalize_odd(path: &str) -> NormalPath<'_> {
    let mut text = String::with_capacity(path.len() + 16);
    let mut spelling = Spelling::default();
    PathReading::NORMAL.write(path, &mut text, &mut spelling);
    let text = if text == path { Cow::Borrowed(path) } else { Cow::Owned(text) };
    NormalPath { text, spelling }
}

/// Returns true for paths in normal form with a single reading, as most are.
#[inline]
fn is_plain(path: &[u8]) -> bool {
    let (mut found, mut odd) = (0, ODD);
    for &byte in path {
        let class = CLASSES[usize::from(byte)];
        found |= class & odd;
        odd = class >> 4;
    }
    found == 0 || path.first() != Some(&b'/')
}

/// Class of bytes that are not plain anywhere.
const ODD: u8 = 1;
/// Class of bytes that are not plain behind a slash.
const ODD_BEHIND: u8 = 1 << 1;

/// Class of each byte, with the classes that are not plain behind it above the fourth bit: avoids a branch
/// per byte.
static CLASSES: [u8; 256] = {
    let mut table = [ODD | ODD << 4; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'/' => ODD_BEHIND | (ODD | ODD_BEHIND) << 4,
            b'.' => ODD_BEHIND | ODD << 4,
            b';' => ODD | ODD << 4,
            value if escape::is_plain(value) => ODD << 4,
            _ => ODD | ODD << 4,
        };
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests;
