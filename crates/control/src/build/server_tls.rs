//! TLS towards servers: a connector for each server of a backend.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::client_auth::load_roots;
use offramp_certs::file;
use offramp_config::At;
use offramp_config::model::{self, ServerAddress, TlsName};
use offramp_record::{Choice, RecordSize};
use offramp_tls::client::{Connector, Settings, Verify};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;

use super::Report;

/// Makes connectors. Each file is read once.
pub(super) struct Connectors {
    now: SystemTime,
    choice: Choice,
    post_quantum: bool,
    record_size: RecordSize,
    /// `None`: they cannot be used, as was reported.
    system: Option<Option<Arc<RootCertStore>>>,
    roots: HashMap<PathBuf, Option<Arc<RootCertStore>>>,
}

impl Connectors {
    pub(super) fn new(tls: &model::Tls, now: SystemTime, choice: Choice) -> Self {
        Self {
            now,
            choice,
            post_quantum: tls.post_quantum,
            record_size: super::record_size(tls.record_size),
            system: None,
            roots: HashMap::new(),
        }
    }

    /// The connectors of `servers`, in the same order; `None` where that is impossible, as is reported.
    pub(super) fn of(
        &mut self,
        tls: &model::ServerTls,
        servers: &[model::Server],
        report: &mut Report,
    ) -> Option<Arc<[Arc<Connector>]>> {
        // All faults at once.
        let (verify, certificate) = (self.verify(tls, report), self.certificate(tls, report));
        let (verify, certificate) = (verify?, certificate?);
        let connectors = servers.iter().map(|server| {
            let settings = Settings {
                verify: verify.clone(),
                name: name(tls.name.as_ref(), &server.address)?,
                sni: tls.sni.as_ref().and_then(|sni| ServerName::try_from(sni.to_string()).ok()),
                certificate: certificate.clone(),
                alpn: tls.alpn.iter().map(|id| id.as_bytes().to_vec()).collect(),
                post_quantum: self.post_quantum,
                choice: self.choice,
                record_size: self.record_size,
            };
            Connector::new(settings).map(Arc::new).map_err(|error| error.to_string())
        });
        let connectors: Result<Vec<_>, String> = connectors.collect();
        connectors.map(Into::into).map_err(|error| report.error(&tls.at, format!("tls: {error}"))).ok()
    }

    /// Reads the files that a backend names, and says what is wrong with them.
    pub(super) fn look(&mut self, tls: &model::ServerTls, report: &mut Report) {
        self.verify(tls, report);
        self.certificate(tls, report);
    }

    fn verify(&mut self, tls: &model::ServerTls, report: &mut Report) -> Option<Verify> {
        match &tls.verify {
            model::Verify::System => self.system(&tls.at, report).map(Verify::Roots),
            model::Verify::File(file) => self.file(file, report).map(Verify::Roots),
            model::Verify::Pins(pins) => Some(Verify::Pins(pins.iter().map(|pin| pin.0).collect())),
        }
    }

    /// The authorities of the system.
    fn system(&mut self, at: &At, report: &mut Report) -> Option<Arc<RootCertStore>> {
        let system = self.system.get_or_insert_with(|| {
            let loaded = rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            // One that cannot be read hurts nobody who does not need it.
            roots.add_parsable_certificates(loaded.certs);
            if roots.is_empty() {
                let why = loaded.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
                let text = "tls: this system has no certificate authorities";
                let help = "install the package ca-certificates, or name a file with `verify`";
                report.error(at, format!("{text}{why}; {help}"));
                return None;
            }
            Some(Arc::new(roots))
        });
        system.clone()
    }

    /// The authorities of a file.
    fn file(&mut self, file: &model::FilePath, report: &mut Report) -> Option<Arc<RootCertStore>> {
        let now = self.now;
        let roots =
            self.roots.entry(file.path.clone()).or_insert_with(|| match load_roots(&file.path, now) {
                Ok(loaded) => {
                    for warning in &loaded.warnings {
                        report.warn(&file.at, warning.to_string());
                    }
                    Some(Arc::new(loaded.roots))
                }
                Err(error) => {
                    report.error(&file.at, error.to_string());
                    None
                }
            });
        roots.clone()
    }

    /// What is shown to servers; `Some(None)` where that is nothing.
    fn certificate(&self, tls: &model::ServerTls, report: &mut Report) -> Option<Option<Arc<CertifiedKey>>> {
        let Some(files) = &tls.certificate else { return Some(None) };
        let key = files.key.as_ref().map(|key| key.path.as_path());
        match file::load(&files.cert.path, key, self.now) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    report.warn(&files.cert.at, warning.to_string());
                }
                Some(Some(Arc::clone(&loaded.certificate.certified_key)))
            }
            Err(error) => {
                report.error(&files.cert.at, error.to_string());
                None
            }
        }
    }
}

/// The name that the certificate of a server must be valid for.
fn name(said: Option<&TlsName>, address: &ServerAddress) -> Result<ServerName<'static>, String> {
    let host = |host: &model::HostName| {
        ServerName::try_from(host.to_string()).map_err(|_| format!("`{host}` is no name of a certificate"))
    };
    match (said, address) {
        (Some(TlsName::Host(name)), _) => host(name),
        (Some(TlsName::Ip(address)), _) => Ok(ServerName::from(*address)),
        (None, ServerAddress::Name { host: name, .. }) => host(name),
        (None, ServerAddress::Ip(address)) => Ok(ServerName::from(address.ip())),
        // Only with a pin, by which no name is checked, and as an address it is not sent either.
        (None, ServerAddress::Unix(_)) => Ok(ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]))),
    }
}
