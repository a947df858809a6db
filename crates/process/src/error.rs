//! Errors that prevent a configuration from being applied, and warnings.

use std::collections::HashSet;
use std::fmt;

use offramp_config::{At, EDITED, Place};
use offramp_observe::Log;

/// One error or warning about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The position in the configuration, if it comes from a file.
    pub at: At,
    /// The problem and, if known, its remedy; one line.
    pub text: String,
}

impl Finding {
    /// A finding at a position of the configuration.
    pub fn new(at: &At, text: impl Into<String>) -> Self {
        Self { at: at.clone(), text: text.into() }
    }

    /// The position in a file that people can open, if there is one: the text of an edit is no such file.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        self.at.place().filter(|place| &*place.file != EDITED)
    }

    /// Without a position in the configuration.
    pub fn nowhere(text: impl Into<String>) -> Self {
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

/// The refusal of a start or a change: everything that was found, not only the first of it. The fault
/// is always the configuration's or the machine's; a client has no part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    findings: Vec<Finding>,
}

impl Error {
    /// An error of one finding, without a position in the configuration.
    pub fn one(text: impl Into<String>) -> Self {
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

/// The errors and warnings of one configuration, gathered before it is refused.
#[derive(Debug, Default)]
pub struct Findings {
    /// They prevent the configuration from being applied.
    pub errors: Vec<Finding>,
    /// The configuration can be applied with them.
    pub warnings: Vec<Finding>,
}

impl Findings {
    /// Adds an error at a position of the configuration.
    pub fn error(&mut self, at: &At, text: impl Into<String>) {
        self.errors.push(Finding::new(at, text));
    }

    /// Adds a warning at a position of the configuration.
    pub fn warn(&mut self, at: &At, text: impl Into<String>) {
        self.warnings.push(Finding::new(at, text));
    }

    /// Adds warnings at one position of the configuration.
    pub fn warn_all<W: fmt::Display>(&mut self, at: &At, warnings: &[W]) {
        for warning in warnings {
            self.warn(at, warning.to_string());
        }
    }

    /// Adds an error unless it is known: the fault of a file that several routes name is one.
    pub fn error_once(&mut self, at: &At, text: String) {
        if !self.errors.iter().any(|known| known.text == text) {
            self.error(at, text);
        }
    }

    /// Removes duplicates: a route is built once for each of its listeners.
    pub fn say_once(&mut self) {
        for findings in [&mut self.errors, &mut self.warnings] {
            let mut said = HashSet::new();
            findings.retain(|finding| said.insert(finding.to_string()));
        }
    }
}

/// Logs each warning with its position in the configuration.
pub fn log_warnings(log: &Log, message: &str, warnings: &[Finding]) {
    for warning in warnings {
        let reason = ("reason", warning.text.as_str().into());
        match warning.place() {
            Some(place) => log.warn(message, &[("at", place.into()), reason]),
            None => log.warn(message, &[reason]),
        }
    }
}

/// `findings` as an error, unless there are none.
///
/// # Errors
/// The findings.
pub fn none_or_refused(findings: Vec<Finding>) -> Result<(), Error> {
    if findings.is_empty() { Ok(()) } else { Err(findings.into()) }
}
