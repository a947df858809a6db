//! Sealing: plaintext that lies in slots becomes records, in place.

use std::ops::Range;

use crate::block::{Layout, MAX_PLAINTEXT};
use crate::event::Span;
use crate::expanded::Key;
use crate::keys::{KeyMaterial, nonce};
use crate::limits::{Pressure, pressure};
use crate::measure::Choice;
use crate::open::Opener;
use crate::suite::{Format, Version};

/// The content types of records (RFC 8446 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ContentType {
    /// An alert.
    Alert = 21,
    /// A handshake message.
    Handshake = 22,
    /// Application data.
    ApplicationData = 23,
}

/// Protects what goes to the peer.
pub struct Sealer {
    key: Key,
    iv: [u8; 12],
    sequence: u64,
    format: Format,
    version: Version,
}

impl Sealer {
    /// Takes the sending keys of a finished handshake.
    #[must_use]
    pub fn new(keys: &KeyMaterial, choice: &Choice) -> Self {
        Self {
            key: Key::new(keys, choice.library(keys.suite)),
            iv: keys.iv,
            sequence: keys.sequence,
            format: Format::of(keys.version, keys.suite),
            version: keys.version,
        }
    }

    /// Changes to the keys that follow a KeyUpdate of ours; to be called after the record with the
    /// KeyUpdate was sealed.
    pub fn rekey(&mut self, keys: &KeyMaterial) {
        self.key = Key::new(keys, self.key.library());
        self.iv = keys.iv;
        self.sequence = keys.sequence;
    }

    /// The version whose records these are.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// What the use of the key so far asks for; to be looked at before each batch.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        pressure(self.version, self.key.suite(), self.sequence)
    }

    /// Lays out slots of `slot` plaintext bytes (1 to 2^14) in a block of `block` bytes, at the
    /// most `most` of them.
    #[must_use]
    pub fn layout(&self, slot: usize, block: usize, most: usize) -> Layout {
        Layout::new(self.format.overhead(), slot, block, most)
    }

    /// Seals the first `filled` plaintext bytes of the slots in `block`; returns how many bytes at
    /// the front of the block are then records.
    ///
    /// # Panics
    /// Where `filled` is more than the layout's capacity, or the block is not the one laid out.
    pub fn seal(&mut self, layout: &Layout, block: &mut [u8], filled: usize) -> usize {
        assert!(filled <= layout.capacity(), "more plaintext than was laid out");
        let mut left = filled;
        let mut wire = 0;
        for record in block.chunks_mut(layout.stride()) {
            if left == 0 {
                break;
            }
            let plain = left.min(layout.slot);
            wire += self.protect(record, plain, ContentType::ApplicationData);
            left -= plain;
        }
        wire
    }

    /// Whether what `opener` has opened can be sealed where it lies: both protect records in the same way.
    #[must_use]
    pub fn matches(&self, opener: &Opener) -> bool {
        self.format == opener.format()
    }

    /// Seals what was opened where it lies, as one record around `span`; returns where that is. Nothing outside of the
    /// record that `span` came in is touched.
    ///
    /// # Panics
    /// Where `span` was not opened in `buffer` by an opener that [`Sealer::matches`].
    pub fn reseal(&mut self, buffer: &mut [u8], span: Span) -> Range<usize> {
        let start = span.start - self.format.overhead().head;
        let length = self.protect(&mut buffer[start..], span.len, ContentType::ApplicationData);
        start..start + length
    }

    /// Seals one record of `content`, at most 2^14 bytes, behind what `out` already holds: alerts
    /// and key updates.
    ///
    /// # Panics
    /// Where `content` is longer than one record may be.
    pub fn seal_message(&mut self, typ: ContentType, content: &[u8], out: &mut Vec<u8>) {
        assert!(content.len() <= MAX_PLAINTEXT, "content of more than one record");
        let overhead = self.format.overhead();
        let start = out.len();
        out.resize(start + overhead.head + content.len() + overhead.tail, 0);
        out[start + overhead.head..][..content.len()].copy_from_slice(content);
        self.protect(&mut out[start..], content.len(), typ);
    }

    /// Protects the `plain` bytes that lie behind the head room of `record`; returns its length.
    #[inline]
    fn protect(&mut self, record: &mut [u8], plain: usize, typ: ContentType) -> usize {
        let overhead = self.format.overhead();
        let total = overhead.head + plain + overhead.tail;
        let (head, body) = record[..total].split_at_mut(overhead.head);
        let (data, tail) = body.split_at_mut(total - overhead.head - crate::aead::TAG);
        let nonce = nonce(&self.iv, self.sequence);
        let length = ((total - 5) as u16).to_be_bytes();
        head[1..3].copy_from_slice(&[3, 3]);
        head[3..5].copy_from_slice(&length);
        let tag = if self.format == Format::Tls13 {
            head[0] = ContentType::ApplicationData as u8;
            data[plain] = typ as u8;
            self.key.seal(nonce, &head[..5], data)
        } else {
            head[0] = typ as u8;
            if self.format == Format::Tls12Explicit {
                head[5..13].copy_from_slice(&nonce[4..]);
            }
            let aad = tls12_aad(self.sequence, [head[0], 3, 3], plain);
            self.key.seal(nonce, &aad, data)
        };
        tail.copy_from_slice(&tag);
        self.sequence += 1;
        total
    }
}

/// The associated data of a TLS 1.2 record: sequence number, type, version, plaintext length
/// (RFC 5246 §6.2.3.3).
#[inline]
pub(crate) fn tls12_aad(sequence: u64, typ_and_version: [u8; 3], plain: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&sequence.to_be_bytes());
    aad[8..11].copy_from_slice(&typ_and_version);
    aad[11..].copy_from_slice(&(plain as u16).to_be_bytes());
    aad
}
