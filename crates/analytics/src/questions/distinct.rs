//! Distinct counts by the smallest hashes (k minimum values): exact up to [`KEPT`], an estimate beyond, in
//! bounded memory.
//!
//! The hash has a fixed seed, so that the same requests always give the same estimate.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

/// The number of hashes kept; the standard error of an estimate is 1/√k (Bar-Yossef et al., "Counting
/// distinct elements in a data stream").
const KEPT: usize = 2048;

/// The error of 95 % of estimates, in percent: two standard errors, 2 / √2048.
pub(crate) const ERROR_PERCENT: f64 = 4.4;

/// An arbitrary but fixed seed.
const SEED: u64 = 0x6f66_6672_616d_7021;

/// A set of numbers, represented by hashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distinct {
    /// Sorted except for the latest additions, and without hashes above [`Self::bound`].
    hashes: Vec<u64>,
    /// The largest hash that may still be among the smallest, once there are enough.
    bound: Option<u64>,
}

impl Distinct {
    /// Adds one item by its number.
    pub(crate) fn add(&mut self, number: i64) {
        let hash = FixedState::with_seed(SEED).hash_one(number);
        if self.bound.is_some_and(|bound| hash >= bound) {
            return;
        }
        self.hashes.push(hash);
        if self.hashes.len() >= 2 * KEPT {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        if self.hashes.len() > KEPT {
            self.hashes.truncate(KEPT);
            self.bound = self.hashes.last().copied();
        }
    }

    /// The number of different items.
    pub(crate) fn count(&mut self) -> i64 {
        self.settle();
        let count = match self.bound {
            None => self.hashes.len() as f64,
            // The k-th smallest of n evenly spread hashes lies at k/n of the range.
            Some(_) => {
                let largest = self.hashes.last().copied().unwrap_or(u64::MAX) as f64;
                (KEPT - 1) as f64 * (u64::MAX as f64 / largest)
            }
        };
        count.round() as i64
    }

    /// The error bound of an estimate; 0 for an exact count.
    pub(crate) fn error(&self, count: i64) -> i64 {
        self.bound.map_or(0, |_| (count as f64 * ERROR_PERCENT / 100.0).ceil() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_and_then_near() {
        for (number, error) in [(0, 0), (1, 0), (2048, 0), (5_000, 5), (300_000, 5)] {
            let mut distinct = Distinct::default();
            for round in 0..3_u64 {
                for item in 0..number {
                    distinct.add(item.into());
                    assert!(distinct.hashes.len() < 2 * KEPT, "{round}");
                }
            }
            let off = (distinct.count() - i64::from(number)).abs() * 100;
            assert!(off <= error * i64::from(number), "{number}: {}", distinct.count());
            let count = distinct.count();
            assert_eq!(distinct.error(count) == 0, number <= 2048);
            assert!((count - i64::from(number)).abs() <= distinct.error(count), "{number}: {count}");
        }
    }
}
