//! Errors of commands, and their exit codes.

use std::fmt;

/// Reason for which a command failed. The text may have several lines.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the configuration is wrong; nothing was started.
    Usage(String),
    /// Something failed at run time.
    Runtime(String),
}

impl Failure {
    /// Creates a failure for a wrong command line or configuration.
    pub(crate) fn usage(why: impl fmt::Display) -> Self {
        Failure::Usage(why.to_string())
    }

    /// Creates a failure at run time.
    pub(crate) fn runtime(why: impl fmt::Display) -> Self {
        Failure::Runtime(why.to_string())
    }

    /// Converts an error of the log store. A wrong URL or query is a usage failure.
    pub(crate) fn of_store(error: &offramp_analytics::Error) -> Self {
        let text = format!("error: {error}");
        match error {
            offramp_analytics::Error::Url(_) | offramp_analytics::Error::Question(_) => Failure::Usage(text),
            _ => Failure::Runtime(text),
        }
    }

    /// Exit code, as documented in `--help`.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Runtime(_) => 1,
            Failure::Usage(_) => 2,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(why) | Failure::Runtime(why) => f.write_str(why),
        }
    }
}

/// The text of an error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
