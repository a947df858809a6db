//! `offramp run --sandbox-trial DIRECTORY`, for the tests: tries what the sandbox of a configuration should refuse.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;

use offramp_config::Config;
use offramp_net::sandbox::trial::{self, Outside};

use crate::failure::Failure;
use crate::surroundings::print;

/// What is tried, prepared while everything may be done.
pub(crate) struct Trial(Outside);

impl Trial {
    /// Makes a file in `folder`, which the configuration does not name, and finds a port where nothing listens.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(crate) fn prepare(folder: PathBuf) -> Result<Self, Failure> {
        let failed = |error| Failure::runtime(format_args!("error: the trial: {error}"));
        let folder = std::path::absolute(folder).map_err(failed)?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(failed)?.port();
        Outside::prepare(folder, port).map(Self).map_err(failed)
    }

    /// Prints what was tried and what came of it, a line each: `refused` or `not refused`, the name, and what the kernel
    /// said.
    ///
    /// # Errors
    /// It cannot be printed.
    pub(crate) fn show(self, config: &Config) -> Result<(), Failure> {
        // A thread that came later must be restricted too.
        let tried = std::thread::spawn(move || trial::attempts(&self.0)).join();
        let tried = tried.map_err(|_| Failure::runtime("error: the trial panicked"))?;
        let mut text = format!("sandbox {}\n", config.sandbox);
        for attempt in &tried {
            let word = if attempt.is_refused() { "refused" } else { "not refused" };
            let said =
                attempt.outcome.as_ref().err().map(ToString::to_string).unwrap_or_else(|| "done".into());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{word}: {}: {said}", attempt.name);
        }
        let word = if trial::is_dumpable() { "not refused" } else { "refused" };
        let _ = writeln!(text, "{word}: a core dump");
        print(text.as_bytes())
    }
}
