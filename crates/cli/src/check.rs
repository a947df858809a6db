//! `offramp check`, and the reading of configurations, which other commands share.

pub(crate) mod disk;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use offramp_config::{Config, Environment, Problem, Severity, Survey};
use offramp_process::Finding;

use crate::failure::Failure;
use crate::flags::{Check, ConfigFile};
use crate::surroundings::{self, print, say};

/// Default paths of the configuration, in order of preference.
const DEFAULT_PATHS: [&str; 2] = ["offramp.toml", "/etc/offramp/offramp.toml"];

/// Returns the named file, else the first of [`DEFAULT_PATHS`] that exists.
///
/// # Errors
/// No file was named, and none of the defaults exists.
pub(crate) fn find(file: ConfigFile) -> Result<PathBuf, Failure> {
    let there = |path: &PathBuf| path.try_exists().unwrap_or(true);
    let found = file.path.or_else(|| DEFAULT_PATHS.map(PathBuf::from).into_iter().find(there));
    found.ok_or_else(|| {
        Failure::usage(
            "error: there is no configuration: neither ./offramp.toml nor /etc/offramp/offramp.toml is there\n\
             Name one with `-c FILE`, or put TLS in front of one application without: offramp to 3000",
        )
    })
}

/// Reads a configuration and prints its warnings.
///
/// # Errors
/// Lists all errors of the configuration and of the files that it names, with the warnings among them.
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
            Err(refused(
                path,
                errors.listed(),
                &found.errors,
                ProblemCounts { errors: errors.count(), warnings },
            ))
        }
    }
}

/// Like [`load`], for a process that takes over from another: the failure has one line per error and nothing
/// else, since the previous process logs it as one line.
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

/// Runs `offramp check`: validates the configuration and everything on disk that it names.
///
/// # Errors
/// Lists all errors.
pub(crate) fn check(arguments: Check) -> Result<(), Failure> {
    let path = find(arguments.file)?;
    let config = load(&path, &surroundings::environment())?;
    let found = disk::look(&config, SystemTime::now());
    for warning in &found.warnings {
        say(&format!("warning: {warning}"));
    }
    if !found.errors.is_empty() {
        return Err(refused(&path, String::new(), &found.errors, ProblemCounts::default()));
    }
    if arguments.print {
        return print(printed(config).as_bytes());
    }
    print(format!("{}: {}\n", path.display(), summary(&config)).as_bytes())
}

/// Numbers of problems in the text of a configuration.
#[derive(Clone, Copy, Default)]
struct ProblemCounts {
    errors: usize,
    warnings: usize,
}

/// Failure that lists `findings` after `text`, which holds the problems counted by `counts`.
fn refused(path: &Path, mut text: String, findings: &[Finding], counts: ProblemCounts) -> Failure {
    for finding in findings {
        text.push_str(&format!("error: {finding}\n"));
    }
    let mut total = count(counts.errors + findings.len(), "error");
    if counts.warnings > 0 {
        total.push_str(&format!(", {}", count(counts.warnings, "warning")));
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

/// Formats the effective configuration. Secrets within values are masked, since users pass the output on.
fn printed(mut config: Config) -> String {
    for key in offramp_config::hide_secrets(&mut config) {
        say(match key {
            "log_store.url" => "note: the password in log_store.url is printed as ***",
            _ => "note: what follows the host in notify.url is printed as ***",
        });
    }
    offramp_config::print(&config)
}
