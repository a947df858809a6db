//! The geometry of a batch of records in one block of memory.
//!
//! ```text
//!   before sealing                                    after sealing
//!   |head| slot 0 ......... |tail|head| slot 1 ...... |record 0 ........|record 1 ....
//!    ^stride 0 ------------------^stride 1            every full record is exactly one stride long,
//!                                                     so the records are contiguous: one `send`
//! ```
//!
//! Invariants: `stride = head + slot + tail`; `count * stride <= block`; only the last record of a
//! batch may be shorter than its slot, and nothing follows it.

/// Maximum plaintext of a record: 2^14 bytes (RFC 8446 §5.1, RFC 5246 §6.2.1).
pub const MAX_PLAINTEXT: usize = 1 << 14;

/// Bytes that protection adds before and behind the plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overhead {
    pub(crate) head: usize,
    pub(crate) tail: usize,
}

/// Positions of the plaintext slots of a batch within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(crate) overhead: Overhead,
    pub(crate) slot: usize,
    pub(crate) count: usize,
}

impl Layout {
    pub(crate) fn new(overhead: Overhead, slot: usize, block: usize, most: usize) -> Self {
        let slot = slot.clamp(1, MAX_PLAINTEXT);
        let count = (block / (overhead.head + slot + overhead.tail)).min(most);
        Self { overhead, slot, count }
    }

    /// Distance between the starts of neighbouring records, in bytes.
    pub(crate) const fn stride(&self) -> usize {
        self.overhead.head + self.slot + self.overhead.tail
    }

    /// Plaintext bytes that the batch can hold.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.slot * self.count
    }

    /// Number of slots; 0 if the block is too small for one record.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The slots to read plaintext into, in order; each must be full before the next is used.
    pub fn slots<'b>(&self, block: &'b mut [u8]) -> impl Iterator<Item = &'b mut [u8]> + use<'b> {
        let (head, slot) = (self.overhead.head, self.slot);
        block.chunks_exact_mut(self.stride()).take(self.count).map(move |chunk| &mut chunk[head..head + slot])
    }

    /// Copies plaintext, given in parts, into the slots as far as it fits; returns the bytes copied.
    pub fn fill<'p>(&self, block: &mut [u8], parts: impl IntoIterator<Item = &'p [u8]>) -> usize {
        let mut parts = parts.into_iter();
        let mut part: &[u8] = &[];
        let mut filled = 0;
        for mut slot in self.slots(block) {
            while !slot.is_empty() {
                if part.is_empty() {
                    let Some(next) = parts.next() else { return filled };
                    part = next;
                }
                let take = part.len().min(slot.len());
                let (front, rest) = slot.split_at_mut(take);
                front.copy_from_slice(&part[..take]);
                (slot, part) = (rest, &part[take..]);
                filled += take;
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_room_for_protection() {
        let layout = Layout::new(Overhead { head: 5, tail: 17 }, 100, 1000, 64);
        assert_eq!((layout.count(), layout.capacity()), (8, 800));
        let mut block = vec![0; 1000];
        let base = block.as_ptr() as usize;
        let starts: Vec<_> = layout.slots(&mut block).map(|slot| slot.as_ptr() as usize - base).collect();
        assert_eq!(starts, (0..8).map(|i| 5 + i * 122).collect::<Vec<_>>());
        assert_eq!(layout.fill(&mut block, [&[1; 70][..], &[], &[1; 80]]), 150);
        assert_eq!(block[5 + 122 + 49], 1);
        assert_eq!(block[5 + 122 + 50], 0);
        assert_eq!(layout.fill(&mut block, [&[1; 900][..]]), 800);
    }

    #[test]
    fn a_small_block_has_no_slot() {
        assert_eq!(Layout::new(Overhead { head: 5, tail: 17 }, 100, 121, 64).count(), 0);
        assert_eq!(Layout::new(Overhead { head: 5, tail: 17 }, 100, 10_000, 3).count(), 3);
    }
}
