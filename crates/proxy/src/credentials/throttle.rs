//! Delays of passwords after wrong ones, so that guessing costs time.
//!
//! Wrong passwords count for a name at an address: a mistyped password does not keep out the others of an office.
//! They count for the address too, with more room: one that tries many names guesses as well. They count for the
//! networks that it is in, with more room again: the owner of a whole network does not begin anew with each
//! address. IPv6 clients count by their /64.
//!
//! And they count for the name, wherever they come from. That alone delays no client, or any client that knows a
//! name could keep its owner out; beyond a bound the name is checked at a pace ([`Standing::pace`]), in turns in
//! which those go first that have the networks with the fewest guesses, counted at each width. An address that has
//! logged in with the name before knows nothing of all this, except its own wrong passwords for the name.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::check_queue::{Guesses, Standing};
use super::owners::Owners;
use crate::fair_queue::{ClientNetworkPath, NETWORKS};
use crate::limit::client_key;

/// The first wait; each further wrong password doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait of a client.
const LONGEST: Duration = Duration::from_secs(64);
/// A client that has guessed nothing for so long is forgotten, where nothing else is said.
const FORGET: Duration = Duration::from_secs(15 * 60);
/// The wait of a client that has as many under way as it may.
const SOON: Duration = Duration::from_secs(1);
/// Wrong passwords of a name at an address that are recognized.
const TRIED: usize = 4;

/// The pause between two checks of a name that is guessed from everywhere; doubled by each further [`OF_EVERYWHERE`]`.free`
/// wrong ones, up to [`SLOWEST`].
const PACE: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(8);

/// For one name at one address.
const OF_NAMES: ThrottleLimits =
    ThrottleLimits { known: 16_384, forget: FORGET, free: 5, forgive: None, longest: LONGEST, at_a_time: 8 };
/// For all names at one address. A person that guesses has used 5 and at most 14 more in the time of `FORGET`, so
/// that one alone does not use it up; and people that mistype their own passwords all day do not add up.
const OF_ADDRESSES: ThrottleLimits = ThrottleLimits {
    known: 4096,
    forget: FORGET,
    free: 50,
    forgive: Some(Duration::from_secs(18)),
    longest: LONGEST,
    at_a_time: 32,
};
/// For a /56 of IPv6: a household, or a small site.
const OF_HOUSEHOLDS: ThrottleLimits =
    ThrottleLimits { free: 100, forgive: Some(Duration::from_secs(9)), longest: SHORT, ..OF_SITES };
/// For a /48 of IPv6 and a /24 of IPv4. Others than the guesser may be in it, strangers to each other: the waits
/// are short.
const OF_SITES: ThrottleLimits = ThrottleLimits {
    known: 4096,
    forget: FORGET,
    free: 200,
    forgive: Some(Duration::from_secs(4)),
    longest: SHORT,
    at_a_time: u32::MAX,
};
/// For a name at all addresses.
const OF_EVERYWHERE: ThrottleLimits = ThrottleLimits {
    known: 16_384,
    forget: FORGET,
    free: 30,
    forgive: Some(Duration::from_secs(30)),
    longest: LONGEST,
    at_a_time: u32::MAX,
};
/// For a name in a network, which is only compared with other networks. A slow name is checked 10800 times in the
/// time for which these are known, so that only an owner of networks without end has always one that has guessed
/// nothing.
const OF_NAMES_IN_NETWORKS: ThrottleLimits = ThrottleLimits {
    known: 16_384,
    forget: Duration::from_secs(24 * 60 * 60),
    forgive: None,
    ..OF_EVERYWHERE
};
/// The longest wait of a network.
const SHORT: Duration = Duration::from_secs(8);

/// Entries that are spared at a time where a table is full.
const SPARED: u32 = 8;

/// The bounds on guesses.
#[derive(Clone, Copy, Debug)]
struct ThrottleLimits {
    /// Clients that are known for wrong passwords.
    known: usize,
    /// Time after which clients are forgotten that have guessed nothing.
    forget: Duration,
    /// Passwords that may be wrong before the next one has to wait.
    free: u32,
    /// The time after which one wrong password less counts; `None`: all count until they are forgotten.
    forgive: Option<Duration>,
    /// The longest wait of a client.
    longest: Duration,
    /// Passwords that are checked at a time. Browsers have six connections.
    at_a_time: u32,
}

/// Clients with wrong passwords, or with passwords that are being checked.
#[derive(Debug)]
pub(super) struct Throttle(Mutex<Tables>);

