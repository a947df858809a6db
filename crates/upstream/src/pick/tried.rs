//! Servers that a request has tried.

/// A set of servers, by index; the first 64 need no allocation.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    low: u64,
    high: Vec<u64>,
}

impl Tried {
    /// Returns true without tried servers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    /// Returns true if server `index` was tried.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        let word = if index < 64 { Some(&self.low) } else { self.high.get(index / 64 - 1) };
        word.is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Marks server `index` as tried.
    pub fn insert(&mut self, index: usize) {
        let bit = 1 << (index % 64);
        if index < 64 {
            self.low |= bit;
            return;
        }
        let at = index / 64 - 1;
        if self.high.len() <= at {
            self.high.resize(at + 1, 0);
        }
        self.high[at] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_index_is_kept() {
        let mut tried = Tried::default();
        assert!(tried.is_empty());
        for index in [0, 63, 64, 127, 128, 300] {
            assert!(!tried.contains(index));
            tried.insert(index);
            assert!(tried.contains(index) && !tried.is_empty());
        }
        assert!(!tried.contains(1) && !tried.contains(65) && !tried.contains(1000));
    }
}
