//! TLS to servers: configuration and handshake as a client.
//!
//! A [`Connector`] verifies the server's certificate, presents one of its own if it has one, and caches the
//! sessions that can be resumed. It is carried over from snapshot to snapshot as long as its
//! [`ConnectorSettings`] stay the same, and no session outlives it, so that a session is never resumed under
//! another rule than the one that its certificate was verified by. TLS 1.2 and 1.3 are offered with AEAD
//! suites only.

mod handshake;
mod preamble;
mod sessions;
mod verify;

use std::fmt;
use std::sync::Arc;

use offramp_certs::client_auth::Trust;
use offramp_record::{LibraryChoice, RecordSize};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};

use crate::error::SetupError;
use crate::setup::{Ciphers, TlsPolicy, provider};
use sessions::SessionCache;
use verify::verifier;

pub use handshake::Secured;
pub use preamble::StartTlsProtocol;

/// Verification of a server's certificate.
#[derive(Clone, Debug)]
pub enum ServerVerification {
    /// By these authorities and revocation lists, for the server's name. A certificate of an issuer without a
    /// list counts as not revoked.
    Roots(Trust),
    /// By the SHA-256 of the public key (SubjectPublicKeyInfo) in the leaf certificate, which must be one of
    /// these. Names, dates and issuers are ignored.
    Pins(Vec<[u8; 32]>),
    /// None. The server still proves possession of the certificate's key, which is worth nothing.
    Nothing,
}

/// Application protocols offered to a server (ALPN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alpn {
    /// The protocols of [`ConnectorSettings::alpn`].
    #[default]
    Own,
    /// Only `http/1.1`, for HTTP/1 requests.
    Http1,
    /// `h2`, without which the handshake fails.
    Http2,
    /// `h2` before `http/1.1`; the server chooses.
    Either,
}

/// Configuration of a connector.
#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// Verification of the server's certificate.
    pub verify: ServerVerification,
    /// Host name or address that the server's certificate must be valid for.
    pub name: ServerName<'static>,
    /// Host name sent as SNI, if it differs from `name`; an address is never sent.
    pub sni: Option<ServerName<'static>>,
    /// Certificate presented to a server that requests one.
    pub certificate: Option<Arc<CertifiedKey>>,
    /// Negotiation of TLS before the ClientHello; `None`: the ClientHello comes first.
    pub preamble: Option<StartTlsProtocol>,
    /// Protocols offered by [`Alpn::Own`], the preferred one first.
    pub alpn: Vec<Vec<u8>>,
    /// Offers the X25519MLKEM768 key exchange.
    pub post_quantum: bool,
    /// AEAD library for each suite.
    pub choice: LibraryChoice,
    /// Size of the records sent to the server.
    pub record_size: RecordSize,
}

impl ConnectorSettings {
    /// Returns true if both settings verify, present and offer the same.
    fn is_same(&self, other: &Self) -> bool {
        let verify = match (&self.verify, &other.verify) {
            (ServerVerification::Roots(one), ServerVerification::Roots(other)) => {
                one.roots.roots == other.roots.roots
                    && one.exact == other.exact
                    && one.revoked == other.revoked
            }
            (ServerVerification::Pins(one), ServerVerification::Pins(other)) => one == other,
            (ServerVerification::Nothing, ServerVerification::Nothing) => true,
            _ => false,
        };
        // The key belongs to the leaf, so it is the same, too.
        let shown = |settings: &Self| settings.certificate.as_ref().map(|shown| shown.cert.clone());
        verify
            && shown(self) == shown(other)
            && (&self.name, &self.sni, &self.alpn) == (&other.name, &other.sni, &other.alpn)
            && (self.post_quantum, self.choice) == (other.post_quantum, other.choice)
            && (self.record_size, self.preamble) == (other.record_size, other.preamble)
    }
}

/// TLS client configuration for one server, with its sessions.
#[derive(Clone)]
pub struct Connector {
    settings: ConnectorSettings,
    own: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    either: Arc<ClientConfig>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("name", self.name()).finish_non_exhaustive()
    }
}

impl Connector {
    /// Creates a connector.
    ///
    /// # Errors
    /// The roots are empty, or rustls rejects the combination.
    pub fn new(settings: ConnectorSettings) -> Result<Self, SetupError> {
        let policy = TlsPolicy {
            tls13: true,
            tls12: true,
            ciphers: Ciphers::ALL,
            post_quantum: settings.post_quantum,
            tickets: 0,
        };
        let provider = Arc::new(provider(&policy, false));
        let sessions = Arc::new(SessionCache::new());
        let verifier = verifier(&settings, &provider, Arc::clone(&sessions))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| SetupError::new(format!("TLS: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &settings.certificate {
            None => builder.with_no_client_auth(),
            Some(own) => builder.with_client_cert_resolver(Arc::new(Own(Arc::clone(own)))),
        };
        config.enable_secret_extraction = true;
        config.resumption = Resumption::store(sessions);
        // The copies share the sessions.
        let offering = |alpn: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = alpn.iter().map(|id| id.to_vec()).collect();
            Arc::new(config)
        };
        let own: Vec<&[u8]> = settings.alpn.iter().map(Vec::as_slice).collect();
        Ok(Self {
            http1: offering(&[HTTP1]),
            http2: offering(&[HTTP2]),
            either: offering(&[HTTP2, HTTP1]),
            own: offering(&own),
            settings,
        })
    }

    /// Returns a copy with other AEAD libraries, which affect speed only. Both share their sessions.
    #[must_use]
    pub fn with_choice(&self, choice: LibraryChoice) -> Self {
        let mut other = self.clone();
        other.settings.choice = choice;
        other
    }

    /// Returns true if a connector made of `settings` would differ in nothing but its sessions.
    #[must_use]
    pub fn is_made_of(&self, settings: &ConnectorSettings) -> bool {
        self.settings.is_same(settings)
    }

    /// Name sent as SNI, unless it is an address.
    fn name(&self) -> &ServerName<'static> {
        self.settings.sni.as_ref().unwrap_or(&self.settings.name)
    }

    fn config(&self, alpn: Alpn) -> &Arc<ClientConfig> {
        match alpn {
            Alpn::Own => &self.own,
            Alpn::Http1 => &self.http1,
            Alpn::Http2 => &self.http2,
            Alpn::Either => &self.either,
        }
    }
}

/// The ALPN identifiers of RFC 7301 and RFC 9113.
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Resolver of the single client certificate.
#[derive(Debug)]
struct Own(Arc<CertifiedKey>);

impl ResolvesClientCert for Own {
    /// Ignores the authorities that a server names: it may accept more than it lists, and its alert explains
    /// a rejection.
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