#[derive(Debug)]
struct Tables {
    names: GuesserTable<Name>,
    addresses: GuesserTable<IpAddr>,
    households: GuesserTable<u128>,
    sites: GuesserTable<u128>,
    everywhere: GuesserTable<u128>,
    /// By network and name, of [`ClientNetworkPath::networks`].
    names_in_networks: [GuesserTable<(u128, u128)>; NETWORKS],
    owners: Owners,
}

/// A name at an address, by its keyed hash.
type Name = (IpAddr, u128);

#[derive(Debug)]
struct GuesserTable<K> {
    bounds: ThrottleLimits,
    guessers: HashMap<K, Guesser>,
    /// In the order of their last wrong passwords; one may stand there several times.
    order: VecDeque<(Instant, K)>,
}

#[derive(Debug, Default)]
struct Guesser {
    wrong: u32,
    last: Option<Instant>,
    /// Up to when wrong passwords were forgiven.
    forgiven: Option<Instant>,
    under_way: u32,
    /// The last wrong ones, by their keyed hashes, in turn.
    tried: [Option<u128>; TRIED],
    next: usize,
}

/// The reason for which a password is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThrottleDenial {
    /// The client has to wait so long.
    Wait(Duration),
    /// This one was wrong before. It is no guess: a program has an old password, and sends it again and again. It
    /// must not keep out other users of the name, or of the address.
    WrongBefore,
}

/// A password that is being checked.
#[derive(Debug)]
pub(super) struct PasswordAttempt {
    throttle: Arc<Throttle>,
    name: Name,
    networks: ClientNetworkPath,
    /// The password, with name and hash.
    digest: u128,
    /// Its place among those that are checked.
    pub(super) standing: Standing,
}

impl PasswordAttempt {
    /// The password was wrong.
    pub(super) fn was_wrong(&self, now: Instant) {
        let (tables, name) = (&mut *self.throttle.lock(), self.name.1);
        tables.names.was_wrong(self.name, self.digest, now);
        tables.addresses.was_wrong(self.name.0, self.digest, now);
        tables.households.was_wrong(self.networks.household(), self.digest, now);
        tables.sites.was_wrong(self.networks.site(), self.digest, now);
        tables.everywhere.was_wrong(name, self.digest, now);
        for (table, network) in tables.names_in_networks.iter_mut().zip(self.networks.networks()) {
            table.was_wrong((network, name), self.digest, now);
        }
    }

    /// The password was right.
    pub(super) fn was_right(&self, now: Instant) {
        self.throttle.lock().owners.add(self.name.1, self.name.0, now);
    }
}

impl Drop for PasswordAttempt {
    fn drop(&mut self) {
        let mut tables = self.throttle.lock();
        tables.names.end(&self.name);
        tables.addresses.end(&self.name.0);
    }
}

impl Default for Throttle {
    fn default() -> Self {
        let tables = Tables {
            names: GuesserTable::new(OF_NAMES),
            addresses: GuesserTable::new(OF_ADDRESSES),
            households: GuesserTable::new(OF_HOUSEHOLDS),
            sites: GuesserTable::new(OF_SITES),
            everywhere: GuesserTable::new(OF_EVERYWHERE),
            names_in_networks: std::array::from_fn(|_| GuesserTable::new(OF_NAMES_IN_NETWORKS)),
            owners: Owners::default(),
        };
        Self(Mutex::new(tables))
    }
}

