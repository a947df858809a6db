//! A bounded queue whose clients take turns, however many requests or addresses one of them has.
//!
//! Clients are grouped by network, widest first. The groups of a level take turns, and so do those within each: the
//! owner of a whole network has one share for all of its addresses. A full queue takes a newcomer in the place of a
//! client that has more company in its group than the newcomer.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// IPv6: what providers and hosters have, a site, a smaller site, a subnet. IPv4 likewise, down to the address.
const IPV6_PREFIXES: [u32; LEVELS] = [32, 48, 56, 64];
const IPV4_PREFIXES: [u32; LEVELS] = [16, 24, 32, 32];
const LEVELS: usize = 4;
/// The levels without the last one.
pub(crate) const NETWORKS: usize = LEVELS - 1;

/// The networks that a client is in, widest first. Clients without an address are one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientNetworkPath([u128; LEVELS]);

impl ClientNetworkPath {
    pub(crate) fn of(client: Option<IpAddr>) -> Self {
        let (bits, prefixes, beyond) = match client.map(|client| client.to_canonical()) {
            None => return Self::default(),
            // Mapped, so that no network of IPv4 is taken for one of IPv6.
            Some(IpAddr::V4(v4)) => (v4.to_ipv6_mapped().to_bits(), IPV4_PREFIXES, 32),
            Some(IpAddr::V6(v6)) => (v6.to_bits(), IPV6_PREFIXES, 128),
        };
        Self(prefixes.map(|prefix| bits >> (beyond - prefix) << (beyond - prefix)))
    }
}

impl ClientNetworkPath {
    /// The widest, the site and the household.
    pub(crate) fn networks(self) -> [u128; NETWORKS] {
        let [networks @ .., _] = self.0;
        networks
    }

    /// A /32 of IPv6, or a /16 of IPv4.
    pub(crate) fn widest(self) -> u128 {
        self.0[0]
    }

    /// A /48 of IPv6, or a /24 of IPv4.
    pub(crate) fn site(self) -> u128 {
        self.0[1]
    }

    /// A /56 of IPv6, or an address of IPv4.
    pub(crate) fn household(self) -> u128 {
        self.0[2]
    }
}

/// Items of clients that wait for their turn.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    most: usize,
    all: Branch<T>,
}

/// A group of clients, or at the end one client.
#[derive(Debug)]
enum Branch<T> {
    Group { len: usize, turns: VecDeque<u128>, parts: HashMap<u128, Branch<T>> },
    Client(VecDeque<T>),
}

impl<T> FairQueue<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, all: Branch::new(&[0]) }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds an item. Gives the one that has to go in its place, where the queue is full.
    ///
    /// # Errors
    /// The item: the queue is full, and nobody's group waits with more than its own.
    pub(crate) fn push(&mut self, client: ClientNetworkPath, item: T) -> Result<Option<T>, T> {
        let mut displaced = None;
        if self.len() >= self.most {
            displaced = self.all.displace(&client.0);
            if displaced.is_none() {
                return Err(item);
            }
        }
        self.all.push(&client.0, item);
        Ok(displaced)
    }

    /// Takes the item that is next.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.all.pop()
    }

    /// Removes items of one client.
    pub(crate) fn remove_where(&mut self, client: ClientNetworkPath, gone: impl Fn(&T) -> bool) {
        self.all.remove_where(&client.0, &gone);
    }
}

impl<T> Branch<T> {
    fn new(path: &[u128]) -> Self {
        match path {
            [] => Self::Client(VecDeque::new()),
            _ => Self::Group { len: 0, turns: VecDeque::new(), parts: HashMap::new() },
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Group { len, .. } => *len,
            Self::Client(items) => items.len(),
        }
    }

    fn push(&mut self, path: &[u128], item: T) {
        match (self, path) {
            (Self::Group { len, turns, parts }, [first, rest @ ..]) => {
                let part = parts.entry(*first).or_insert_with(|| {
                    turns.push_back(*first);
                    Self::new(rest)
                });
                part.push(rest, item);
                *len += 1;
            }
            (Self::Client(items), _) => items.push_back(item),
            // Paths are as long as the tree is deep.
            (Self::Group { .. }, []) => {}
        }
    }

