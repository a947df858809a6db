//! Sealing: plaintext in slots is encrypted to records, in place.

use std::ops::Range;

use crate::block::{Layout, MAX_PLAINTEXT};
use crate::event::PlaintextSpan;
use crate::expanded::ExpandedKey;
use crate::keys::{KeyMaterial, nonce, tls12_additional_data};
use crate::limits::{KeyDemand, pressure};
use crate::measure::LibraryChoice;
use crate::open::Opener;
use crate::suite::{Format, Version};

/// Content types of records (RFC 8446 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ContentType {
    /// An alert, for faults and the end.
    Alert = 21,
    /// A handshake message, such as a KeyUpdate.
    Handshake = 22,
    /// Data of the application.
    ApplicationData = 23,
}

/// Encrypts the records sent to the peer.
pub struct Sealer {
    key: ExpandedKey,
    iv: [u8; 12],
    sequence: u64,
    format: Format,
    version: Version,
}

impl Sealer {
    /// Takes the sending keys of a completed handshake.
    #[must_use]
    pub fn new(keys: &KeyMaterial, choice: &LibraryChoice) -> Self {
        Self {
            key: ExpandedKey::new(keys, choice.library(keys.suite)),
            iv: keys.iv,
            sequence: keys.sequence,
            format: Format::of(keys.version, keys.suite),
            version: keys.version,
        }
    }

    /// Switches to the keys that follow a KeyUpdate of this side; call it after sealing the record with the
    /// KeyUpdate.
    pub fn rekey(&mut self, keys: &KeyMaterial) {
        self.key = ExpandedKey::new(keys, self.key.library());
        self.iv = keys.iv;
        self.sequence = keys.sequence;
    }

    /// Protocol version of the records.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Action required by the use of the key; check it before each batch.
    #[must_use]
    pub fn pressure(&self) -> KeyDemand {
        pressure(self.version, self.key.suite(), self.sequence)
    }

    /// Lays out slots of `slot` plaintext bytes (1 to 2^14) in a block of `block` bytes, at most `most` of
    /// them.
    #[must_use]
    pub fn layout(&self, slot: usize, block: usize, most: usize) -> Layout {
        Layout::new(self.format.overhead(), slot, block, most)
    }

    /// Seals the first `filled` plaintext bytes of the slots in `block`; returns the number of bytes at the
    /// front of the block that are then records.
    ///
    /// # Panics
    /// If `filled` exceeds the layout's capacity, or the block is not the one laid out.
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

    /// Returns true if records opened by `opener` can be sealed in place: both formats have the same
    /// geometry.
    #[must_use]
    pub fn matches(&self, opener: &Opener) -> bool {
        self.format == opener.format()
    }

    /// Seals opened plaintext in place, as one record around `span`; returns the range of that record. Bytes
    /// outside of the record that `span` came in are not touched.
    ///
    /// # Panics
    /// If `span` was not opened in `buffer` by an opener that [`Sealer::matches`].
    pub fn reseal(&mut self, buffer: &mut [u8], span: PlaintextSpan) -> Range<usize> {
        let start = span.start - self.format.overhead().head;
        let length = self.protect(&mut buffer[start..], span.len, ContentType::ApplicationData);
        start..start + length
    }

    /// Seals one record of `content`, at most 2^14 bytes, and appends it to `out`: alerts and key updates.
    ///
    /// # Panics
    /// If `content` is longer than a record.
    pub fn seal_message(&mut self, typ: ContentType, content: &[u8], out: &mut Vec<u8>) {
        assert!(content.len() <= MAX_PLAINTEXT, "content of more than one record");
        let overhead = self.format.overhead();
        let start = out.len();
        out.resize(start + overhead.head + content.len() + overhead.tail, 0);
        out[start + overhead.head..][..content.len()].copy_from_slice(content);
        self.protect(&mut out[start..], content.len(), typ);
    }

    /// Protects the `plain` bytes behind the head room of `record`; returns the length of the record.
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
            let aad = tls12_additional_data(self.sequence, [head[0], 3, 3], plain);
            self.key.seal(nonce, &aad, data)
        };
        tail.copy_from_slice(&tag);
        self.sequence += 1;
        total
    }
}
