//! Expanded AEAD keys, of which each thread keeps a bounded number.
//!
//! A cipher works with a key that was expanded: 600 bytes for AES-GCM, made from 16 or 32 in less than a microsecond.
//! For a connection that is idle those bytes are waste, twice. So connections own raw keys only. The expanded ones of
//! the connections that were used last lie in a table of the thread; a key that is not in it is expanded again when
//! its next record comes.
//!
//! A connection knows its place in the table, and the entry there says by the raw key whose it is. So an entry is never
//! used for another key, whatever happened to the place meanwhile. A key that is dropped removes its entry.

use std::cell::RefCell;

use zeroize::Zeroize;

use crate::aead::{Aead, Forged, Library, TAG};
use crate::keys::{KeyMaterial, MAX_KEY};
use crate::suite::Suite;

/// The most expanded keys of a thread: those of 128 connections, 170 KiB. With more connections in use at the same
/// time, some of their records wait for an expansion: 0.65 µs of the 20 and more that a request costs.
pub(crate) const MOST: usize = 256;

/// No place in the table.
const NOWHERE: u32 = u32::MAX;

thread_local! {
    static EXPANDED: RefCell<Expanded> = const { RefCell::new(Expanded::new()) };
}

/// An AEAD key; its expanded form may have to be made before it is used. The raw key is wiped when this is dropped.
pub(crate) struct Key {
    raw: RawKey,
    /// Where the expanded key was last.
    place: u32,
}

/// What a key is expanded from.
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

impl Key {
    pub(crate) fn new(material: &KeyMaterial, library: Library) -> Self {
        let raw = RawKey { library, suite: material.suite, bytes: *material.padded_key() };
        Self { raw, place: NOWHERE }
    }

    pub(crate) fn library(&self) -> Library {
        self.raw.library
    }

    pub(crate) fn suite(&self) -> Suite {
        self.raw.suite
    }

    /// [`Aead::seal`].
    #[inline]
    pub(crate) fn seal(&mut self, nonce: [u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; TAG] {
        EXPANDED.with_borrow_mut(|expanded| expanded.get(self).seal(nonce, aad, data))
    }

    /// [`Aead::open`].
    #[inline]
    pub(crate) fn open(&mut self, nonce: [u8; 12], aad: &[u8], data: &mut [u8]) -> Result<(), Forged> {
        EXPANDED.with_borrow_mut(|expanded| expanded.get(self).open(nonce, aad, data))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // Where the thread ends, its table may be gone already.
        let _ = EXPANDED.try_with(|expanded| expanded.borrow_mut().forget(self));
    }
}

/// The table of a thread.
struct Expanded {
    places: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Whose turn it is to make room, at random: an order would always hit the one that is needed next, where keys
    /// are used in turn.
    dice: u32,
}

struct Entry {
    raw: RawKey,
    aead: Box<dyn Aead>,
}

impl Expanded {
    const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), dice: 0x9e37_79b9 }
    }

    /// The expanded key.
    #[inline]
    fn get(&mut self, key: &mut Key) -> &dyn Aead {
        if !self.has(key) {
            self.expand(key);
        }
        // It was there, or has been put there above.
        &*self.places[key.place as usize].as_ref().expect("the key is in its place").aead
    }

    #[inline]
    fn has(&self, key: &Key) -> bool {
        matches!(self.places.get(key.place as usize), Some(Some(entry)) if entry.raw == key.raw)
    }

    #[cold]
    fn expand(&mut self, key: &mut Key) {
        key.place = self.make_room();
        let entry =
            Entry { raw: key.raw.clone(), aead: key.raw.library.expand(key.raw.suite, &key.raw.bytes) };
        self.places[key.place as usize] = Some(entry);
    }

    /// A place for one more.
    fn make_room(&mut self) -> u32 {
        if let Some(place) = self.free.pop() {
            return place;
        }
        if self.places.len() < MOST {
            self.places.push(None);
            return self.places.len() as u32 - 1;
        }
        // xorshift32: nobody needs to be unable to guess it.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 17;
        self.dice ^= self.dice << 5;
        self.dice % MOST as u32
    }

    fn forget(&mut self, key: &Key) {
        if self.has(key) {
            self.places[key.place as usize] = None;
            self.free.push(key.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Version;

    fn key(seed: u16) -> Key {
        let mut bytes = [7; 16];
        bytes[..2].copy_from_slice(&seed.to_be_bytes());
        let material = KeyMaterial::new(Version::Tls13, Suite::Aes128Gcm, &bytes, [0; 12], 0).unwrap();
        Key::new(&material, if seed.is_multiple_of(2) { Library::Ring } else { Library::AwsLc })
    }

    fn tag(key: &mut Key) -> [u8; TAG] {
        key.seal([1; 12], b"aad", &mut [0x5a; 100])
    }

    /// How many keys this thread has expanded, and for how many it has places.
    fn expanded() -> (usize, usize) {
        EXPANDED.with_borrow(|expanded| (expanded.places.iter().flatten().count(), expanded.places.len()))
    }

    /// Runs a test on a thread of its own, whose table is empty.
    fn alone(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn nothing_is_expanded_before_it_is_used_nor_kept_for_the_dropped() {
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
    fn there_is_a_bound_and_every_key_stays_itself() {
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
    fn a_key_may_change_its_thread() {
        let (mut own, mut other) = (key(1), key(2));
        let tags = (tag(&mut own), tag(&mut other));
        // There it may find another one in its place.
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
        assert!(size_of::<Key>() <= 40, "{} bytes", size_of::<Key>());
    }
}