    fn pop(&mut self) -> Option<T> {
        match self {
            Self::Client(items) => items.pop_front(),
            Self::Group { len, turns, parts } => {
                let first = turns.pop_front()?;
                let part = parts.get_mut(&first)?;
                let item = part.pop();
                if part.len() == 0 {
                    // A group that comes back stands behind all others.
                    parts.remove(&first);
                } else {
                    turns.push_back(first);
                }
                *len -= usize::from(item.is_some());
                item
            }
        }
    }

    /// Takes the newest item of the group that waits with the most, if a newcomer by `path` is of a group with less.
    fn displace(&mut self, path: &[u128]) -> Option<T> {
        let Self::Group { len, parts, .. } = self else { return None };
        let [own, rest @ ..] = path else { return None };
        let of_own = parts.get(own).map_or(0, Self::len);
        let (heaviest, most) = parts.iter().map(|(key, part)| (*key, part.len())).max_by_key(|one| one.1)?;
        // With a difference of one they would only exchange their places.
        if of_own + 1 < most {
            return self.take_newest_of(heaviest);
        }
        let item = parts.get_mut(own)?.displace(rest)?;
        *len -= 1;
        Some(item)
    }

    fn take_newest(&mut self) -> Option<T> {
        match self {
            Self::Client(items) => items.pop_back(),
            Self::Group { parts, .. } => {
                let heaviest = parts.iter().max_by_key(|(_, part)| part.len()).map(|(key, _)| *key)?;
                self.take_newest_of(heaviest)
            }
        }
    }

    fn take_newest_of(&mut self, key: u128) -> Option<T> {
        let Self::Group { len, parts, .. } = self else { return None };
        let item = parts.get_mut(&key)?.take_newest()?;
        *len -= 1;
        self.forget_if_empty(key);
        Some(item)
    }

    fn remove_where(&mut self, path: &[u128], gone: &impl Fn(&T) -> bool) {
        match (self, path) {
            (Self::Client(items), _) => items.retain(|item| !gone(item)),
            (this @ Self::Group { .. }, [first, rest @ ..]) => {
                if let Self::Group { len, parts, .. } = this
                    && let Some(part) = parts.get_mut(first)
                {
                    let before = part.len();
                    part.remove_where(rest, gone);
                    *len -= before - part.len();
                }
                this.forget_if_empty(*first);
            }
            (Self::Group { .. }, []) => {}
        }
    }

