//! What certificate authorities find that look whether names lead here (ACME, RFC 8555).
//!
//! `control` puts responses in while it orders certificates, and takes them out afterwards. Workers look here for what
//! only authorities ask for: ClientHellos that offer the protocol `acme-tls/1` and nothing else, and requests over plain
//! HTTP below `/.well-known/acme-challenge/`. Whatever is not found goes the way of everything else.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use offramp_certs::acme::challenge::PROTOCOL;
use offramp_tls::Configs;
use offramp_wire::client_hello::ClientHello;

/// The path of requests for responses (RFC 8555 section 8.3).
const PATH: &str = "/.well-known/acme-challenge/";

/// The responses that are in force, swapped whole.
#[derive(Default)]
pub struct Challenges {
    handshakes: ArcSwap<HashMap<Box<str>, Configs>>,
    responses: ArcSwap<HashMap<Box<str>, Bytes>>,
}

impl Challenges {
    /// No challenges yet.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Arc::default()
    }

    /// Answers handshakes of tls-alpn-01 (RFC 8737) for `name`, in lower case, with `configs`; `None`: no longer.
    pub fn set_handshake(&self, name: &str, configs: Option<&Configs>) {
        self.handshakes.rcu(|all| changed(all, name, configs));
    }

    /// Answers requests of http-01 for `token` with `response`; `None`: no longer.
    pub fn set_response(&self, token: &str, response: Option<&Bytes>) {
        self.responses.rcu(|all| changed(all, token, response));
    }

    /// The answer to a challenge by handshake, if `hello` is one that is expected.
    pub(crate) fn handshake(&self, hello: &ClientHello<'_>) -> Option<Configs> {
        let mut offered = hello.alpn();
        if offered.next() != Some(PROTOCOL) || offered.next().is_some() {
            return None;
        }
        self.handshake_for(&hello.server_name().host()?.to_ascii_lowercase())
    }

    /// The answer to a handshake of the protocol for `name`, in lower case, if it is one that is expected.
    #[must_use]
    pub fn handshake_for(&self, name: &str) -> Option<Configs> {
        self.handshakes.load().get(name).cloned()
    }

    /// The response to a request for `path` over plain HTTP, if it is one that is expected.
    #[must_use]
    pub fn response(&self, path: &str) -> Option<Bytes> {
        let token = path.strip_prefix(PATH)?;
        self.responses.load().get(token).cloned()
    }
}

fn changed<T: Clone>(all: &HashMap<Box<str>, T>, key: &str, value: Option<&T>) -> HashMap<Box<str>, T> {
    let mut all = all.clone();
    match value {
        Some(value) => all.insert(key.into(), value.clone()),
        None => all.remove(key),
    };
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_there_while_they_are_set() {
        let challenges = Challenges::none();
        let body = Bytes::from_static(b"token.thumbprint");
        challenges.set_response("token", Some(&body));
        assert_eq!(challenges.response("/.well-known/acme-challenge/token"), Some(body));
        for other in ["/.well-known/acme-challenge/", "/.well-known/acme-challenge/token/", "/token", "token"]
        {
            assert_eq!(challenges.response(other), None, "{other}");
        }
        challenges.set_response("token", None);
        assert_eq!(challenges.response("/.well-known/acme-challenge/token"), None);
    }
}
