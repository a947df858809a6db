//! Verification of a server's certificate.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use offramp_certs::anchors::{Exact, ShownBy};
use offramp_certs::server_verifier::{ByRule, ChainRule, ShownChain};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error};

use super::sessions::SessionCache;
use super::{ConnectorSettings, ServerVerification};
use crate::error::SetupError;
use crate::tickets::Expiry;
use crate::verifier::{CrlGroup, groups, noting, verdict};

/// The rule of one backend. The name is that of the rule, whatever SNI was sent.
#[derive(Debug)]
pub(super) struct ServerRule {
    accepts: Accepts,
    /// Sessions that follow, which expire with the certificates.
    sessions: Arc<SessionCache>,
}

#[derive(Debug)]
enum Accepts {
    Roots { groups: Vec<CrlGroup<WebPkiServerVerifier>>, exact: Exact, name: ServerName<'static> },
    Pins(Vec<[u8; 32]>),
    Nothing,
}

/// The verifier of servers by `settings`, which notes in `sessions` when their certificates end.
///
/// # Errors
/// There are no authorities, or lists that rustls cannot use.
pub(super) fn verifier(
    settings: &ConnectorSettings,
    provider: &Arc<CryptoProvider>,
    sessions: Arc<SessionCache>,
) -> Result<ByRule<ServerRule>, SetupError> {
    let accepts = match &settings.verify {
        ServerVerification::Pins(pins) => Accepts::Pins(pins.clone()),
        ServerVerification::Nothing => Accepts::Nothing,
        ServerVerification::Roots(trust) => {
            let groups = groups(&trust.revoked, |lists| {
                let (roots, provider) = (Arc::clone(&trust.roots), Arc::clone(provider));
                let mut builder = WebPkiServerVerifier::builder_with_provider(roots, provider);
                if !lists.is_empty() {
                    // As for clients: lists often cover one of several issuers, and an outdated list remains in use.
                    builder = builder.with_crls(lists).allow_unknown_revocation_status();
                }
                builder.build().map_err(|error| SetupError::new(format!("servers' certificates: {error}")))
            })?;
            Accepts::Roots { groups, exact: trust.exact.clone(), name: settings.name.clone() }
        }
    };
    Ok(ByRule::new(ServerRule { accepts, sessions }, provider))
}

fn is_pinned(leaf: &CertificateDer<'_>, pins: &[[u8; 32]]) -> Result<(), Error> {
    let key = ParsedCertificate::try_from(leaf)?.subject_public_key_info();
    let hash = digest(&SHA256, &key);
    if pins.iter().any(|pin| pin == hash.as_ref()) {
        Ok(())
    } else {
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }
}

impl ChainRule for ServerRule {
    fn judge(&self, chain: ShownChain<'_>) -> Result<(), Error> {
        let ShownChain { leaf, rest, ocsp, now, .. } = chain;
        let said = match &self.accepts {
            Accepts::Roots { groups, exact, name } => {
                let said = verdict(groups, leaf, rest, |verifier| {
                    verifier.verify_server_cert(leaf, rest, name, ocsp, now)
                });
                let said = exact.overrule(said.map(drop), (), leaf, ShownBy::Server(name), now);
                if said.is_ok() {
                    self.sessions.accepted(Expiry::of_chain(leaf, rest, now));
                }
                said
            }
            Accepts::Pins(pins) => is_pinned(leaf, pins),
            Accepts::Nothing => Ok(()),
        };
        noting(said, leaf)
    }
}
