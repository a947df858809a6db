//! Validation of the things on this machine that a configuration names: files that `control` builds a
//! snapshot from, the user, the directories in which a start creates files, and the kernel's part of the sandbox. Nothing is
//! written.

use std::path::Path;
use std::time::SystemTime;

use offramp_admin::PageUsers;
use offramp_config::model::{AccessOutput, ListenAddress, LogOutput, StoreUrl, User};
use offramp_config::{At, Config};
use offramp_net::process::UserIdentity;
use offramp_observe::Log;
use offramp_process::{Finding, sandbox};

/// Problems of a configuration, found on disk.
#[derive(Default)]
pub(crate) struct DiskFindings {
    /// Problems that prevent a start.
    pub(crate) errors: Vec<Finding>,
    /// Problems that a start logs as warnings, or that are this machine's and not the configuration's.
    pub(crate) warnings: Vec<Finding>,
}

impl DiskFindings {
    fn error(&mut self, at: &At, text: impl Into<String>) {
        self.errors.push(Finding { at: at.clone(), text: text.into() });
    }
}

/// Checks everything that `config` names. `now` is the time against which certificates are validated.
pub(crate) fn look(config: &Config, now: SystemTime) -> DiskFindings {
    look_with(config, offramp_control::check(config, now))
}

/// Checks the files of an invalid configuration, parts of which may be missing.
pub(crate) fn look_at_parts(config: &Config, now: SystemTime) -> DiskFindings {
    look_with(config, offramp_control::check_files(config, now))
}

/// Adds problems on disk to the outcome of `control`'s check.
fn look_with(config: &Config, checked: Result<Vec<Finding>, offramp_process::Error>) -> DiskFindings {
    let mut found = DiskFindings::default();
    user(config.process.user.as_ref(), &mut found);
    outputs(config, &mut found);
    store(config, &mut found);
    admin(config, &mut found);
    match checked {
        Ok(warnings) => found.warnings = warnings,
        Err(error) => found.errors.extend(error.findings().iter().cloned()),
    }
    found.warnings.extend(sandbox::unavailable(config));
    for listener in &config.listeners {
        for address in &listener.addresses {
            if let ListenAddress::Unix(path) = address {
                folder(path, &listener.at, &mut found);
            }
        }
    }
    found
}

fn user(user: Option<&User>, found: &mut DiskFindings) {
    // The default user need not exist.
    if let Some(user) = user.filter(|user| user.at.place().is_some())
        && let Err(why) = UserIdentity::find(&user.name)
    {
        found.error(&user.at, why);
    }
}

fn outputs(config: &Config, found: &mut DiskFindings) {
    if let LogOutput::File(file) = &config.telemetry.log.output {
        folder(&file.path, &file.at, found);
    }
    if let AccessOutput::File(file) = &config.telemetry.access_log.output {
        folder(&file.path, &file.at, found);
    }
}

fn store(config: &Config, found: &mut DiskFindings) {
    let Some(url) = &config.telemetry.log_store.url else { return };
    if let Err(error) = offramp_analytics::check_url(&url.to_string()) {
        found.error(&At::NOWHERE, format!("log_store.url: {error}"));
    }
    if let StoreUrl::Sqlite(file) = url {
        // A start creates the state directory itself.
        if file.path.parent() != Some(config.process.state_dir.as_path()) {
            folder(&file.path, &file.at, found);
        }
    }
    if let Some(file) = &config.telemetry.log_store.geoip
        && let Err(error) = offramp_analytics::check_geoip(&file.path)
    {
        found.error(&file.at, error.to_string());
    }
}

fn admin(config: &Config, found: &mut DiskFindings) {
    let Some(file) = config.admin.users.as_ref().filter(|_| config.admin.enabled) else { return };
    if let Err(mistakes) = PageUsers::load(file.path.clone(), Log::silent()) {
        mistakes.into_iter().for_each(|mistake| found.error(&file.at, mistake));
    }
}

/// Reports a missing parent directory of a file or socket that a start creates.
fn folder(path: &Path, at: &At, found: &mut DiskFindings) {
    let Some(folder) = path.parent() else { return };
    if !folder.is_dir() {
        let (path, folder) = (path.display(), folder.display());
        found.error(at, format!("{path} cannot be created: there is no directory {folder}; create it first"));
    }
}
