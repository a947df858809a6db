//! Addresses from which names were logged in with before. Their next passwords are checked first, so that guesses
//! of others keep no owner of a name out.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Names that are known, and addresses of each: one that logs in from everywhere displaces only its own.
const NAMES: usize = 4096;
const ADDRESSES: usize = 16;
/// As long as a holiday, so that it costs no owner the priority.
const REMEMBER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Addresses by name, in memory alone.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Addresses, the latest login last.
    addresses: HashMap<u128, VecDeque<(IpAddr, Instant)>>,
    /// Names in the order in which they came.
    order: VecDeque<u128>,
}

impl Owners {
    /// The password for a name was right.
    pub(super) fn add(&mut self, name: u128, address: IpAddr, now: Instant) {
        if !self.addresses.contains_key(&name) {
            if self.order.len() >= NAMES
                && let Some(oldest) = self.order.pop_front()
            {
                self.addresses.remove(&oldest);
            }
            self.order.push_back(name);
        }
        let known = self.addresses.entry(name).or_default();
        known.retain(|(other, _)| *other != address);
        if known.len() >= ADDRESSES {
            known.pop_front();
        }
        known.push_back((address, now));
    }

    /// A client at the address has logged in with the name.
    pub(super) fn has(&self, name: u128, address: IpAddr, now: Instant) -> bool {
        let known = self.addresses.get(&name).into_iter().flatten();
        known
            .into_iter()
            .any(|(other, at)| *other == address && now.saturating_duration_since(*at) < REMEMBER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_by_name_bounded_and_for_a_while() {
        let (mut owners, now) = (Owners::default(), Instant::now());
        let address = |number: u32| IpAddr::V4(number.into());
        owners.add(1, address(1), now);
        assert!(owners.has(1, address(1), now));
        assert!(!owners.has(2, address(1), now) && !owners.has(1, address(2), now));
        assert!(!owners.has(1, address(1), now + REMEMBER));
        // Another name that logs in from everywhere keeps nobody from being known.
        for number in 0..1000 {
            owners.add(2, address(number), now);
        }
        assert!(owners.has(1, address(1), now) && owners.has(2, address(999), now));
        assert_eq!(owners.addresses[&2].len(), ADDRESSES);
        owners.add(2, address(999 - 15), now);
        owners.add(2, address(5000), now);
        assert!(owners.has(2, address(999 - 15), now), "who comes back stays");
        for name in 10..20_000 {
            owners.add(name, address(1), now);
        }
        assert_eq!((owners.addresses.len(), owners.order.len()), (NAMES, NAMES));
    }
}
