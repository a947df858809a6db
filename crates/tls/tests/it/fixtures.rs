//! Certificates, server set-ups and client configurations.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use offramp_certs::store::{CertificateStore, StoreEntry};
use offramp_certs::{Certificate, file};
use offramp_tls::{Ciphers, ClientVerification, Configs, TicketKeys, TlsPolicy};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    SignatureAlgorithm,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, ClientConfig, NamedGroup, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Name of ECDSA and RSA certificates.
pub(crate) const NAME: &str = "a.example";
/// Name of an ECDSA certificate only.
pub(crate) const OTHER: &str = "b.example";

pub(crate) const TLS13: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];
pub(crate) const TLS12_ECDSA: [CipherSuite; 3] = [
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];
pub(crate) const TLS12_RSA: [CipherSuite; 3] = [
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// A chain and its key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    pem: (String, String),
}

impl Identity {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    /// Loads it like certificates from files.
    fn certificate(&self) -> Arc<Certificate> {
        let directory = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
        std::fs::write(&cert, &self.pem.0).unwrap();
        std::fs::write(&key, &self.pem.1).unwrap();
        Arc::new(file::load(&cert, Some(&key), SystemTime::now()).unwrap().certificate)
    }
}

/// A CA that can issue.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
        Self { issuer: Issuer::new(params, key), roots: Arc::new(roots) }
    }

    fn issue(&self, name: &str, algorithm: &'static SignatureAlgorithm) -> Identity {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            chain: vec![cert.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            pem: (cert.pem(), key.serialize_pem()),
        }
    }
}

/// Shared by every test; minting RSA keys takes time.
pub(crate) struct Pki {
    /// Roots trusted by clients and servers.
    pub(crate) roots: Arc<RootCertStore>,
    /// A CA that issued none of the certificates below `client`.
    pub(crate) strange_roots: Arc<RootCertStore>,
    pub(crate) server: Identity,
    pub(crate) ecdsa: Arc<Certificate>,
    pub(crate) rsa: Arc<Certificate>,
    pub(crate) other: Arc<Certificate>,
    pub(crate) client: Identity,
    pub(crate) stranger: Identity,
}

pub(crate) fn pki() -> &'static Pki {
    static PKI: OnceLock<Pki> = OnceLock::new();
    PKI.get_or_init(|| {
        let (ca, strange) = (Authority::new("Trusted"), Authority::new("Strange"));
        let server = ca.issue(NAME, &PKCS_ECDSA_P256_SHA256);
        Pki {
            ecdsa: server.certificate(),
            server,
            rsa: ca.issue(NAME, &PKCS_RSA_SHA256).certificate(),
            other: ca.issue(OTHER, &PKCS_ECDSA_P256_SHA256).certificate(),
            client: ca.issue("client", &PKCS_ECDSA_P256_SHA256),
            stranger: strange.issue("client", &PKCS_ECDSA_P256_SHA256),
            roots: ca.roots,
            strange_roots: strange.roots,
        }
    })
}

/// Configuration of a server.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) policy: TlsPolicy,
    pub(crate) certificates: Vec<Arc<Certificate>>,
    /// Set if the certificates serve every name.
    pub(crate) default: bool,
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) auth: ClientVerification,
    pub(crate) tickets: Arc<TicketKeys>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: TlsPolicy {
                tls13: true,
                tls12: true,
                ciphers: Ciphers::ALL,
                post_quantum: true,
                tickets: 2,
            },
            certificates: vec![Arc::clone(&pki().ecdsa), Arc::clone(&pki().rsa)],
            default: true,
            alpn: Vec::new(),
            auth: ClientVerification::None,
            tickets: Arc::new(TicketKeys::new(Duration::from_secs(3600)).unwrap()),
        }
    }
}

impl Setup {
    pub(crate) fn with_tickets(tickets: usize) -> Self {
        let mut setup = Self::default();
        setup.policy.tickets = tickets;
        setup
    }

    pub(crate) fn with_auth(auth: ClientVerification) -> Self {
        Self { auth, ..Self::default() }
    }

    pub(crate) fn configs(&self) -> Configs {
        let entries = self
            .certificates
            .iter()
            .map(|certificate| StoreEntry { certificate: Arc::clone(certificate), default: self.default });
        let store = Arc::new(CertificateStore::new(entries, SystemTime::now()));
        Configs::build(&self.policy, &store, &self.alpn, &self.auth, &self.tickets).unwrap()
    }
}

/// Provider of a client that offers these suites, in this order, and these groups; all supported ones if none
/// are given.
pub(crate) fn provider(suites: &[CipherSuite], groups: &[NamedGroup]) -> CryptoProvider {
    let all = aws_lc_rs::default_provider();
    let cipher_suites = suites.iter().map(|name| {
        *all.cipher_suites.iter().find(|suite| suite.suite() == *name).expect("a suite of the provider")
    });
    let kx_groups = groups.iter().map(|name| {
        *aws_lc_rs::ALL_KX_GROUPS.iter().find(|group| group.name() == *name).expect("a group of the provider")
    });
    CryptoProvider {
        cipher_suites: if suites.is_empty() { all.cipher_suites.clone() } else { cipher_suites.collect() },
        kx_groups: if groups.is_empty() { all.kx_groups.clone() } else { kx_groups.collect() },
        ..all
    }
}

/// A client without a certificate.
pub(crate) fn client(suites: &[CipherSuite]) -> ClientConfig {
    client_of(provider(suites, &[]), None)
}

/// A client with a certificate.
pub(crate) fn client_with(suites: &[CipherSuite], identity: &Identity) -> ClientConfig {
    client_of(provider(suites, &[]), Some(identity))
}

pub(crate) fn client_of(provider: CryptoProvider, identity: Option<&Identity>) -> ClientConfig {
    let mut versions = Vec::new();
    if provider.cipher_suites.iter().any(|suite| suite.tls13().is_some()) {
        versions.push(&rustls::version::TLS13);
    }
    if provider.cipher_suites.iter().any(|suite| suite.tls13().is_none()) {
        versions.push(&rustls::version::TLS12);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&versions)
        .unwrap()
        .with_root_certificates(Arc::clone(&pki().roots));
    match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_auth_cert(identity.chain.clone(), identity.key()).unwrap(),
    }
}
