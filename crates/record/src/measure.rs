//! Which library is the faster one on this CPU, by trying.

use core::time::Duration;

use crate::aead::Library;
use crate::keys::MAX_KEY;
use crate::suite::Suite;

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

/// How long the tries of each library took, by suite.
type Timings = [[[Duration; TRIES]; 2]; 3];

/// Seals a few full records with each library and suite, timed by `now`, and picks the faster one
/// per suite. Takes two to four milliseconds on a CPU of the last ten years.
pub fn measure(mut now: impl FnMut() -> Duration) -> (Choice, [Measured; 6]) {
    let mut record = vec![0x5a; crate::MAX_PLAINTEXT];
    let timings =
        Suite::ALL.map(|suite| Library::ALL.map(|library| time(suite, library, &mut record, &mut now)));
    choose(&timings)
}

/// The library with the shortest try, suite by suite; of two that are alike the first. Nothing else counts, so that
/// an interruption of the other tries does no harm.
fn choose(timings: &Timings) -> (Choice, [Measured; 6]) {
    let mut choice = Choice::always(Library::Ring);
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

/// Bytes that a try seals.
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

    /// Every try of every suite took as long: with the first library, with the second.
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
    fn each_suite_has_its_own() {
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
    fn an_interruption_does_no_harm() {
        let [_, second] = Library::ALL;
        for undisturbed in 0..TRIES {
            let mut timings = timings(2, 900);
            timings.iter_mut().for_each(|[_, tries]| tries[undisturbed] = MS);
            assert_eq!(choices(&timings), [second; 3], "try {undisturbed}");
        }
    }

    #[test]
    fn a_clock_that_stands_gives_a_speed_nevertheless() {
        let (choice, measured) = measure(|| Duration::ZERO);
        assert_eq!(choice, Choice::always(Library::Ring));
        assert!(measured.iter().all(|m| m.bytes_per_second.is_finite() && m.bytes_per_second > 0.0));
    }

    #[test]
    fn the_readings_of_a_try_are_told_apart() {
        // A clock of which every reading but the first of each pair is a millisecond later, and two with the first
        // library: the one that is measured second wins.
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
        assert_eq!(choice, Choice::always(Library::ALL[1]));
    }
}
