//! Whether what a configuration names on this machine is there and fits: what `control` builds a snapshot from,
//! and beside it the user, and the folders in which a start makes files. It writes nothing.

use std::path::Path;
use std::time::SystemTime;

use offramp_config::model::{AccessOutput, ListenAddress, LogOutput, StoreUrl, User};
use offramp_config::{At, Config};
use offramp_control::Finding;
use offramp_net::process::Identity;

/// What was found.
#[derive(Default)]
pub(crate) struct Findings {
    /// What a start would be refused for.
    pub(crate) errors: Vec<Finding>,
    /// What a start would warn of.
    pub(crate) warnings: Vec<Finding>,
}

impl Findings {
    fn error(&mut self, at: &At, text: impl Into<String>) {
        self.errors.push(Finding { at: at.clone(), text: text.into() });
    }
}

/// Looks at everything that `config` names. Certificates are judged by their lives at `now`.
pub(crate) fn look(config: &Config, now: SystemTime) -> Findings {
    look_with(config, offramp_control::check(config, now))
}

/// Looks at the files of a configuration with mistakes, of which parts are missing.
pub(crate) fn look_at_parts(config: &Config, now: SystemTime) -> Findings {
    look_with(config, offramp_control::check_files(config, now))
}

/// Everything that is on disk, and the outcome of a check of the rest.
fn look_with(config: &Config, checked: Result<Vec<Finding>, offramp_control::Error>) -> Findings {
    let mut found = Findings::default();
    user(config.user.as_ref(), &mut found);
    outputs(config, &mut found);
    store(config, &mut found);
    match checked {
        Ok(warnings) => found.warnings = warnings,
        Err(error) => found.errors.extend(error.findings().iter().cloned()),
    }
    for listener in &config.listeners {
        for address in &listener.addresses {
            if let ListenAddress::Unix(path) = address {
                folder(path, &listener.at, &mut found);
            }
        }
    }
    found
}

fn user(user: Option<&User>, found: &mut Findings) {
    // The user of the default need not exist.
    if let Some(user) = user.filter(|user| user.at.place().is_some())
        && let Err(why) = Identity::find(&user.name)
    {
        found.error(&user.at, why);
    }
}

fn outputs(config: &Config, found: &mut Findings) {
    if let LogOutput::File(file) = &config.log.output {
        folder(&file.path, &file.at, found);
    }
    if let AccessOutput::File(file) = &config.access_log.output {
        folder(&file.path, &file.at, found);
    }
}

fn store(config: &Config, found: &mut Findings) {
    let Some(url) = &config.log_store.url else { return };
    if let Err(error) = offramp_analytics::check_url(&url.to_string()) {
        found.error(&At::NOWHERE, format!("log_store.url: {error}"));
    }
    if let StoreUrl::Sqlite(file) = url {
        // The state directory is made by a start.
        if file.path.parent() != Some(config.state_dir.as_path()) {
            folder(&file.path, &file.at, found);
        }
    }
    if let Some(file) = &config.log_store.geoip
        && let Err(error) = offramp_analytics::check_geoip(&file.path)
    {
        found.error(&file.at, error.to_string());
    }
}

/// The folder in which a start would make a file.
fn folder(path: &Path, at: &At, found: &mut Findings) {
    let Some(folder) = path.parent() else { return };
    if !folder.is_dir() {
        let (path, folder) = (path.display(), folder.display());
        found.error(at, format!("{path} cannot be created: there is no directory {folder}; create it first"));
    }
}
