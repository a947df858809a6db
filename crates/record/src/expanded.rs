//! A bounded, per-thread cache of expanded AEAD keys.
//!
//! An expanded key, ready for the cipher, takes 600 bytes for AES-GCM. Expanding it from 16 or 32 bytes takes
//! less than a microsecond. Idle connections would waste those bytes twice, so connections own raw keys only.
//! Expanded keys of the most recently used connections are in a table of the thread; a key that is not in it
//! is expanded again for its next record.
//!
//! A connection knows its index in the table, and the entry there holds the raw key for comparison. So an
//! entry is never used for another key, even if the index has been reused meanwhile. Dropping a key removes
//! its entry.

use std::cell::RefCell;

use zeroize::Zeroize;

use crate::aead::{Aead, Forged, Library, TAG};
use crate::keys::{KeyMaterial, MAX_KEY};
use crate::suite::Suite;

/// Maximum number of expanded keys per thread: those of 128 connections, 170 KiB. With more connections
/// active at a time, some records wait for an expansion: 0.65 µs of the 20 or more that a request costs.
pub(crate) const MOST: usize = 256;

/// Index of a key without an entry.
const NO_INDEX: u32 = u32::MAX;

thread_local! {
    static EXPANDED: RefCell<Expanded> = const { RefCell::new(Expanded::new()) };
}

/// An AEAD key that is expanded on demand. The raw key is wiped on drop.
pub(crate) struct ExpandedKey {
    raw: RawKey,
    /// Index of the last expanded entry.
    index: u32,
}

/// The input of an expansion.
#[derive(Clone, PartialEq, Eq)]
struct RawKey {
    library: Library,
    suite: Suite,
    bytes: [u8; MAX_KEY],
}

impl Drop for RawKey {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl ExpandedKey {
    pub(crate) fn new(material: &KeyMaterial, library: Library) -> Self {
        let raw = RawKey { library, suite: material.suite, bytes: *material.padded_key() };
        Self { raw, index: NO_INDEX }
    }

    pub(crate) fn library(&self) -> Library {
        self.raw.library
    }

    pub(crate) fn suite(&self) -> Suite {
        self.raw.suite
    }

