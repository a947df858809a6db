//! Key schedules: HKDF of TLS 1.3 (RFC 8446 §7.1) and the PRF of TLS 1.2 (RFC 5246 §5).
//!
//! Written with plain HMAC, step by step as the RFCs draw them, so that the client shares no code with
//! what it tests.

use ring::hmac;

use super::suite::Suite;
use super::wire::vector;

/// HMAC with the suite's hash; also HKDF-Extract (salt, input).
pub(crate) fn mac(suite: Suite, key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(suite.hmac(), key), data).as_ref().to_vec()
}

/// HKDF-Expand-Label (RFC 8446 §7.1).
pub(crate) fn expand_label(
    suite: Suite,
    secret: &[u8],
    label: &str,
    context: &[u8],
    length: usize,
) -> Vec<u8> {
    let mut info = Vec::new();
    info.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    vector(&mut info, 1, format!("tls13 {label}").as_bytes());
    vector(&mut info, 1, context);
    let (mut out, mut block, mut counter) = (Vec::new(), Vec::new(), 1u8);
    while out.len() < length {
        block = mac(suite, secret, &[&block[..], &info, &[counter]].concat());
        out.extend_from_slice(&block);
        counter += 1;
    }
    out.truncate(length);
    out
}

/// The secrets of one TLS 1.3 connection, client and server.
pub(crate) struct Secrets {
    pub(crate) client: Vec<u8>,
    pub(crate) server: Vec<u8>,
}

/// The TLS 1.3 schedule without a PSK, from the shared secret on.
pub(crate) struct Schedule {
    suite: Suite,
    handshake: Vec<u8>,
}

impl Schedule {
    pub(crate) fn new(suite: Suite, shared: &[u8]) -> Self {
        let zeros = vec![0; suite.hash_len()];
        let early = mac(suite, &zeros, &zeros);
        Self { suite, handshake: mac(suite, &derived(suite, &early), shared) }
    }

    /// The handshake traffic secrets, for the transcript up to the ServerHello.
    pub(crate) fn handshake(&self, transcript: &[u8]) -> Secrets {
        self.pair(&self.handshake, ["c hs traffic", "s hs traffic"], transcript)
    }

    /// The first application traffic secrets, for the transcript up to the server's Finished.
    pub(crate) fn application(&self, transcript: &[u8]) -> Secrets {
        let zeros = vec![0; self.suite.hash_len()];
        let master = mac(self.suite, &derived(self.suite, &self.handshake), &zeros);
        self.pair(&master, ["c ap traffic", "s ap traffic"], transcript)
    }

    fn pair(&self, secret: &[u8], labels: [&str; 2], transcript: &[u8]) -> Secrets {
        let context = self.suite.digest(transcript);
        let derive = |label| expand_label(self.suite, secret, label, &context, self.suite.hash_len());
        Secrets { client: derive(labels[0]), server: derive(labels[1]) }
    }
}

fn derived(suite: Suite, secret: &[u8]) -> Vec<u8> {
    expand_label(suite, secret, "derived", &suite.digest(b""), suite.hash_len())
}

/// The `verify_data` of a TLS 1.3 Finished (RFC 8446 §4.4.4).
pub(crate) fn verify_data_13(suite: Suite, secret: &[u8], transcript: &[u8]) -> Vec<u8> {
    let key = expand_label(suite, secret, "finished", b"", suite.hash_len());
    mac(suite, &key, &suite.digest(transcript))
}

/// The secret after a key update (RFC 8446 §7.2).
pub(crate) fn next_secret(suite: Suite, secret: &[u8]) -> Vec<u8> {
    expand_label(suite, secret, "traffic upd", b"", suite.hash_len())
}

/// The PRF of TLS 1.2 (RFC 5246 §5) with the suite's hash.
pub(crate) fn prf(suite: Suite, secret: &[u8], label: &str, seed: &[u8], length: usize) -> Vec<u8> {
    let seed = [label.as_bytes(), seed].concat();
    let (mut a, mut out) = (seed.clone(), Vec::new());
    while out.len() < length {
        a = mac(suite, secret, &a);
        out.extend_from_slice(&mac(suite, secret, &[&a[..], &seed].concat()));
    }
    out.truncate(length);
    out
}
