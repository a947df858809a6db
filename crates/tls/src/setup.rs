//! Conversion of a policy and certificates to rustls configurations.
//!
//! The server's order of cipher suites counts. If the CPU has AES instructions, AES-128-GCM comes first:
//! SHA-384 in the key schedule of the AES-256 suite makes a handshake more expensive, and AES-128 is faster
//! per byte. A client that lists ChaCha20 first has no AES instructions and gets ChaCha20. rustls has one
//! order per configuration, so there are two configurations, and the ClientHello selects one.

use std::fmt;
use std::sync::Arc;

use offramp_certs::client_auth::Trust;
use offramp_certs::store::{CertificateStore, Pick};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CipherSuite, NamedGroup, ServerConfig, SupportedCipherSuite};

use crate::error::SetupError;
use crate::random::BufferedRandom;
use crate::secrets::Catch;
use crate::tickets::TicketKeys;
use crate::verifier;

/// Settings common to every configuration of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlsPolicy {
    /// Offers TLS 1.3 to clients.
    pub tls13: bool,
    /// Offers TLS 1.2 to clients.
    pub tls12: bool,
    /// Ciphers that are offered.
    pub ciphers: Ciphers,
    /// Offers the X25519MLKEM768 key exchange.
    pub post_quantum: bool,
    /// TLS 1.3 tickets per handshake; 0 disables resumption.
    pub tickets: usize,
}

/// Ciphers that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ciphers {
    /// AES-GCM with keys of 128 bits.
    pub aes_128_gcm: bool,
    /// AES-GCM with keys of 256 bits.
    pub aes_256_gcm: bool,
    /// ChaCha20-Poly1305, as in RFC 8439.
    pub chacha20_poly1305: bool,
}

impl Ciphers {
    /// Every cipher that Offramp supports.
    pub const ALL: Self = Self { aes_128_gcm: true, aes_256_gcm: true, chacha20_poly1305: true };

    fn have(self, suite: CipherSuite) -> bool {
        match suite {
            suite if is_chacha(suite.into()) => self.chacha20_poly1305,
            CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => self.aes_128_gcm,
            _ => self.aes_256_gcm,
        }
    }
}

/// Authentication of clients by certificate.
#[derive(Clone, Debug, Default)]
pub enum ClientVerification {
    /// No certificate is requested.
    #[default]
    None,
    /// Requested; a presented certificate must be signed by one of the authorities and not be revoked.
    Optional(Trust),
    /// Required, with the same checks.
    Required(Trust),
}

/// The rustls configurations of one route.
#[derive(Clone)]
pub struct Configs {
    aes_first: Arc<ServerConfig>,
    chacha_first: Arc<ServerConfig>,
    /// Keys of the session tickets, unless resumption is off.
    tickets: Option<Arc<TicketKeys>>,
}

impl Configs {
    /// Builds the configurations for clients that get their certificate from `store` and negotiate one of
    /// `alpn`, the preferred one first.
    ///
    /// # Errors
    /// The roots of `auth` are empty, or rustls rejects the combination.
    pub fn build(
        policy: &TlsPolicy,
        store: &Arc<CertificateStore>,
        alpn: &[Vec<u8>],
        auth: &ClientVerification,
        tickets: &Arc<TicketKeys>,
    ) -> Result<Self, SetupError> {
        let build = |chacha_first| {
            let provider = Arc::new(provider(policy, chacha_first));
            config(&provider, policy, store, alpn, auth, tickets).map(Arc::new)
        };
        let kept = (policy.tickets > 0).then(|| Arc::clone(tickets));
        Ok(Self { aes_first: build(!cpu_has_aes())?, chacha_first: build(true)?, tickets: kept })
    }

    /// Builds the configurations that answer the tls-alpn-01 challenge of an authority (RFC 8737): one
    /// certificate, one protocol, no resumption.
    ///
    /// # Errors
    /// rustls rejects the combination.
    pub fn for_challenge(key: Arc<CertifiedKey>, protocol: &[u8]) -> Result<Self, SetupError> {
        let versions = &[&rustls::version::TLS13, &rustls::version::TLS12];
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .map_err(|error| SetupError(format!("TLS: {error}")))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![protocol.to_vec()];
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(Catch);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        Ok(Self { aes_first: Arc::clone(&config), chacha_first: config, tickets: None })
    }

