//! The outcome of a change of the configuration.

use std::fmt;

/// The differences that a change of the configuration made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// A line for each difference of the configurations.
    pub lines: Vec<String>,
    /// The number of certificates in use that were not before.
    pub new_certificates: usize,
    /// Changed keys that keep their old value until the next start.
    pub needs_restart: Vec<&'static str>,
}

impl Changes {
    /// Set where everything is as it was.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.lines.is_empty() && self.new_certificates == 0 && self.needs_restart.is_empty()
    }
}

impl fmt::Display for Changes {
    /// All lines as one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() { f.write_str("none") } else { f.write_str(&self.lines.join("; ")) }
    }
}
