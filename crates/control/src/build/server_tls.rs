//! TLS towards servers: a connector for each server of a backend.
//!
//! A connector has connections and sessions behind it, so that one with unchanged settings goes on from
//! snapshot to snapshot.

use std::sync::Arc;

use offramp_certs::anchors::Anchors;
use offramp_certs::client_auth::Trust;
use offramp_config::model::{self, ServerAddress, TlsName};
use offramp_record::{LibraryChoice, RecordSize};
use offramp_sources::certificates::Sources;
use offramp_tls::client::{Connector, ConnectorSettings, ServerVerification, StartTlsProtocol};
use offramp_upstream::Backend;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;

use super::{Findings, trust};

/// Makes connectors of what was read.
pub(super) struct Connectors<'a> {
    sources: &'a Sources,
    choice: LibraryChoice,
    post_quantum: bool,
    record_size: RecordSize,
}

impl<'a> Connectors<'a> {
    pub(super) fn new(tls: &model::Tls, sources: &'a Sources, choice: LibraryChoice) -> Self {
        let record_size = super::record_size(tls.record_size);
        Self { sources, choice, post_quantum: tls.post_quantum, record_size }
    }

    /// The connectors of the servers of `backend`, in the same order; those of `previous`, the backend of the same name
    /// in the snapshot before, where nothing has changed. `None` where that is impossible, as is reported: here, or
    /// when a file was read.
    pub(super) fn of(
        &self,
        tls: &model::ServerTls,
        backend: &model::BackendConfig,
        previous: Option<&Backend>,
        report: &mut Findings,
    ) -> Option<Arc<[Arc<Connector>]>> {
        let (verify, certificate) = (self.verify(tls)?, self.certificate(tls)?);
        let connectors = backend.servers.iter().map(|server| {
            let settings = ConnectorSettings {
                verify: verify.clone(),
                name: name(tls.name.as_ref(), &server.address)?,
                sni: tls.sni.as_ref().and_then(|sni| ServerName::try_from(sni.to_string()).ok()),
                certificate: certificate.clone(),
                preamble: tls.preamble.map(|model::PreambleProtocol::Postgres| StartTlsProtocol::Postgres),
                alpn: alpn(tls),
                post_quantum: self.post_quantum,
                choice: self.choice,
                record_size: self.record_size,
            };
            let known = previous.and_then(|previous| previous.connector_of(&server.address.to_string()));
            match known.filter(|known| known.is_made_of(&settings)) {
                Some(known) => Ok(Arc::clone(known)),
                None => Connector::new(settings).map(Arc::new).map_err(|error| error.to_string()),
            }
        });
        let connectors: Result<Vec<_>, String> = connectors.collect();
        connectors.map(Into::into).map_err(|error| report.error(&tls.at, format!("tls: {error}"))).ok()
    }

    fn verify(&self, tls: &model::ServerTls) -> Option<ServerVerification> {
        let anchors = match &tls.verify {
            model::Verify::System => self.sources.system()?,
            model::Verify::File(file) => self.sources.authorities(&file.path)?,
            model::Verify::Nothing => return Some(ServerVerification::Nothing),
            model::Verify::Pins(pins) => {
                return Some(ServerVerification::Pins(pins.iter().map(|pin| pin.0).collect()));
            }
        };
        self.trust(anchors, tls).map(ServerVerification::Roots)
    }

    fn trust(&self, anchors: &Anchors, tls: &model::ServerTls) -> Option<Trust> {
        let mut revoked = Vec::new();
        for crl in &tls.crl {
            revoked.extend_from_slice(self.sources.revoked(&crl.path)?);
        }
        Some(Trust { revoked, ..Trust::from(anchors) })
    }

    /// The certificate for servers that ask for one; `Some(None)` where there is none.
    fn certificate(&self, tls: &model::ServerTls) -> Option<Option<Arc<CertifiedKey>>> {
        let Some(files) = &tls.certificate else { return Some(None) };
        let shown = self.sources.shown(&trust::shown(files))?;
        Some(Some(Arc::clone(&shown.certified_key)))
    }
}

/// The protocols that are offered to servers by ALPN. For PostgreSQL they are those of its own clients, so that no server
/// of another protocol accepts the connection (ALPACA).
fn alpn(tls: &model::ServerTls) -> Vec<Vec<u8>> {
    match tls.preamble {
        Some(model::PreambleProtocol::Postgres) if tls.alpn.is_empty() => {
            vec![offramp_wire::postgres::ALPN.to_vec()]
        }
        _ => tls.alpn.iter().map(|id| id.as_bytes().to_vec()).collect(),
    }
}

/// The name that the certificate of a server must be valid for.
fn name(said: Option<&TlsName>, address: &ServerAddress) -> Result<ServerName<'static>, String> {
    let host = |host: &model::HostName| {
        ServerName::try_from(host.to_string())
            .map_err(|_| format!("`{host}` is not a valid name for a certificate"))
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
