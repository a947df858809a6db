//! The configuration language of Offramp: keys, parsing, checking, differences.
//!
//! [`parse`] takes the text of a file and gives a [`Config`], or all of its mistakes at once, each with
//! line, caret and remedy. The way is: TOML with places, then what was typed (against the one table of
//! [`keys`]), then what is meant (the [`model`]). [`print()`] is the way back, and [`ConfigDiff`] says what
//! changed between two.
//!
//! ```
//! use offramp_config::{Environment, parse};
//!
//! let text = "[[route]]\nhost = \"example.org\"\nserver = \"unix:/run/app.sock\"\n";
//! let (config, warnings) = parse(text, "offramp.toml", &Environment::default())?;
//! assert_eq!(config.listeners[0].addresses[0].to_string(), "[::]:443");
//! assert!(warnings.is_empty());
//! # Ok::<(), offramp_config::Errors>(())
//! ```
//!
//! The crate is pure: no sockets, no clock, no environment, and no files except in [`load`] and what `include` names. Whether files
//! that are named exist and fit is for those who read them; [`survey`] gives them even those of a file with mistakes.

use std::io::Read as _;
use std::path::Path;

use error::{Report, Source, Span};

pub use diff::{Change, ConfigDiff, Keyed, ListDiff, Setting, keep_until_restart};
pub use edit::{EDITED, Edit, EditError, Item, ServerEdit, item_at, without_lines};
pub use error::{At, Errors, Place, Problem, Severity};
pub use include::{Sources, sources};
pub use model::{Config, Environment};
pub use print::print;
pub use suggest::nearest;
pub use units::{Per, Rate, parse_duration};

pub mod keys;
pub mod model;

mod check;
mod diff;
mod edit;
mod error;
mod include;
mod print;
mod raw;
mod settings;
mod suggest;
mod units;

/// The greatest file that [`load`] reads, in bytes: a thousand times the size of a large configuration.
const FILE_MAX: u64 = 16 << 20;

/// Reads a configuration from its text. `file_name` is for messages, and its folder is where relative paths
/// in the text start. Gives the configuration and its warnings. No file is read: `include` is a mistake here.
///
/// # Errors
/// Every mistake of the text, in its order, and the warnings among them.
pub fn parse(
    text: &str,
    file_name: &str,
    environment: &Environment,
) -> Result<(Config, Vec<Problem>), Errors> {
    let folder = Path::new(file_name).parent().unwrap_or(Path::new(""));
    let source = Source::new(file_name, folder, text);
    let Survey { config, outcome } = survey_in(&source, include::refuse(&source), environment);
    outcome.map(|warnings| (config, warnings))
}

/// Reads a configuration from a file, and those that it includes. Relative paths in each start at its folder and
/// become absolute.
///
/// # Errors
/// The file cannot be read, is not UTF-8 or has more than 16 MiB; or every mistake of its text.
pub fn load(path: &Path, environment: &Environment) -> Result<(Config, Vec<Problem>), Errors> {
    let Survey { config, outcome } = survey(path, environment)?;
    outcome.map(|warnings| (config, warnings))
}

/// A file with or without mistakes, as far as it can be understood.
#[derive(Debug)]
pub struct Survey {
    /// What it says. Where there are mistakes it is not fit to be used: parts are missing. It is for telling what
    /// else is wrong at the same time, such as files that are not there.
    pub config: Config,
    /// The warnings, or every mistake.
    pub outcome: Result<Vec<Problem>, Errors>,
}

/// Reads a configuration from a file as [`load`] does, and gives what can be understood of one with mistakes too.
///
/// # Errors
/// The file cannot be read, is not UTF-8 or has more than 16 MiB.
pub fn survey(path: &Path, environment: &Environment) -> Result<Survey, Errors> {
    let name = path.display().to_string();
    let failed = |problem: Problem| Errors::new(&*name, vec![problem]);
    let text = read_text(path, &name, FILE_MAX).map_err(failed)?;
    let absolute = std::path::absolute(path).map_err(|error| failed(unreadable(&name, &error)))?;
    Ok(survey_document(&text, &Document { name: &name, path: &absolute }, environment))
}

/// How a text is read that may not be in its file yet.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// Where it would be, absolute: relative paths, and those of `include`, start at the folder of it.
    pub path: &'a Path,
}

/// Reads a configuration from a text as [`load`] reads it from a file, and the files that it includes.
///
/// # Errors
/// Every mistake of the text, and the warnings among them.
pub fn load_document(
    text: &str,
    document: &Document<'_>,
    environment: &Environment,
) -> Result<(Config, Vec<Problem>), Errors> {
    let Survey { config, outcome } = survey_document(text, document, environment);
    outcome.map(|warnings| (config, warnings))
}

fn survey_document(text: &str, document: &Document<'_>, environment: &Environment) -> Survey {
    let folder = document.path.parent().unwrap_or(Path::new("/"));
    let mut source = Source::new(document.name, folder, text);
    let shown = Path::new(document.name).parent().unwrap_or(Path::new(""));
    let problems = include::read(&mut source, shown);
    survey_in(&source, problems, environment)
}

/// The text of a file that may have so many bytes.
fn read_text(path: &Path, name: &str, most: u64) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| unreadable(name, &error))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    if bytes.len() as u64 > most {
        let problem = Problem::new(format!("{name} is larger than 16 MiB"));
        return Err(
            problem.help("is it the right file? A configuration and what it includes have 16 MiB at most")
        );
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        Problem::new(format!("{name}, line {line}: not UTF-8")).help("write the file in UTF-8")
    })
}

fn unreadable(name: &str, error: &std::io::Error) -> Problem {
    Problem::new(format!("cannot read {name}: {error}")).help("check that the file exists and may be read")
}

/// Checks what was read. `missing` is why files that are included could not be.
fn survey_in(source: &Source, missing: Vec<(Span, Problem)>, environment: &Environment) -> Survey {
    let mut report = Report::new(source);
    if !missing.is_empty() {
        report.mistrust_what_is_missing();
    }
    for (span, problem) in missing {
        report.local(&span, problem);
    }
    let mut typed = raw::read(&mut report);
    let shared = check::shared(&typed, source);
    check::spread(&mut typed, &mut report);
    let mut config = check::check(&typed, environment, &mut report);
    config.shared = shared;
    Survey { config, outcome: report.finish(()).map(|((), warnings)| warnings) }
}
