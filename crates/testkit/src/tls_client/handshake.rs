//! The steps of the handshake between the ClientHello and the first application data.

use std::io::{Read, Write};

use ring::agreement::{UnparsedPublicKey, X25519, agree_ephemeral};

use super::hello::ServerHello;
use super::protection::{Protection, Seal};
use super::receive::{Event, Received};
use super::schedule::{Schedule, prf, verify_data_13};
use super::suite::{Suite, Version};
use super::wire::{Reader, content, handshake, message, vector};
use super::{Client, Error};

/// What a step leaves behind for the next one.
pub(crate) enum Pending {
    /// Nothing has been agreed.
    Nothing,
    /// TLS 1.3, the server's flight was read.
    Server13 {
        /// The secret of the client's first application keys.
        application: Vec<u8>,
        /// The context of a CertificateRequest, where there was one.
        certificate_request: Option<Vec<u8>>,
    },
    /// TLS 1.2, the server's flight was read.
    Server12 { hello: ServerHello, share: Vec<u8>, certificate_request: bool },
    /// TLS 1.2, the key exchange is done; `read` waits for the server's change_cipher_spec.
    Keys12 { master: Vec<u8>, read: Option<Box<Protection>> },
    /// The handshake is over.
    Done,
}

impl<S: Read + Write> Client<S> {
    /// Reads all that the server says up to the point where the client must answer: its Finished
    /// (TLS 1.3, verified) or ServerHelloDone (TLS 1.2).
    ///
    /// # Errors
    /// [`Error::Alert`], [`Error::Ended`] or [`Error::Peer`] where the server does something else.
    pub fn receive_server_flight(&mut self) -> Result<(), Error> {
        let body = self.expect_message(message::SERVER_HELLO)?;
        let hello = ServerHello::parse(self.suite(), &body)?;
        match self.suite().version {
            Version::Tls13 => self.server_flight_13(&hello),
            Version::Tls12 => self.server_flight_12(hello),
        }
    }

    fn server_flight_13(&mut self, hello: &ServerHello) -> Result<(), Error> {
        let suite = self.suite();
        let share = hello.share.as_deref().ok_or_else(|| Error::peer("a ServerHello without a key share"))?;
        let schedule = Schedule::new(suite, &self.agree(share)?);
        let secrets = schedule.handshake(&self.transcript);
        self.read = Some(Protection::tls13(suite, &secrets.server));
        self.write.push(Protection::tls13(suite, &secrets.client));
        let mut certificate_request = None;
        loop {
            let before = self.transcript.len();
            let (kind, body) = self.next_message()?;
            match kind {
                message::CERTIFICATE_REQUEST => {
                    certificate_request = Some(Reader(&body).vector(1).unwrap_or_default().to_vec());
                }
                message::FINISHED => {
                    let expected = verify_data_13(suite, &secrets.server, &self.transcript[..before]);
                    require_finished(&body, &expected)?;
                    break;
                }
                message::ENCRYPTED_EXTENSIONS | message::CERTIFICATE | message::CERTIFICATE_VERIFY => {}
                other => return Err(unexpected(other)),
            }
        }
        let application = schedule.application(&self.transcript);
        self.read = Some(Protection::tls13(suite, &application.server));
        self.pending = Pending::Server13 { application: application.client, certificate_request };
        Ok(())
    }

    fn server_flight_12(&mut self, hello: ServerHello) -> Result<(), Error> {
        let (mut share, mut certificate_request) = (None, false);
        loop {
            let (kind, body) = self.next_message()?;
            match kind {
                // curve_type 3 (named), curve x25519, then the point (RFC 8422 §5.4).
                message::SERVER_KEY_EXCHANGE => match body.strip_prefix(&[3, 0, 0x1d]) {
                    Some(rest) => share = Reader(rest).vector(1).map(<[u8]>::to_vec),
                    None => return Err(Error::peer("a key exchange over another group than x25519")),
                },
                message::CERTIFICATE_REQUEST => certificate_request = true,
                message::SERVER_HELLO_DONE => break,
                message::CERTIFICATE | message::CERTIFICATE_STATUS => {}
                other => return Err(unexpected(other)),
            }
        }
        let share = share.ok_or_else(|| Error::peer("no ServerKeyExchange"))?;
        self.pending = Pending::Server12 { hello, share, certificate_request };
        Ok(())
    }

