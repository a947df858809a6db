//! Connection ids: UUIDs of version 7 (RFC 9562 §5.7), made without locks or system calls.
//!
//! Ids sort by time of acceptance. An id is unique, not secret: its neighbours can be guessed, so no access
//! may be granted by it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A connection's unique id. Printed as a UUID of 36 characters; its bytes (big-endian) suit the unique-id
/// TLV of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u128);

impl ConnectionId {
    /// The id as a number, in the order of acceptance.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// The 16 bytes of the UUID, in network order.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl From<u128> for ConnectionId {
    fn from(value: u128) -> Self {
        Self(value)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            id >> 96,
            (id >> 80) & 0xffff,
            (id >> 64) & 0xffff,
            (id >> 48) & 0xffff,
            id & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id generator of one worker.
///
/// Layout, from the top: 48 bits of Unix milliseconds, version 7, a 12-bit counter within the millisecond
/// (RFC 9562 §6.2, method 1), the variant, 16 bits of worker, 46 bits of the process's seed. Two workers of a
/// process never collide; two processes collide only if they drew the same seed.
#[derive(Debug)]
pub struct IdSource {
    tail: u64,
    millis: u64,
    counter: u16,
}

impl IdSource {
    /// A source for `worker`. `seed` is drawn at random once per process; its lowest 46 bits are used.
    #[must_use]
    pub fn new(worker: u16, seed: u64) -> Self {
        let tail = VARIANT | u64::from(worker) << SEED_BITS | (seed & ((1 << SEED_BITS) - 1));
        Self { tail, millis: 0, counter: 0 }
    }

    /// The next id, for a connection accepted at `now`. Ids strictly increase, even if the clock steps back
    /// or more than 4096 connections arrive within a millisecond; the timestamp of the id then runs ahead of
    /// the clock.
    pub fn next(&mut self, now: SystemTime) -> ConnectionId {
        let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let millis = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX) & MILLIS_MASK;
        if millis > self.millis {
            self.millis = millis;
            self.counter = 0;
        } else if self.counter == COUNTER_MAX {
            self.millis = (self.millis + 1) & MILLIS_MASK;
            self.counter = 0;
        } else {
            self.counter += 1;
        }
        let head = self.millis << 16 | VERSION | u64::from(self.counter);
        ConnectionId(u128::from(head) << 64 | u128::from(self.tail))
    }
}

const SEED_BITS: u32 = 46;
const MILLIS_MASK: u64 = (1 << 48) - 1;
const COUNTER_MAX: u16 = 0xfff;
const VERSION: u64 = 7 << 12;
const VARIANT: u64 = 0b10 << 62;

#[cfg(test)]
mod tests {
    use super::IdSource;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn an_id_reads_as_a_uuid_of_version_7() {
        let accepted = UNIX_EPOCH + Duration::from_millis(0x0001_9aa8_1234);
        let id = IdSource::new(3, 0x2abc).next(accepted);
        assert_eq!(id.to_string(), "00019aa8-1234-7000-8000-c00000002abc");
        assert_eq!(id.to_bytes()[6] >> 4, 7);
        assert_eq!(id.to_bytes()[8] >> 6, 0b10);
    }

    #[test]
    fn ids_rise_through_bursts_and_clock_steps() {
        let mut ids = IdSource::new(0, u64::MAX);
        let start = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let mut last = ids.next(start);
        for step in 0..10_000_u64 {
            // Every tenth connection sees a clock one second earlier.
            let now = if step % 10 == 0 { start - Duration::from_secs(1) } else { start };
            let id = ids.next(now);
            assert!(id > last);
            last = id;
        }
    }

    #[test]
    fn workers_never_share_an_id() {
        let (mut one, mut other) = (IdSource::new(1, 7), IdSource::new(2, 7));
        assert_ne!(one.next(UNIX_EPOCH), other.next(UNIX_EPOCH));
    }
}
