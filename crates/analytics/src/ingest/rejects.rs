//! Lines that did not parse: the first few are kept to be shown, and all may be written to a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::Error;
use crate::parse_error::{ParseError, Rejection};

/// What becomes of lines that did not parse.
#[derive(Default)]
pub struct Rejects {
    shown: Vec<Rejection>,
    /// The beginnings of the same lines.
    samples: Vec<Vec<u8>>,
    file: Option<(String, BufWriter<File>)>,
    tell: Option<Tell>,
}

/// The observer.
type Tell = Box<dyn FnMut(&Rejection) + Send>;

impl fmt::Debug for Rejects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejects")
            .field("shown", &self.shown)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Rejects {
    /// The first ones are kept, no file is written.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All are also added to a file, as they came; of lines that are too long the beginning.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn to_file(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        match OpenOptions::new().append(true).create(true).open(path) {
            Ok(file) => Ok(Self { file: Some((name, BufWriter::new(file))), ..Self::default() }),
            Err(error) => Err(Error::Io(name, error)),
        }
    }

    /// Tells of the first ones as they are found.
    #[must_use]
    pub fn on_reject(mut self, tell: impl FnMut(&Rejection) + Send + 'static) -> Self {
        self.tell = Some(Box::new(tell));
        self
    }

    /// The first ones, at most ten.
    #[must_use]
    pub fn shown(&self) -> &[Rejection] {
        &self.shown
    }

    /// The beginnings of the same lines, to find out what they are.
    #[must_use]
    pub fn samples(&self) -> &[Vec<u8>] {
        &self.samples
    }

    pub(super) fn add(&mut self, number: u64, line: &[u8], error: ParseError) -> Result<(), Error> {
        if self.shown.len() < SHOWN {
            let rejection = Rejection::new(number, line, error);
            if let Some(tell) = &mut self.tell {
                tell(&rejection);
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

/// How many are kept to be shown.
const SHOWN: usize = 10;
/// Bytes of a sample.
const SAMPLE: usize = 4096;
