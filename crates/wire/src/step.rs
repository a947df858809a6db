//! The answer of every parser in this crate.
//!
//! It refuses to hide anything: a parser that waits says for how much, and one that refuses says why.

/// What a parser makes of the bytes at the front of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Step<T, E> {
    /// The bytes so far are the beginning of something valid. No fewer than this many more bytes (at least 1)
    /// can complete it; a refusal may come sooner, so ask again whenever anything arrived.
    Need(usize),
    /// A whole value stands at the front.
    Done {
        /// What was read.
        value: T,
        /// How many bytes it occupies, to be dropped from the front; 0 where the parser only looks.
        consumed: usize,
    },
    /// No continuation of these bytes can be valid.
    Reject(E),
}

impl<T, E> Step<T, E> {
    /// The same step with another value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Step<U, E> {
        match self {
            Self::Need(more) => Step::Need(more),
            Self::Done { value, consumed } => Step::Done { value: f(value), consumed },
            Self::Reject(why) => Step::Reject(why),
        }
    }
}
