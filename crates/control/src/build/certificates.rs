//! The certificates of a configuration, loaded or minted, arranged for lookup.

use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::local_ca::LocalCa;
use offramp_certs::store::{Entry, Store};
use offramp_certs::{Certificate, file};
use offramp_config::Config;
use offramp_config::model::{self, CertificateSource, DefaultRole};

use super::{Inputs, Report};
use crate::state;

/// Loads every certificate of `config`. Those that cannot be used are reported and left out.
pub(super) fn load(config: &Config, inputs: &Inputs<'_>, report: &mut Report) -> Store {
    let now = inputs.now;
    let default = config.default_certificate();
    let mut authority = Authority::Unopened;
    let mut entries = Vec::new();
    for item in &config.certificates {
        let loaded = match &item.source {
            CertificateSource::Files { cert, key } => {
                let key = key.as_ref().map(|key| key.path.as_path());
                from_files(item, cert.as_ref(), key, now, report)
            }
            CertificateSource::Local { names } => {
                authority.open(config, item, inputs, report);
                if inputs.mint { authority.issue(item, names, now, report) } else { None }
            }
        };
        let is_default =
            item.default == DefaultRole::Always || default.is_some_and(|d| std::ptr::eq(d, item));
        entries.extend(
            loaded.map(|certificate| Entry { certificate: Arc::new(certificate), default: is_default }),
        );
    }
    Store::new(entries, now)
}

fn from_files(
    item: &model::Certificate,
    cert: &std::path::Path,
    key: Option<&std::path::Path>,
    now: SystemTime,
    report: &mut Report,
) -> Option<Certificate> {
    match file::load(cert, key, now) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                report.warn(&item.at, warning.to_string());
            }
            Some(loaded.certificate)
        }
        Err(error) => {
            report.error(&item.at, error.to_string());
            None
        }
    }
}

/// The local CA: opened, or minted, when the first certificate asks for it.
enum Authority {
    Unopened,
    Open(Box<LocalCa>),
    /// It cannot be used, as was reported.
    Unusable,
}

impl Authority {
    fn open(&mut self, config: &Config, item: &model::Certificate, inputs: &Inputs<'_>, report: &mut Report) {
        if !matches!(self, Self::Unopened) {
            return;
        }
        *self = Self::Unusable;
        if inputs.mint {
            match state::prepare(&config.state_dir) {
                Ok(warnings) => report.warnings.extend(warnings),
                Err(error) => return report.error(&item.at, error.to_string()),
            }
        } else if !config.state_dir.join("ca/ca.pem").exists() && !config.state_dir.join("ca/ca.key").exists()
        {
            // It would be minted.
            return;
        }
        match LocalCa::open_or_create(&config.state_dir, inputs.now) {
            Ok(authority) => {
                for warning in authority.warnings() {
                    report.warn(&item.at, warning.to_string());
                }
                *self = Self::Open(Box::new(authority));
            }
            Err(error) => report.error(&item.at, error.to_string()),
        }
    }

    fn issue(
        &self,
        item: &model::Certificate,
        names: &[model::CertificateName],
        now: SystemTime,
        report: &mut Report,
    ) -> Option<Certificate> {
        let Self::Open(authority) = self else { return None };
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        match authority.issue(&names, now) {
            Ok(certificate) => Some(certificate),
            Err(error) => {
                report.error(&item.at, error.to_string());
                None
            }
        }
    }
}
