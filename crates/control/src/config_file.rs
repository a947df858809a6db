//! The configuration's file: as it is now, as it was last read or written, and as a change is about to write it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use offramp_config::{
    Config, ConfigDiff, Document, Edit, Environment, Errors, Problem, absolute, includes_files,
    keep_until_restart, load_document, sources, sources_with,
};
use offramp_process::Source;

use crate::autosave::{Autosave, Saved};
use crate::differences::{self, is_same};
use crate::persist::{self, File};
use crate::running_config::RunningConfig;

/// The file as it is now.
pub(crate) struct FileText {
    pub(crate) config: Config,
    pub(crate) text: String,
    /// The digest of the file and of those that it includes.
    pub(crate) digest: u64,
    pub(crate) warnings: Vec<Problem>,
}

impl FileText {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or every mistake.
    pub(crate) fn read(path: &Path, environment: &Environment) -> Result<Self, Errors> {
        // Before the text: a file that changes meanwhile has another digest later, and is not taken for this one.
        let digest = sources(path).digest;
        let text = offramp_config::read_file(path)?;
        Self::parse(path, text, digest, environment)
    }

    fn parse(path: &Path, text: String, digest: u64, environment: &Environment) -> Result<Self, Errors> {
        let name = path.display().to_string();
        let whole = absolute(path).unwrap_or_else(|_| path.to_owned());
        let document = Document { name: &name, path: &whole };
        let (config, warnings) = load_document(&text, &document, environment)?;
        Ok(Self { config, text, digest, warnings })
    }

    /// Reads the file for a change of it, if it is as it was last `read`: nothing is written over what nobody has read.
    ///
    /// # Errors
    /// It was changed since, or cannot be read.
    pub(crate) fn unchanged(path: &Path, read: &FileRead, environment: &Environment) -> Result<Self, String> {
        Self::unless_lost(path, read, environment, None)
    }

    /// Reads the file for a change to `text`, like [`FileText::unchanged`], or if it has this text already.
    ///
    /// # Errors
    /// Those of [`FileText::unchanged`].
    pub(crate) fn replaced_by(
        text: &str,
        path: &Path,
        read: &FileRead,
        environment: &Environment,
    ) -> Result<Self, String> {
        Self::unless_lost(path, read, environment, Some(text))
    }

    fn unless_lost(
        path: &Path,
        read: &FileRead,
        environment: &Environment,
        new: Option<&str>,
    ) -> Result<Self, String> {
        let text = persist::read(path)?;
        let digest = sources_with(path, &text).digest;
        if read.digest != Some(digest) && new != Some(&*text) {
            return Err(format!(
                "{} was changed since it was read and is not overwritten; `offramp ctl reload` reads it, and then make the \
                 changes again with --persist",
                path.display()
            ));
        }
        Self::parse(path, text, digest, environment).map_err(|errors| errors.to_string())
    }
}

/// The lines in which the keys of two configurations differ that take effect at a restart.
fn restart_lines(old: &Config, new: &Config) -> Vec<String> {
    let mut with_old = new.clone();
    keep_until_restart(old, &mut with_old);
    ConfigDiff::between(&with_old, new).to_string().lines().map(str::to_owned).collect()
}

/// The file as it was last read or written; of a process without one, its command line.
#[derive(Clone, Debug)]
pub(crate) struct FileRead {
    pub(crate) config: Arc<Config>,
    /// The digest of [`FileText`]; `None` if the file may have been changed since.
    pub(crate) digest: Option<u64>,
}

impl FileRead {
    /// The digest of every command line: that of one process does not change.
    pub(crate) const COMMAND_LINE: u64 = 0;

    /// A configuration in force as it is saved where it differs from this file in so many lines.
    pub(crate) fn saved<'a>(&self, in_force: &'a RunningConfig, changes: usize) -> Saved<'a> {
        let base = (changes > 0).then(|| Edit::text_of(&self.config).into());
        Saved { digest: self.digest, changes, text: Cow::Borrowed(&in_force.text), base }
    }
}

/// A text that a change writes to the file, with the configuration that the file has then.
#[derive(Debug)]
pub(crate) struct FileChange {
    path: PathBuf,
    file: File,
    config: Arc<Config>,
    /// The digest of the file before, and the one that it has then.
    digests: (u64, u64),
    warnings: Vec<String>,
}

/// A file that was written.
pub(crate) struct FileWritten {
    pub(crate) path: PathBuf,
    pub(crate) read: FileRead,
}

