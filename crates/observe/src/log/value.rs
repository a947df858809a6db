//! Values of log fields.

use std::fmt;

/// The value of a field. Made with `.into()` from numbers, flags, text, and references to anything that
/// implements `Display`.
#[derive(Clone, Copy)]
pub enum LogValue<'a> {
    /// A signed integer of 64 bits.
    Number(i64),
    /// An unsigned integer, such as a count.
    Count(u64),
    /// A boolean: `true` or `false`.
    Flag(bool),
    /// Text, escaped on output.
    Text(&'a str),
    /// The `Display` text of any value.
    Shown(&'a dyn fmt::Display),
}

impl LogValue<'_> {
    /// Calls `use_it` with the unescaped text of the value.
    pub(super) fn with_text(&self, use_it: impl FnOnce(&str)) {
        match self {
            Self::Number(number) => use_it(&number.to_string()),
            Self::Count(number) => use_it(&number.to_string()),
            Self::Flag(flag) => use_it(if *flag { "true" } else { "false" }),
            Self::Text(text) => use_it(text),
            Self::Shown(value) => use_it(&value.to_string()),
        }
    }
}

impl fmt::Debug for LogValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        self.with_text(|text| result = f.write_str(text));
        result
    }
}

impl<'a> From<&'a str> for LogValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: fmt::Display> From<&'a T> for LogValue<'a> {
    fn from(value: &'a T) -> Self {
        Self::Shown(value)
    }
}

impl From<bool> for LogValue<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<i32> for LogValue<'_> {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<i64> for LogValue<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u16> for LogValue<'_> {
    fn from(number: u16) -> Self {
        Self::Count(number.into())
    }
}

impl From<u32> for LogValue<'_> {
    fn from(number: u32) -> Self {
        Self::Count(number.into())
    }
}

impl From<u64> for LogValue<'_> {
    fn from(number: u64) -> Self {
        Self::Count(number)
    }
}

impl From<usize> for LogValue<'_> {
    fn from(number: usize) -> Self {
        Self::Count(number as u64)
    }
}
