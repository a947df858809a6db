//! The result type of every parser in this crate.
//!
//! A parser that waits says for how many bytes, and one that rejects gives the reason.

/// Result of parsing the front of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum ParseStep<T, E> {
    /// The bytes are a prefix of something valid. At least this many more bytes (1 or more) are needed to
    /// complete it; a rejection may come sooner, so call again whenever data arrives.
    Need(usize),
    /// A whole value stands at the front.
    Done {
        /// The value at the front.
        value: T,
        /// Number of bytes to drop from the front; 0 for parsers that only peek.
        consumed: usize,
    },
    /// No continuation of these bytes can be valid.
    Reject(E),
}

impl<T, E> ParseStep<T, E> {
    /// Applies `f` to the value of `Done`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> ParseStep<U, E> {
        match self {
            Self::Need(more) => ParseStep::Need(more),
            Self::Done { value, consumed } => ParseStep::Done { value: f(value), consumed },
            Self::Reject(why) => ParseStep::Reject(why),
        }
    }
}
