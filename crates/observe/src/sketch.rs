//! Heavy hitters in bounded memory: the space-saving sketch of Metwally, Agrawal and El Abbadi ("Efficient
//! computation of frequent and top-k elements in data streams", 2005), for several figures of the same keys
//! at once.
//!
//! For each figure a sketch watches at most `capacity` keys. A new key replaces the lightest one, inherits
//! its count, and remembers that count as its possible error. So, for each figure:
//!
//! - a count is never below the true value, and exceeds it by at most its error;
//! - no error exceeds [`floor`](Sketch::floor), which is at most the total divided by the capacity;
//! - every key with a true value above the floor is watched;
//! - the reported count of a key (its own, or the floor while it is not watched) never falls, even if the key
//!   leaves and comes back; so it may be exported as a counter.
//!
//! One entry holds all figures of a key: an update of a watched key is one look-up and one addition per
//! figure. The lightest key is found through a heap per figure whose counts are refreshed only when a place
//! is needed; each repair makes up for at least one addition, so an update costs O(log capacity), amortised.
//!
//! The module is independent of threads, clocks and clients.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

/// The heaviest keys of `D` figures, with a value per watched key.
#[derive(Clone, Debug)]
pub struct Sketch<K, const D: usize, V = ()> {
    capacity: usize,
    places: HashMap<K, u32, RandomState>,
    entries: Vec<SketchEntry<K, D, V>>,
    free: Vec<u32>,
    heaps: [Vec<Leaf>; D],
}

#[derive(Clone, Debug)]
struct SketchEntry<K, const D: usize, V> {
    /// `None` for a free entry.
    key: Option<K>,
    figures: [Figure; D],
    value: V,
}

/// The estimate of one figure of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figure {
    /// An upper bound of the true value. Zero if this figure of the key is not watched.
    pub count: u64,
    /// The most by which the count exceeds the true value.
    pub error: u64,
}

/// A watched key in a figure's heap, with the count of the last visit, which never exceeds the present one.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    seen: u64,
    place: u32,
}

impl<K: Hash + Eq + Clone, const D: usize, V: Default> Sketch<K, D, V> {
    /// An empty sketch that watches at most `capacity` keys per figure (so at most `D` times as many in all).
    /// Memory is allocated as keys come.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            places: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            heaps: std::array::from_fn(|_| Vec::new()),
        }
    }

    /// Adds `weights` to the figures of `key`, and returns its value. A zero weight does not start to watch a
    /// figure. Returns `None` if no figure of the key is watched.
    pub fn add<Q>(&mut self, key: &Q, weights: [u64; D]) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let place = match self.places.get(key) {
            Some(&place) => place,
            None if self.capacity == 0 || weights == [0; D] => return None,
            None => self.settle(key.to_owned()),
        };
        let mut is_missing = false;
        for (figure, &weight) in self.entries[place as usize].figures.iter_mut().zip(&weights) {
            // A watched figure is not zero, so a sum equal to the weight means that it was not watched.
            // Without a branch: the figures of a request are hard to predict. No count reaches 2^64.
            figure.count = figure.count.wrapping_add(weight);
            is_missing |= (figure.count == weight) & (weight != 0);
        }
        if is_missing {
            self.admit_all(place, &weights);
        }
        Some(&mut self.entries[place as usize].value)
    }

    /// Starts to watch the figures of a key that have just become non-zero.
    #[cold]
    fn admit_all(&mut self, place: u32, weights: &[u64; D]) {
        for (dimension, &weight) in weights.iter().enumerate() {
            if weight != 0 && self.entries[place as usize].figures[dimension].count == weight {
                self.admit(dimension, place, weight);
            }
        }
    }

    /// Allocates an entry for a new key.
    fn settle(&mut self, key: K) -> u32 {
        let entry =
            SketchEntry { key: Some(key.clone()), figures: [Figure::default(); D], value: V::default() };
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                // At most `D` times the capacity, far below 2^32.
                (self.entries.len() - 1) as u32
            }
        };
        self.places.insert(key, place);
        place
    }

    /// Watches a figure of a key; replaces the lightest key if the figure is full.
    fn admit(&mut self, dimension: usize, place: u32, weight: u64) {
        if self.heaps[dimension].len() < self.capacity {
            self.entries[place as usize].figures[dimension] = Figure { count: weight, error: 0 };
            let heap = &mut self.heaps[dimension];
            heap.push(Leaf { seen: weight, place });
            sift_up(heap);
            return;
        }
        let Some(lightest) = self.lightest(dimension) else { return };
        self.dismiss(dimension, lightest.place);
        let count = lightest.seen.wrapping_add(weight);
        self.entries[place as usize].figures[dimension] = Figure { count, error: lightest.seen };
        let heap = &mut self.heaps[dimension];
        heap[0] = Leaf { seen: count, place };
        sift_down(heap);
    }

    /// The root of the heap, once its count is up to date.
    fn lightest(&mut self, dimension: usize) -> Option<Leaf> {
        let heap = &mut self.heaps[dimension];
        loop {
            let root = heap.first_mut()?;
            let count = self.entries[root.place as usize].figures[dimension].count;
            if root.seen == count {
                return Some(*root);
            }
            root.seen = count;
            sift_down(heap);
        }
    }

    /// Stops watching a figure; removes the key with its last one.
    fn dismiss(&mut self, dimension: usize, place: u32) {
        let entry = &mut self.entries[place as usize];
        entry.figures[dimension] = Figure::default();
        if entry.figures.iter().all(|figure| figure.count == 0) {
            entry.value = V::default();
            if let Some(key) = entry.key.take() {
                self.places.remove(&key);
            }
            self.free.push(place);
        }
    }

    /// The largest error of this figure, and the largest true value of a key that is not watched: the
    /// smallest count, or zero while there is room.
    #[must_use]
    pub fn floor(&self, dimension: usize) -> u64 {
        let heap = &self.heaps[dimension];
        if heap.len() < self.capacity {
            return 0;
        }
        let counts = heap.iter().map(|leaf| self.entries[leaf.place as usize].figures[dimension].count);
        counts.min().unwrap_or(0)
    }

    /// Every watched key, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &[Figure; D], &V)> {
        let entries = self.entries.iter();
        entries.filter_map(|entry| Some((entry.key.as_ref()?, &entry.figures, &entry.value)))
    }

    /// The number of keys watched for any figure.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns `true` if no key is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// Moves the last leaf up to its place.