    /// Seals like [`Aead::seal`].
    #[inline]
    pub(crate) fn seal(&mut self, nonce: [u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; TAG] {
        EXPANDED.with_borrow_mut(|expanded| expanded.get(self).seal(nonce, aad, data))
    }

    /// Opens like [`Aead::open`].
    #[inline]
    pub(crate) fn open(&mut self, nonce: [u8; 12], aad: &[u8], data: &mut [u8]) -> Result<(), Forged> {
        EXPANDED.with_borrow_mut(|expanded| expanded.get(self).open(nonce, aad, data))
    }
}

impl Drop for ExpandedKey {
    fn drop(&mut self) {
        // During thread exit, the table may be gone already.
        let _ = EXPANDED.try_with(|expanded| expanded.borrow_mut().remove(self));
    }
}

/// Table of expanded keys of a thread.
struct Expanded {
    entries: Vec<Option<CachedKey>>,
    free: Vec<u32>,
    /// State of the random eviction. Evicting in order would always hit the key that is needed next when keys
    /// are used round robin.
    eviction_state: u32,
}

struct CachedKey {
    raw: RawKey,
    aead: Box<dyn Aead>,
}

impl Expanded {
    const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), eviction_state: 0x9e37_79b9 }
    }

    /// Returns the expanded key, expanding it on a miss.
    #[inline]
    fn get(&mut self, key: &mut ExpandedKey) -> &dyn Aead {
        if !self.has(key) {
            self.expand(key);
        }
        // Present before, or expanded just now.
        &*self.entries[key.index as usize].as_ref().expect("the key was expanded").aead
    }

    #[inline]
    fn has(&self, key: &ExpandedKey) -> bool {
        matches!(self.entries.get(key.index as usize), Some(Some(entry)) if entry.raw == key.raw)
    }

    #[cold]
    fn expand(&mut self, key: &mut ExpandedKey) {
        key.index = self.make_room();
        let entry =
            CachedKey { raw: key.raw.clone(), aead: key.raw.library.expand(key.raw.suite, &key.raw.bytes) };
        self.entries[key.index as usize] = Some(entry);
    }

    /// Returns a free index, evicting an entry if the table is full.
    fn make_room(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        if self.entries.len() < MOST {
            self.entries.push(None);
            return self.entries.len() as u32 - 1;
        }
        // xorshift32: the choice need not be unpredictable.
        self.eviction_state ^= self.eviction_state << 13;
        self.eviction_state ^= self.eviction_state >> 17;
        self.eviction_state ^= self.eviction_state << 5;
        self.eviction_state % MOST as u32
    }

    fn remove(&mut self, key: &ExpandedKey) {
        if self.has(key) {
            self.entries[key.index as usize] = None;
            self.free.push(key.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Version;

    fn key(seed: u16) -> ExpandedKey {
        let mut bytes = [7; 16];
        bytes[..2].copy_from_slice(&seed.to_be_bytes());
        let material = KeyMaterial::new(Version::Tls13, Suite::Aes128Gcm, &bytes, [0; 12], 0).unwrap();
        ExpandedKey::new(&material, if seed.is_multiple_of(2) { Library::Ring } else { Library::AwsLc })
    }

    fn tag(key: &mut ExpandedKey) -> [u8; TAG] {
        key.seal([1; 12], b"aad", &mut [0x5a; 100])
    }

    /// Number of expanded keys of this thread, and of indices in its table.
    fn expanded() -> (usize, usize) {
        EXPANDED.with_borrow(|expanded| (expanded.entries.iter().flatten().count(), expanded.entries.len()))
    }

    /// Runs a test on a thread of its own, with an empty table.
    fn alone(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn keys_are_expanded_on_use_and_removed_on_drop() {
        alone(|| {
            let mut keys: Vec<_> = (0..10).map(key).collect();
            assert_eq!(expanded(), (0, 0));
            let tags: Vec<_> = keys.iter_mut().map(tag).collect();
            assert!(keys.iter_mut().map(tag).eq(tags));
            assert_eq!(expanded(), (10, 10));
            keys.truncate(3);
            assert_eq!(expanded(), (3, 10));
            let mut more = key(99);
            tag(&mut more);
            assert_eq!(expanded(), (4, 10));
            drop((keys, more));
            assert_eq!(expanded(), (0, 10));
        });
    }

    #[test]
    fn the_table_is_bounded_and_keys_are_never_mixed_up() {
        alone(|| {
            let many = MOST * 2;
            let mut keys: Vec<_> = (0..many as u16).map(key).collect();
            let tags: Vec<_> = keys.iter_mut().map(tag).collect();
            assert_eq!(expanded(), (MOST, MOST));
            for stride in [1, 7, 333] {
                for at in (0..many).map(|at| at * stride % many) {
                    assert_eq!(tag(&mut keys[at]), tags[at], "key {at}");
                }
            }
            assert_eq!(expanded(), (MOST, MOST));
            drop(keys);
            assert_eq!(expanded(), (0, MOST));
        });
    }

    #[test]
    fn a_key_may_move_to_another_thread() {
        let (mut own, mut other) = (key(1), key(2));
        let tags = (tag(&mut own), tag(&mut other));
        // The index may hold another key on that thread.
        let (mut own, moved) = std::thread::spawn(move || {
            let mut squatter = key(3);
            tag(&mut squatter);
            let moved = (tag(&mut own), tag(&mut other));
            drop(other);
            (own, moved)
        })
        .join()
        .unwrap();
        assert_eq!((moved, tag(&mut own)), (tags, tags.0));
    }

    #[test]
    fn a_key_is_small() {
        assert!(size_of::<ExpandedKey>() <= 40, "{} bytes", size_of::<ExpandedKey>());
    }
}
