//! Measures which library is faster on this CPU.

use core::time::Duration;

use crate::aead::Library;
use crate::keys::MAX_KEY;
use crate::suite::Suite;

/// The library to use for each suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryChoice([Library; 3]);

impl LibraryChoice {
    /// Chooses the same library for every suite.
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

/// Speed of one library with one suite.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The suite that was measured.
    pub suite: Suite,
    /// The library that was measured.
    pub library: Library,
    /// Bytes sealed per second in the fastest try, with full records.
    pub bytes_per_second: f64,
}

/// Tries per library and suite. The fastest one counts, so that interruptions do not matter.
const TRIES: usize = 5;
/// Full records per try.
const RECORDS: usize = 6;

/// Durations of the tries of each library, by suite.
type Timings = [[[Duration; TRIES]; 2]; 3];

/// Seals a few full records with each library and suite, timed by `now`, and picks the faster library per
/// suite. Takes two to four milliseconds on a CPU of the last ten years.
pub fn measure(mut now: impl FnMut() -> Duration) -> (LibraryChoice, [Measured; 6]) {
    let mut record = vec![0x5a; crate::MAX_PLAINTEXT];
    let timings =
        Suite::ALL.map(|suite| Library::ALL.map(|library| time(suite, library, &mut record, &mut now)));
    choose(&timings)
}

/// Picks the library with the shortest try, suite by suite; on a tie, the first one.
fn choose(timings: &Timings) -> (LibraryChoice, [Measured; 6]) {
    let mut choice = LibraryChoice::always(Library::Ring);
    let best = timings.map(|libraries| libraries.map(|tries| tries.into_iter().min().unwrap_or_default()));
    for (suite, [first, second]) in Suite::ALL.into_iter().zip(best) {
        choice.0[suite.index()] = Library::ALL[usize::from(second < first)];
    }
    let measured = core::array::from_fn(|i| {
        let bytes_per_second = BYTES as f64 / best[i / 2][i % 2].as_secs_f64().max(1e-9);
        Measured { suite: Suite::ALL[i / 2], library: Library::ALL[i % 2], bytes_per_second }
    });
    (choice, measured)
}

/// Bytes sealed per try.
const BYTES: usize = RECORDS * crate::MAX_PLAINTEXT;

fn time(
    suite: Suite,
    library: Library,
    record: &mut [u8],
    now: &mut impl FnMut() -> Duration,
) -> [Duration; TRIES] {
    let aead = library.expand(suite, &[0; MAX_KEY]);
    aead.seal([0; 12], &[], record);
    core::array::from_fn(|_| {
        let start = now();
        for _ in 0..RECORDS {
            core::hint::black_box(aead.seal([0; 12], &[0; 5], record));
        }
        now().saturating_sub(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Timings with every try of the first library, and of the second, taking the given time.
    fn timings(first: u32, second: u32) -> Timings {
        [[[MS * first; TRIES], [MS * second; TRIES]]; 3]
    }

    fn choices(timings: &Timings) -> [Library; 3] {
        let (choice, _) = choose(timings);
        Suite::ALL.map(|suite| choice.library(suite))
    }

    #[test]
    fn the_faster_library_is_chosen() {
        let [first, second] = Library::ALL;
        assert_eq!(choices(&timings(1, 2)), [first; 3]);
        assert_eq!(choices(&timings(2, 1)), [second; 3]);
        assert_eq!(choices(&timings(1, 1)), [first; 3]);
    }

    #[test]
    fn libraries_are_chosen_per_suite() {
        let [first, second] = Library::ALL;
        for (at, suite) in Suite::ALL.into_iter().enumerate() {
            let mut timings = timings(1, 2);
            timings[at] = [[MS * 3; TRIES], [MS * 2; TRIES]];
            let (choice, measured) = choose(&timings);
            for other in Suite::ALL {
                assert_eq!(choice.library(other), if other == suite { second } else { first });
            }
            let of_suite = measured.iter().filter(|measured| measured.suite == suite);
            let speeds: Vec<_> = of_suite.map(|m| (m.library, m.bytes_per_second)).collect();
            let bytes = (RECORDS * crate::MAX_PLAINTEXT) as f64;
            assert_eq!(speeds, [(first, bytes / 0.003), (second, bytes / 0.002)]);
        }
    }

    #[test]
    fn interrupted_tries_do_not_matter() {
        let [_, second] = Library::ALL;
        for undisturbed in 0..TRIES {
            let mut timings = timings(2, 900);
            timings.iter_mut().for_each(|[_, tries]| tries[undisturbed] = MS);
            assert_eq!(choices(&timings), [second; 3], "try {undisturbed}");
        }
    }

    #[test]
    fn a_stopped_clock_yields_a_finite_speed() {
        let (choice, measured) = measure(|| Duration::ZERO);
        assert_eq!(choice, LibraryChoice::always(Library::Ring));
        assert!(measured.iter().all(|m| m.bytes_per_second.is_finite() && m.bytes_per_second > 0.0));
    }

    #[test]
    fn tries_are_timed_by_pairs_of_readings() {
        // Alternate readings advance by a millisecond, or two for the first library, so that the second one
        // wins.
        let mut readings = 0_u32;
        let (choice, _) = measure(|| {
            let pair = readings / 2;
            let slow = (pair as usize / TRIES).is_multiple_of(2);
            let took = if readings.is_multiple_of(2) {
                Duration::ZERO
            } else if slow {
                MS * 2
            } else {
                MS
            };
            readings += 1;
            MS * (pair * 10) + took
        });
        assert_eq!(readings as usize, 2 * 2 * 3 * TRIES);
        assert_eq!(choice, LibraryChoice::always(Library::ALL[1]));
    }
}
