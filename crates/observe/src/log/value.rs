//! The values of a line's fields.

use std::fmt;

/// The value of a field. Made with `.into()` from numbers, flags, text, and references to whatever can be
/// displayed.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// A number.
    Number(i64),
    /// A number that may be large.
    Count(u64),
    /// True or false.
    Flag(bool),
    /// Text.
    Text(&'a str),
    /// Anything that has a text.
    Shown(&'a dyn fmt::Display),
}

impl Value<'_> {
    /// Calls `use_it` with the value's text, unescaped.
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

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        self.with_text(|text| result = f.write_str(text));
        result
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: fmt::Display> From<&'a T> for Value<'a> {
    fn from(value: &'a T) -> Self {
        Self::Shown(value)
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<i32> for Value<'_> {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u16> for Value<'_> {
    fn from(number: u16) -> Self {
        Self::Count(number.into())
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Count(number.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Count(number)
    }
}

impl From<usize> for Value<'_> {
    fn from(number: usize) -> Self {
        Self::Count(number as u64)
    }
}
