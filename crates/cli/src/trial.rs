//! `offramp run --sandbox-trial DIRECTORY`, for the tests: tries what the sandbox of a configuration should refuse.

use std::cell::Cell;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::rc::Rc;

use offramp_config::Config;
use offramp_control::Bound;
use offramp_net::process;
use offramp_net::sandbox::trial::{self, Outside};

use crate::failure::Failure;
use crate::surroundings::print;

/// What is tried, prepared while everything may be done.
pub(crate) struct Trial {
    outside: Outside,
    /// Whether a core dump would have been written when the keys had been read, before the sandbox was complete.
    dumpable_with_keys: Rc<Cell<bool>>,
}

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
        let outside = Outside::prepare(folder, port).map_err(failed)?;
        Ok(Self { outside, dumpable_with_keys: Rc::default() })
    }

    /// What looks at the process once its keys are read.
    pub(crate) fn look(&self) -> Bound {
        let dumpable = Rc::clone(&self.dumpable_with_keys);
        Box::new(move |_| dumpable.set(process::is_dumpable()))
    }

    /// Prints what was tried and what came of it, a line each: `refused` or `not refused`, the name, and what the kernel
    /// said.
    ///
    /// # Errors
    /// It cannot be printed.
    pub(crate) fn show(self, config: &Config) -> Result<(), Failure> {
        // A thread that came later must be restricted too.
        let (outside, dumpable_with_keys) = (self.outside, self.dumpable_with_keys.get());
        let tried = std::thread::spawn(move || trial::attempts(&outside)).join();
        let tried = tried.map_err(|_| Failure::runtime("error: the trial panicked"))?;
        let mut text = format!("sandbox {}\n", config.sandbox);
        for attempt in &tried {
            let word = if attempt.is_refused() { "refused" } else { "not refused" };
            let said =
                attempt.outcome.as_ref().err().map(ToString::to_string).unwrap_or_else(|| "done".into());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{word}: {}: {said}", attempt.name);
        }
        let dumps = [("a core dump", process::is_dumpable()), ("a core dump with keys", dumpable_with_keys)];
        for (name, is_dumpable) in dumps {
            let word = if is_dumpable { "not refused" } else { "refused" };
            let _ = writeln!(text, "{word}: {name}");
        }
        print(text.as_bytes())
    }
}
