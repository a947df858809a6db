//! The certificate that a client has shown, as servers are told of it: `Client-Cert` and `Client-Cert-Chain` (RFC 9440),
//! and where a route wants it `X-Forwarded-Client-Cert`.
//!
//! The values are made once for a connection, when its first request goes to a server. A trusted proxy tells of the
//! certificates of its own clients in the same fields, which pass as it sent them: what it shows itself is not its
//! client's.

use std::cell::OnceCell;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use offramp_certs::client_auth::forwarded;

const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
const X_FORWARDED_CLIENT_CERT: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

/// A verified certificate.
pub(crate) struct ClientCertificate {
    leaf: Box<[u8]>,
    chain: Box<[Box<[u8]>]>,
    standard: OnceCell<(Option<HeaderValue>, Option<HeaderValue>)>,
    envoy: OnceCell<Option<HeaderValue>>,
}

impl ClientCertificate {
    /// The leaf, and what was sent behind it, in DER.
    pub(crate) fn new(leaf: Box<[u8]>, chain: Box<[Box<[u8]>]>) -> Self {
        Self { leaf, chain, standard: OnceCell::new(), envoy: OnceCell::new() }
    }

    /// Puts the fields into the header of a request, in the place of any that are there.
    pub(crate) fn tell(&self, headers: &mut HeaderMap, envoy: bool) {
        let (leaf, chain) = self.standard.get_or_init(|| {
            let chain = forwarded::client_cert_chain(&self.chain);
            (value(forwarded::client_cert(&self.leaf)), chain.and_then(value))
        });
        set(headers, CLIENT_CERT, leaf.as_ref());
        set(headers, CLIENT_CERT_CHAIN, chain.as_ref());
        if envoy {
            let made = || forwarded::x_forwarded_client_cert(&self.leaf).and_then(value);
            set(headers, X_FORWARDED_CLIENT_CERT, self.envoy.get_or_init(made).as_ref());
        }
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<&HeaderValue>) {
    if let Some(value) = value {
        headers.insert(name, value.clone());
    }
}

fn value(text: String) -> Option<HeaderValue> {
    HeaderValue::try_from(text).ok()
}
