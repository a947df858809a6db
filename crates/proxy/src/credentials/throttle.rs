//! Guessing costs time: how often passwords of a client were wrong, and until when it has to wait.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limit::client_key;

/// How many clients are known whose passwords were wrong.
const CLIENTS: usize = 4096;
/// How many passwords may be wrong before the client has to wait.
const FREE: u32 = 5;
/// The first wait; each further wrong password doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(64);
/// Who has guessed nothing for so long is forgotten.
const FORGET: Duration = Duration::from_secs(15 * 60);
/// How many passwords of one client are checked at a time. Browsers have six connections.
const AT_A_TIME: u32 = 8;
/// How long a client waits that has as many under way.
const SOON: Duration = Duration::from_secs(1);
/// How many wrong passwords of a client are known again.
const TRIED: usize = 4;

/// The clients whose passwords were wrong or are being checked.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    clients: HashMap<IpAddr, Client>,
    /// In the order of their last wrong passwords; clients may stand there several times.
    order: VecDeque<(Instant, IpAddr)>,
}

#[derive(Debug, Default)]
struct Client {
    wrong: u32,
    last: Option<Instant>,
    under_way: u32,
    /// The last wrong ones, by their keyed hashes, in turn.
    tried: [Option<u128>; TRIED],
}

/// Why a password is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The client has to wait so long.
    Wait(Duration),
    /// This one was wrong before. It is no guess: a program has an old password, and sends it again and again. It must
    /// not keep out who else has the client's address.
    WrongBefore,
}

impl Client {
    /// From when on the next password is looked at.
    fn until(&self) -> Option<Instant> {
        let doubled = self.wrong.checked_sub(FREE)?.min(6);
        Some(self.last? + (FIRST * (1 << doubled)).min(LONGEST))
    }
}

/// A password that is being checked.
#[derive(Debug)]
pub(super) struct Attempt {
    throttle: Arc<Throttle>,
    client: IpAddr,
    /// The password, with name and hash.
    digest: u128,
}

impl Attempt {
    /// The password was wrong.
    pub(super) fn was_wrong(&self, now: Instant) {
        let mut table = self.throttle.lock();
        table.forget(now);
        let client = table.clients.entry(self.client).or_default();
        client.tried[client.wrong as usize % TRIED] = Some(self.digest);
        client.wrong = client.wrong.saturating_add(1);
        client.last = Some(now);
        table.order.push_back((now, self.client));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut table = self.throttle.lock();
        if let Some(client) = table.clients.get_mut(&self.client) {
            client.under_way = client.under_way.saturating_sub(1);
            if client.under_way == 0 && client.last.is_none() {
                table.clients.remove(&self.client);
            }
        }
    }
}

impl Throttle {
    /// A password of `client` comes, known by `digest`; or why it is not checked. Clients without an address count as one.
    pub(super) fn begin(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        digest: u128,
        now: Instant,
    ) -> Result<Attempt, Refused> {
        let client = client_key(client.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        let mut table = self.lock();
        table.forget(now);
        let known = table.clients.entry(client).or_default();
        if known.tried.contains(&Some(digest)) {
            return Err(Refused::WrongBefore);
        }
        if let Some(left) = known.until().and_then(|until| until.checked_duration_since(now))
            && !left.is_zero()
        {
            return Err(Refused::Wait(left));
        }
        if known.under_way >= AT_A_TIME {
            return Err(Refused::Wait(SOON));
        }
        known.under_way += 1;
        Ok(Attempt { throttle: Arc::clone(self), client, digest })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Forgets who has guessed nothing for a while, and the oldest ones where there are too many.
    fn forget(&mut self, now: Instant) {
        while let Some((at, client)) = self.order.front().copied() {
            if now.duration_since(at) < FORGET && self.order.len() < CLIENTS {
                break;
            }
            self.order.pop_front();
            // It has guessed again since, unless this was the last time.
            let Some(known) = self.clients.get_mut(&client) else { continue };
            if known.last == Some(at) {
                let under_way = known.under_way;
                *known = Client { under_way, ..Client::default() };
                if under_way == 0 {
                    self.clients.remove(&client);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    /// A client, and what it has guessed so far.
    struct Guessing(Option<IpAddr>, u128);

    impl Guessing {
        fn guess(&mut self, throttle: &Arc<Throttle>, now: Instant) -> Result<(), Refused> {
            self.1 += 1;
            throttle.begin(self.0, self.1, now).map(|attempt| attempt.was_wrong(now))
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
            assert!(throttle.begin(address(2), 0, now).is_ok(), "others do not wait");
            now += wait;
            client.guess(&throttle, now).unwrap();
        }
        // A right one makes nothing of it forgotten, time does.
        now += LONGEST;
        drop(throttle.begin(client.0, 0, now).unwrap());
        client.guess(&throttle, now).unwrap();
        assert!(throttle.begin(client.0, 0, now).is_err());
        now += FORGET;
        assert!(throttle.begin(client.0, client.1, now).is_ok());
        assert!(throttle.lock().clients.is_empty());
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
            assert_eq!(throttle.begin(one.0, one.1, now).unwrap_err(), Refused::WrongBefore);
        }
        one.guess(&throttle, now).unwrap();
        // Also while it waits; but only the last ones, and only those of this client.
        assert_eq!(throttle.begin(one.0, one.1, now).unwrap_err(), Refused::WrongBefore);
        assert_eq!(throttle.begin(one.0, 1, now).unwrap_err(), Refused::Wait(FIRST));
        other.guess(&throttle, now).unwrap();
    }

    #[test]
    fn so_many_at_a_time() {
        let throttle = Arc::new(Throttle::default());
        let now = Instant::now();
        let held: Vec<_> =
            (0..AT_A_TIME).map(|number| throttle.begin(None, number.into(), now).unwrap()).collect();
        assert_eq!(throttle.begin(None, 0, now).unwrap_err(), Refused::Wait(SOON));
        drop(held);
        assert!(throttle.begin(None, 0, now).is_ok());
        assert!(throttle.lock().clients.is_empty());
    }

    #[test]
    fn the_table_is_bounded() {
        let throttle = Arc::new(Throttle::default());
        let now = Instant::now();
        for number in 0..100_000 {
            throttle.begin(address(number), 0, now).unwrap().was_wrong(now);
        }
        // One that guesses again and again has its place once.
        let mut client = Guessing(address(7), 0);
        for turn in 0..10_000 {
            let _ = client.guess(&throttle, now + LONGEST * turn);
        }
        let table = throttle.lock();
        assert!(table.clients.len() <= CLIENTS && table.order.len() <= CLIENTS);
    }
}
