//! The certificate that a client has shown, as servers get it: `Client-Cert` and `Client-Cert-Chain` (RFC 9440),
//! and where a route wants it `X-Forwarded-Client-Cert`.
//!
//! The values are made once for a connection, when its first request goes to a server. A trusted proxy tells of the
//! certificates of its own clients in the same fields, which pass as it sent them: what it shows itself is not its
//! client's.

use std::cell::OnceCell;
use std::time::SystemTime;

use offramp_certs::client_auth::{CertificateParts, forwarded, identity, valid_until};
use offramp_http::head::Fields;

const CLIENT_CERT: &str = "client-cert";
const CLIENT_CERT_CHAIN: &str = "client-cert-chain";
const X_FORWARDED_CLIENT_CERT: &str = "x-forwarded-client-cert";

/// Certificate of a client that was verified.
pub(crate) struct VerifiedClient {
    leaf: Box<[u8]>,
    chain: Box<[Box<[u8]>]>,
    /// Until when it is valid. `None` where it does not say.
    until: Option<SystemTime>,
    standard: OnceCell<(String, Option<String>)>,
    envoy: OnceCell<Option<String>>,
    parts: OnceCell<Box<CertificateParts>>,
}

impl VerifiedClient {
    /// The leaf, and what was sent behind it, in DER.
    pub(crate) fn new(leaf: Box<[u8]>, chain: Box<[Box<[u8]>]>) -> Self {
        let until = valid_until(&leaf);
        Self { leaf, chain, until, standard: OnceCell::new(), envoy: OnceCell::new(), parts: OnceCell::new() }
    }

    /// Until when it is valid.
    pub(crate) fn until(&self) -> Option<SystemTime> {
        self.until
    }

    /// The identity in it, for an event.
    pub(crate) fn identity(&self) -> String {
        identity(&self.leaf)
    }

    /// Parts of the certificate, for rules with variables.
    pub(crate) fn parts(&self) -> &CertificateParts {
        self.parts.get_or_init(|| Box::new(CertificateParts::of(&self.leaf).unwrap_or_default()))
    }

    /// Puts the fields into those of a request, in the place of any that are there.
    pub(crate) fn tell(&self, fields: &mut Fields, envoy: bool) {
        let (leaf, chain) = self
            .standard
            .get_or_init(|| (forwarded::client_cert(&self.leaf), forwarded::client_cert_chain(&self.chain)));
        set(fields, CLIENT_CERT, Some(leaf));
        set(fields, CLIENT_CERT_CHAIN, chain.as_ref());
        if envoy {
            let made = || forwarded::x_forwarded_client_cert(&self.leaf);
            set(fields, X_FORWARDED_CLIENT_CERT, self.envoy.get_or_init(made).as_ref());
        }
    }
}

fn set(fields: &mut Fields, name: &str, value: Option<&String>) {
    if let Some(value) = value {
        fields.set(name.as_bytes(), value.as_bytes());
    }
}
