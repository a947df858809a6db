//! Errors that prevent a configuration from being applied, and warnings.

use std::fmt;

use offramp_config::{At, EDITED, Place};

/// One error or warning about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The position in the configuration, if it comes from a file.
    pub at: At,
    /// The problem and, if known, its remedy; one line.
    pub text: String,
}

impl Finding {
    pub(crate) fn new(at: &At, text: impl Into<String>) -> Self {
        Self { at: at.clone(), text: text.into() }
    }

    /// The position in a file that people can open, if there is one: the text of an edit is no such file.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        self.at.place().filter(|place| &*place.file != EDITED)
    }

    /// Without a position in the configuration.
    pub(crate) fn nowhere(text: impl Into<String>) -> Self {
        Self::new(&At::NOWHERE, text)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "{place}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Why a start or a reload is refused: everything that was found, not only the first of it. The fault
/// is always the configuration's or the machine's; a client has no part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    findings: Vec<Finding>,
}

impl Error {
    pub(crate) fn one(text: impl Into<String>) -> Self {
        Self { findings: vec![Finding::nowhere(text)] }
    }

    /// All findings, at least one.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl From<Vec<Finding>> for Error {
    fn from(findings: Vec<Finding>) -> Self {
        Self { findings }
    }
}

impl fmt::Display for Error {
    /// One line for each finding, without a line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            finding.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// `findings` as an error, unless there are none.
pub(crate) fn none_or_refused(findings: Vec<Finding>) -> Result<(), Error> {
    if findings.is_empty() { Ok(()) } else { Err(findings.into()) }
}
