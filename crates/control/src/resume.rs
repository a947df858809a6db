//! The start from the configuration that was in force when the process before ended, however it ended (`run --resume`).
//!
//! Where the file of the configuration was changed since, the changes that it does not have are made to it as it is now
//! ([`merge`]); the file wins where both have changed the same thing. The autosave never prevents a start: where it cannot be
//! used the file is, and a start that has used it and did not end well is followed by one that uses the file ([`Resumption`]).
//! Nothing is lost: the autosave is kept under another name once a start has succeeded without it, and stays in its place
//! until then. Keys that take effect only at a restart come from the file in any case, and so do the limits of the sandbox: a
//! user that may write to the state directory must not choose them.

mod merge;
mod resumption;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use offramp_config::{Config, Document, includes_files, keep_until_restart, load_document};
use offramp_observe::Log;
use offramp_process::sandbox::{self, Scope};
use offramp_process::{Error, none_or_refused};

use crate::autosave::{self, Saved, SavedFile};
use crate::build;
use crate::config_file::FileRead;
use crate::differences::{self, is_same, summary};
use crate::edits;
use crate::running_config::RunningConfig;

use merge::{Merged, Sides, merge};
pub(crate) use resumption::Resumption;

/// The outcome of a look at the autosave.
enum Resumed {
    /// Its changes are in force, or those that fit the file.
    Merged(Merged),
    /// There is no autosave.
    Missing,
    /// It had no change that the file does not have, or the file has them now.
    Nothing,
    /// It cannot be used, for this reason.
    Unusable(String),
}

/// The file of the configuration, with its text.
#[derive(Clone, Copy)]
pub(crate) struct FileAtStart<'a> {
    pub(crate) base: &'a RunningConfig,
    pub(crate) read: &'a FileRead,
}

/// The saved configuration, if a start uses it instead of the file's. Logs which one it is.
pub(crate) fn resume(
    file: FileAtStart<'_>,
    scope: Scope<'_>,
    log: &Log,
) -> (Option<RunningConfig>, Resumption) {
    let state_dir = &file.base.config.process.state_dir;
    let mut resumption = match Resumption::begin(state_dir, log) {
        Ok(resumption) => resumption,
        Err(other) => return (None, other),
    };
    autosave::adopt(state_dir, file.read.digest);
    let path = autosave::path_in(state_dir);
    let shown = path.display().to_string();
    let from = ("from", (&shown).into());
    let outcome = if resumption.was_tried() {
        Resumed::Unusable(format!("{shown}: the start before used it, and did not end well"))
    } else {
        look(&path, file, scope)
    };
    let merged = match outcome {
        Resumed::Merged(merged) => merged,
        Resumed::Missing => {
            let unused = autosave::unused_path_in(state_dir);
            let unused_shown = unused.display().to_string();
            let message = "nothing to resume; the file of the configuration is used";
            match unused.exists() {
                true => log.info(message, &[from, ("not_in_force", (&unused_shown).into())]),
                false => log.info(message, &[from]),
            }
            return (None, resumption);
        }
        Resumed::Nothing => {
            log.info("the file of the configuration has what is to be resumed", &[from]);
            return (None, resumption);
        }
        Resumed::Unusable(reason) => {
            resumption.give_up(&reason, log);
            return (None, resumption);
        }
    };
    let Merged { running, conflicts } = merged;
    let changes = summary(&differences::lines(&file.base.config, &running.config));
    if !changes.is_empty() {
        resumption.resume(&changes, log);
    }
    if !conflicts.is_empty() {
        resumption.leave_out(&conflicts, log);
    }
    let running = (!changes.is_empty()).then_some(running);
    (running, resumption)
}

fn look(path: &Path, file: FileAtStart<'_>, scope: Scope<'_>) -> Resumed {
    let FileAtStart { base, read } = file;
    let shown = path.display().to_string();
    let unusable = |reason: &dyn std::fmt::Display| Resumed::Unusable(format!("{shown}: {reason}"));
    let SavedFile { content, is_of_other } = match autosave::read(path) {
        Ok(Some(file)) => file,
        Ok(None) => return Resumed::Missing,
        Err(error) => return unusable(&error),
    };
    let saved = match Saved::parse(&content) {
        Ok(saved) => saved,
        Err(reason) => return unusable(&reason),
    };
    // The whole of it, so that lines have their numbers.
    let config = match parse(&content, &shown, &read.config, scope) {
        Ok(config) => config,
        Err(error) => return Resumed::Unusable(joined(&error)),
    };
    if is_same(&config, &read.config) {
        return Resumed::Nothing;
    }
    let running = RunningConfig::read(Arc::new(config), &saved.text);
    let beyond = if is_of_other { sandbox::beyond_named } else { sandbox::beyond_file };
    let admits = |config: &Config| {
        none_or_refused(beyond(&read.config, config, scope)).map_err(|error| joined(&error))
    };
    let is_as_read = saved.digest.is_some() && saved.digest == read.digest;
    let merged = if is_as_read && admits(&running.config).is_ok() {
        Merged { running, conflicts: Vec::new() }
    } else if saved.changes == 0 {
        return Resumed::Nothing;
    } else {
        let name = format!("{shown}, the file's part");
        let before = saved.base.as_ref().ok_or_else(|| Error::one("it has no part of the file"));
        match before.and_then(|before| parse(before, &name, &read.config, scope)) {
            Ok(before) => {
                let sides = Sides { base: &before, saved: &running, file: base };
                merge(sides, scope.source, &admits)
            }
            Err(error) => return Resumed::Unusable(joined(&error)),
        }
    };
    let config = &merged.running.config;
    let checked = || build::check(config, SystemTime::now()).map(drop).map_err(|error| joined(&error));
    match admits(config).and_then(|()| checked()) {
        Ok(()) if is_same(config, &read.config) && merged.conflicts.is_empty() => Resumed::Nothing,
        Ok(()) => Resumed::Merged(merged),
        Err(reason) => Resumed::Unusable(reason),
    }
}

/// Reads a saved text, with relative paths that start at the configuration's file.
fn parse(content: &str, name: &str, file: &Config, scope: Scope<'_>) -> Result<Config, Error> {
    let source = scope.source;
    if includes_files(content) {
        return Err(Error::one(format!(
            "{name}: it includes other files, which no saved configuration does"
        )));
    }
    let document = Document { name, path: source.origin.path() };
    let (mut config, _) =
        load_document(content, &document, &source.environment).map_err(|errors| edits::refused(&errors))?;
    keep_until_restart(file, &mut config);
    config.keep_places(file);
    Ok(config)
}

fn joined(error: &Error) -> String {
    let findings: Vec<String> = error.findings().iter().map(ToString::to_string).collect();
    findings.join(" | ")
}

#[cfg(test)]
mod tests;
