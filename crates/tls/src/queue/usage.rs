//! What clients have used of a worker's time for handshakes, in bounded memory.

use std::collections::HashMap;
use std::net::IpAddr;

/// The most clients that are told apart. More of them at once are served as those that have used nothing, first come,
/// first served.
pub(super) const MOST: usize = 4096;
/// How many newcomers find the table full before it is swept again.
const SWEEP_EVERY: usize = MOST / 4;
/// A table with less room is kept when it is emptied.
const KEEP: usize = 64;

/// The clients that have used more than the one that is served.
///
/// Times are virtual, in nanoseconds: those of start-time fair queueing. Each client has the time at which it has
/// worked off what it was given. The time of the class is that of the handshake that is served, so a client whose time
/// is not later owes nothing, and needs no entry.
#[derive(Debug, Default)]
pub(super) struct Usage {
    until: HashMap<IpAddr, u64>,
    /// How many newcomers found the table full since it was swept.
    turned_away: usize,
}

impl Usage {
    /// When the next handshake of `client` starts, which costs `cost`, at the time `now` of its class.
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

    /// Corrects what `client` was charged.
    pub(super) fn correct(&mut self, client: IpAddr, charged: u64, used: u64) {
        if let Some(until) = self.until.get_mut(&client) {
            *until = until.saturating_sub(charged).saturating_add(used);
        }
    }

    /// How many clients are known.
    pub(super) fn len(&self) -> usize {
        self.until.len()
    }

    /// Forgets everybody.
    pub(super) fn clear(&mut self) {
        if self.until.capacity() > KEEP {
            self.until = HashMap::new();
        }
        self.until.clear();
        self.turned_away = 0;
    }

    /// Forgets who owes nothing; not each time, for it looks at all.
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
    fn a_client_starts_when_it_has_worked_off_what_it_had() {
        let mut usage = Usage::default();
        assert_eq!(usage.start(client(1), 0, 10), 0);
        assert_eq!(usage.start(client(1), 0, 10), 10);
        assert_eq!(usage.start(client(2), 0, 10), 0);
        usage.correct(client(1), 10, 25);
        assert_eq!(usage.start(client(1), 7, 10), 35);
        assert_eq!(usage.start(client(2), 500, 10), 500);
    }

    #[test]
    fn the_table_has_a_maximal_size_and_newcomers_find_room_when_others_owe_nothing() {
        let mut usage = Usage::default();
        let all = u32::try_from(MOST).unwrap();
        (0..2 * all).for_each(|number| assert_eq!(usage.start(client(number), 0, 10), 0));
        assert_eq!(usage.len(), MOST);
        // Nobody owes anything at this time.
        (2 * all..3 * all).for_each(|number| assert_eq!(usage.start(client(number), 20, 10), 20));
        assert!(usage.len() <= MOST);
        assert!(usage.start(client(3 * all - 1), 20, 10) == 30, "the last one is known");
        usage.clear();
        assert_eq!((usage.len(), usage.until.capacity()), (0, 0));
    }
}