    /// Sends what precedes change_cipher_spec in the client's second flight: an empty Certificate where
    /// one was requested, and in TLS 1.2 the ClientKeyExchange. The keys that protect Finished are then
    /// in use for [`Client::seal`].
    ///
    /// # Errors
    /// What the stream says, or [`Error::Peer`] for an unusable key share.
    ///
    /// # Panics
    /// Before [`Self::receive_server_flight`].
    pub fn send_key_exchange(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Server13 { application, certificate_request } => {
                if let Some(context) = &certificate_request {
                    let mut body = Vec::new();
                    vector(&mut body, 1, context);
                    vector(&mut body, 3, b"");
                    let certificate = handshake(message::CERTIFICATE, &body);
                    self.transcript.extend_from_slice(&certificate);
                    self.send(&Seal::handshake(&certificate))?;
                }
                self.pending = Pending::Server13 { application, certificate_request: None };
                Ok(())
            }
            Pending::Server12 { hello, share, certificate_request } => {
                if certificate_request {
                    self.send_plain_message(&handshake(message::CERTIFICATE, &[0, 0, 0]))?;
                }
                self.key_exchange_12(&hello, &share)
            }
            _ => panic!("the key exchange follows the server's flight"),
        }
    }

    fn key_exchange_12(&mut self, hello: &ServerHello, share: &[u8]) -> Result<(), Error> {
        let suite = self.suite();
        let exchange = self.exchange.as_ref().expect("the key is used once, below");
        let public = exchange.compute_public_key().map_err(|_| Error::setup("no public key"))?;
        let mut body = Vec::new();
        vector(&mut body, 1, public.as_ref());
        let shared = self.agree(share)?;
        self.send_plain_message(&handshake(message::CLIENT_KEY_EXCHANGE, &body))?;
        let master = if hello.extended_master_secret {
            let seed = suite.digest(&self.transcript);
            prf(suite, &shared, "extended master secret", &seed, MASTER)
        } else {
            prf(suite, &shared, "master secret", &[self.random, hello.random].concat(), MASTER)
        };
        let seed = [hello.random, self.random].concat();
        let [client, server] = keys_12(suite, &master, &seed);
        self.write.push(client);
        self.pending = Pending::Keys12 { master, read: Some(Box::new(server)) };
        Ok(())
    }

    /// Sends a change_cipher_spec: the real one of TLS 1.2, or the one of TLS 1.3's compatibility mode
    /// (RFC 8446 §D.4).
    ///
    /// # Errors
    /// What the stream says.
    pub fn send_change_cipher_spec(&mut self) -> Result<(), Error> {
        self.write_plain(content::CHANGE_CIPHER_SPEC, &[1])
    }

    /// The correct Finished as a handshake message, unsent. It stays correct until
    /// [`Self::complete`] is called.
    ///
    /// # Panics
    /// Before [`Self::send_key_exchange`].
    #[must_use]
    pub fn finished(&self) -> Vec<u8> {
        let suite = self.suite();
        let verify_data = match &self.pending {
            Pending::Server13 { .. } => verify_data_13(suite, self.write[0].secret(), &self.transcript),
            Pending::Keys12 { master, .. } => {
                prf(suite, master, "client finished", &suite.digest(&self.transcript), VERIFY_DATA_12)
            }
            _ => panic!("Finished follows the key exchange"),
        };
        handshake(message::FINISHED, &verify_data)
    }

    /// After Finished was sent: TLS 1.3 takes the application keys into use; TLS 1.2 waits for the
    /// server's change_cipher_spec and Finished, which is verified.
    ///
    /// # Errors
    /// [`Error::Alert`], [`Error::Ended`] or [`Error::Peer`] where the server does something else.
    ///
    /// # Panics
    /// Before [`Self::send_key_exchange`].
    pub fn complete(&mut self, finished: &[u8]) -> Result<(), Error> {
        let suite = self.suite();
        self.transcript.extend_from_slice(finished);
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Server13 { application, .. } => {
                self.write.push(Protection::tls13(suite, &application));
            }
            Pending::Keys12 { master, read } => {
                // `next_message` takes `read` into use when the server's change_cipher_spec comes.
                self.pending = Pending::Keys12 { master: master.clone(), read };
                loop {
                    let before = suite.digest(&self.transcript);
                    let (kind, body) = self.next_message()?;
                    match kind {
                        message::NEW_SESSION_TICKET => {}
                        message::FINISHED => {
                            let expected = prf(suite, &master, "server finished", &before, VERIFY_DATA_12);
                            require_finished(&body, &expected)?;
                            break;
                        }
                        other => return Err(unexpected(other)),
                    }
                }
            }
            _ => panic!("the handshake is completed after the key exchange"),
        }
        self.pending = Pending::Done;
        Ok(())
    }

    /// TLS 1.2: the server's change_cipher_spec takes its keys into use.
    pub(crate) fn on_change_cipher_spec(&mut self) {
        if let Pending::Keys12 { read, .. } = &mut self.pending
            && let Some(read) = read.take()
        {
            self.read = Some(*read);
        }
    }

    fn send_plain_message(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.transcript.extend_from_slice(bytes);
        self.write_plain(content::HANDSHAKE, bytes)
    }

    fn agree(&mut self, share: &[u8]) -> Result<Vec<u8>, Error> {
        let exchange = self.exchange.take().expect("one key exchange per connection");
        agree_ephemeral(exchange, &UnparsedPublicKey::new(&X25519, share), <[u8]>::to_vec)
            .map_err(|_| Error::peer("a key share that is no point of x25519"))
    }

    fn expect_message(&mut self, kind: u8) -> Result<Vec<u8>, Error> {
        let (got, body) = self.next_message()?;
        if got == kind { Ok(body) } else { Err(unexpected(got)) }
    }

    /// The next handshake message, which also enters the transcript.
    fn next_message(&mut self) -> Result<(u8, Vec<u8>), Error> {
        loop {
            match self.receive()? {
                Received::Event(Event::Handshake { kind, body }) => {
                    self.transcript.extend_from_slice(&handshake(kind, &body));
                    return Ok((kind, body));
                }
                Received::Event(Event::ChangeCipherSpec) => {}
                Received::Event(Event::Alert(alert)) => return Err(Error::Alert(alert)),
                Received::Event(Event::Data(_)) => {
                    return Err(Error::peer("data before the handshake's end"));
                }
                Received::End(end) => return Err(Error::Ended(end)),
            }
        }
    }
}

fn keys_12(suite: Suite, master: &[u8], seed: &[u8]) -> [Protection; 2] {
    let (key, iv) = (suite.aead().key_len(), if suite.explicit_nonce() { 4 } else { 12 });
    let block = prf(suite, master, "key expansion", seed, 2 * (key + iv));
    let (keys, ivs) = block.split_at(2 * key);
    [Protection::tls12(suite, &keys[..key], &ivs[..iv]), Protection::tls12(suite, &keys[key..], &ivs[iv..])]
}

fn require_finished(got: &[u8], expected: &[u8]) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::peer("the server's Finished is wrong")) }
}

fn unexpected(kind: u8) -> Error {
    Error::peer(format!("handshake message {kind} out of its place"))
}

/// Bytes of a TLS 1.2 master secret (RFC 5246 §8.1).
const MASTER: usize = 48;
/// Bytes of a TLS 1.2 `verify_data` (RFC 5246 §7.4.9).
const VERIFY_DATA_12: usize = 12;
