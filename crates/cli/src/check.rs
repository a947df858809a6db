//! `check`, and the reading of a configuration that `run` and `check` share.

pub(crate) mod disk;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use offramp_config::model::StoreUrl;
use offramp_config::{Config, Environment, Problem, Severity, Survey};
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
/// All its mistakes, with the warnings among them, and what is wrong with the files that it names.
pub(crate) fn load(path: &Path, environment: &Environment) -> Result<Config, Failure> {
    let Survey { config, outcome } = offramp_config::survey(path, environment).map_err(Failure::usage)?;
    match outcome {
        Ok(warnings) => {
            for warning in warnings {
                say(&warning.to_string());
            }
            Ok(config)
        }
        Err(errors) => {
            let found = disk::look_at_parts(&config, SystemTime::now());
            if found.errors.is_empty() {
                return Err(Failure::usage(errors));
            }
            let warnings = errors.problems().len() - errors.count();
            Err(refused(path, errors.listed(), &found.errors, (errors.count(), warnings)))
        }
    }
}

/// The same for a process that takes the place of another: the failure has one line for each error, and nothing else, as the
/// process before tells it in one line.
///
/// # Errors
/// The file cannot be read, or has errors.
pub(crate) fn load_in_lines(path: &Path, environment: &Environment) -> Result<Config, Failure> {
    let (config, warnings) = offramp_config::load(path, environment).map_err(|errors| {
        let problems = errors.problems().iter().filter(|problem| problem.severity() == Severity::Error);
        let line = |problem: &Problem| {
            let place = problem.place().map(|place| format!("{place}: ")).unwrap_or_default();
            let remedy = problem.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
            format!("{place}{}{remedy}", problem.message())
        };
        Failure::usage(problems.map(line).collect::<Vec<_>>().join("\n"))
    })?;
    warnings.iter().for_each(|warning| say(&warning.to_string()));
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
        return Err(refused(&path, String::new(), &found.errors, (0, 0)));
    }
    if arguments.print {
        return print(printed(config).as_bytes());
    }
    print(format!("{}: {}\n", path.display(), summary(&config)).as_bytes())
}

/// What stands in the way, as the mistakes of the text are told: behind `text`, which has told of so many errors and
/// warnings.
fn refused(
    path: &Path,
    mut text: String,
    findings: &[Finding],
    (errors, warnings): (usize, usize),
) -> Failure {
    for finding in findings {
        text.push_str(&format!("error: {finding}\n"));
    }
    let mut total = count(errors + findings.len(), "error");
    if warnings > 0 {
        total.push_str(&format!(", {}", count(warnings, "warning")));
    }
    Failure::Usage(format!("{text}\n{}: {total}", path.display()))
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

fn summary(config: &Config) -> String {
    format!(
        "good: {}, {}, {}, {}",
        count(config.listeners.len(), "listener"),
        count(config.certificates.len(), "certificate"),
        count(config.routes.len(), "route"),
        count(config.backends.len(), "backend")
    )
}

/// The effective configuration, to be looked at and passed on: without the password of the log store.
fn printed(mut config: Config) -> String {
    if let Some(masked) = config.log_store.url.as_ref().and_then(StoreUrl::masked) {
        config.log_store.url = Some(masked);
        say("note: the password in log_store.url is printed as ***");
    }
    offramp_config::print(&config)
}