impl FileChange {
    /// The change of the file, as it is `now`, to a text that a start would read as `config`.
    ///
    /// # Errors
    /// A start would refuse its size.
    pub(crate) fn new(
        path: &Path,
        now: FileText,
        text: String,
        mut config: Config,
        in_force: &Config,
    ) -> Result<Self, String> {
        persist::fits(path, &text)?;
        let mut warnings = Vec::new();
        let later = restart_lines(&now.config, &config);
        if !later.is_empty() {
            let later = later.join("; ");
            warnings.push(format!("the next start finds other values in the file than it has now: {later}"));
        }
        // They are no changes that were not written.
        keep_until_restart(in_force, &mut config);
        let digests = (now.digest, sources_with(path, &text).digest);
        let file = File::new(path.to_owned(), now.text, text);
        warnings.extend(file.other_names());
        Ok(Self { path: path.to_owned(), file, config: Arc::new(config), digests, warnings })
    }

    /// The change that writes the configuration in force; the file must be as it was last `read`. Keys that take effect at a
    /// restart stay as the file has them.
    ///
    /// # Errors
    /// There is no such file, it was changed since, or a start would read something else from it.
    pub(crate) fn whole(running: &RunningConfig, read: &FileRead, source: &Source) -> Result<Self, String> {
        let path = source.origin.file()?;
        let now = FileText::unchanged(path, read, &source.environment)?;
        if includes_files(&now.text) {
            return Err(format!(
                "{} includes other files, which this does not write; make the changes again with --persist, or write them by \
                 hand",
                path.display()
            ));
        }
        let mut at_start = Config::clone(&running.config);
        keep_until_restart(&now.config, &mut at_start);
        let printed = Edit::text_of(&at_start);
        // An unknown form, such as an inline table, is in the user's text only.
        let edited = Edit::with_restart_keys(&running.text, &now.text).ok();
        let reads_as = |text: &String| {
            let read = FileText::parse(path, text.clone(), now.digest, &source.environment).ok()?;
            is_same(&read.config, &at_start).then_some(read.config)
        };
        let found =
            edited.into_iter().chain([printed.clone()]).find_map(|text| Some((reads_as(&text)?, text)));
        let Some((config, text)) = found else {
            return Err(format!(
                "a start would read another configuration from {} than the one in force; write the changes by hand: \
                 `offramp ctl show config` has them",
                path.display()
            ));
        };
        let is_printed = text == printed;
        let mut change = Self::new(path, now, text, config, &running.config)?;
        if is_printed {
            change.warnings.push("comments and order of the file are not kept".to_owned());
        }
        Ok(change)
    }

    /// The effects of the change that its author may not expect.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Finds out whether the file could be written now, and leaves it as it is.
    ///
    /// # Errors
    /// The reason why it could not.
    pub(crate) fn try_out(&self) -> Result<(), String> {
        self.file.try_out()
    }

    /// Writes the file, which is to differ from the configuration in force. That is saved first: a process that ends after
    /// the file is written would leave an autosave that belongs to another file.
    ///
    /// # Errors
    /// The reason why it stays as it was.
    pub(crate) async fn write(
        &self,
        in_force: &RunningConfig,
        autosave: &mut Autosave,
    ) -> Result<FileWritten, String> {
        let read = FileRead { config: Arc::clone(&self.config), digest: Some(self.digests.1) };
        let changes = differences::lines(&read.config, &in_force.config).len();
        let coming =
            read.saved(in_force, changes).form(&absolute(&self.path).unwrap_or_else(|_| self.path.clone()));
        // A change is not refused for that. If the autosave itself cannot be written either, the answer says so.
        let _ = autosave.announce(coming).await;
        let written = self.replace();
        if written.is_err() {
            autosave.withdraw();
        }
        written
    }

    fn replace(&self) -> Result<FileWritten, String> {
        let (before, after) = self.digests;
        // With those that it includes.
        if sources(&self.path).digest != before {
            return Err(format!(
                "{} was changed meanwhile and is not overwritten; make the change again",
                self.path.display()
            ));
        }
        let path = self.file.write()?;
        // Another program may have written it after that.
        let is_ours = sources(&path).digest == after;
        let read = FileRead { config: Arc::clone(&self.config), digest: is_ours.then_some(after) };
        Ok(FileWritten { path, read })
    }

    /// Gives the file, which was written, the text again that it had before.
    ///
    /// # Errors
    /// The reason why it stays as it is.
    pub(crate) fn take_back(self) -> Result<(), String> {
        self.file.take_back()
    }
}

#[cfg(test)]
mod tests;
