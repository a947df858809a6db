//! The configuration language of Offramp: keys, parsing, validation, editing, differences.
//!
//! [`parse`] turns the text of a file into a [`Config`], or into all of its mistakes at once, each with line, caret and
//! remedy. The stages are: TOML with places; the typed form, checked against the one table of [`keys`]; and the meaning,
//! the [`model`]. [`load`] also reads the file and those that it includes.
//!
//! The main types:
//!
//! - [`Config`] is one whole configuration, with a list each of listeners, routes, backends and certificates.
//! - [`Errors`] are all problems of a text, each a [`Problem`] with its [`Place`].
//! - [`ConfigDiff`] is the difference of two configurations, which a reload applies.
//! - [`Edit`] changes one item in the text of a configuration, and keeps its comments. [`print()`] writes a whole
//!   configuration, with defaults.
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
//! # Add a key
//!
//! A plain key, such as a limit of a route, is three edits:
//!
//! 1. A row of [`keys::TABLE`]: path, type with bounds, default, when a change takes effect, where it applies, the field
//!    that has its value, and a sentence of documentation. The path is the only string that names the key.
//! 2. The field: one of [`model::PlainRules`] (in `model/http.rs`) for a rule of routes that `proxy` reads as it is, whose
//!    `Default` has the default of the row. Its type may be one that `settings` knows; a new type gets a line there, with
//!    the spelling of its texts for the schema, and a new struct one in the list of `settings`.
//! 3. An example in a page of `docs/`, with a value that is not the default.
//!
//! Reading, messages with places, `check --print`, the difference at a reload, inheritance from policies and defaults,
//! the schema for editors, and the pages `docs/reference/keys/` follow from the row (`OFFRAMP_BLESS=1 cargo test -p
//! offramp-config` writes the page). Tests refuse a row whose value nothing reads, a default that the model does not have, and a key without an
//! example that matters. A conflict between values, if there is one, is a rule in `check`.
//!
//! The crate is pure: no sockets, no clock, no environment, and no files except in [`load`] and for
//! `include`, and a look at symbolic links of directories. Named files are checked by their readers; [`survey`] returns the names even of a file with mistakes.
//!
//! # Modules
//!
//! - [`keys`]: the table of names, types, defaults and documentation, and the JSON Schema of it; `choice`, the words that
//!   keys take
//! - `raw`: the typed form, every value with its place
//! - `include`: further files
//! - `check`: from the typed form to the model, all mistakes at once
//! - [`model`]: the meaning; `shared`, the shared settings of routes as written, so that an edit means the same to the
//!   configuration in force as to the file
//! - `settings`: plain values, bound to fields of the model
//! - `diff`: one generic difference of keyed lists, and the places that a configuration keeps
//! - `edit`: changes of single items in a text
//! - `print` and `literal`: the configuration as TOML
//! - `formatting`: the canonical layout of a text
//! - `syntax`: the spellings of texts as patterns, for the schema
//! - `error` and `suggest`: problems with place and remedy, and suggestions for misspelt words
//! - `units`: durations, sizes and rates

use std::io::Read;
use std::path::Path;

use error::{ProblemCollector, SourceText, Span};

pub use diff::{ConfigDiff, ItemChange, Keyed, ListDiff, SettingValue, keep_until_restart};
pub use edit::{EDITED, Edit, EditError, EditMeeting, Item, ServerEdit, item_at, without_lines};
pub use error::{At, Errors, Place, Problem, Severity};
pub use folder::{absolute, joined};
pub use formatting::formatted;
pub use include::{IncludedSources, includes_files, sources, sources_with};
pub use model::{Config, Environment};
pub use print::print;
pub use secrets::hide_secrets;
pub use suggest::nearest;
pub use units::{Per, Rate, parse_duration};

pub mod keys;
pub mod model;

mod check;
mod choice;
mod diff;
mod edit;
mod error;
mod folder;
mod formatting;
mod include;
mod literal;
mod print;
mod raw;
mod secrets;
mod settings;
mod suggest;
mod syntax;
mod units;

