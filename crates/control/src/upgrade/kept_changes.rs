//! The changes in force that the file does not have, as they pass to the process that takes over.
//!
//! Where the file is as it was read, the text in force passes as a whole. Where the file was changed since, the
//! differences are made to the file as it is now, item by item.

use std::fmt;
use std::sync::Arc;

use offramp_config::{Config, Document, EDITED, Edit, keep_until_restart, load_document};
use offramp_process::{Error, Origin, Source};
use serde::{Deserialize, Serialize};

use crate::config_file::{FileRead, FileText};
use crate::differences::{self, is_same, summary};
use crate::edits::{edited, refused};
use crate::running_config::RunningConfig;

/// The changes that pass to a new process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptChanges {
    /// Edits of the file as it is now, as [`Edit::to_text`] has them.
    #[serde(rename = "unwritten")]
    edits: Vec<String>,
    /// The text in force.
    #[serde(rename = "running")]
    text: Option<KeptText>,
}

/// A text in force, for a file with this digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptText {
    text: String,
    digest: u64,
}

/// The file as it is now.
#[derive(Default)]
struct FileNow {
    /// `None` where it has mistakes.
    config: Option<Config>,
    digest: Option<u64>,
}

impl FileNow {
    fn read(source: &Source) -> Self {
        match &source.origin {
            Origin::File(path) => match FileText::read(path, &source.environment) {
                Ok(file) => Self { config: Some(file.config), digest: Some(file.digest) },
                Err(_) => Self::default(),
            },
            Origin::CommandLine => Self { config: None, digest: Some(FileRead::COMMAND_LINE) },
        }
    }
}

impl KeptChanges {
    /// The changes of this process; an operator may have written some of them into the file meanwhile. Reads the file.
    ///
    /// # Errors
    /// The changes that would be lost.
    pub(crate) fn of(running: &RunningConfig, read: &FileRead, source: &Source) -> Result<Self, String> {
        if is_same(&read.config, &running.config) {
            return Ok(Self::default());
        }
        Self::beside(FileNow::read(source), running, read, source)
    }

    fn beside(
        mut now: FileNow,
        running: &RunningConfig,
        read: &FileRead,
        source: &Source,
    ) -> Result<Self, String> {
        let config = &*running.config;
        if let Some(found) = &mut now.config {
            keep_until_restart(config, found);
            if is_same(found, config) {
                return Ok(Self::default());
            }
        }
        if let Some(digest) = now.digest.filter(|digest| read.digest == Some(*digest)) {
            let text = running.text.as_ref().to_owned();
            return Ok(Self { edits: Vec::new(), text: Some(KeptText { text, digest }) });
        }
        let edits = Edit::between(&read.config, config);
        let edits: Vec<&Edit> = edits.iter().collect();
        let leads = |to: &Config, edits: &[&Edit]| {
            let start = RunningConfig::printed(Arc::new(to.clone()));
            edited(&start, edits, source).is_ok_and(|led| is_same(&led.config, config))
        };
        if !leads(&read.config, &edits) {
            return Err(summary(&differences::lines(&read.config, config)));
        }
        let missing = now.config.and_then(|found| missing(found, &edits, config, source));
        let edits = missing.unwrap_or(edits);
        Ok(Self { edits: edits.into_iter().map(Edit::to_text).collect(), text: None })
    }

    /// The configuration of the file, with the changes; `read` is the file as this process has read it.
    ///
    /// # Errors
    /// One of them cannot be made.
    pub(crate) fn take_over(
        &self,
        base: RunningConfig,
        read: &FileRead,
        source: &Source,
    ) -> Result<RunningConfig, Error> {
        if let Some(kept) = &self.text {
            return kept.take_over(read, source);
        }
        if self.edits.is_empty() {
            return Ok(base);
        }
        let refused = |edit: &dyn fmt::Display, why: &dyn fmt::Display| {
            Error::one(format!(
                "a change is in force that the file does not have, and it cannot be made to what the file has now \
                 ({edit}: {why}); write it to the file, or go without it: `offramp ctl upgrade --force`"
            ))
        };
        let known = |text: &String| {
            Edit::from_text(text).ok_or_else(|| refused(&text.trim(), &"it is not known here"))
        };
        let edits = self.edits.iter().map(known).collect::<Result<Vec<Edit>, Error>>()?;
        let all: Vec<&Edit> = edits.iter().collect();
        let made = edited(&base, &all, source).map_err(|(at, why)| match edits.get(at) {
            Some(edit) => refused(edit, &why),
            None => refused(&"all of them", &why),
        })?;
        Ok(RunningConfig { config: Arc::new(made.config), text: made.text })
    }
}

impl KeptText {
    fn take_over(&self, read: &FileRead, source: &Source) -> Result<RunningConfig, Error> {
        if read.digest != Some(self.digest) {
            return Err(Error::one(
                "the file of the configuration was changed during the upgrade; try again",
            ));
        }
        let document = Document { name: EDITED, path: source.origin.path() };
        let (mut config, _) =
            load_document(&self.text, &document, &source.environment).map_err(|errors| refused(&errors))?;
        keep_until_restart(&read.config, &mut config);
        config.keep_places(&read.config);
        Ok(RunningConfig::read(Arc::new(config), &self.text))
    }
}

/// The edits that the file has not, if it has the others: these cannot be made to it once more, and without them it leads to
/// what is in force.
fn missing<'e>(found: Config, edits: &[&'e Edit], config: &Config, source: &Source) -> Option<Vec<&'e Edit>> {
    let mut now = RunningConfig::printed(Arc::new(found));
    if edited(&now, edits, source).is_ok() {
        return None;
    }
    let mut missing = Vec::new();
    for edit in edits {
        if let Ok(made) = edited(&now, &[edit], source) {
            now = RunningConfig { config: Arc::new(made.config), text: made.text };
            missing.push(*edit);
        }
    }
    is_same(&now.config, config).then_some(missing)
}

#[cfg(test)]
mod tests;