    /// Configuration for a client that offers `suites`, in its order.
    #[must_use]
    pub fn for_client(&self, suites: &[u16]) -> &Arc<ServerConfig> {
        let first = suites.iter().copied().find(|suite| suite & 0x0f0f != 0x0a0a);
        if first.is_some_and(is_chacha) { &self.chacha_first } else { &self.aes_first }
    }

    /// Returns true if a ticket names one of our keys, so that its session is likely to be resumed.
    #[must_use]
    pub fn has_key_of(&self, ticket: &[u8]) -> bool {
        self.tickets.as_ref().is_some_and(|tickets| tickets.has_key_of(ticket))
    }

    /// Returns true if a version, by its code point, is supported.
    #[must_use]
    pub fn speaks(&self, version: u16) -> bool {
        let suites = &self.aes_first.crypto_provider().cipher_suites;
        suites.iter().any(|suite| u16::from(suite.version().version) == version)
    }

    /// Returns true if one of `suites` is supported in a version that the client has, according to `offers`.
    /// A key for the suite may still be missing.
    pub fn shares_suite(&self, suites: &[u16], offers: impl Fn(u16) -> bool) -> bool {
        let ours = &self.aes_first.crypto_provider().cipher_suites;
        ours.iter()
            .any(|suite| offers(suite.version().version.into()) && suites.contains(&suite.suite().into()))
    }

    /// Offered versions, suites and groups, for the log of a handshake without a common one.
    #[must_use]
    pub fn offers(&self) -> Offers {
        let provider = self.aes_first.crypto_provider();
        let names = [(0x0304, "TLSv1.3"), (0x0303, "TLSv1.2")];
        Offers {
            versions: names
                .into_iter()
                .filter(|(version, _)| self.speaks(*version))
                .map(|(_, name)| name)
                .collect(),
            suites: provider.cipher_suites.iter().map(|suite| u16::from(suite.suite())).collect(),
            groups: provider.kx_groups.iter().map(|group| u16::from(group.name())).collect(),
            alpn: self.aes_first.alpn_protocols.clone(),
        }
    }
}

/// Offer of a configuration, by code point.
#[derive(Clone, Debug)]
pub struct Offers {
    /// Protocol versions by name, as in `TLSv1.3`.
    pub versions: Vec<&'static str>,
    /// Cipher suites in the server's order.
    pub suites: Vec<u16>,
    /// Key-exchange groups in the server's order.
    pub groups: Vec<u16>,
    /// Application protocols in the server's order.
    pub alpn: Vec<Vec<u8>>,
}

fn is_chacha(suite: u16) -> bool {
    matches!(
        CipherSuite::from(suite),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    )
}

#[cfg(target_arch = "x86_64")]
fn cpu_has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn cpu_has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_has_aes() -> bool {
    false
}

/// Position of a suite in the server's order; TLS 1.3 precedes TLS 1.2.
fn rank(suite: &SupportedCipherSuite, chacha_first: bool) -> (bool, u8) {
    let name = suite.suite();
    let algorithm = match name {
        _ if is_chacha(name.into()) => {
            if chacha_first {
                0
            } else {
                2
            }
        }
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 1,
        _ => 3,
    };
    (suite.tls13().is_none(), algorithm)
}

pub(crate) fn provider(policy: &TlsPolicy, chacha_first: bool) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.secure_random = &BufferedRandom;
    let spoken = |suite: &SupportedCipherSuite| match suite {
        SupportedCipherSuite::Tls13(suite) => policy.tls13 && policy.ciphers.have(suite.common.suite),
        SupportedCipherSuite::Tls12(suite) => policy.tls12 && policy.ciphers.have(suite.common.suite),
    };
    provider.cipher_suites.retain(spoken);
    provider.cipher_suites.sort_by_key(|suite| rank(suite, chacha_first));
    if !policy.post_quantum {
        provider.kx_groups.retain(|group| group.name() != NamedGroup::X25519MLKEM768);
    }
    provider
}