/// The maximum size of a file for [`load`], in bytes: a thousand times a large configuration.
pub const FILE_MAX: u64 = 16 << 20;

/// Parses a configuration from text. `file_name` is for messages, and its directory is the start of relative
/// paths. Returns the configuration and its warnings. Reads no file: `include` is an error here.
///
/// # Errors
/// Every mistake of the text in order, and the warnings among them.
pub fn parse(
    text: &str,
    file_name: &str,
    environment: &Environment,
) -> Result<(Config, Vec<Problem>), Errors> {
    let folder = Path::new(file_name).parent().unwrap_or(Path::new(""));
    let source = SourceText::new(file_name, folder, text);
    let Survey { config, outcome } = survey_in(&source, include::refuse(&source), environment);
    outcome.map(|warnings| (config, warnings))
}

/// Loads a configuration from a file and those that it includes. Relative paths in each start at its
/// directory and become absolute.
///
/// # Errors
/// The file cannot be read, is not UTF-8 or exceeds 16 MiB; or every mistake of its text.
pub fn load(path: &Path, environment: &Environment) -> Result<(Config, Vec<Problem>), Errors> {
    let Survey { config, outcome } = survey(path, environment)?;
    outcome.map(|warnings| (config, warnings))
}

/// A file as far as it can be understood, with or without mistakes.
#[derive(Debug)]
pub struct Survey {
    /// The configuration. With mistakes it is incomplete and must not be used, except to find further
    /// problems, such as missing files.
    pub config: Config,
    /// The warnings, or every mistake.
    pub outcome: Result<Vec<Problem>, Errors>,
}

/// Loads a configuration like [`load`], and returns the valid part of one with mistakes, too.
///
/// # Errors
/// The file cannot be read, is not UTF-8 or exceeds 16 MiB.
pub fn survey(path: &Path, environment: &Environment) -> Result<Survey, Errors> {
    let name = path.display().to_string();
    let failed = |problem: Problem| Errors::new(&*name, vec![problem]);
    let text = read_text(path, &name, FILE_MAX).map_err(failed)?;
    let path = &absolute(path).map_err(|error| failed(unreadable(&name, &error)))?;
    Ok(survey_document(&text, &Document { name: &name, path }, environment))
}

/// Reads the text of a configuration's file, as [`load`] does.
///
/// # Errors
/// The file cannot be read, is not UTF-8 or exceeds 16 MiB.
pub fn read_file(path: &Path) -> Result<String, Errors> {
    let name = path.display().to_string();
    read_text(path, &name, FILE_MAX).map_err(|problem| Errors::new(&*name, vec![problem]))
}

/// The identity of a text that may not be in its file yet.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// The name in messages.
    pub name: &'a str,
    /// The absolute path of the file to be: relative paths, and those of `include`, start at its directory.
    pub path: &'a Path,
}

/// Loads a configuration from a text, with the files that it includes, like [`load`] from a file.
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
    let mut source = SourceText::new(document.name, folder, text);
    let shown = Path::new(document.name).parent().unwrap_or(Path::new(""));
    let problems = include::read(&mut source, shown);
    survey_in(&source, problems, environment)
}

/// Reads the text of a configuration from a stream, such as standard input; `name` is for messages.
///
/// # Errors
/// The stream cannot be read, is not UTF-8 or exceeds 16 MiB.
pub fn read_stream(stream: impl Read, name: &str) -> Result<String, Errors> {
    text_of(stream, name, FILE_MAX).map_err(|problem| Errors::new(name, vec![problem]))
}

/// Reads a text file of at most `most` bytes.
fn read_text(path: &Path, name: &str, most: u64) -> Result<String, Problem> {
    let file = std::fs::File::open(path).map_err(|error| unreadable(name, &error))?;
    text_of(file, name, most)
}

fn text_of(stream: impl Read, name: &str, most: u64) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    stream.take(most + 1).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
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

/// Validates the source. `missing` are problems of included files.
fn survey_in(source: &SourceText, missing: Vec<(Span, Problem)>, environment: &Environment) -> Survey {
    let mut report = ProblemCollector::new(source);
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
