//! Sealing and opening of single records, with every field open to falsification.
//!
//! A [`Seal`] says what goes into a record; [`Protection::seal`] answers with its bytes, which the caller
//! may then damage at will. Nothing is refused, least of all what the RFCs forbid.

use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey};

use super::schedule::{expand_label, next_secret};
use super::suite::{Suite, Version};
use super::wire::{HEADER, VERSION_12, content, header};

/// Bytes of an AEAD tag, in every suite.
pub const TAG: usize = 16;
/// Bytes of a TLS 1.2 explicit nonce.
const EXPLICIT: usize = 8;

/// What one protected record shall be. The constructors give a correct record; the builder methods
/// make it a strange one.
#[derive(Clone, Debug)]
pub struct Seal {
    content_type: u8,
    payload: Vec<u8>,
    padding: usize,
    bare: bool,
    outer_type: Option<u8>,
    version: [u8; 2],
    authenticated: Option<[u8; 2]>,
    nonce: Option<[u8; EXPLICIT]>,
    sequence: Option<u64>,
}

impl Seal {
    /// A record of this content type (the inner one in TLS 1.3) around this payload.
    #[must_use]
    pub fn new(content_type: u8, payload: &[u8]) -> Self {
        Self {
            content_type,
            payload: payload.to_vec(),
            padding: 0,
            bare: false,
            outer_type: None,
            version: VERSION_12,
            authenticated: None,
            nonce: None,
            sequence: None,
        }
    }

    /// Application data.
    #[must_use]
    pub fn data(payload: &[u8]) -> Self {
        Self::new(content::APPLICATION_DATA, payload)
    }

    /// Bytes of one or more handshake messages.
    #[must_use]
    pub fn handshake(bytes: &[u8]) -> Self {
        Self::new(content::HANDSHAKE, bytes)
    }

    /// The bytes of an alert, of any number.
    #[must_use]
    pub fn alert(bytes: &[u8]) -> Self {
        Self::new(content::ALERT, bytes)
    }

    /// TLS 1.3: `inner` is the whole inner plaintext; no content type and no padding are added.
    #[must_use]
    pub fn bare(inner: &[u8]) -> Self {
        Self { bare: true, ..Self::new(content::APPLICATION_DATA, inner) }
    }

    /// TLS 1.3: this many zeros behind the content type.
    #[must_use]
    pub fn padding(self, bytes: usize) -> Self {
        Self { padding: bytes, ..self }
    }

    /// TLS 1.3: another content type in the header (and in what is authenticated) than 23.
    #[must_use]
    pub fn outer_type(self, content_type: u8) -> Self {
        Self { outer_type: Some(content_type), ..self }
    }

    /// Another version in the header and in what is authenticated.
    #[must_use]
    pub fn version(self, version: [u8; 2]) -> Self {
        Self { version, ..self }
    }

    /// Another version in what is authenticated alone.
    #[must_use]
    pub fn authenticated_version(self, version: [u8; 2]) -> Self {
        Self { authenticated: Some(version), ..self }
    }

    /// TLS 1.2 with GCM: this explicit nonce instead of the sequence number.
    #[must_use]
    pub fn nonce(self, nonce: [u8; EXPLICIT]) -> Self {
        Self { nonce: Some(nonce), ..self }
    }

    /// This sequence number; the connection's own counter then stands still.
    #[must_use]
    pub fn sequence(self, number: u64) -> Self {
        Self { sequence: Some(number), ..self }
    }
}

/// The keys of one direction and one epoch, with the sequence number that comes next.
pub struct Protection {
    suite: Suite,
    key: LessSafeKey,
    iv: Vec<u8>,
    /// The TLS 1.3 traffic secret that the keys came from; empty in TLS 1.2.
    secret: Vec<u8>,
    sequence: u64,
}

impl Protection {
    pub(crate) fn tls13(suite: Suite, secret: &[u8]) -> Self {
        let key = expand_label(suite, secret, "key", b"", suite.aead().key_len());
        let iv = expand_label(suite, secret, "iv", b"", suite.aead().nonce_len());
        Self::new(suite, &key, &iv, secret)
    }

    pub(crate) fn tls12(suite: Suite, key: &[u8], iv: &[u8]) -> Self {
        Self::new(suite, key, iv, b"")
    }

