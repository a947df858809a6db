//! Checking a server's certificate.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use offramp_certs::anchors::{Exact, ShownBy};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::sessions::SessionCache;
use super::{Settings, Verify};
use crate::setup::SetupError;
use crate::tickets::Expiry;
use crate::verifier::{Group, groups, noting, verdict};

/// Checks certificates by one rule. The name is that of the rule, whatever name was sent.
#[derive(Debug)]
pub(super) struct Verifier {
    rule: Rule,
    /// The sessions that follow, which end with the certificates.
    sessions: Arc<SessionCache>,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum Rule {
    Roots { groups: Vec<Group<WebPkiServerVerifier>>, exact: Exact, name: ServerName<'static> },
    Pins(Vec<[u8; 32]>),
    Nothing,
}

impl Verifier {
    pub(super) fn new(
        settings: &Settings,
        provider: &Arc<CryptoProvider>,
        sessions: Arc<SessionCache>,
    ) -> Result<Self, SetupError> {
        let rule = match &settings.verify {
            Verify::Pins(pins) => Rule::Pins(pins.clone()),
            Verify::Nothing => Rule::Nothing,
            Verify::Roots(trust) => {
                let groups = groups(&trust.revoked, |lists| {
                    let (roots, provider) = (Arc::clone(&trust.roots), Arc::clone(provider));
                    let mut builder = WebPkiServerVerifier::builder_with_provider(roots, provider);
                    if !lists.is_empty() {
                        // As for clients: lists are often those of one issuer of several, and an old one is used on.
                        builder = builder.with_crls(lists).allow_unknown_revocation_status();
                    }
                    builder
                        .build()
                        .map_err(|error| SetupError::new(format!("servers' certificates: {error}")))
                })?;
                Rule::Roots { groups, exact: trust.exact.clone(), name: settings.name.clone() }
            }
        };
        Ok(Self { rule, sessions, algorithms: provider.signature_verification_algorithms })
    }
}

fn is_pinned(leaf: &CertificateDer<'_>, pins: &[[u8; 32]]) -> Result<ServerCertVerified, Error> {
    let key = ParsedCertificate::try_from(leaf)?.subject_public_key_info();
    let hash = digest(&SHA256, &key);
    if pins.iter().any(|pin| pin == hash.as_ref()) {
        Ok(ServerCertVerified::assertion())
    } else {
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let said = match &self.rule {
            Rule::Roots { groups, exact, name } => {
                let said = verdict(groups, leaf, chain, |verifier| {
                    verifier.verify_server_cert(leaf, chain, name, ocsp, now)
                });
                let accepted = ServerCertVerified::assertion();
                let said = exact.overrule(said, accepted, leaf, ShownBy::Server(name), now);
                if said.is_ok() {
                    self.sessions.accepted(Expiry::of_chain(leaf, chain, now));
                }
                said
            }
            Rule::Pins(pins) => is_pinned(leaf, pins),
            Rule::Nothing => Ok(ServerCertVerified::assertion()),
        };
        noting(said, leaf)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
