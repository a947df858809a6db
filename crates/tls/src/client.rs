//! TLS towards servers: what is spoken with one of them, and the handshake as a client.
//!
//! A [`Connector`] checks the server's certificate, shows one of its own where it has one, and keeps the sessions that
//! can be resumed. It goes from snapshot to snapshot as long as its [`Settings`] stay the same, and no session outlives
//! it, so that a session is never resumed under another rule than the one that its certificate was checked by. TLS 1.2
//! and 1.3 are offered with AEAD suites only.

mod handshake;
mod preamble;
mod sessions;
mod verify;

use std::fmt;
use std::sync::Arc;

use offramp_certs::client_auth::Trust;
use offramp_record::{Choice, RecordSize};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};

use crate::setup::{Ciphers, Policy, SetupError, provider};
use sessions::SessionCache;
use verify::Verifier;

pub use handshake::Secured;
pub use preamble::{Preamble, PreambleFault};

/// How a server's certificate is checked.
#[derive(Clone, Debug)]
pub enum Verify {
    /// Against these authorities and revocation lists, for the server's name. A certificate whose issuer has no list is
    /// not revoked.
    Roots(Trust),
    /// By the SHA-256 of the public key (SubjectPublicKeyInfo) in its certificate, which must be one of these. Names,
    /// dates and issuers do not count.
    Pins(Vec<[u8; 32]>),
    /// Not at all. That the server has the key of the certificate that it shows is verified, and worth nothing.
    Nothing,
}

/// Which application protocols are offered to a server (ALPN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alpn {
    /// Those of [`Settings::alpn`].
    #[default]
    Own,
    /// `http/1.1`.
    Http1,
    /// `h2`, without which there is no connection.
    Http2,
    /// `h2`, else `http/1.1`.
    Either,
}

/// What a connector is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How the server is checked.
    pub verify: Verify,
    /// What the server's certificate must be valid for: a host name or an address.
    pub name: ServerName<'static>,
    /// The host name that is sent (SNI) where it is not `name`; an address is never sent.
    pub sni: Option<ServerName<'static>>,
    /// What is shown to a server that asks for a certificate.
    pub certificate: Option<Arc<CertifiedKey>>,
    /// How the server is asked for TLS; `None`: the ClientHello comes first.
    pub preamble: Option<Preamble>,
    /// What [`Alpn::Own`] offers, the preferred protocol first.
    pub alpn: Vec<Vec<u8>>,
    /// Whether X25519MLKEM768 is offered.
    pub post_quantum: bool,
    /// The AEAD library for each suite.
    pub choice: Choice,
    /// The size of the records that the server gets.
    pub record_size: RecordSize,
}

impl Settings {
    /// Whether a connector of `other` checks, shows and offers the same.
    fn is_same(&self, other: &Self) -> bool {
        let verify = match (&self.verify, &other.verify) {
            (Verify::Roots(one), Verify::Roots(other)) => {
                one.roots.roots == other.roots.roots
                    && one.exact == other.exact
                    && one.revoked == other.revoked
            }
            (Verify::Pins(one), Verify::Pins(other)) => one == other,
            (Verify::Nothing, Verify::Nothing) => true,
            _ => false,
        };
        // The key belongs to the leaf, so that it is the same too.
        let shown = |settings: &Self| settings.certificate.as_ref().map(|shown| shown.cert.clone());
        verify
            && shown(self) == shown(other)
            && (&self.name, &self.sni, &self.alpn) == (&other.name, &other.sni, &other.alpn)
            && (self.post_quantum, self.choice) == (other.post_quantum, other.choice)
            && (self.record_size, self.preamble) == (other.record_size, other.preamble)
    }
}

/// TLS towards one server.
#[derive(Clone)]
pub struct Connector {
    settings: Settings,
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
    /// Makes one.
    ///
    /// # Errors
    /// Where the roots are empty or rustls refuses the combination.
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        let policy = Policy {
            tls13: true,
            tls12: true,
            ciphers: Ciphers::ALL,
            post_quantum: settings.post_quantum,
            tickets: 0,
        };
        let provider = Arc::new(provider(&policy, false));
        let sessions = Arc::new(SessionCache::new());
        let verifier = Verifier::new(&settings, &provider, Arc::clone(&sessions))?;
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

    /// The same with other AEAD libraries, which nothing but the speed depends on. The two share their sessions.
    #[must_use]
    pub fn with_choice(&self, choice: Choice) -> Self {
        let mut other = self.clone();
        other.settings.choice = choice;
        other
    }

    /// Whether one made of `settings` would differ in nothing but in the sessions that it keeps.
    #[must_use]
    pub fn is_made_of(&self, settings: &Settings) -> bool {
        self.settings.is_same(settings)
    }

    /// The name that is sent, unless it is an address.
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

/// The one certificate that servers get.
#[derive(Debug)]
struct Own(Arc<CertifiedKey>);

impl ResolvesClientCert for Own {
    /// Whatever authorities a server names: it may know more than it says, and if not, its alert says why.
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
