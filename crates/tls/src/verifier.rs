//! The verification of client certificates: rustls does it against authorities and revocation lists; here is noted
//! which certificate it refused, for the event of the refusal.

use std::cell::RefCell;
use std::sync::Arc;

use offramp_certs::client_auth::Trust;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::setup::SetupError;

/// The verifier for clients that may, or must, show a certificate.
///
/// A certificate whose issuer has no revocation list is let in: lists are often those of one issuer of several. A list
/// that should have been replaced is used on: whom it names is refused.
pub(crate) fn build(
    trust: &Trust,
    required: bool,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, SetupError> {
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&trust.roots), provider);
    if !trust.revoked.is_empty() {
        builder = builder.with_crls(trust.revoked.iter().cloned()).allow_unknown_revocation_status();
    }
    if !required {
        builder = builder.allow_unauthenticated();
    }
    let verifier = builder.build().map_err(|error| SetupError(format!("client certificates: {error}")))?;
    Ok(Arc::new(Noting(verifier)))
}

thread_local! {
    /// The certificate that was refused last on this thread. rustls has no other place for it: the error of a
    /// handshake does not carry the certificate.
    static REFUSED: RefCell<Option<Box<[u8]>>> = const { RefCell::new(None) };
}

/// The certificate that was refused since the last call, on this thread. To be asked for right after rustls has
/// refused something: another connection's turn would answer for another certificate.
pub(crate) fn take_refused() -> Option<Box<[u8]>> {
    REFUSED.take()
}

/// Notes what the verifier in it refuses.
#[derive(Debug)]
struct Noting(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Noting {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verdict = self.0.verify_client_cert(end_entity, intermediates, now);
        if verdict.is_err() {
            REFUSED.set(Some(end_entity.as_ref().into()));
        }
        verdict
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
