//! `offramp run --sandbox-trial`, for the tests: tries what the sandbox of a configuration should refuse.

use std::fmt::Write as _;

use offramp_config::Config;
use offramp_net::sandbox::trial;

use crate::failure::Failure;
use crate::surroundings::print;

/// A port that no configuration of a test names, and where nothing listens.
const PORT: u16 = 9;

/// Prints what was tried and what came of it, a line each: `refused` or `not refused`, the name, and what the kernel said.
///
/// # Errors
/// It cannot be printed.
pub(crate) fn show(config: &Config) -> Result<(), Failure> {
    // A thread that came later must be restricted too.
    let tried = std::thread::spawn(|| trial::attempts(PORT)).join();
    let tried = tried.map_err(|_| Failure::runtime("error: the trial panicked"))?;
    let mut text = format!("sandbox {}\n", config.sandbox);
    for attempt in &tried {
        let word = if attempt.is_refused() { "refused" } else { "not refused" };
        let said = attempt.outcome.as_ref().err().map(ToString::to_string).unwrap_or_else(|| "done".into());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word}: {}: {said}", attempt.name);
    }
    let word = if trial::is_dumpable() { "not refused" } else { "refused" };
    let _ = writeln!(text, "{word}: a core dump");
    print(text.as_bytes())
}
