//! One normal form of a path: what routes, redirects, rules and files are chosen by.
//!
//! In the normal form (RFC 3986 §6.2.2, §5.2.4) escapes are decoded once and only what needs an escape has one, in
//! upper case; repeated slashes are one; there are no dot segments; a slash at the end stays. It is a path again, in
//! ASCII, and its own normal form.
//!
//! A server may read a path in another way: without decoding it, without merging slashes, without the parameters of its
//! segments, with a host behind two slashes, or up to an escaped `?`. [`other_reading`] goes through these readings, so
//! that a rule holds in all of them. Some paths have no single meaning even so; [`Spelling::ambiguity`] names why. Their
//! escapes stay in the normal form.
//!
//! Letters keep their case, and no Unicode normal form is applied: both are rules of applications, not of paths.

mod escape;
mod reading;

use std::borrow::Cow;
use std::fmt;

pub use reading::{loosest, other_reading};

pub(crate) use escape::unescape;

use reading::Reading;

/// The normal form of a path, and how the path was spelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath<'p> {
    /// The normal form; borrowed where the path has it.
    pub text: Cow<'p, str>,
    /// What the path has besides.
    pub spelling: Spelling,
}

/// What in a path can be read in more than one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spelling {
    ambiguity: Option<Ambiguity>,
    /// Bits of the constants below.
    seen: u8,
}

impl Spelling {
    /// That of a path with a single reading.
    pub(crate) const SINGLE: Self = Self { ambiguity: None, seen: 0 };
    /// Characters that need no escape have one.
    const ESCAPES: u8 = 1;
    /// Empty segments, not counting the last.
    const EMPTY: u8 = 1 << 1;
    /// Dot segments, perhaps with parameters.
    const DOTS: u8 = 1 << 2;
    /// Parameters: `;` in a segment.
    const PARAMETERS: u8 = 1 << 3;
    /// An escaped `;` in a segment.
    const ESCAPED_PARAMETERS: u8 = 1 << 4;
    /// An escaped `?` or `#` in a segment.
    const DELIMITERS: u8 = 1 << 5;

    /// Why the path has no single meaning, if it has none; the gravest reason.
    #[must_use]
    pub fn ambiguity(self) -> Option<Ambiguity> {
        self.ambiguity
    }

    /// Set where a server may read the path in no other way than the normal form.
    #[must_use]
    pub fn is_single(self) -> bool {
        self == Self::SINGLE
    }

    /// Set where dot segments stand beside what decides which segments they take off: empty segments, parameters, and
    /// escapes that need not be, of the dots themselves too. Servers remove them before or after they do the rest, and some
    /// twice.
    #[must_use]
    pub fn has_mixed_dots(self) -> bool {
        let beside =
            Self::ESCAPES | Self::EMPTY | Self::PARAMETERS | Self::ESCAPED_PARAMETERS | Self::DELIMITERS;
        self.has_dots() && self.has(beside)
    }

    /// Set where the path has dot segments, perhaps with parameters.
    #[must_use]
    pub fn has_dots(self) -> bool {
        self.has(Self::DOTS)
    }

    /// Set where segments have parameters.
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

/// Why a path has no single meaning. The graver reason is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ambiguity {
    /// More readings than are looked at for its length; see [`other_reading`].
    TooLong,
    /// `%25` before two hexadecimal digits: another escape to whoever decodes twice.
    DoubleEscape,
    /// A `%` without two hexadecimal digits.
    BadEscape,
    /// Escapes that are no UTF-8, overlong forms among them.
    NotUtf8,
    /// `%2F`: a character of a segment to some, a separator to others.
    EscapedSlash,
    /// `\` or `%5C`: a separator to some.
    Backslash,
    /// A `..` that leads above the root.
    AboveRoot,
    /// A control character, raw or escaped.
    Control,
}

impl Ambiguity {
    /// Set where the key that lets escaped slashes pass can apply to it.
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
            Self::TooLong => "more readings than can be looked at for its length",
            Self::NotUtf8 => "escapes that are not UTF-8",
        })
    }
}

/// The normal form of `path`, which has no query. What does not begin with a slash, such as `*`, is its own.
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
    Reading::NORMAL.write(path, &mut text, &mut spelling);
    let text = if text == path { Cow::Borrowed(path) } else { Cow::Owned(text) };
    NormalPath { text, spelling }
}

/// Set where nothing is to do, and there is only one reading: most paths.
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

/// A byte that is odd everywhere.
const ODD: u8 = 1;
/// A byte that is odd behind a slash.
const ODD_BEHIND: u8 = 1 << 1;

/// What a byte is, and above the fourth bit what is odd behind it: without a branch for each byte.
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
