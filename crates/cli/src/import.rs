//! `offramp import`: the configuration of another proxy, as one of Offramp with a report.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use offramp_import::{DiskFiles, ForeignLanguage, Imported, import};

use crate::failure::Failure;
use crate::flags::import::ImportArguments;
use crate::surroundings::{print, say};

/// Runs `offramp import`: the configuration goes to standard output or a new file, the report to standard error.
///
/// # Errors
/// Files that cannot be imported, an output that cannot be written, or directives that were not taken.
pub(crate) fn run(arguments: &ImportArguments) -> Result<(), Failure> {
    if let Some(language) = arguments.list {
        return print(language.list().as_bytes());
    }
    let language = match arguments.from {
        Some(language) => language,
        None => guess(arguments)?,
    };
    let imported = import(language, &arguments.files, &DiskFiles)
        .map_err(|error| Failure::usage(format_args!("error: {error}")))?;
    let Imported { toml, report } = &imported;
    match &arguments.output {
        Some(path) => write(path, toml)?,
        None => print(toml.as_bytes())?,
    }
    say(report.text(arguments.all).trim_end());
    let left = report.left_out();
    if left == 0 || arguments.partial {
        return Ok(());
    }
    Err(Failure::runtime(format_args!(
        "error: {left} of the directives were not taken, see above; --partial if that is all right"
    )))
}

/// The language of the first file, by its name.
fn guess(arguments: &ImportArguments) -> Result<ForeignLanguage, Failure> {
    let name = arguments.files.first().map(|path| path.display().to_string()).unwrap_or_default();
    ForeignLanguage::guess(&name).ok_or_else(|| {
        let words: Vec<&str> = ForeignLanguage::ALL.iter().map(|language| language.word()).collect();
        Failure::usage(format_args!(
            "error: the language of {name} is not known; name it: --from {}",
            words.join(" or ")
        ))
    })
}

/// Writes a new file; one that exists is left as it is.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage(format_args!("error: {shown} exists; remove it, or name another file"))
        }
        _ => Failure::runtime(format_args!("error: cannot write {shown}: {error}")),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
