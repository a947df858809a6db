//! Results of the checks before a setup.

use std::fmt::Write as _;

use crate::steps::one_line;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetupFinding {
    pub(crate) level: FindingLevel,
    /// A sentence without a full stop.
    pub(crate) text: String,
    /// Remedies, one line each.
    pub(crate) advice: Vec<String>,
}

/// Consequence of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingLevel {
    Good,
    /// Setup goes on.
    Warning,
    /// Setup changes nothing.
    Error,
}

impl SetupFinding {
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self { level: FindingLevel::Good, text: text.into(), advice: Vec::new() }
    }

    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self { level: FindingLevel::Warning, text: text.into(), advice: Vec::new() }
    }

    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self { level: FindingLevel::Error, text: text.into(), advice: Vec::new() }
    }

    /// Adds a line of advice.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }
}

/// A text in which only the ends of its lines are control characters.
fn lines(text: &str) -> String {
    text.split('\n').map(one_line).collect::<Vec<_>>().join("\n")
}

/// Formats findings as a list, with the advice below each.
pub(crate) fn list(findings: &[SetupFinding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let level = match finding.level {
            FindingLevel::Good => "ok",
            FindingLevel::Warning => "warning",
            FindingLevel::Error => "error",
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "  {level:8} {}", lines(&finding.text));
        for advice in &finding.advice {
            let _ = writeln!(out, "           {}", lines(advice));
        }
    }
    out
}
