//! Whether what a configuration names on this machine is there and fits: certificates, keys, authorities, the
//! local CA, the user, folders. It reads as a start would, and writes nothing.
//!
//! What only a start can find out is not asked for: whether an address is free, whether a server answers.

use std::collections::HashSet;
use std::path::Path;
use std::time::SystemTime;

use offramp_certs::client_auth::load_roots;
use offramp_certs::local_ca::LocalCa;
use offramp_certs::{Warning, file};
use offramp_config::model::{
    AccessOutput, Certificate, CertificateSource, ClientAuth, ListenAddress, LogOutput, Target, User,
};
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

    fn warn(&mut self, at: &At, warnings: &[Warning]) {
        let finding = |warning: &Warning| Finding { at: at.clone(), text: warning.to_string() };
        self.warnings.extend(warnings.iter().map(finding));
    }
}

/// Looks at everything that `config` names. Certificates are judged by their lives at `now`.
pub(crate) fn look(config: &Config, now: SystemTime) -> Findings {
    let mut found = Findings::default();
    user(config.user.as_ref(), &mut found);
    outputs(config, &mut found);
    for certificate in &config.certificates {
        files(certificate, now, &mut found);
    }
    local_ca(config, now, &mut found);
    for listener in &config.listeners {
        for address in &listener.addresses {
            if let ListenAddress::Unix(path) = address {
                folder(path, &listener.at, &mut found);
            }
        }
    }
    authorities(config, now, &mut found);
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

/// The folder in which a start would make a file.
fn folder(path: &Path, at: &At, found: &mut Findings) {
    let Some(folder) = path.parent() else { return };
    if !folder.is_dir() {
        let (path, folder) = (path.display(), folder.display());
        found.error(at, format!("{path} cannot be made: there is no folder {folder}; make it first"));
    }
}

fn files(certificate: &Certificate, now: SystemTime, found: &mut Findings) {
    if let CertificateSource::Files { cert, key } = &certificate.source {
        match file::load(&cert.path, key.as_ref().map(|key| key.path.as_path()), now) {
            Ok(loaded) => found.warn(&certificate.at, &loaded.warnings),
            Err(error) => found.error(&certificate.at, error.to_string()),
        }
    }
}

/// The local CA, where one is used and has been minted.
fn local_ca(config: &Config, now: SystemTime, found: &mut Findings) {
    let local = |item: &&Certificate| matches!(item.source, CertificateSource::Local { .. });
    let Some(first) = config.certificates.iter().find(local) else { return };
    if !config.state_dir.join("ca").exists() {
        return;
    }
    match LocalCa::open_or_create(&config.state_dir, now) {
        Ok(ca) => found.warn(&first.at, ca.warnings()),
        Err(error) => found.error(&first.at, error.to_string()),
    }
}

/// The authorities of client certificates, each file once.
fn authorities(config: &Config, now: SystemTime, found: &mut Findings) {
    let mut seen = HashSet::new();
    for route in &config.routes {
        let Target::Relay(relay) = &route.target else { continue };
        let Some(ClientAuth { ca, .. }) = &relay.client_auth else { continue };
        if seen.insert(&ca.path) {
            match load_roots(&ca.path, now) {
                Ok(loaded) => found.warn(&ca.at, &loaded.warnings),
                Err(error) => found.error(&ca.at, error.to_string()),
            }
        }
    }
}
