//! `offramp run --sandbox-trial DIRECTORY`, for tests: probes operations that the sandbox should refuse.

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

/// Probes, prepared before the sandbox is complete.
pub(crate) struct Trial {
    outside: Outside,
    /// Set if the process was dumpable at a time when it had read keys and the sandbox was incomplete.
    dumpable_with_keys: Rc<Cell<bool>>,
}

impl Trial {
    /// Creates a file in `folder`, which the configuration does not name, and finds a closed port.
    ///
    /// # Errors
    /// The file cannot be created, or no port is free.
    pub(crate) fn prepare(folder: PathBuf) -> Result<Self, Failure> {
        let failed = |error| Failure::runtime(format_args!("error: the trial: {error}"));
        let folder = offramp_config::absolute(folder).map_err(failed)?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(failed)?.port();
        let outside = Outside::prepare(folder, port).map_err(failed)?;
        Ok(Self { outside, dumpable_with_keys: Rc::default() })
    }

    /// Callback that inspects the process once its keys are read.
    pub(crate) fn look(&self) -> Bound {
        let dumpable = Rc::clone(&self.dumpable_with_keys);
        Box::new(move |_| dumpable.set(process::is_dumpable()))
    }

    /// Runs the probes and prints one line each: `refused` or `not refused`, the name, and the kernel's
    /// answer.
    ///
    /// # Errors
    /// It cannot be printed.
    pub(crate) fn show(self, config: &Config) -> Result<(), Failure> {
        // The sandbox must restrict threads that are started later, too.
        let (outside, dumpable_with_keys) = (self.outside, self.dumpable_with_keys.get());
        let tried = std::thread::spawn(move || trial::attempts(&outside)).join();
        let tried = tried.map_err(|_| Failure::runtime("error: the trial panicked"))?;
        let mut text = format!("sandbox {}\n", config.process.sandbox);
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
