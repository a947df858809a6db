//! Handshake time used by clients, in bounded memory.

use std::collections::HashMap;
use std::net::IpAddr;

/// Maximum number of tracked clients. Further ones are treated like clients without usage, in order of
/// arrival.
pub(super) const MOST: usize = 4096;
/// Number of newcomers that find the table full before it is swept again.
const SWEEP_EVERY: usize = MOST / 4;
/// Capacity below which an emptied table is kept.
const KEEP: usize = 64;

/// Clients that have used more than the one being served.
///
/// Times are virtual, in nanoseconds, as in start-time fair queueing. Each client has the time at which it
/// has worked off its usage. The time of the class is that of the handshake being served, so a client whose
/// time is not later owes nothing, and needs no entry.
#[derive(Debug, Default)]
pub(super) struct Usage {
    until: HashMap<IpAddr, u64>,
    /// Number of newcomers that found the table full since it was swept.
    turned_away: usize,
}

impl Usage {
    /// Start time of the next handshake of `client`, which costs `cost`, at the time `now` of its class.
    pub(super) fn start(&mut self, client: IpAddr, now: u64, cost: u64) -> u64 {
        if let Some(until) = self.until.get_mut(&client) {
            let start = now.max(*until);
            *until = start.saturating_add(cost);
            return start;
        }
        if self.until.len() >= MOST {
            self.sweep(now);
        }
        if self.until.len() < MOST {
            self.until.insert(client, now.saturating_add(cost));
        }
        now
    }

    /// Corrects the advance charge of `client`.
    pub(super) fn correct(&mut self, client: IpAddr, charged: u64, used: u64) {
        if let Some(until) = self.until.get_mut(&client) {
            *until = until.saturating_sub(charged).saturating_add(used);
        }
    }

    /// Number of tracked clients.
    pub(super) fn len(&self) -> usize {
        self.until.len()
    }

    /// Removes all clients, and a large table.
    pub(super) fn clear(&mut self) {
        if self.until.capacity() > KEEP {
            self.until = HashMap::new();
        }
        self.until.clear();
        self.turned_away = 0;
    }

    /// Removes clients that owe nothing; only now and then, because it visits the whole table.
    fn sweep(&mut self, now: u64) {
        if self.turned_away.is_multiple_of(SWEEP_EVERY) {
            self.until.retain(|_, until| *until > now);
        }
        self.turned_away += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn a_client_starts_when_its_usage_is_worked_off() {
        let mut usage = Usage::default();
        assert_eq!(usage.start(client(1), 0, 10), 0);
        assert_eq!(usage.start(client(1), 0, 10), 10);
        assert_eq!(usage.start(client(2), 0, 10), 0);
        usage.correct(client(1), 10, 25);
        assert_eq!(usage.start(client(1), 7, 10), 35);
        assert_eq!(usage.start(client(2), 500, 10), 500);
    }

    #[test]
    fn the_table_is_bounded_and_swept_of_clients_that_owe_nothing() {
        let mut usage = Usage::default();
        let all = u32::try_from(MOST).unwrap();
        (0..2 * all).for_each(|number| assert_eq!(usage.start(client(number), 0, 10), 0));
        assert_eq!(usage.len(), MOST);
        // No client owes anything at this time.
        (2 * all..3 * all).for_each(|number| assert_eq!(usage.start(client(number), 20, 10), 20));
        assert!(usage.len() <= MOST);
        assert!(usage.start(client(3 * all - 1), 20, 10) == 30, "the last one is known");
        usage.clear();
        assert_eq!((usage.len(), usage.until.capacity()), (0, 0));
    }
}
