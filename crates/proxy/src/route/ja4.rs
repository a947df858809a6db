//! The JA4 fingerprints that a route refuses: pure.

/// Fingerprints, and beginnings of fingerprints.
#[derive(Debug, Default)]
pub struct Ja4List {
    /// Whole fingerprints, in order.
    whole: Vec<Box<str>>,
    /// Prefixes, without their `*`.
    begins: Vec<Box<str>>,
}

impl Ja4List {
    /// A list of fingerprints as they are written in a configuration: whole, or the beginning and a `*`.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Self {
        let mut list = Self::default();
        for pattern in patterns {
            match pattern.strip_suffix('*') {
                Some(begin) => list.begins.push(begin.into()),
                None => list.whole.push(pattern.into()),
            }
        }
        list.whole.sort_unstable();
        list
    }

    /// Returns true for an empty list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.begins.is_empty()
    }

    /// Returns true if it lists this fingerprint.
    #[must_use]
    pub fn has(&self, ja4: &str) -> bool {
        self.whole.binary_search_by(|listed| (**listed).cmp(ja4)).is_ok()
            || self.begins.iter().any(|begin| ja4.starts_with(&**begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_ones_and_beginnings() {
        let (one, other) = ("t13d1516h2_8daaf6152771_e5627efa2ab1", "t12i280700_d943125447b4_e7e480e5a997");
        let has = |patterns: &[&str]| {
            let list = Ja4List::new(patterns.iter().copied());
            assert_eq!(list.is_empty(), patterns.is_empty());
            (list.has(one), list.has(other))
        };
        assert_eq!(has(&[]), (false, false));
        assert_eq!(has(&[one]), (true, false));
        assert_eq!(has(&[one, other]), (true, true));
        assert_eq!(has(&[other, one]), (true, true));
        assert_eq!(has(&["t13d1516h2_8daaf6152771_*"]), (true, false));
        assert_eq!(has(&["t13d1516h2_8daaf6152772_*", "t12*"]), (false, true));
        assert_eq!(has(&["t*"]), (true, true));
    }
}
