//! Why a command failed, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

/// Why a command failed. The text may have several lines.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the configuration is wrong; nothing was started.
    Usage(String),
    /// Something failed at run time.
    Runtime(String),
}

impl Failure {
    /// A wrong command line or configuration.
    pub(crate) fn usage(why: impl fmt::Display) -> Self {
        Failure::Usage(why.to_string())
    }

    /// A failure at run time.
    pub(crate) fn runtime(why: impl fmt::Display) -> Self {
        Failure::Runtime(why.to_string())
    }

    /// The exit code, as `--help` has it.
    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Failure::Runtime(_) => ExitCode::from(1),
            Failure::Usage(_) => ExitCode::from(2),
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
