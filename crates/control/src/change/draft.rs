//! From what is asked for to a configuration that was read, and the certificates that it names.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use offramp_config::{
    Config, Document, EDITED, Edit, Errors, Problem, Severity, keep_until_restart, load_document,
};

use super::persist::{self, File};
use super::{Change, NotChanged, Terms};
use crate::certificates::OnFault;
use crate::error::{Error, none_or_refused};
use crate::reload::{Proposal, finding};
use crate::running::Running;
use crate::sandbox;
use crate::server::Origin;

/// A new configuration that was read.
pub(crate) struct Draft {
    pub(super) proposal: Proposal,
    /// What is to be written to the file.
    pub(super) file: Option<File>,
    /// What is odd about the text.
    pub(super) warnings: Vec<String>,
}

impl Draft {
    pub(super) async fn read(running: &Running, change: &Change, terms: &Terms) -> Result<Self, NotChanged> {
        let mint = !terms.dry_run;
        match change {
            Change::Reload => Self::of(running, running.read()?, mint).await,
            Change::Document { name, folder, text } => {
                let path = path(running);
                let path = match folder.as_ref().filter(|_| !terms.persist) {
                    // Only the directory counts.
                    Some(folder) => folder.join("document"),
                    None => path,
                };
                let (config, warnings) = parse(running, text, name, &path)?;
                let mut draft = Self::of(running, config, mint).await?;
                draft.warnings = warnings;
                if terms.persist {
                    let path = origin(running)?;
                    let before = persist::read(&path).map_err(NotChanged::NotWritten)?;
                    draft.file = Some(File::new(path, before, text.clone()));
                }
                Ok(draft)
            }
            Change::Edit(edit) => {
                let file = if terms.persist { Some(edit_file(running, edit)?) } else { None };
                let text = Edit::text_of(&running.config);
                let (current, _) = parse(running, &text, EDITED, &path(running))?;
                if current != *running.config {
                    let why = "this configuration cannot be changed item by item; change the whole of it";
                    return Err(Error::one(why).into());
                }
                let text = edit.apply(&text, &current, EDITED)?;
                let (mut config, _) = parse(running, &text, EDITED, &path(running))?;
                config.keep_places(&running.config);
                Ok(Self { file, ..Self::of(running, config, mint).await? })
            }
            Change::Rollback(version) => {
                let config = Config::clone(&*running.earlier(*version)?);
                Self::of(running, config, mint).await
            }
        }
    }

    /// Of a configuration, and what it names.
    pub(super) async fn of(running: &Running, mut config: Config, mint: bool) -> Result<Self, NotChanged> {
        let needs_restart = keep_until_restart(&running.config, &mut config);
        none_or_refused(sandbox::beyond(&running.source, &config))?;
        let now = SystemTime::now();
        let material = running.read_material(&config, now, OnFault::Refuse, mint).await?;
        let proposal = Proposal { config, needs_restart, material, now, mint };
        Ok(Self { proposal, file: None, warnings: Vec::new() })
    }
}

/// Where relative paths of a text start: where they start in the file of the configuration.
fn path(running: &Running) -> PathBuf {
    match &running.source.origin {
        Origin::File(path) => path.clone(),
        Origin::CommandLine => PathBuf::from("/"),
    }
}

fn origin(running: &Running) -> Result<PathBuf, NotChanged> {
    match &running.source.origin {
        Origin::File(path) => Ok(path.clone()),
        Origin::CommandLine => {
            Err(NotChanged::NotWritten("there is no file: Offramp was started without one".to_owned()))
        }
    }
}

/// Reads a text, and tells its warnings.
fn parse(running: &Running, text: &str, name: &str, path: &Path) -> Result<(Config, Vec<String>), Error> {
    let document = Document { name, path };
    let (config, warnings) =
        load_document(text, &document, &running.source.environment).map_err(|errors| refused(&errors))?;
    Ok((config, warnings.iter().map(|warning| finding(warning).to_string()).collect()))
}

/// Every mistake of a text.
pub(crate) fn refused(errors: &Errors) -> Error {
    let is_error = |problem: &&Problem| problem.severity() == Severity::Error;
    errors.problems().iter().filter(is_error).map(finding).collect::<Vec<_>>().into()
}

/// The file of the configuration with an edit; it must be sound with it.
fn edit_file(running: &Running, edit: &Edit) -> Result<File, NotChanged> {
    let path = origin(running)?;
    let text = persist::read(&path).map_err(NotChanged::NotWritten)?;
    // As it was called when it was read: the places of items say so.
    let name = path.display().to_string();
    let (config, _) = parse(running, &text, &name, &path)?;
    let edited = edit.apply(&text, &config, &name)?;
    parse(running, &edited, &name, &path)?;
    Ok(File::new(path, text, edited))
}