impl Throttle {
    /// Admits a password of `client` for the name with the keyed hash `name`, or refuses it. The password is known by `digest`.
    /// Clients without an address count as one.
    pub(super) fn begin(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        name: u128,
        digest: u128,
        now: Instant,
    ) -> Result<PasswordAttempt, ThrottleDenial> {
        let networks = ClientNetworkPath::of(client);
        let address = client_key(client.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        let name = (address, name);
        let tables = &mut *self.lock();
        tables.forget(now);
        let of_name = tables.names.guessers.get(&name);
        if of_name.is_some_and(|known| known.tried.contains(&Some(digest))) {
            return Err(ThrottleDenial::WrongBefore);
        }
        let standing = tables.standing(name, networks, now);
        let mut wait = tables.names.wait(&name, now);
        if !standing.is_owner {
            wait = wait.max(tables.addresses.wait(&address, now));
            wait = wait.max(tables.households.wait(&networks.household(), now));
            wait = wait.max(tables.sites.wait(&networks.site(), now));
        }
        if let Some(wait) = wait {
            return Err(ThrottleDenial::Wait(wait));
        }
        tables.names.guessers.entry(name).or_default().under_way += 1;
        tables.addresses.guessers.entry(address).or_default().under_way += 1;
        Ok(PasswordAttempt { throttle: Arc::clone(self), name, networks, digest, standing })
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Nothing in here panics with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn forget(&mut self, now: Instant) {
        self.names.forget(now);
        self.addresses.forget(now);
        self.households.forget(now);
        self.sites.forget(now);
        self.everywhere.forget(now);
        self.names_in_networks.iter_mut().for_each(|table| table.forget(now));
    }

    fn standing(&mut self, name: Name, networks: ClientNetworkPath, now: Instant) -> Standing {
        if self.owners.has(name.1, name.0, now) {
            return Standing { is_owner: true, pace: None, guesses: Guesses::default() };
        }
        let mut guesses = Guesses::default();
        for ((table, network), wrong) in
            self.names_in_networks.iter().zip(networks.networks()).zip(&mut guesses)
        {
            *wrong = table.guessers.get(&(network, name.1)).map_or(0, |known| known.wrong);
        }
        let of_name = self.everywhere.guessers.get_mut(&name.1);
        let pace = of_name.and_then(|known| {
            known.forgive(OF_EVERYWHERE.forgive, now);
            let beyond = known.wrong.checked_sub(OF_EVERYWHERE.free)?;
            let doubled = (beyond / OF_EVERYWHERE.free).min(SLOWEST.as_secs().ilog2());
            Some((PACE * (1 << doubled)).min(SLOWEST))
        });
        Standing { is_owner: false, pace, guesses }
    }
}

impl<K: Copy + Eq + Hash> GuesserTable<K> {
    fn new(bounds: ThrottleLimits) -> Self {
        Self { bounds, guessers: HashMap::new(), order: VecDeque::new() }
    }

    /// The wait before the next password, if there is one.
    fn wait(&mut self, key: &K, now: Instant) -> Option<Duration> {
        let known = self.guessers.get_mut(key)?;
        known.forgive(self.bounds.forgive, now);
        let until = known.until(self.bounds.free, self.bounds.longest);
        let left = until.and_then(|until| until.checked_duration_since(now)).filter(|left| !left.is_zero());
        left.or((known.under_way >= self.bounds.at_a_time).then_some(SOON))
    }

    fn was_wrong(&mut self, key: K, digest: u128, now: Instant) {
        self.forget(now);
        let known = self.guessers.entry(key).or_default();
        known.forgive(self.bounds.forgive, now);
        known.tried[known.next % TRIED] = Some(digest);
        known.next = (known.next + 1) % TRIED;
        known.wrong = known.wrong.saturating_add(1);
        known.last = Some(now);
        known.forgiven.get_or_insert(now);
        self.order.push_back((now, key));
    }

    /// A check is over.
    fn end(&mut self, key: &K) {
        if let Some(known) = self.guessers.get_mut(key) {
            known.under_way = known.under_way.saturating_sub(1);
            if known.under_way == 0 && known.last.is_none() {
                self.guessers.remove(key);
            }
        }
    }

    /// Forgets clients that have guessed nothing for a while, and the oldest ones if there are too many. Of those,
    /// one that has guessed beyond its bound loses half of its count first: a crowd of others makes none begin anew
    /// at once.
    fn forget(&mut self, now: Instant) {
        let mut spared = 0;
        while let Some((at, key)) = self.order.front().copied() {
            let is_old = now.duration_since(at) >= self.bounds.forget;
            if !is_old && self.order.len() < self.bounds.known {
                break;
            }
            self.order.pop_front();
            // It has guessed again since, unless this was the last time.
            let Some(known) = self.guessers.get_mut(&key).filter(|known| known.last == Some(at)) else {
                continue;
            };
            if !is_old && known.wrong >= self.bounds.free && spared < SPARED {
                spared += 1;
                known.wrong /= 2;
                self.order.push_back((at, key));
                continue;
            }
            let under_way = known.under_way;
            *known = Guesser { under_way, ..Guesser::default() };
            if under_way == 0 {
                self.guessers.remove(&key);
            }
        }
    }
}

impl Guesser {
    /// From when on the next password is looked at.
    fn until(&self, free: u32, longest: Duration) -> Option<Instant> {
        let doubled = self.wrong.checked_sub(free)?.min(6);
        Some(self.last? + (FIRST * (1 << doubled)).min(longest))
    }

    /// Has one wrong password less count for each `step` that has passed.
    fn forgive(&mut self, step: Option<Duration>, now: Instant) {
        let (Some(step), Some(since)) = (step, self.forgiven) else { return };
        let steps = now.saturating_duration_since(since).as_millis() / step.as_millis();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX).min(self.wrong);
        self.wrong -= steps;
        // Where nothing is left, the next wrong one begins anew.
        self.forgiven = (self.wrong > 0).then(|| since + step * steps);
    }
}

#[cfg(test)]
mod tests;
