//! How many different ones there are, by the smallest of their hashes (k minimum values): exact up to
//! [`KEPT`] of them, within some two percent beyond, in bounded memory.

/// So many of the smallest hashes are kept; the standard error of an estimate is one in the root of it.
const KEPT: usize = 2048;

/// What was seen, by its hashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distinct {
    /// Sorted but for what was added last, and without what is above [`Self::bound`].
    hashes: Vec<u64>,
    /// The largest hash that may still be among the smallest, once there were enough.
    bound: Option<u64>,
}

impl Distinct {
    /// Adds one by its hash, which must be spread evenly.
    pub(crate) fn add(&mut self, hash: u64) {
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

    /// How many there are.
    pub(crate) fn count(&mut self) -> i64 {
        self.settle();
        let count = match self.bound {
            None => self.hashes.len() as f64,
            // The k-th smallest of n evenly spread ones is at k/n of the way.
            Some(_) => {
                let largest = self.hashes.last().copied().unwrap_or(u64::MAX) as f64;
                (KEPT - 1) as f64 * (u64::MAX as f64 / largest)
            }
        };
        count.round() as i64
    }

    /// Whether the count is exact.
    pub(crate) const fn is_exact(&self) -> bool {
        self.bound.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::fast::FixedState;

    use super::*;

    #[test]
    fn counts_are_exact_and_then_near() {
        let state = FixedState::with_seed(11);
        for (number, error) in [(0, 0), (1, 0), (2048, 0), (5_000, 5), (300_000, 5)] {
            let mut distinct = Distinct::default();
            for round in 0..3_u64 {
                for item in 0..number {
                    distinct.add(state.hash_one(item));
                    assert!(distinct.hashes.len() < 2 * KEPT, "{round}");
                }
            }
            let off = (distinct.count() - i64::from(number)).abs() * 100;
            assert!(off <= error * i64::from(number), "{number}: {}", distinct.count());
            assert_eq!(distinct.is_exact(), number <= 2048);
        }
    }
}
