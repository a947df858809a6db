//! Protocol violations of the peer.

use std::borrow::Cow;
use std::fmt;

use super::Code;

/// A violation, which ends a stream or the whole connection (RFC 9113 §5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Code for RST_STREAM or GOAWAY.
    pub code: Code,
    /// Description for the log.
    pub what: Cow<'static, str>,
}

impl Violation {
    /// Creates a violation described by `what`.
    #[must_use]
    pub const fn new(code: Code, what: &'static str) -> Self {
        Self { code, what: Cow::Borrowed(what) }
    }

    pub(super) const fn protocol(what: &'static str) -> Self {
        Self::new(Code::PROTOCOL_ERROR, what)
    }

    /// Creates a violation described by an error.
    #[must_use]
    pub fn because(code: Code, what: &impl fmt::Display) -> Self {
        Self { code, what: Cow::Owned(what.to_string()) }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.what)
    }
}

impl std::error::Error for Violation {}
