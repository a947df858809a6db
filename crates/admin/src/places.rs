//! The places of connections: how many are open at once, and who makes room when there is none.
//!
//! One user of this machine, or one address, has at most half of them: whoever fills these must not keep others out. Where
//! there is no room, a connection goes that waits for a request: of whoever has the most, the one that has waited for
//! longest. Only if every one is being answered is the new one refused.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use offramp_net::process::Identity;
use tokio::sync::Notify;

/// Connections at once: a few Grafana servers and browsers, which keep several each.
pub(crate) const PLACES: usize = 128;
/// Of one user or address: as many changes as may wait, as many as may watch, and some more.
pub(crate) const OF_ONE: usize = PLACES / 2;

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// A user of this machine, over a Unix socket; `None` where the kernel does not tell.
    User(Option<u32>),
    /// An address; of IPv6 the network of 64 bits, as one client has all of it.
    Address(IpAddr),
}

impl Owner {
    /// The owner of connections from this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            other => other,
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(None) => f.write_str("an unknown user"),
            Self::User(Some(user)) => {
                // The group does not matter to the name.
                let name = Identity::of_numbers(*user, *user).name();
                if name == user.to_string() {
                    write!(f, "uid {user}")
                } else {
                    write!(f, "{name} (uid {user})")
                }
            }
            Self::Address(IpAddr::V6(address)) if !address.is_loopback() => write!(f, "{address}/64"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// All places. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Woken when the last connection has ended.
    empty: Notify,
}

#[derive(Default)]
struct Table {
    /// The number of the last connection.
    last: u64,
    taken: HashMap<u64, Taken>,
}

struct Taken {
    owner: Owner,
    /// Since when it waits for a request; `None`: one is being answered.
    waits: Option<Instant>,
    leaves: Arc<Notify>,
}

/// A place for a connection.
pub(crate) struct Place {
    places: Places,
    number: u64,
    leaves: Arc<Notify>,
}

/// What came of asking for a place.
pub(crate) struct Outcome {
    /// It; `None`: the connection is refused.
    pub(crate) place: Option<Place>,
    /// Whose connection made room for it, or whose were too many, and how many that one had.
    pub(crate) short: Option<(Owner, usize)>,
}

impl Places {
    /// A place for a connection of this owner.
    pub(crate) fn take(&self, owner: Owner) -> Outcome {
        let mut table = self.table();
        let own = table.count(owner);
        let short = if own >= OF_ONE {
            Some((owner, own, table.longest_of(Some(owner))))
        } else if table.taken.len() >= PLACES {
            let found = table.longest_of(None);
            let of = found.and_then(|number| table.taken.get(&number)).map_or(owner, |taken| taken.owner);
            Some((of, table.count(of), found))
        } else {
            None
        };
        let told = short.map(|(of, count, _)| (of, count));
        match short {
            Some((.., None)) => return Outcome { place: None, short: told },
            Some((.., Some(number))) => {
                if let Some(taken) = table.taken.remove(&number) {
                    taken.leaves.notify_one();
                }
            }
            None => {}
        }
        table.last += 1;
        let (number, leaves) = (table.last, Arc::new(Notify::new()));
        let taken = Taken { owner, waits: Some(Instant::now()), leaves: Arc::clone(&leaves) };
        table.taken.insert(number, taken);
        Outcome { place: Some(Place { places: self.clone(), number, leaves }), short: told }
    }

