//! Read positions of the sources of a store: opaque positions and files.

use super::Writer;
use crate::error::Error;
use crate::store::files::{self, FileRecord};
use crate::store::positions::from_hex;

impl Writer {
    /// Returns `true` if the position of a source satisfies `is_such`, once all other writers have ended
    /// their transactions.
    pub(crate) fn has(&mut self, source: &str, is_such: impl Fn(&[u8]) -> bool) -> Result<bool, Error> {
        let place = self.guarded(|writer| {
            writer.ensure_open()?;
            writer.position(source)
        })?;
        let has = place.is_some_and(|place| is_such(&place));
        if has {
            self.rollback();
        }
        Ok(has)
    }

    /// Removes the position of a source.
    pub(crate) fn forget_position(&mut self, source: &str) -> Result<(), Error> {
        self.engine.run("DELETE FROM positions WHERE source = $1", &[source]).map(drop)
    }

    /// The committed files of a source, oldest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error> {
        files::of_source(self.engine.as_mut(), source)
    }

    /// The files of all sources whose content starts with these bytes, with their sources.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
        files::with_head(self.engine.as_mut(), head)
    }

    /// The position last committed for a source.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn position(&mut self, source: &str) -> Result<Option<Vec<u8>>, Error> {
        let place = self.engine.text("SELECT place FROM positions WHERE source = $1", &[source])?;
        Ok(place.as_deref().map(from_hex))
    }
}
