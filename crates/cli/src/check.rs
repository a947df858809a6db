//! `check`, and the reading of a configuration that `run` and `check` share.

pub(crate) mod disk;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use offramp_config::{Config, Environment};
use offramp_control::Finding;

use crate::failure::Failure;
use crate::flags::{Check, ConfigFile};
use crate::surroundings::{self, print, say};

/// Where a configuration is looked for if none is named.
const PLACES: [&str; 2] = ["offramp.toml", "/etc/offramp/offramp.toml"];

/// The file that is named, or else the first of [`PLACES`] that is there.
///
/// # Errors
/// There is none.
pub(crate) fn find(file: ConfigFile) -> Result<PathBuf, Failure> {
    let there = |path: &PathBuf| path.try_exists().unwrap_or(true);
    let found = file.path.or_else(|| PLACES.map(PathBuf::from).into_iter().find(there));
    found.ok_or_else(|| {
        Failure::usage(
            "error: there is no configuration: neither ./offramp.toml nor /etc/offramp/offramp.toml is there\n\
             Name one with `-c FILE`, or put TLS in front of one application without: offramp to 3000",
        )
    })
}

/// Reads a configuration and tells its warnings.
///
/// # Errors
/// All its mistakes, with the warnings among them.
pub(crate) fn load(path: &Path, environment: &Environment) -> Result<Config, Failure> {
    let (config, warnings) = offramp_config::load(path, environment).map_err(Failure::usage)?;
    for warning in warnings {
        say(&warning.to_string());
    }
    Ok(config)
}

/// Reads the configuration and everything on disk that it names, and says what is wrong.
///
/// # Errors
/// There is something wrong.
pub(crate) fn check(arguments: Check) -> Result<(), Failure> {
    let path = find(arguments.file)?;
    let config = load(&path, &surroundings::environment())?;
    let found = disk::look(&config, SystemTime::now());
    for warning in &found.warnings {
        say(&format!("warning: {warning}"));
    }
    if !found.errors.is_empty() {
        return Err(refused(&path, &found.errors));
    }
    if arguments.print {
        return print(offramp_config::print(&config).as_bytes());
    }
    print(format!("{}: {}\n", path.display(), summary(&config)).as_bytes())
}

/// What stands in the way, as the mistakes of the text are told.
fn refused(path: &Path, findings: &[Finding]) -> Failure {
    let plural = if findings.len() == 1 { "" } else { "s" };
    let mut text = String::new();
    for finding in findings {
        text.push_str(&format!("error: {finding}\n"));
    }
    Failure::Usage(format!("{text}\n{}: {} error{plural}", path.display(), findings.len()))
}

fn summary(config: &Config) -> String {
    let count = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    format!(
        "good: {}, {}, {}, {}",
        count(config.listeners.len(), "listener"),
        count(config.certificates.len(), "certificate"),
        count(config.routes.len(), "route"),
        count(config.backends.len(), "backend")
    )
}
