//! Guessing costs time: how often passwords were wrong, and until when the next one has to wait.
//!
//! Wrong passwords count for a name at an address: whoever mistypes a password does not keep out the others of an office.
//! They count for the address too, with more room: one that tries many names guesses as well. IPv6 clients count by their
//! /64.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limit::client_key;

/// The first wait; each further wrong password doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(64);
/// Who has guessed nothing for so long is forgotten.
const FORGET: Duration = Duration::from_secs(15 * 60);
/// How long a client waits that has as many under way as it may.
const SOON: Duration = Duration::from_secs(1);
/// How many wrong passwords of a name at an address are known again.
const TRIED: usize = 4;

/// For one name at one address.
const OF_NAMES: Bounds = Bounds { known: 16_384, free: 5, forgive: None, at_a_time: 8 };
/// For all names at one address. A person who guesses has used 5 and at most 14 more in the time of `FORGET`, so that one
/// alone does not use it up; and people who mistype their own passwords all day do not add up. Half of those that may wait to
/// be checked are of one address.
const OF_ADDRESSES: Bounds =
    Bounds { known: 4096, free: 50, forgive: Some(Duration::from_secs(18)), at_a_time: 32 };

/// What bounds guesses.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// How many are known whose passwords were wrong.
    known: usize,
    /// How many passwords may be wrong before the next one has to wait.
    free: u32,
    /// The time after which one wrong password less counts; `None`: all count until they are forgotten.
    forgive: Option<Duration>,
    /// How many passwords are checked at a time. Browsers have six connections.
    at_a_time: u32,
}

/// Whose passwords were wrong or are being checked.
#[derive(Debug)]
pub(super) struct Throttle(Mutex<Tables>);

#[derive(Debug)]
struct Tables {
    names: Table<Name>,
    addresses: Table<IpAddr>,
}

/// A name at an address, by its keyed hash.
type Name = (IpAddr, u128);

#[derive(Debug)]
struct Table<K> {
    bounds: Bounds,
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

/// Why a password is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The client has to wait so long.
    Wait(Duration),
    /// This one was wrong before. It is no guess: a program has an old password, and sends it again and again. It must
    /// not keep out who else has the name, or the address.
    WrongBefore,
}

/// A password that is being checked.
#[derive(Debug)]
pub(super) struct Attempt {
    throttle: Arc<Throttle>,
    name: Name,
    /// The password, with name and hash.
    digest: u128,
}

impl Attempt {
    /// The password was wrong.
    pub(super) fn was_wrong(&self, now: Instant) {
        let mut tables = self.throttle.lock();
        let Tables { names, addresses } = &mut *tables;
        names.was_wrong(self.name, self.digest, now);
        addresses.was_wrong(self.name.0, self.digest, now);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut tables = self.throttle.lock();
        tables.names.end(&self.name);
        tables.addresses.end(&self.name.0);
    }
}

impl Default for Throttle {
    fn default() -> Self {
        let tables = Tables { names: Table::new(OF_NAMES), addresses: Table::new(OF_ADDRESSES) };
        Self(Mutex::new(tables))
    }
}