fn sift_up(heap: &mut [Leaf]) {
    let Some(mut at) = heap.len().checked_sub(1) else { return };
    while at > 0 {
        let parent = (at - 1) / 2;
        if heap[parent].seen <= heap[at].seen {
            return;
        }
        heap.swap(parent, at);
        at = parent;
    }
}

/// Moves the root down to its place.
fn sift_down(heap: &mut [Leaf]) {
    let mut at = 0;
    loop {
        let left = 2 * at + 1;
        let Some(mut child) = heap.get(left).map(|_| left) else { return };
        if heap.get(left + 1).is_some_and(|right| right.seen < heap[left].seen) {
            child = left + 1;
        }
        if heap[at].seen <= heap[child].seen {
            return;
        }
        heap.swap(at, child);
        at = child;
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, Sketch};
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Skewed keys: the smaller, the more frequent.
    fn updates() -> impl Strategy<Value = Vec<(u32, [u64; 2])>> {
        let key = (0_u32..60, 0_u32..60).prop_map(|(a, b)| a * b / 30);
        prop::collection::vec((key, [0_u64..4, 0_u64..1000]), 0..800)
    }

    fn reported(sketch: &Sketch<u32, 2>, key: u32, dimension: usize) -> u64 {
        let found = sketch.iter().find(|(known, ..)| **known == key);
        let figure = found.map_or(Figure::default(), |(_, figures, ())| figures[dimension]);
        if figure.count == 0 { sketch.floor(dimension) } else { figure.count }
    }

    proptest! {
        #[test]
        fn the_guarantees_hold_against_exact_counts(updates in updates(), capacity in 1_usize..24) {
            let mut sketch = Sketch::<u32, 2>::new(capacity);
            let mut exact: HashMap<u32, [u64; 2]> = HashMap::new();
            let mut totals = [0_u64; 2];
            for (key, weights) in &updates {
                let before = [reported(&sketch, *key, 0), reported(&sketch, *key, 1)];
                sketch.add(key, *weights);
                let truth = exact.entry(*key).or_default();
                for d in 0..2 {
                    truth[d] += weights[d];
                    totals[d] += weights[d];
                    prop_assert!(reported(&sketch, *key, d) >= before[d] + weights[d], "what is reported never falls");
                }
            }
            prop_assert!(sketch.len() <= 2 * capacity);
            let watched: HashMap<_, _> = sketch.iter().map(|(key, figures, ())| (*key, *figures)).collect();
            prop_assert_eq!(watched.len(), sketch.len());
            for d in 0..2 {
                let floor = sketch.floor(d);
                prop_assert!(floor <= totals[d] / capacity as u64);
                let mut counted = 0;
                for (key, figures) in &watched {
                    let figure = figures[d];
                    if figure.count == 0 {
                        continue;
                    }
                    let truth = exact[key][d];
                    prop_assert!(figure.count >= truth && figure.count - truth <= figure.error);
                    prop_assert!(figure.error <= floor);
                    counted += figure.count;
                }
                prop_assert_eq!(counted, totals[d], "counts move from key to key and are never lost");
                for (key, truth) in &exact {
                    let found = watched.get(key).is_some_and(|figures| figures[d].count > 0);
                    prop_assert!(found || truth[d] <= floor);
                    prop_assert!(found || truth[d] <= totals[d] / capacity as u64, "a heavy hitter is missing");
                }
            }
        }

        #[test]
        fn with_room_for_all_it_is_exact(updates in updates()) {
            let mut sketch = Sketch::<u32, 2>::new(200);
            let mut exact: HashMap<u32, [u64; 2]> = HashMap::new();
            for (key, weights) in &updates {
                sketch.add(key, *weights);
                let truth = exact.entry(*key).or_default();
                (0..2).for_each(|d| truth[d] += weights[d]);
            }
            for (key, truth) in &exact {
                prop_assert_eq!([reported(&sketch, *key, 0), reported(&sketch, *key, 1)], *truth);
            }
        }
    }

    #[test]
    fn values_go_with_their_keys() {
        let mut sketch = Sketch::<String, 1, u32>::new(1);
        assert_eq!(sketch.add("a", [0]), None, "nothing to watch");
        *sketch.add("a", [1]).unwrap() += 7;
        *sketch.add("a", [0]).unwrap() += 1;
        assert_eq!(sketch.add("b", [1]), Some(&mut 0));
        assert_eq!(sketch.len(), 1);
        assert_eq!(sketch.add("a", [1]), Some(&mut 0), "it was forgotten");
    }

    #[test]
    fn without_capacity_it_watches_nothing() {
        let mut sketch = Sketch::<u32, 1>::new(0);
        assert_eq!(sketch.add(&1, [1]), None);
        assert!(sketch.is_empty());
        assert_eq!(sketch.floor(0), 0);
    }
}