    fn forget_if_empty(&mut self, key: u128) {
        if let Self::Group { turns, parts, .. } = self
            && parts.get(&key).is_some_and(|part| part.len() == 0)
        {
            parts.remove(&key);
            turns.retain(|one| *one != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ClientNetworkPath {
        ClientNetworkPath::of(Some(text.parse().unwrap()))
    }

    #[test]
    fn clients_are_grouped_by_network() {
        let same = |one: &str, other: &str| {
            let (one, other) = (path(one), path(other));
            one.0.iter().zip(other.0).filter(|(one, other)| **one == *other).count()
        };
        for (one, other, levels) in [
            ("10.1.2.3", "10.1.2.3", 4),
            ("10.1.2.3", "::ffff:10.1.2.3", 4),
            ("10.1.2.3", "10.1.2.4", 2),
            ("10.1.2.3", "10.1.3.3", 1),
            ("10.1.2.3", "10.2.2.3", 0),
            ("2001:db8:1:203::1", "2001:db8:1:203:ffff::", 4),
            ("2001:db8:1:203::1", "2001:db8:1:204::1", 3),
            ("2001:db8:1:203::1", "2001:db8:1:303::1", 2),
            ("2001:db8:1:203::1", "2001:db8:2::1", 1),
            ("2001:db8:1:203::1", "2001:db9:1::1", 0),
            ("10.1.2.3", "::a01:203", 0),
        ] {
            assert_eq!(same(one, other), levels, "{one} {other}");
        }
    }

    #[test]
    fn a_network_has_one_share_however_many_addresses_ask() {
        let mut queue = FairQueue::new(1000);
        for number in 0..300 {
            let (high, low) = (number / 100, number % 100);
            assert!(queue.push(path(&format!("2001:db8:1:{high}{low:02}::1")), "many").unwrap().is_none());
        }
        queue.push(path("10.0.0.1"), "one").unwrap();
        queue.push(path("2001:db9::1"), "two").unwrap();
        queue.push(path("10.0.0.1"), "three").unwrap();
        let order: Vec<_> = (0..8).map(|_| queue.pop().unwrap()).collect();
        assert_eq!(order, ["many", "one", "two", "many", "three", "many", "many", "many"]);
        assert_eq!(queue.len(), 295);
    }

    #[test]
    fn within_a_network_its_addresses_take_turns() {
        let mut queue = FairQueue::new(100);
        for number in 0..3 {
            queue.push(path("10.0.0.1"), ('a', number)).unwrap();
        }
        queue.push(path("10.0.0.2"), ('b', 0)).unwrap();
        queue.push(path("10.0.1.1"), ('c', 0)).unwrap();
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [('a', 0), ('c', 0), ('b', 0), ('a', 1), ('a', 2)]);
    }

    #[test]
    fn a_full_queue_takes_newcomers_in_the_place_of_who_has_most() {
        let mut queue = FairQueue::new(8);
        for number in 0..8 {
            queue.push(path("10.0.0.1"), ("flood", number)).unwrap();
        }
        assert_eq!(queue.push(path("10.0.0.1"), ("flood", 8)), Err(("flood", 8)));
        // Another address of the same network gets its half, and not more.
        for number in 0..4 {
            let out = queue.push(path("10.0.0.2"), ("neighbour", number)).unwrap();
            assert_eq!(out, Some(("flood", 7 - number)));
        }
        assert_eq!(queue.push(path("10.0.0.2"), ("neighbour", 4)), Err(("neighbour", 4)));
        // So does another network, and each in it.
        for number in 0..4 {
            assert!(queue.push(path("2001:db8::1"), ("other", number)).unwrap().is_some());
        }
        assert!(queue.push(path("2001:db8::1"), ("other", 4)).is_err());
        assert!(queue.push(path("2001:db8:0:1::1"), ("new", 0)).unwrap().is_some_and(|out| out.0 == "other"));
        assert_eq!(queue.len(), 8);
        let mut left: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|item| item.0).collect();
        left.sort_unstable();
        assert_eq!(left, ["flood", "flood", "neighbour", "neighbour", "new", "other", "other", "other"]);
    }

    /// Against a list, with every operation in every order of a generator.
    #[test]
    fn what_is_counted_is_what_there_is() {
        let clients = ["10.0.0.1", "10.0.0.2", "10.0.9.1", "10.7.0.1", "2001:db8::1", "2001:db8:0:1::1"];
        let (mut queue, mut there, mut state) = (FairQueue::new(20), Vec::new(), 7_u64);
        for number in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let client = path(clients[(state >> 33) as usize % clients.len()]);
            match state >> 60 {
                0..10 => match queue.push(client, number) {
                    Ok(out) => {
                        there.retain(|one| Some(*one) != out);
                        there.push(number);
                    }
                    Err(refused) => assert!(refused == number && there.len() == 20),
                },
                10..15 => match queue.pop() {
                    Some(item) => there.retain(|one| *one != item),
                    None => assert!(there.is_empty()),
                },
                _ => {
                    let before = queue.len();
                    let removed = std::cell::RefCell::new(Vec::new());
                    queue.remove_where(client, |item| {
                        let gone = item % 3 == 0;
                        removed.borrow_mut().extend(gone.then_some(*item));
                        gone
                    });
                    assert_eq!(queue.len(), before - removed.borrow().len());
                    there.retain(|one| !removed.borrow().contains(one));
                }
            }
            assert_eq!(queue.len(), there.len());
        }
        while queue.pop().is_some() {}
        assert_eq!(queue.len(), 0);
    }
}
