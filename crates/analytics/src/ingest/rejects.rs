//! Rejected lines: the first few are kept for display, and all may be written to a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::Error;
use crate::parse_error::{ParseError, Rejection};

/// The collection of rejected lines.
#[derive(Default)]
pub struct Rejects {
    shown: Vec<Rejection>,
    /// The beginnings of the same lines.
    samples: Vec<Vec<u8>>,
    file: Option<(String, BufWriter<File>)>,
    observer: Option<RejectObserver>,
}

/// The observer of rejected lines.
type RejectObserver = Box<dyn FnMut(&Rejection) + Send>;

impl fmt::Debug for Rejects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejects")
            .field("shown", &self.shown)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Rejects {
    /// Keeps the first few and writes no file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also appends all rejected lines unchanged to a file, except that overlong ones are cut.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn to_file(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        match OpenOptions::new().append(true).create(true).open(path) {
            Ok(file) => Ok(Self { file: Some((name, BufWriter::new(file))), ..Self::default() }),
            Err(error) => Err(Error::Io(name, error)),
        }
    }

    /// Sets a callback for the first few.
    #[must_use]
    pub fn on_reject(mut self, observer: impl FnMut(&Rejection) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// The first few, at most ten.
    #[must_use]
    pub fn shown(&self) -> &[Rejection] {
        &self.shown
    }

    /// The beginnings of the same lines, for recognising their format.
    #[must_use]
    pub fn samples(&self) -> &[Vec<u8>] {
        &self.samples
    }

    pub(super) fn add(&mut self, number: u64, line: &[u8], error: ParseError) -> Result<(), Error> {
        if self.shown.len() < SHOWN {
            let rejection = Rejection::new(number, line, error);
            if let Some(observe) = &mut self.observer {
                observe(&rejection);
            }
            self.shown.push(rejection);
            self.samples.push(line[..line.len().min(SAMPLE)].to_vec());
        }
        self.write(|file| file.write_all(line).and_then(|()| file.write_all(b"\n")))
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.write(Write::flush)
    }

    fn write(&mut self, act: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<(), Error> {
        match &mut self.file {
            Some((name, file)) => act(file).map_err(|error| Error::Io(name.clone(), error)),
            None => Ok(()),
        }
    }
}

/// The number of lines kept for display.
const SHOWN: usize = 10;
/// The length of a sample in bytes.
const SAMPLE: usize = 4096;