    fn new(suite: Suite, key: &[u8], iv: &[u8], secret: &[u8]) -> Self {
        let key = UnboundKey::new(suite.aead(), key).expect("the schedule gives keys of the right length");
        let (iv, secret) = (iv.to_vec(), secret.to_vec());
        Self { suite, key: LessSafeKey::new(key), iv, secret, sequence: 0 }
    }

    /// TLS 1.3: the keys after a key update, from sequence number 0.
    #[must_use]
    pub fn next(&self) -> Self {
        Self::tls13(self.suite, &next_secret(self.suite, &self.secret))
    }

    /// The sequence number of the record that is sealed or opened next.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// The bytes of one record.
    ///
    /// # Panics
    /// If the body is longer than the header's length field can say (65,535 bytes).
    pub fn seal(&mut self, seal: &Seal) -> Vec<u8> {
        let sequence = seal.sequence.unwrap_or(self.sequence);
        if seal.sequence.is_none() {
            self.sequence += 1;
        }
        let mut inner = seal.payload.clone();
        let mut outer_type = seal.content_type;
        if self.suite.version == Version::Tls13 {
            if !seal.bare {
                inner.push(seal.content_type);
                inner.resize(inner.len() + seal.padding, 0);
            }
            outer_type = seal.outer_type.unwrap_or(content::APPLICATION_DATA);
        }
        let explicit = seal.nonce.unwrap_or(sequence.to_be_bytes());
        let explicit = if self.suite.explicit_nonce() { &explicit[..] } else { &[] };
        let length = u16::try_from(explicit.len() + inner.len() + TAG).expect("the body fits a record");
        let mut record = header(outer_type, seal.version, length).to_vec();
        let authenticated = header(outer_type, seal.authenticated.unwrap_or(seal.version), length);
        let aad = self.aad(authenticated, sequence, inner.len());
        let nonce = self.nonce(sequence, explicit);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(aad), &mut inner)
            .expect("a record is far shorter than the limits of the AEAD");
        record.extend_from_slice(explicit);
        record.extend_from_slice(&inner);
        record.extend_from_slice(tag.as_ref());
        record
    }

    /// Opens a whole record; the content type (the inner one in TLS 1.3) and the content. `None` where
    /// the tag is wrong, the body too short, or the inner plaintext without a type.
    pub(crate) fn open(&mut self, record: &[u8]) -> Option<(u8, Vec<u8>)> {
        let (head, body) = record.split_first_chunk::<HEADER>()?;
        let explicit_len = if self.suite.explicit_nonce() { EXPLICIT } else { 0 };
        let (explicit, sealed) = body.split_at_checked(explicit_len)?;
        let mut inner = sealed.to_vec();
        let length = sealed.len().checked_sub(TAG)?;
        let aad = self.aad(*head, self.sequence, length);
        let nonce = self.nonce(self.sequence, explicit);
        self.key.open_in_place(nonce, Aad::from(aad), &mut inner).ok()?;
        self.sequence += 1;
        inner.truncate(length);
        if self.suite.version == Version::Tls12 {
            return Some((head[0], inner));
        }
        let end = inner.iter().rposition(|&byte| byte != 0)?;
        let content_type = inner[end];
        inner.truncate(end);
        Some((content_type, inner))
    }

    /// What is authenticated beside the content: the header (RFC 8446 §5.2), or the sequence number and
    /// the header with the plaintext's length (RFC 5246 §6.2.3.3).
    fn aad(&self, header: [u8; HEADER], sequence: u64, length: usize) -> Vec<u8> {
        if self.suite.version == Version::Tls13 {
            return header.to_vec();
        }
        let length = u16::try_from(length).expect("a record body fits its length field");
        [&sequence.to_be_bytes()[..], &header[..3], &length.to_be_bytes()].concat()
    }

    fn nonce(&self, sequence: u64, explicit: &[u8]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..self.iv.len()].copy_from_slice(&self.iv);
        if self.suite.explicit_nonce() {
            nonce[4..].copy_from_slice(explicit);
        } else {
            nonce[4..].iter_mut().zip(sequence.to_be_bytes()).for_each(|(byte, bit)| *byte ^= bit);
        }
        Nonce::assume_unique_for_key(nonce)
    }
}
