//! The traffic secrets of a handshake.
//!
//! rustls hands over the keys of a finished connection, but not the secrets from which these keys, and the next ones, are
//! derived. Its own type for that, `KernelConnection`, takes 800 bytes per connection. But rustls shows the secrets to a
//! key log when it makes them. Our key log keeps them for the connection that is being driven on this thread.
//! [`Secrets::catch`] takes them from there, directly after each call of rustls.

use std::cell::Cell;

use offramp_record::{Suite, TrafficSecret};
use rustls::KeyLog;
use zeroize::Zeroizing;

/// The labels of the application traffic secrets in the key log format of NSS.
const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

thread_local! {
    static CAUGHT: Cell<Secrets> = const { Cell::new(Secrets { client: None, server: None }) };
}

/// The first application traffic secrets of a connection (RFC 8446 §7.1). TLS 1.2 has none.
#[derive(Default)]
pub(crate) struct Secrets {
    client: Option<Zeroizing<Vec<u8>>>,
    server: Option<Zeroizing<Vec<u8>>>,
}

impl Secrets {
    /// Takes what rustls has shown since this was called last.
    pub(crate) fn catch(&mut self) {
        let caught = CAUGHT.take();
        if caught.client.is_some() {
            self.client = caught.client;
        }
        if caught.server.is_some() {
            self.server = caught.server;
        }
    }

    /// What the client sends with, for a suite with this AEAD.
    pub(crate) fn client(&self, suite: Suite) -> Option<TrafficSecret> {
        TrafficSecret::new(suite, self.client.as_ref()?)
    }

    /// What the server sends with.
    pub(crate) fn server(&self, suite: Suite) -> Option<TrafficSecret> {
        TrafficSecret::new(suite, self.server.as_ref()?)
    }
}

/// A key log that logs nothing.
#[derive(Debug)]
pub(crate) struct Catch;

impl KeyLog for Catch {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut caught = CAUGHT.take();
        match label {
            CLIENT => caught.client = Some(Zeroizing::new(secret.to_vec())),
            SERVER => caught.server = Some(Zeroizing::new(secret.to_vec())),
            // rustls does not ask before it logs the master secret of TLS 1.2.
            _ => {}
        }
        CAUGHT.set(caught);
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT | SERVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_traffic_secrets_are_kept_and_only_once() {
        for (label, wanted) in
            [(CLIENT, true), (SERVER, true), ("CLIENT_RANDOM", false), ("EXPORTER_SECRET", false)]
        {
            assert_eq!(Catch.will_log(label), wanted, "{label}");
            Catch.log(label, &[], &[label.len() as u8; 32]);
        }
        let (mut first, mut second) = (Secrets::default(), Secrets::default());
        first.catch();
        assert_eq!(first.client.as_deref().unwrap()[..], [23; 32]);
        assert_eq!(first.server.as_deref().unwrap()[..], [23; 32]);
        assert!(first.client(Suite::Aes128Gcm).is_some() && first.server(Suite::Aes256Gcm).is_none());
        // What was caught stays, though there is nothing new; and another connection gets none of it.
        first.catch();
        assert!(first.client.is_some());
        second.catch();
        assert!(second.client.is_none() && second.server.is_none());
    }
}
