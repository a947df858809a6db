//! Files to be imported: how they are read, places in them, and the errors that end an import.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place in a file that is imported; line and column are counted from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FoundAt {
    /// The path of the file as it was named or included.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

impl fmt::Display for FoundAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A reason to import nothing at all.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The place, if the reason has one.
    pub at: Option<FoundAt>,
    /// The fault in one line.
    pub message: String,
    /// The remedy in one line.
    pub help: String,
}

impl ImportError {
    pub(crate) fn at(at: &FoundAt, message: impl Into<String>, help: impl Into<String>) -> Self {
        ImportError { at: Some(at.clone()), message: message.into(), help: help.into() }
    }

    pub(crate) fn whole(message: impl Into<String>, help: impl Into<String>) -> Self {
        ImportError { at: None, message: message.into(), help: help.into() }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        write!(f, "{}; {}", self.message, self.help)
    }
}

impl std::error::Error for ImportError {}

/// The files that an import may read.
pub trait SourceFiles {
    /// Reads a file whole, up to [`FILE_MAX`] bytes and one more.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The files that a pattern with `*`, `?` or `[` names, in the order of their names.
    fn matching(&self, pattern: &str) -> Vec<PathBuf>;

    /// The path by which a file is recognized when it comes again.
    fn identity(&self, path: &Path) -> PathBuf;
}

/// The maximum size of a file.
pub const FILE_MAX: u64 = 64 << 20;

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl SourceFiles for DiskFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn matching(&self, pattern: &str) -> Vec<PathBuf> {
        let found = glob::glob(pattern).map(|paths| paths.flatten().collect());
        found.unwrap_or_default()
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }
}

/// Files in memory, by path.
impl SourceFiles for BTreeMap<PathBuf, Vec<u8>> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn matching(&self, pattern: &str) -> Vec<PathBuf> {
        let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        let Ok(pattern) = glob::Pattern::new(pattern) else { return Vec::new() };
        self.keys().filter(|path| pattern.matches_path_with(path, options)).cloned().collect()
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// Reads the text of a file.
pub(crate) fn text(path: &Path, files: &dyn SourceFiles) -> Result<String, ImportError> {
    let name = path.display();
    let bytes = files.read(path).map_err(|error| {
        let help = "check that the file exists and may be read";
        ImportError::whole(format!("cannot read {name}: {error}"), help)
    })?;
    if bytes.len() as u64 > FILE_MAX {
        let help = "divide it into several files, and import them one by one";
        return Err(ImportError::whole(format!("{name} is larger than 64 MiB"), help));
    }
    let at = |index: usize| FoundAt {
        file: name.to_string().into(),
        line: 1 + bytes[..index].iter().filter(|byte| **byte == b'\n').count(),
        column: 1,
    };
    if let Some(zero) = bytes.iter().position(|byte| *byte == 0) {
        let help = "name the file with the configuration; a certificate in DER or a program is none";
        return Err(ImportError::at(&at(zero), "a binary file", help));
    }
    match String::from_utf8(bytes.clone()) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let at = at(error.utf8_error().valid_up_to());
            Err(ImportError::at(&at, "not UTF-8", "write the file in UTF-8"))
        }
    }
}
