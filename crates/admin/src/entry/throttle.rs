//! Delays of wrong tokens, without a clock.
//!
//! Each client has tokens of a bucket: a wrong one takes one, and a second gives one back. So one that guesses is heard
//! once a second, and a right token waits for a second at most where nobody guesses beside it. All clients have another
//! bucket, for guesses from many addresses. It is closed only to clients that have guessed wrongly themselves. So a new
//! client is always heard, and a guesser gets little more from each further address.
//!
//! A wrong token that the client has sent before is no guess: a program with an old token must not keep out others of
//! its address.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use crate::owner::ConnectionOwner;

/// The most clients that are known for wrong tokens.
const KNOWN: usize = 4096;
/// The time after which a client without further guesses is forgotten.
const FORGET: Duration = Duration::from_secs(15 * 60);
/// Wrong tokens of a client that are recognized.
const TRIED: usize = 8;
/// Of one client: people mistype, and paste the wrong line.
const OF_CLIENT: BucketSize = BucketSize { most: 10, refill: Duration::from_secs(1) };
/// Of all clients.
const OF_ALL: BucketSize = BucketSize { most: 100, refill: Duration::from_millis(100) };

/// The size of a bucket.
#[derive(Clone, Copy, Debug)]
struct BucketSize {
    most: u32,
    /// The time that gives one back.
    refill: Duration,
}

/// Guesses that are left.
#[derive(Debug)]
struct GuessBucket {
    size: BucketSize,
    /// The time at which the bucket is full again.
    full: Instant,
}

impl GuessBucket {
    fn new(size: BucketSize, now: Instant) -> Self {
        Self { size, full: now }
    }

    /// The wait for the next guess; `None` if one is left.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let missing = self.full.saturating_duration_since(now);
        let over = missing.checked_sub(self.size.refill * (self.size.most - 1))?;
        (!over.is_zero()).then_some(over)
    }

    fn take(&mut self, now: Instant) {
        self.full = self.full.max(now) + self.size.refill;
    }
}

/// A client that has sent wrong tokens.
#[derive(Debug)]
struct TokenGuesser {
    bucket: GuessBucket,
    last: Instant,
    /// The last wrong ones, by their keyed hashes.
    tried: VecDeque<u64>,
}

/// The verdict about a token before it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenGate {
    Compare,
    /// It was wrong before.
    WrongBefore,
    /// The client has to wait so long.
    Wait(Duration),
}

/// Clients with wrong tokens.
#[derive(Debug)]
pub(super) struct TokenThrottle {
    guessers: HashMap<ConnectionOwner, TokenGuesser>,
    all: GuessBucket,
    hasher: RandomState,
}

impl TokenThrottle {
    pub(super) fn new(now: Instant) -> Self {
        let (guessers, hasher) = Default::default();
        Self { guessers, all: GuessBucket::new(OF_ALL, now), hasher }
    }

    /// Decides about a token of this client.
    pub(super) fn gate(&self, client: ConnectionOwner, token: &[u8], now: Instant) -> TokenGate {
        let Some(guesser) = self.guessers.get(&client) else { return TokenGate::Compare };
        if guesser.tried.contains(&self.hasher.hash_one(token)) {
            return TokenGate::WrongBefore;
        }
        match guesser.bucket.wait(now).max(self.all.wait(now)) {
            Some(wait) => TokenGate::Wait(wait),
            None => TokenGate::Compare,
        }
    }

