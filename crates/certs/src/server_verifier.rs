//! Verifiers of servers for rustls that differ in the chains that they accept. Signatures are checked by one rule.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// A chain as a server shows it in a handshake.
#[derive(Clone, Copy, Debug)]
pub struct ShownChain<'a> {
    /// The certificate of the server itself.
    pub leaf: &'a CertificateDer<'a>,
    /// Those that it sends with it.
    pub rest: &'a [CertificateDer<'a>],
    /// The name that the client has asked for.
    pub name: &'a ServerName<'a>,
    /// The stapled OCSP response; empty where there is none.
    pub ocsp: &'a [u8],
    /// The time by which it is judged.
    pub now: UnixTime,
}

/// The rule by which a chain is accepted.
pub trait ChainRule: fmt::Debug + Send + Sync {
    /// The verdict on a chain. Its signature in the handshake is checked afterwards.
    ///
    /// # Errors
    /// The reason to refuse it.
    fn judge(&self, chain: ShownChain<'_>) -> Result<(), Error>;
}

/// The verifier of a rule.
#[derive(Debug)]
pub struct ByRule<R> {
    rule: R,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<R: ChainRule> ByRule<R> {
    /// Signatures are those of `provider`.
    #[must_use]
    pub fn new(rule: R, provider: &Arc<CryptoProvider>) -> Self {
        Self { rule, algorithms: provider.signature_verification_algorithms }
    }

    /// The rule that decides on chains.
    pub const fn rule(&self) -> &R {
        &self.rule
    }
}

impl<R: ChainRule> ServerCertVerifier for ByRule<R> {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = ShownChain { leaf, rest, name, ocsp, now };
        self.rule.judge(chain).map(|()| ServerCertVerified::assertion())
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
