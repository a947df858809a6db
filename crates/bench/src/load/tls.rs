//! TLS settings of the load client, and the stock of tickets for resumption.
//!
//! The client does not verify the proxy's certificate: it measures the proxy's cost, on the loopback, with
//! a key that the harness itself made, and its own CPU time must not be the limit.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, NamedGroup, SignatureScheme};

use crate::error::{Error, Result};
use crate::protocol::{Credentials, Group, LoadSpec, Version};

/// A client configuration that can speak one version, one suite, and one group, and nothing else: what is
/// measured is what was asked for, or the handshake fails.
///
/// # Errors
/// When rustls refuses the combination, or the client's certificate cannot be read.
pub(crate) fn client(spec: &LoadSpec, stock: Option<Arc<Stock>>) -> Result<Arc<ClientConfig>> {
    let (version, group) = (spec.version, spec.group);
    let mut provider = default_provider();
    let versions: &[&rustls::SupportedProtocolVersion] = match version {
        Version::Tls13 => {
            provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
            &[&rustls::version::TLS13]
        }
        Version::Tls12 => {
            provider.cipher_suites = vec![
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ];
            &[&rustls::version::TLS12]
        }
    };
    provider.kx_groups = match (group, version) {
        (Group::X25519MlKem768, _) => vec![kx_group::X25519MLKEM768],
        (Group::X25519, Version::Tls13) => vec![kx_group::X25519],
        // RFC 8422 §5.1.1: the list also limits the curves of certificates. The servers choose X25519.
        (Group::X25519, Version::Tls12) => vec![kx_group::X25519, kx_group::SECP256R1],
    };
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .map_err(|e| Error::Tls(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believer { schemes }));
    let mut config = match &spec.client {
        None => builder.with_no_client_auth(),
        Some(shown) => {
            let (chain, key) = read(shown)?;
            builder.with_client_auth_cert(chain, key).map_err(|e| Error::Tls(e.to_string()))?
        }
    };
    config.enable_secret_extraction = true;
    config.resumption = match stock {
        Some(stock) => Resumption::store(stock),
        None => Resumption::disabled(),
    };
    Ok(Arc::new(config))
}

/// Reads a certificate and its key.
///
/// # Errors
/// When there are none.
pub(crate) fn read(files: &Credentials) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let failed = |e| Error::Tls(format!("reading a certificate: {e}"));
    let cert = CertificateDer::from_pem_file(&files.cert).map_err(failed)?;
    Ok((vec![cert], PrivateKeyDer::from_pem_file(&files.key).map_err(failed)?))
}

/// The name that every certificate of the harness carries.
pub(crate) fn server_name() -> ServerName<'static> {
    // A constant that is a valid DNS name.
    ServerName::try_from("localhost").expect("a DNS name")
}

/// Tickets and sessions that connections take from and give to.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    shelves: Mutex<Shelves>,
}

#[derive(Debug, Default)]
struct Shelves {
    /// A ticket is used once.
    tls13: Vec<Tls13ClientSessionValue>,
    given: u64,
    /// Nothing is given out while the stock is being filled.
    closed: bool,
    /// A TLS 1.2 session can be used any number of times.
    tls12: Option<Tls12ClientSessionValue>,
}

/// More tickets than this are not kept; a server gives up to two per connection.
const STOCK_LIMIT: usize = 4096;

impl Stock {
    /// How many TLS 1.3 tickets have ever come.
    pub(crate) fn given(&self) -> u64 {
        self.shelves().given
    }

    /// Gives nothing out until opened again: handshakes are full, and their tickets add up.
    pub(crate) fn close(&self, closed: bool) {
        self.shelves().closed = closed;
    }

    fn shelves(&self) -> std::sync::MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Stock {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.shelves().tls12 = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let shelves = self.shelves();
        if shelves.closed { None } else { shelves.tls12.clone() }
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.shelves().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut shelves = self.shelves();
        shelves.given += 1;
        if shelves.tls13.len() < STOCK_LIMIT {
            shelves.tls13.push(value);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut shelves = self.shelves();
        if shelves.closed { None } else { shelves.tls13.pop() }
    }
}

/// Believes every certificate; see the module's words on why.
#[derive(Debug)]
struct Believer {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
