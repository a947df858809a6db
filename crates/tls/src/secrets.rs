//! Traffic secrets of a handshake.
//!
//! rustls hands over the keys of an established connection, but not the secrets from which these keys, and
//! later ones, are derived. Its own type for key updates, `KernelConnection`, takes 800 bytes per connection.
//! But rustls passes the secrets to a key log when it derives them. Our key log keeps them for the connection
//! that is being driven on this thread, and [`Secrets::catch`] takes them from there directly after each call
//! of rustls.

use std::cell::Cell;

use offramp_record::{Suite, TrafficSecret};
use rustls::KeyLog;
use zeroize::Zeroizing;

/// Labels of the application traffic secrets in the NSS key log format.
const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

thread_local! {
    static CAUGHT: Cell<Secrets> = const { Cell::new(Secrets { client: None, server: None }) };
}

/// First application traffic secrets of a connection (RFC 8446 §7.1). TLS 1.2 has none.
#[derive(Default)]
pub(crate) struct Secrets {
    client: Option<Zeroizing<Vec<u8>>>,
    server: Option<Zeroizing<Vec<u8>>>,
}

impl Secrets {
    /// Takes the secrets that rustls has logged since the last call.
    pub(crate) fn catch(&mut self) {
        let caught = CAUGHT.take();
        if caught.client.is_some() {
            self.client = caught.client;
        }
        if caught.server.is_some() {
            self.server = caught.server;
        }
    }

    /// The client's secret, for a suite with this AEAD.
    pub(crate) fn client(&self, suite: Suite) -> Option<TrafficSecret> {
        TrafficSecret::new(suite, self.client.as_ref()?)
    }

    /// The server's secret, for a suite with this AEAD.
    pub(crate) fn server(&self, suite: Suite) -> Option<TrafficSecret> {
        TrafficSecret::new(suite, self.server.as_ref()?)
    }
}

/// Key log that keeps the secrets in memory and writes nothing.
#[derive(Debug)]
pub(crate) struct Catch;

impl KeyLog for Catch {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut caught = CAUGHT.take();
        match label {
            CLIENT => caught.client = Some(Zeroizing::new(secret.to_vec())),
            SERVER => caught.server = Some(Zeroizing::new(secret.to_vec())),
            // rustls logs the master secret of TLS 1.2 without asking.
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
        // Caught secrets stay after a call without new ones, and no other connection gets them.
        first.catch();
        assert!(first.client.is_some());
        second.catch();
        assert!(second.client.is_none() && second.server.is_none());
    }
}