impl Throttle {
    /// A password of `client` comes for the `name` with this keyed hash, and is known by `digest`; or why it is not checked.
    /// Clients without an address count as one.
    pub(super) fn begin(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        (name, digest): (u128, u128),
        now: Instant,
    ) -> Result<Attempt, Refused> {
        let address = client_key(client.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        let name = (address, name);
        let mut tables = self.lock();
        let Tables { names, addresses } = &mut *tables;
        names.forget(now);
        addresses.forget(now);
        if names.guessers.get(&name).is_some_and(|known| known.tried.contains(&Some(digest))) {
            return Err(Refused::WrongBefore);
        }
        if let Some(wait) = names.wait(&name, now).max(addresses.wait(&address, now)) {
            return Err(Refused::Wait(wait));
        }
        names.guessers.entry(name).or_default().under_way += 1;
        addresses.guessers.entry(address).or_default().under_way += 1;
        Ok(Attempt { throttle: Arc::clone(self), name, digest })
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Nothing in here panics with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Copy + Eq + Hash> Table<K> {
    fn new(bounds: Bounds) -> Self {
        Self { bounds, guessers: HashMap::new(), order: VecDeque::new() }
    }

    /// How long the next password has to wait, if it has to.
    fn wait(&mut self, key: &K, now: Instant) -> Option<Duration> {
        let known = self.guessers.get_mut(key)?;
        known.forgive(self.bounds.forgive, now);
        let until = known.until(self.bounds.free);
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

    /// Forgets who has guessed nothing for a while, and the oldest ones where there are too many.
    fn forget(&mut self, now: Instant) {
        while let Some((at, key)) = self.order.front().copied() {
            if now.duration_since(at) < FORGET && self.order.len() < self.bounds.known {
                break;
            }
            self.order.pop_front();
            // It has guessed again since, unless this was the last time.
            let Some(known) = self.guessers.get_mut(&key) else { continue };
            if known.last == Some(at) {
                let under_way = known.under_way;
                *known = Guesser { under_way, ..Guesser::default() };
                if under_way == 0 {
                    self.guessers.remove(&key);
                }
            }
        }
    }
}

impl Guesser {
    /// From when on the next password is looked at.
    fn until(&self, free: u32) -> Option<Instant> {
        let doubled = self.wrong.checked_sub(free)?.min(6);
        Some(self.last? + (FIRST * (1 << doubled)).min(LONGEST))
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
mod tests {
    use super::*;

    const FREE: u32 = OF_NAMES.free;
    const ANNA: u128 = 1;

    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    /// A client, and what it has guessed so far of the password of Anna.
    struct Guessing(Option<IpAddr>, u128);

    impl Guessing {
        fn guess(&mut self, throttle: &Arc<Throttle>, now: Instant) -> Result<(), Refused> {
            self.guess_for(ANNA, throttle, now)
        }

        fn guess_for(&mut self, name: u128, throttle: &Arc<Throttle>, now: Instant) -> Result<(), Refused> {
            self.1 += 1;
            throttle.begin(self.0, (name, self.1), now).map(|attempt| attempt.was_wrong(now))
        }
    }

    #[test]
    fn one_person_of_an_office_keeps_out_nobody_else() {
        let throttle = Arc::new(Throttle::default());
        let mut now = Instant::now();
        let mut office = Guessing(address(1), 0);
        let mut waits = 0;
        // All the time that wrong passwords are remembered, as fast as it goes.
        for _ in 0..FORGET.as_secs() {
            waits += u32::from(office.guess(&throttle, now).is_err());
            drop(throttle.begin(office.0, (2, 0), now).expect("another person is let in"));
            now += Duration::from_secs(1);
        }
        assert!(waits > 800, "{waits}");
        // Another one who mistypes has as many tries as anybody.
        for _ in 0..FREE {
            office.guess_for(2, &throttle, now).unwrap();
        }
        assert_eq!(office.guess_for(2, &throttle, now), Err(Refused::Wait(FIRST)));
    }

    #[test]
    fn an_address_that_tries_many_names_waits_for_all_of_them() {
        let throttle = Arc::new(Throttle::default());
        let mut now = Instant::now();
        let mut one = Guessing(address(1), 0);
        for name in 0..u128::from(OF_ADDRESSES.free) {
            one.guess_for(name, &throttle, now).unwrap();
        }
        for seconds in [1, 2, 4, 8] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(one.guess_for(1000, &throttle, now), Err(Refused::Wait(wait)));
            assert!(throttle.begin(address(2), (1000, 0), now).is_ok(), "other addresses do not wait");
            now += wait;
            one.guess_for(u128::from(seconds) + 2000, &throttle, now).unwrap();
        }
        // For hours: no more than what is forgiven, and never for good.
        let (begun, mut guesses) = (now, 0);
        while now - begun < FORGET * 8 {
            guesses += u32::from(one.guess_for(one.1, &throttle, now).is_ok());
            now += FIRST;
        }
        assert!((300..=410).contains(&guesses), "{guesses}");
        assert!(throttle.begin(one.0, (1, 0), now + LONGEST).is_ok());
    }

    #[test]
    fn many_people_who_mistype_now_and_then_do_not_add_up() {
        let throttle = Arc::new(Throttle::default());
        let mut now = Instant::now();
        let mut office = Guessing(address(1), 0);
        for name in 0..2000 {
            office.guess_for(name, &throttle, now).unwrap();
            now += Duration::from_secs(19);
        }
    }

    #[test]
    fn each_further_wrong_password_doubles_the_wait() {
        let throttle = Arc::new(Throttle::default());
        let mut now = Instant::now();
        let mut client = Guessing(address(1), 0);
        for _ in 0..FREE {
            client.guess(&throttle, now).unwrap();
        }
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(client.guess(&throttle, now), Err(Refused::Wait(wait)));
            assert!(throttle.begin(address(2), (ANNA, 0), now).is_ok(), "others do not wait");
            now += wait;
            client.guess(&throttle, now).unwrap();
        }
        // A right one makes nothing of it forgotten, time does.
        now += LONGEST;
        drop(throttle.begin(client.0, (ANNA, 0), now).unwrap());
        client.guess(&throttle, now).unwrap();
        assert!(throttle.begin(client.0, (ANNA, 0), now).is_err());
        now += FORGET;
        assert!(throttle.begin(client.0, (ANNA, client.1), now).is_ok());
        assert!(is_empty(&throttle));
    }

    #[test]
    fn the_same_wrong_password_counts_once() {
        let throttle = Arc::new(Throttle::default());
        let now = Instant::now();
        let (mut one, mut other) = (Guessing(address(1), 0), Guessing(address(2), 0));
        for _ in 0..FREE - 1 {
            one.guess(&throttle, now).unwrap();
        }
        for _ in 0..1000 {
            assert_eq!(throttle.begin(one.0, (ANNA, one.1), now).unwrap_err(), Refused::WrongBefore);
        }
        one.guess(&throttle, now).unwrap();
        // Also while it waits; but only the last ones, and only those of this client.
        assert_eq!(throttle.begin(one.0, (ANNA, one.1), now).unwrap_err(), Refused::WrongBefore);
        assert_eq!(throttle.begin(one.0, (ANNA, 1), now).unwrap_err(), Refused::Wait(FIRST));
        other.guess(&throttle, now).unwrap();
    }

    #[test]
    fn so_many_at_a_time() {
        let throttle = Arc::new(Throttle::default());
        let now = Instant::now();
        let begin = |name: u32, digest: u32| throttle.begin(None, (name.into(), digest.into()), now);
        let mut held: Vec<_> = (0..OF_NAMES.at_a_time).map(|number| begin(0, number).unwrap()).collect();
        assert_eq!(begin(0, 100).unwrap_err(), Refused::Wait(SOON));
        // Other names at the address are checked meanwhile, but not without end.
        let others = OF_NAMES.at_a_time..OF_ADDRESSES.at_a_time;
        held.extend(others.map(|number| begin(number, 0).unwrap()));
        assert_eq!(begin(1000, 0).unwrap_err(), Refused::Wait(SOON));
        drop(held);
        assert!(begin(0, 0).is_ok());
        assert!(is_empty(&throttle));
    }

    #[test]
    fn the_table_is_bounded() {
        let throttle = Arc::new(Throttle::default());
        let now = Instant::now();
        for number in 0..100_000 {
            throttle.begin(address(number), (number.into(), 0), now).unwrap().was_wrong(now);
        }
        // One that guesses again and again has its place once.
        let mut client = Guessing(address(7), 0);
        for turn in 0..10_000 {
            let _ = client.guess(&throttle, now + LONGEST * turn);
        }
        let tables = throttle.lock();
        let Tables { names, addresses } = &*tables;
        assert!(names.guessers.len() <= OF_NAMES.known && names.order.len() <= OF_NAMES.known);
        assert!(addresses.guessers.len() <= OF_ADDRESSES.known);
        assert!(addresses.order.len() <= OF_ADDRESSES.known);
    }

    fn is_empty(throttle: &Throttle) -> bool {
        let tables = throttle.lock();
        tables.names.guessers.is_empty() && tables.addresses.guessers.is_empty()
    }
}