fn config(
    provider: &Arc<CryptoProvider>,
    policy: &TlsPolicy,
    store: &Arc<CertificateStore>,
    alpn: &[Vec<u8>],
    auth: &ClientVerification,
    tickets: &Arc<TicketKeys>,
) -> Result<ServerConfig, SetupError> {
    let versions = [(policy.tls13, &rustls::version::TLS13), (policy.tls12, &rustls::version::TLS12)];
    let versions: Vec<_> = versions.into_iter().filter(|(spoken, _)| *spoken).map(|(_, one)| one).collect();
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&versions)
        .map_err(|error| SetupError(format!("TLS: {error}")))?;
    let builder = match auth {
        ClientVerification::None => builder.with_no_client_auth(),
        ClientVerification::Optional(trust) => {
            builder.with_client_cert_verifier(verifier::build(trust, false, provider)?)
        }
        ClientVerification::Required(trust) => {
            builder.with_client_cert_verifier(verifier::build(trust, true, provider)?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(ByName(Arc::clone(store))));
    config.alpn_protocols = alpn.to_vec();
    config.ignore_client_order = true;
    config.enable_secret_extraction = true;
    config.key_log = Arc::new(Catch);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = policy.tickets;
    if policy.tickets > 0 {
        config.ticketer = ticketer(auth, tickets);
    }
    Ok(config)
}

/// Ticketer for the rule of client certificates. A ticket is valid only under the same rule, including roots
/// and revocation lists: a revoked client must not come back by a ticket.
fn ticketer(auth: &ClientVerification, tickets: &Arc<TicketKeys>) -> Arc<dyn ProducesTickets> {
    let mut context = Vec::new();
    if let ClientVerification::Optional(trust) | ClientVerification::Required(trust) = auth {
        context.push(u8::from(matches!(auth, ClientVerification::Required(_))));
        context.extend_from_slice(&trust.context());
    }
    tickets.ticketer(&context)
}

/// Selects certificates by server name and the client's signature schemes.
struct ByName(Arc<CertificateStore>);

impl fmt::Debug for ByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByName")
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self.0.pick(hello.server_name(), hello.signature_schemes()) {
            Pick::Found { certificate, .. } => Some(Arc::clone(&certificate.certified_key)),
            Pick::NoneForName => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_the_servers() {
        let policy =
            TlsPolicy { tls13: true, tls12: true, ciphers: Ciphers::ALL, post_quantum: true, tickets: 2 };
        let names = |chacha_first| -> Vec<_> {
            provider(&policy, chacha_first).cipher_suites.iter().map(SupportedCipherSuite::suite).collect()
        };
        assert_eq!(
            names(false)[..3],
            [
                CipherSuite::TLS13_AES_128_GCM_SHA256,
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS13_AES_256_GCM_SHA384,
            ]
        );
        assert_eq!(names(true)[0], CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
        assert!(is_chacha(names(true)[3].into()));
        let modern = provider(&TlsPolicy { tls12: false, post_quantum: false, tickets: 0, ..policy }, false);
        let old = provider(&TlsPolicy { tls13: false, ..policy }, false);
        assert!(old.cipher_suites.iter().all(|suite| suite.tls13().is_none()));
        let ciphers = Ciphers { aes_128_gcm: false, chacha20_poly1305: false, ..Ciphers::ALL };
        let strong = provider(&TlsPolicy { ciphers, ..policy }, true);
        let names: Vec<_> = strong.cipher_suites.iter().map(SupportedCipherSuite::suite).collect();
        assert_eq!(
            names,
            [
                CipherSuite::TLS13_AES_256_GCM_SHA384,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            ]
        );
        assert!(modern.cipher_suites.iter().all(|suite| suite.tls13().is_some()));
        assert_eq!(modern.kx_groups[0].name(), NamedGroup::X25519);
        assert_eq!(provider(&policy, false).kx_groups[0].name(), NamedGroup::X25519MLKEM768);
    }
}
