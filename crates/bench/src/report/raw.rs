//! The raw data: one line of CSV for each figure of each round, written as it comes, so that an
//! interrupted run keeps what it has measured.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// One figure of one contestant in one round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) scenario: String,
    pub(crate) case: String,
    pub(crate) contestant: String,
    /// From 0.
    pub(crate) round: usize,
    pub(crate) metric: String,
    pub(crate) value: f64,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Raw {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Raw {
    /// Begins the file with its heading.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::io(format!("creating {}", path.display()), e))?;
        let mut raw = Self { file: BufWriter::new(file), path: path.to_owned() };
        raw.line("scenario,case,contestant,round,metric,value")?;
        Ok(raw)
    }

    /// Adds a figure. Names hold no commas: they come from the harness's own tables and from system calls.
    ///
    /// # Errors
    /// When the disk is full.
    pub(crate) fn write(&mut self, s: &Sample) -> Result<()> {
        let (round, value) = (s.round + 1, s.value);
        self.line(&format!("{},{},{},{round},{},{value}", s.scenario, s.case, s.contestant, s.metric))
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    /// When the disk is full.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|e| Error::io(format!("writing {}", self.path.display()), e))
    }

    fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.file, "{line}").map_err(|e| Error::io(format!("writing {}", self.path.display()), e))
    }
}