    /// Counts a token that was wrong.
    pub(super) fn was_wrong(&mut self, client: ConnectionOwner, token: &[u8], now: Instant) {
        self.all.take(now);
        if !self.guessers.contains_key(&client) && self.guessers.len() >= KNOWN {
            self.guessers.retain(|_, guesser| now.saturating_duration_since(guesser.last) < FORGET);
        }
        if !self.guessers.contains_key(&client) && self.guessers.len() >= KNOWN {
            let oldest = self.guessers.iter().min_by_key(|(_, guesser)| guesser.last).map(|(key, _)| *key);
            oldest.map(|oldest| self.guessers.remove(&oldest));
        }
        let digest = self.hasher.hash_one(token);
        let guesser = self.guessers.entry(client).or_insert_with(|| TokenGuesser {
            bucket: GuessBucket::new(OF_CLIENT, now),
            last: now,
            tried: VecDeque::with_capacity(TRIED),
        });
        guesser.bucket.take(now);
        guesser.last = now;
        if guesser.tried.len() >= TRIED {
            guesser.tried.pop_front();
        }
        guesser.tried.push_back(digest);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn client(number: u32) -> ConnectionOwner {
        ConnectionOwner::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    fn seconds(count: f64) -> Duration {
        Duration::from_secs_f64(count)
    }

    #[test]
    fn a_guesser_is_heard_once_a_second_and_others_at_once() {
        let now = Instant::now();
        let mut throttle = TokenThrottle::new(now);
        for number in 0..OF_CLIENT.most {
            let token = number.to_string();
            assert_eq!(throttle.gate(client(1), token.as_bytes(), now), TokenGate::Compare, "{number}");
            throttle.was_wrong(client(1), token.as_bytes(), now);
        }
        assert_eq!(throttle.gate(client(1), b"right", now), TokenGate::Wait(seconds(1.0)));
        assert_eq!(throttle.gate(client(2), b"right", now), TokenGate::Compare);
        let later = now + seconds(0.75);
        assert_eq!(throttle.gate(client(1), b"right", later), TokenGate::Wait(seconds(0.25)));
        assert_eq!(throttle.gate(client(1), b"right", now + seconds(1.0)), TokenGate::Compare);
        throttle.was_wrong(client(1), b"x", now + seconds(1.0));
        assert!(matches!(throttle.gate(client(1), b"y", now + seconds(1.5)), TokenGate::Wait(_)));
        // What it has not used is there again.
        assert_eq!(throttle.gate(client(1), b"y", now + seconds(60.0)), TokenGate::Compare);
    }

    #[test]
    fn an_old_token_is_no_guess() {
        let now = Instant::now();
        let mut throttle = TokenThrottle::new(now);
        throttle.was_wrong(client(1), b"old", now);
        for _ in 0..1000 {
            assert_eq!(throttle.gate(client(1), b"old", now), TokenGate::WrongBefore);
        }
        assert_eq!(throttle.gate(client(1), b"right", now), TokenGate::Compare);
        assert_eq!(
            throttle.gate(client(2), b"old", now),
            TokenGate::Compare,
            "another client has not tried it"
        );
    }

    #[test]
    fn guesses_from_everywhere_are_bounded_and_keep_no_newcomer_out() {
        let now = Instant::now();
        let mut throttle = TokenThrottle::new(now);
        for number in 0..OF_ALL.most {
            throttle.was_wrong(client(number), b"a", now);
        }
        assert!(
            matches!(throttle.gate(client(7), b"b", now), TokenGate::Wait(_)),
            "its own bucket has nine left"
        );
        assert_eq!(throttle.gate(client(1 << 20), b"right", now), TokenGate::Compare);
        assert_eq!(throttle.gate(client(7), b"b", now + seconds(0.1)), TokenGate::Compare);
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_go_first() {
        let now = Instant::now();
        let mut throttle = TokenThrottle::new(now);
        for number in 0..2 * KNOWN as u32 {
            throttle.was_wrong(client(number), b"a", now + Duration::from_millis(number.into()));
            assert!(throttle.guessers.len() <= KNOWN);
        }
        let last = client(2 * KNOWN as u32 - 1);
        assert_eq!(throttle.gate(last, b"a", now), TokenGate::WrongBefore);
        assert_eq!(throttle.gate(client(0), b"a", now), TokenGate::Compare);
        throttle.was_wrong(client(u32::MAX), b"a", now + FORGET * 2);
        assert_eq!(throttle.guessers.len(), 1, "all others are forgotten");
    }
}
