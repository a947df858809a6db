//! Which addresses may enter: sets of networks, asked by binary search.
//!
//! Networks become ranges that are sorted and neither overlap nor touch, so that a look-up takes as many steps as the
//! number of ranges has bits, and two more: 19 for 100,000.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks that may enter, and those that may not.
#[derive(Debug, Default)]
pub struct AddressRules {
    allow: Option<NetworkSet>,
    deny: NetworkSet,
}

impl AddressRules {
    /// Addresses in `deny` are refused; where there is an `allow`, so are those that are not in it.
    #[must_use]
    pub fn new(allow: Option<NetworkSet>, deny: NetworkSet) -> Self {
        Self { allow, deny }
    }

    /// Returns true if a client may enter. One without an address, from a Unix socket, is in no network.
    #[must_use]
    pub fn admits(&self, client: Option<IpAddr>) -> bool {
        let denied = client.is_some_and(|client| self.deny.contains(client));
        let allowed = |allow: &NetworkSet| client.is_some_and(|client| allow.contains(client));
        !denied && self.allow.as_ref().is_none_or(allowed)
    }

    /// Returns true if a client is in `allow`, and not denied: it is admitted by name, and not for lack of a rule.
    #[must_use]
    pub fn allows(&self, client: Option<IpAddr>) -> bool {
        self.allow.is_some() && self.admits(client)
    }
}

/// Any number of networks of both families. IPv4 addresses that are mapped into IPv6 count as what they are.
#[derive(Debug, Default)]
pub struct NetworkSet {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl NetworkSet {
    /// The set of networks, each an address and its number of leading bits.
    pub fn new(networks: impl IntoIterator<Item = (IpAddr, u8)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, prefix) in networks {
            // Only a prefix that is too long is refused.
            match IpNet::new(address, prefix).unwrap_or_else(|_| address.into()) {
                IpNet::V4(net) => v4.push((net.network().to_bits(), net.broadcast().to_bits())),
                IpNet::V6(net) => v6.push((net.network().to_bits(), net.broadcast().to_bits())),
            }
        }
        let v4 = Ranges::new(v4, |end| end.checked_add(1));
        Self { v4, v6: Ranges::new(v6, |end| end.checked_add(1)) }
    }

    /// Returns true if an address is in one of the networks.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.contains(&address.to_bits()),
            IpAddr::V6(address) => self.v6.contains(&address.to_bits()),
        }
    }
}

/// Ranges, both ends included, in order.
#[derive(Debug, Default)]
struct Ranges<T>(Box<[(T, T)]>);

impl<T: Ord + Copy> Ranges<T> {
    /// `next` gives what follows the end of a range, unless that is the last of all.
    fn new(mut ranges: Vec<(T, T)>, next: impl Fn(T) -> Option<T>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if next(*end).is_none_or(|next| first <= next) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged.into())
    }

    fn contains(&self, at: &T) -> bool {
        let behind = self.0.partition_point(|(first, _)| first <= at);
        behind.checked_sub(1).is_some_and(|last| *at <= self.0[last].1)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    fn set(networks: &[&str]) -> NetworkSet {
        let network = |text: &&str| {
            let (address, prefix) = text.split_once('/').unwrap();
            (address.parse().unwrap(), prefix.parse().unwrap())
        };
        NetworkSet::new(networks.iter().map(network))
    }

    #[test]
    fn deny_goes_before_allow_and_nobody_else_enters() {
        let rules = AddressRules::new(Some(set(&["10.0.0.0/8", "2001:db8::/32"])), set(&["10.1.0.0/16"]));
        let admits = |rules: &AddressRules, client: &str| rules.admits(Some(client.parse().unwrap()));
        for client in ["10.0.0.1", "::ffff:10.2.0.1", "2001:db8::1"] {
            assert!(admits(&rules, client), "{client}");
        }
        for client in ["10.1.2.3", "::ffff:10.1.2.3", "11.0.0.1", "2001:db9::1", "::1"] {
            assert!(!admits(&rules, client), "{client}");
        }
        assert!(!rules.admits(None));
        let open = AddressRules::new(None, set(&["0.0.0.0/0"]));
        assert!(
            !open.allows(Some("::1".parse().unwrap())) && !open.allows(None),
            "nobody is allowed by name"
        );
        assert!(rules.allows(Some("10.0.0.1".parse().unwrap())));
        assert!(!rules.allows(Some("10.1.2.3".parse().unwrap())) && !rules.allows(None));
        assert!(admits(&open, "::1") && open.admits(None) && !admits(&open, "192.0.2.1"));
        let closed = AddressRules::new(Some(NetworkSet::default()), NetworkSet::default());
        assert!(!admits(&closed, "192.0.2.1") && !closed.admits(None));
    }

    #[test]
    fn ranges_that_touch_are_one_and_the_last_address_has_no_successor() {
        let all = set(&["0.0.0.0/1", "128.0.0.0/1", "255.255.255.255/32", "10.0.0.0/8", "::/0", "fd00::/8"]);
        assert_eq!((all.v4.0.len(), all.v6.0.len()), (1, 1));
        assert!(all.contains("255.255.255.255".parse().unwrap()) && all.contains("0.0.0.0".parse().unwrap()));
        assert!(all.contains("ffff::".parse().unwrap()));
    }

    /// A number that counts how often it is compared.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Counted(u32);

    thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    #[test]
    fn a_hundred_thousand_networks_take_nineteen_comparisons() {
        let ranges = (0..100_000).map(|at| (Counted(at * 40_000), Counted(at * 40_000 + 255))).collect();
        let ranges = Ranges::new(ranges, |end| Some(Counted(end.0 + 1)));
        assert_eq!(ranges.0.len(), 100_000);
        for at in (0..u32::MAX - 300_000_000).step_by(7_777_777) {
            COMPARED.set(0);
            assert_eq!(ranges.contains(&Counted(at)), at % 40_000 <= 255, "{at}");
            // 18 to find the range that begins before it, and one with its end.
            assert!(COMPARED.get() <= 19, "{} comparisons for {at}", COMPARED.get());
        }
    }

    proptest! {
        #[test]
        fn a_set_contains_what_its_networks_contain(
            networks in proptest::collection::vec((any::<u8>(), 0u8..=32), 0..12),
            address in any::<[u8; 2]>(),
        ) {
            let networks: Vec<_> =
                networks.into_iter().map(|(first, prefix)| (IpAddr::from([first, 0, 0, 0]), prefix)).collect();
            let address = IpAddr::from([address[0], address[1], 0, 0]);
            let by_walking =
                networks.iter().any(|(net, prefix)| IpNet::new(*net, *prefix).unwrap().contains(&address));
            prop_assert_eq!(NetworkSet::new(networks).contains(address), by_walking);
        }
    }
}
