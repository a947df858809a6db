//! Which library is the faster one on this CPU, by trying.

use core::time::Duration;

use crate::aead::Library;
use crate::keys::KeyMaterial;
use crate::suite::{Suite, Version};

/// The library to use for each suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice([Library; 3]);

impl Choice {
    /// The same library for every suite.
    #[must_use]
    pub const fn always(library: Library) -> Self {
        Self([library; 3])
    }

    /// The library for `suite`.
    #[must_use]
    pub const fn library(&self, suite: Suite) -> Library {
        self.0[suite.index()]
    }
}

/// What one library did with one suite.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The suite.
    pub suite: Suite,
    /// The library.
    pub library: Library,
    /// Sealed bytes per second of the best try, with full records.
    pub bytes_per_second: f64,
}

/// Tries per library and suite: the best counts, so that an interruption does no harm.
const TRIES: usize = 5;
/// Full records per try.
const RECORDS: usize = 6;

/// Seals a few full records with each library and suite, timed by `now`, and picks the faster one
/// per suite. Takes two to four milliseconds on a CPU of the last ten years.
pub fn measure(mut now: impl FnMut() -> Duration) -> (Choice, [Measured; 6]) {
    let mut record = vec![0x5a; crate::MAX_PLAINTEXT];
    let mut choice = Choice::always(Library::Ring);
    let measured = core::array::from_fn(|i| {
        let (suite, library) = (Suite::ALL[i / 2], Library::ALL[i % 2]);
        let bytes_per_second = speed(suite, library, &mut record, &mut now);
        Measured { suite, library, bytes_per_second }
    });
    for pair in measured.chunks_exact(2) {
        let best = if pair[1].bytes_per_second > pair[0].bytes_per_second { &pair[1] } else { &pair[0] };
        choice.0[best.suite.index()] = best.library;
    }
    (choice, measured)
}

fn speed(suite: Suite, library: Library, record: &mut [u8], now: &mut impl FnMut() -> Duration) -> f64 {
    let zeros = [0; 32];
    // The slice has the length that the suite asks for.
    let keys = KeyMaterial::new(Version::Tls13, suite, &zeros[..suite.key_len()], [0; 12], 0)
        .expect("key length fits the suite");
    let aead = library.key(&keys);
    aead.seal([0; 12], &[], record);
    let best = (0..TRIES)
        .map(|_| {
            let start = now();
            for _ in 0..RECORDS {
                core::hint::black_box(aead.seal([0; 12], &[0; 5], record));
            }
            now().saturating_sub(start)
        })
        .min()
        .unwrap_or_default();
    (RECORDS * record.len()) as f64 / best.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_library_is_chosen() {
        // A clock under which every second pair of readings is far apart favours what it says.
        let start = std::time::Instant::now();
        let (choice, measured) = measure(|| start.elapsed());
        for pair in measured.chunks_exact(2) {
            let best = if pair[0].bytes_per_second >= pair[1].bytes_per_second { 0 } else { 1 };
            assert_eq!(choice.library(pair[0].suite), pair[best].library);
            assert!(pair.iter().all(|m| m.bytes_per_second > 0.0));
        }
    }
}
