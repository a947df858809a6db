//! A record-level TLS client, for saying to a server exactly what no proper client would.
//!
//! It completes a correct handshake of TLS 1.3 or TLS 1.2 over any [`Read`] + [`Write`], step by step,
//! and between any two steps the caller may send any bytes: plain records, sealed records with any
//! field falsified ([`Seal`]), whole records damaged afterwards, pieces of records. It opens what the
//! server says, follows the server's key updates, and tells how the connection ended.
//!
//! Order of calls, when taken apart (or [`Client::handshake`] for all at once):
//!
//! ```text
//! new → send_hello → receive_server_flight → send_key_exchange → send_change_cipher_spec
//!     → finished, sealed and sent → complete → send / receive
//! ```
//!
//! It verifies the server's Finished but no certificate, resumes nothing, follows no
//! HelloRetryRequest, and keeps no secret secret. Never use it outside tests.

mod handshake;
mod hello;
mod protection;
mod receive;
mod schedule;
mod suite;
pub mod wire;

use std::io::{Read, Write};

use ring::agreement::{EphemeralPrivateKey, X25519};
use ring::rand::{SecureRandom, SystemRandom};

pub use crate::error::{Alert, End};
pub use hello::Options;
pub use protection::{Protection, Seal, TAG};
pub use receive::{Event, Received};
pub use suite::{Cipher, Suite, Version};

use crate::Error;
use handshake::Pending;
use wire::{content, message};

/// One connection of the client. See the module for the order of calls.
pub struct Client<S> {
    stream: S,
    options: Options,
    hello: Vec<u8>,
    random: [u8; 32],
    exchange: Option<EphemeralPrivateKey>,
    /// Every handshake message so far, both sides, without record headers.
    transcript: Vec<u8>,
    pending: Pending,
    /// The keys for sending, one per epoch; the last is in use.
    write: Vec<Protection>,
    read: Option<Protection>,
    read_updates: u64,
    inbox: receive::Inbox,
}

impl<S: Read + Write> Client<S> {
    /// A client that has sent nothing yet.
    ///
    /// # Errors
    /// [`Error::Setup`] where the system has no randomness.
    pub fn new(stream: S, options: Options) -> Result<Self, Error> {
        let rng = SystemRandom::new();
        let exhausted = |_| Error::setup("no randomness");
        let exchange = EphemeralPrivateKey::generate(&X25519, &rng).map_err(exhausted)?;
        let share = exchange.compute_public_key().map_err(exhausted)?;
        let (mut random, mut session_id) = ([0; 32], [0; 32]);
        rng.fill(&mut random).map_err(exhausted)?;
        rng.fill(&mut session_id).map_err(exhausted)?;
        let session_id = if options.suite.version == Version::Tls13 { &session_id[..] } else { &[] };
        let material = hello::Material { random: &random, session_id, share: share.as_ref() };
        let hello = hello::client_hello(&options, &material);
        Ok(Self {
            stream,
            options,
            transcript: hello.clone(),
            hello,
            random,
            exchange: Some(exchange),
            pending: Pending::Nothing,
            write: Vec::new(),
            read: None,
            read_updates: 0,
            inbox: receive::Inbox::default(),
        })
    }

    /// The suite that is offered.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.options.suite
    }

    /// The ClientHello as a handshake message, for sending it in pieces.
    #[must_use]
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// The stream below.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Writes these bytes as they are.
    ///
    /// # Errors
    /// What the stream says.
    pub fn write_raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes)?;
        Ok(self.stream.flush()?)
    }

    /// Writes one record without protection.
    ///
    /// # Errors
    /// What the stream says.
    pub fn write_plain(&mut self, content_type: u8, body: &[u8]) -> Result<(), Error> {
        self.write_raw(&wire::record(content_type, wire::VERSION_12, body))
    }

    /// Seals one record with the keys in use and gives its bytes, unsent.
    ///
    /// # Panics
    /// Before there are keys, or if the record does not fit its length field.
    pub fn seal(&mut self, seal: &Seal) -> Vec<u8> {
        self.write.last_mut().expect("keys are there after the server's flight").seal(seal)
    }

    /// Seals and writes one record.
    ///
    /// # Errors
    /// What the stream says.
    ///
    /// # Panics
    /// As [`Self::seal`].
    pub fn send(&mut self, seal: &Seal) -> Result<(), Error> {
        let record = self.seal(seal);
        self.write_raw(&record)
    }

    /// The keys of every epoch so far, oldest first. TLS 1.3: handshake, then one per generation of
    /// application keys. TLS 1.2: one.
    pub fn epochs(&mut self) -> &mut Vec<Protection> {
        &mut self.write
    }

    /// Whether the handshake is over on this side, and application data may be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.pending, Pending::Done)
    }

    /// TLS 1.3: begins the next epoch of sending keys, without telling the server.
    ///
    /// # Panics
    /// Before there are keys.
    pub fn update_write_keys(&mut self) {
        let next = self.write.last().expect("keys are there after the server's flight").next();
        self.write.push(next);
    }

    /// TLS 1.3: a sealed KeyUpdate with this `request_update` value, unsent; the next epoch begins.
    ///
    /// # Panics
    /// Before there are keys.
    pub fn seal_key_update(&mut self, request_update: u8) -> Vec<u8> {
        let record = self.seal(&Seal::handshake(&wire::handshake(message::KEY_UPDATE, &[request_update])));
        self.update_write_keys();
        record
    }

    /// How many key updates of the server were followed.
    #[must_use]
    pub fn read_updates(&self) -> u64 {
        self.read_updates
    }

    /// Writes the record with the ClientHello.
    ///
    /// # Errors
    /// What the stream says.
    pub fn send_hello(&mut self) -> Result<(), Error> {
        let record = wire::record(content::HANDSHAKE, self.options.record_version, &self.hello);
        self.write_raw(&record)
    }

    /// A whole correct handshake.
    ///
    /// # Errors
    /// [`Error::Alert`], [`Error::Ended`] or [`Error::Peer`] where the server does not follow.
    pub fn handshake(&mut self) -> Result<(), Error> {
        self.send_hello()?;
        self.receive_server_flight()?;
        self.send_key_exchange()?;
        self.send_change_cipher_spec()?;
        let finished = self.finished();
        self.send(&Seal::handshake(&finished))?;
        self.complete(&finished)
    }
}