    /// Waits until no connection is left.
    pub(crate) async fn emptied(&self) {
        while !self.table().taken.is_empty() {
            self.0.empty.notified().await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics with the lock held.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn count(&self, owner: Owner) -> usize {
        self.taken.values().filter(|taken| taken.owner == owner).count()
    }

    /// The connection that has waited for a request for longest: of this owner, or of the one who has the most among
    /// those with a connection that waits.
    fn longest_of(&self, owner: Option<Owner>) -> Option<u64> {
        let mut counts: HashMap<Owner, usize> = HashMap::new();
        for taken in self.taken.values() {
            *counts.entry(taken.owner).or_default() += 1;
        }
        let waiting = self.taken.iter().filter(|(_, taken)| owner.is_none_or(|owner| taken.owner == owner));
        let waiting = waiting.filter_map(|(number, taken)| Some((*number, taken.owner, taken.waits?)));
        let first = waiting.min_by_key(|(number, owner, since)| {
            (std::cmp::Reverse(counts.get(owner).copied()), *since, *number)
        });
        first.map(|(number, ..)| number)
    }
}

impl Place {
    /// Whether it waits for a request from now on, or answers one.
    pub(crate) fn waits(&self, waits: bool) {
        if let Some(taken) = self.places.table().taken.get_mut(&self.number) {
            taken.waits = waits.then(Instant::now);
        }
    }

    /// Waits until it has to make room.
    pub(crate) async fn taken_away(&self) {
        self.leaves.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table();
        table.taken.remove(&self.number);
        if table.taken.is_empty() {
            self.places.0.empty.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ROOT: Owner = Owner::User(Some(0));

    fn address(last: u8) -> Owner {
        Owner::of(IpAddr::from([192, 0, 2, last]))
    }

    /// Whether it has to make room.
    async fn goes(place: &Place) -> bool {
        tokio::time::timeout(Duration::ZERO, place.taken_away()).await.is_ok()
    }

    #[tokio::test]
    async fn one_has_half_and_makes_room_for_itself() {
        let places = Places::default();
        let mut own = Vec::new();
        for _ in 0..OF_ONE {
            let outcome = places.take(ROOT);
            assert!(outcome.short.is_none());
            own.push(outcome.place.unwrap());
        }
        // The first is being answered, so that the second has waited for longest.
        own[0].waits(false);
        let outcome = places.take(ROOT);
        assert_eq!(outcome.short, Some((ROOT, OF_ONE)));
        let next = outcome.place.unwrap();
        assert!(!goes(&own[0]).await && goes(&own[1]).await && !goes(&own[2]).await);
        own.push(next);
        // Others have room.
        assert!(places.take(address(1)).short.is_none());
        for place in &own {
            place.waits(false);
        }
        let refused = places.take(ROOT);
        assert!(refused.place.is_none() && refused.short == Some((ROOT, OF_ONE)));
    }

    #[tokio::test]
    async fn where_there_is_no_room_whoever_has_the_most_makes_it() {
        let places = Places::default();
        let take = |owner| places.take(owner).place.unwrap();
        let few: Vec<Place> = (0..10).map(|_| take(address(1))).collect();
        let half: Vec<Place> = (0..OF_ONE).map(|_| take(address(2))).collect();
        let rest: Vec<Place> = (0..PLACES - OF_ONE - 10).map(|_| take(address(3))).collect();
        let outcome = places.take(ROOT);
        assert_eq!(outcome.short, Some((address(2), OF_ONE)));
        let root = outcome.place.unwrap();
        assert!(goes(&half[0]).await && !goes(&few[0]).await);
        for place in half.iter().chain(&rest).chain(&few) {
            place.waits(false);
        }
        few[3].waits(true);
        let more = take(ROOT);
        assert!(goes(&few[3]).await, "whoever has less makes room if nobody else can");
        root.waits(false);
        more.waits(false);
        assert!(places.take(ROOT).place.is_none());
        drop((few, half, rest, root, more));
        places.emptied().await;
        assert_eq!(places.table().taken.len(), 0);
    }

    #[test]
    fn an_owner_is_a_user_an_address_or_a_network_of_ipv6() {
        let of = |text: &str| Owner::of(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!((of("::ffff:192.0.2.1"), of("::1")), ("192.0.2.1".to_owned(), "::1".to_owned()));
        assert_eq!(ROOT.to_string(), "root (uid 0)");
        assert_eq!(Owner::User(Some(4_000_000_001)).to_string(), "uid 4000000001");
    }
}
