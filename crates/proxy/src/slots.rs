//! The slots of a batch of records, as one system call reads into them.

use std::io::IoSliceMut;
use std::ops::Range;

use offramp_record::{Layout, PlaintextSpan};

use crate::pressure::Pressure;

/// The least memory for one batch: sixteen full records.
pub(crate) const BLOCK: usize = 16 * (16 * 1024 + 22);
/// The plaintext in them.
pub(crate) const BATCH: usize = 16 * 16 * 1024;
/// The most memory, in multiples of [`BLOCK`]. The fewer batches, the less often a client is woken; but each batch
/// is gone over three times, and has to stay in the second-level cache, of which it may have half.
const MOST_BLOCKS: usize = 4;
/// Bytes that a client has to take without a wait before batches for it are larger than [`BATCH`]: as much as the kernel
/// keeps for one that does not read (`tcp_wmem`), so that few slow clients keep more than that waiting.
pub(crate) const TAKEN: usize = 4 << 20;
/// The most plaintext of a batch while the process holds as much memory as it may: a client that stops reading keeps no
/// more waiting.
const LEAN: usize = 64 * 1024;
/// Records of one batch.
pub(crate) const SPANS: usize = 64;

/// The memory that records are opened and sealed in. A worker has one, and lends it to a connection while that is polled.
pub(crate) struct Scratch {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) spans: [PlaintextSpan; SPANS],
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; room()].into(), spans: [PlaintextSpan::default(); SPANS] }
    }
}

/// The memory for batches on this machine.
fn room() -> usize {
    blocks(offramp_net::cores::second_level_cache()) * BLOCK
}

fn blocks(cache: Option<usize>) -> usize {
    (cache.unwrap_or_default() / (2 * 256 * 1024)).clamp(1, MOST_BLOCKS)
}

/// Bounds the plaintext of the next batch, `most` without pressure.
pub(crate) fn most(most: usize, pressure: &Pressure) -> usize {
    if pressure.is_high() { most.min(LEAN) } else { most }
}

/// Calls `read` with the slots of a batch in `block`, less the bytes before and behind `range`. A layout has
/// [`SPANS`] of them at the most.
pub(crate) fn with_slots<T>(
    layout: &Layout,
    block: &mut [u8],
    range: Range<usize>,
    read: impl FnOnce(&mut [IoSliceMut<'_>]) -> T,
) -> T {
    let mut at = 0;
    let mut parts = layout.slots(block).filter_map(|slot| {
        let from = range.start.saturating_sub(at).min(slot.len());
        let to = range.end.saturating_sub(at).min(slot.len());
        at += slot.len();
        (from < to).then(|| &mut slot[from..to])
    });
    // Most reads are short, and sixty-four slices are a kilobyte.
    if layout.count() == 1 {
        return match parts.next() {
            Some(part) => read(&mut [IoSliceMut::new(part)]),
            None => read(&mut []),
        };
    }
    let mut count = 0;
    let mut slices: [_; SPANS] = std::array::from_fn(|_| {
        let part = parts.next().unwrap_or_default();
        count += usize::from(!part.is_empty());
        IoSliceMut::new(part)
    });
    read(&mut slices[..count])
}

#[cfg(test)]
mod tests {
    use offramp_record::aead::Library;
    use offramp_record::{KeyMaterial, LibraryChoice, Sealer, Suite, Version};

    use super::*;

    #[test]
    fn a_batch_has_half_of_the_cache_within_bounds() {
        let kib = [0, 256, 512, 1024, 1280, 2048, 65_536];
        assert_eq!(kib.map(|kib| blocks(Some(kib * 1024))), [1, 1, 1, 2, 2, 4, 4]);
        assert_eq!(blocks(None), 1);
    }

    #[test]
    fn batches_are_small_while_the_process_holds_too_much() {
        let pressure = Pressure::new();
        assert_eq!(most(BLOCK, &pressure), BLOCK);
        pressure.set_high(true);
        assert_eq!((most(BLOCK, &pressure), most(1000, &pressure)), (LEAN, 1000));
        pressure.set_high(false);
        assert_eq!(most(BATCH, &pressure), BATCH);
    }

    /// Whatever is asked for: the slots are filled in order, and nothing before or behind is touched.
    #[test]
    fn slots_are_cut_off_around_what_is_asked_for() {
        let suite = Suite::Aes128Gcm;
        let keys = KeyMaterial::new(Version::Tls13, suite, &[7; 16], [9; 12], 0).unwrap();
        let sealer = Sealer::new(&keys, &LibraryChoice::always(Library::Ring));
        for most in [SPANS, 1] {
            let layout = sealer.layout(10, 130, most);
            let all = layout.capacity();
            for (start, end) in (0..=all).flat_map(|start| (start..=all + 3).map(move |end| (start, end))) {
                let mut block = vec![0; 130];
                with_slots(&layout, &mut block, start..end, |slots| {
                    let mut next = start as u8..;
                    slots
                        .iter_mut()
                        .flat_map(|slot| slot.iter_mut())
                        .for_each(|byte| *byte = next.next().unwrap());
                });
                let flat: Vec<u8> = layout.slots(&mut block).flat_map(|slot| slot.to_vec()).collect();
                let filled = |at: usize| if (start..end).contains(&at) { at as u8 } else { 0 };
                assert_eq!(flat, (0..all).map(filled).collect::<Vec<_>>(), "{start}..{end}");
                assert!(block.iter().filter(|&&byte| byte > 0).count() <= end.min(all) - start);
            }
        }
    }
}
