//! The order in which a connection tries the servers of a backend: smooth weighted round robin with
//! backups, and a back-off for servers that refused.
//!
//! Pure: no sockets, and time is an argument. [`Picker`] is what the configuration says and is shared;
//! [`RoundRobin`] is one worker's state and is not. Weights hold among the connections of a worker, so
//! that no worker waits for another.
//!
//! Servers fall into tiers, tried one after the other:
//! 1. primaries that work, 2. backups that work, 3. primaries in back-off, 4. backups in back-off.
//!
//! The first server comes from the first tier that is not empty, by weight. A server in back-off is
//! thus tried last, but it is tried: a backend is never given up while one of its servers may answer.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server is not the first choice after its first failure.
pub const BACK_OFF_START: Duration = Duration::from_secs(1);

/// The longest back-off; each failure in a row doubles it up to here.
pub const BACK_OFF_LIMIT: Duration = Duration::from_secs(30);

/// Up to so many servers an [`Order`] needs no allocation.
pub const INLINE_SERVERS: usize = 16;

/// One server, as far as picking is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its share of connections, in proportion to the weights of the others of its kind.
    pub weight: NonZeroU16,
    /// Whether it gets connections only while no primary works.
    pub backup: bool,
}

impl Default for Candidate {
    /// A primary of weight 1.
    fn default() -> Self {
        Candidate { weight: NonZeroU16::MIN, backup: false }
    }
}

/// The servers of a backend, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picker {
    servers: Box<[Candidate]>,
}

impl Picker {
    /// A picker for `servers`, which are named by their index from now on.
    pub fn new(servers: impl IntoIterator<Item = Candidate>) -> Self {
        Picker { servers: servers.into_iter().collect() }
    }

    /// How many servers there are.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there is no server.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}

/// One worker's turn among the servers of a backend, and what it learnt of them.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    picker: Arc<Picker>,
    states: Box<[State]>,
    /// How many orders were given, to spread what falls to the later tiers.
    turn: usize,
}

/// What a worker knows of a server.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The server's claim to the next connection: grows by its weight with each pick it takes part
    /// in, and falls by the weight of all when it is picked.
    claim: i64,
    /// The back-off that its last failure began, and its end.
    back_off: Option<(Duration, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Tier {
    backing_off: bool,
    backup: bool,
}

const TIERS: [Tier; 4] = [
    Tier { backing_off: false, backup: false },
    Tier { backing_off: false, backup: true },
    Tier { backing_off: true, backup: false },
    Tier { backing_off: true, backup: true },
];

impl RoundRobin {
    /// The state of worker `worker`, counted from 0. Workers start one server apart, lest the first
    /// connection of each goes to the same one.
    pub fn new(picker: Arc<Picker>, worker: usize, now: Instant) -> Self {
        let states = vec![State::default(); picker.len()].into();
        let mut this = RoundRobin { picker, states, turn: worker };
        let tier = if this.in_tier(TIERS[0], now).next().is_some() { TIERS[0] } else { TIERS[1] };
        let cycle = this.picker.len().max(1);
        for _ in 0..worker % cycle {
            this.claim_first(tier, now);
        }
        this
    }

    /// The servers in the order in which one connection should try them, each once. The answer holds
    /// no borrow, so that it can be kept while connecting.
    pub fn order(&mut self, now: Instant) -> Order {
        let count = self.states.len();
        let mut order = Order::with_room(count);
        let mut first = None;
        for tier in TIERS {
            let start = match first {
                Some(_) => self.turn,
                None => match self.claim_first(tier, now) {
                    Some(index) => {
                        first = Some(index);
                        order.push(index);
                        index
                    }
                    None => continue,
                },
            };
            for index in (0..count).map(|step| (start % count + step) % count) {
                if self.tier(index, now) == tier && Some(index) != first {
                    order.push(index);
                }
            }
        }
        self.turn = self.turn.wrapping_add(1);
        order
    }

    /// Takes note that a connection to server `index` failed: it stops being the first choice for
    /// [`BACK_OFF_START`], twice as long with each failure in a row, at most [`BACK_OFF_LIMIT`].
    ///
    /// A failure during a back-off changes nothing: of many connections that fail together the first
    /// counts, or a moment's outage would be punished like a long one.
    pub fn note_failure(&mut self, index: usize, now: Instant) {
        let Some(state) = self.states.get_mut(index) else { return };
        let length = match state.back_off {
            None => BACK_OFF_START,
            Some((_, end)) if now < end => return,
            Some((length, _)) => (length * 2).min(BACK_OFF_LIMIT),
        };
        state.back_off = Some((length, now + length));
    }

    /// Takes note that a connection to server `index` succeeded: whatever went wrong before is
    /// forgotten.
    pub fn note_success(&mut self, index: usize) {
        if let Some(state) = self.states.get_mut(index) {
            state.back_off = None;
        }
    }

    /// Whether server `index` is passed over as the first choice at `now`.
    pub fn is_backing_off(&self, index: usize, now: Instant) -> bool {
        let end = self.states.get(index).and_then(|state| state.back_off).map(|(_, end)| end);
        end.is_some_and(|end| now < end)
    }

    fn tier(&self, index: usize, now: Instant) -> Tier {
        Tier { backing_off: self.is_backing_off(index, now), backup: self.picker.servers[index].backup }
    }

    fn in_tier(&self, tier: Tier, now: Instant) -> impl Iterator<Item = usize> {
        (0..self.states.len()).filter(move |index| self.tier(*index, now) == tier)
    }

    /// The server of `tier` whose turn it is: smooth weighted round robin as nginx has it. Every
    /// claim grows by the server's weight, the largest wins and pays the sum of the weights. Over as
    /// many picks as that sum each server wins as often as its weight, spread out evenly.
    fn claim_first(&mut self, tier: Tier, now: Instant) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for index in 0..self.states.len() {
            if self.tier(index, now) != tier {
                continue;
            }
            let weight = i64::from(self.picker.servers[index].weight.get());
            let claim = self.states[index].claim + weight;
            self.states[index].claim = claim;
            total += weight;
            if best.is_none_or(|(_, largest)| claim > largest) {
                best = Some((index, claim));
            }
        }
        let (winner, _) = best?;
        self.states[winner].claim -= total;
        Some(winner)
    }
}

/// Servers in the order of trying; an iterator of their indices.
#[derive(Clone, Debug)]
pub struct Order {
    inline: [u8; INLINE_SERVERS],
    /// Used instead where there are more servers than [`INLINE_SERVERS`].
    spilled: Vec<usize>,
    next: usize,
    end: usize,
}

impl Order {
    fn with_room(count: usize) -> Self {
        let room = if count > INLINE_SERVERS { count } else { 0 };
        Order { inline: [0; INLINE_SERVERS], spilled: Vec::with_capacity(room), next: 0, end: 0 }
    }

    fn push(&mut self, index: usize) {
        if self.spilled.capacity() > 0 {
            self.spilled.push(index);
        } else {
            // There are at most INLINE_SERVERS, each pushed once, so that both casts and slots do.
            self.inline[self.end] = index as u8;
        }
        self.end += 1;
    }
}

impl Iterator for Order {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.next == self.end {
            return None;
        }
        let index = match self.spilled.get(self.next) {
            Some(index) => *index,
            None => usize::from(self.inline[self.next]),
        };
        self.next += 1;
        Some(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl ExactSizeIterator for Order {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(weight: u16, backup: bool) -> Candidate {
        Candidate { weight: NonZeroU16::new(weight).unwrap(), backup }
    }

    fn round_robin(servers: &[(u16, bool)], now: Instant) -> RoundRobin {
        let picker = Picker::new(servers.iter().map(|(weight, backup)| candidate(*weight, *backup)));
        RoundRobin::new(Arc::new(picker), 0, now)
    }

    fn firsts(state: &mut RoundRobin, count: usize, now: Instant) -> Vec<usize> {
        (0..count).map(|_| state.order(now).next().unwrap()).collect()
    }

    fn second() -> Duration {
        Duration::from_secs(1)
    }

    #[test]
    fn picks_are_spread_as_nginx_spreads_them() {
        let now = Instant::now();
        let mut state = round_robin(&[(5, false), (1, false), (1, false)], now);
        assert_eq!(firsts(&mut state, 7, now), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn the_others_follow_in_rotation_and_backups_come_last() {
        let now = Instant::now();
        let mut state = round_robin(&[(1, false), (1, true), (1, false), (1, false)], now);
        let orders: Vec<Vec<usize>> = (0..3).map(|_| state.order(now).collect()).collect();
        assert_eq!(orders, [[0, 2, 3, 1], [2, 3, 0, 1], [3, 0, 2, 1]]);
        assert_eq!(state.order(now).len(), 4);
    }

    #[test]
    fn what_fails_is_tried_last_and_backups_step_in() {
        let now = Instant::now();
        let mut state = round_robin(&[(1, false), (1, false), (1, true)], now);
        state.note_failure(0, now);
        for _ in 0..4 {
            assert_eq!(state.order(now).collect::<Vec<_>>(), [1, 2, 0]);
        }
        state.note_failure(1, now);
        assert_eq!(state.order(now).next(), Some(2));
        state.note_failure(2, now);
        let last = state.order(now).last();
        assert_eq!(last, Some(2));
        state.note_success(1);
        assert_eq!(state.order(now).collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(state.order(now + second()).len(), 3);
        assert!(!state.is_backing_off(0, now + second()));
    }

    #[test]
    fn back_off_doubles_to_its_limit_and_success_ends_it() {
        let mut now = Instant::now();
        let mut state = round_robin(&[(1, false), (1, false)], now);
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            state.note_failure(0, now);
            // Those that fail with it do not count.
            state.note_failure(0, now + second() / 2);
            let end = now + expected * second();
            assert!(state.is_backing_off(0, end - Duration::from_nanos(1)), "{expected} s");
            assert!(!state.is_backing_off(0, end), "{expected} s");
            now = end;
        }
        state.note_success(0);
        state.note_failure(0, now);
        assert!(!state.is_backing_off(0, now + second()));
    }

    #[test]
    fn workers_start_apart() {
        let now = Instant::now();
        let picker = Arc::new(Picker::new([Candidate::default(); 3]));
        let first = |worker| RoundRobin::new(Arc::clone(&picker), worker, now).order(now).next();
        assert_eq!([0, 1, 2, 3].map(first), [Some(0), Some(1), Some(2), Some(0)]);
    }

    #[test]
    fn strange_sizes_are_fine() {
        let now = Instant::now();
        assert_eq!(round_robin(&[], now).order(now).next(), None);
        let mut state = round_robin(&[(1, true)], now);
        state.note_failure(0, now);
        state.note_failure(7, now);
        state.note_success(7);
        assert_eq!(state.order(now).collect::<Vec<_>>(), [0]);
        for count in [16, 17, 300] {
            let mut state = round_robin(&vec![(1, false); count], now);
            let mut order: Vec<usize> = state.order(now).collect();
            order.sort_unstable();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
        assert_eq!(Picker::new([]).len(), 0);
        assert!(Picker::default().is_empty());
    }

    fn servers() -> impl Strategy<Value = Vec<(u16, bool)>> {
        prop::collection::vec((1u16..9, prop::bool::weighted(0.3)), 1..20)
    }

    proptest! {
        /// However it began, each window of one cycle gives every server its weight.
        #[test]
        fn shares_are_exact_over_a_cycle(servers in servers(), worker in 0usize..8, skip in 0usize..50) {
            let now = Instant::now();
            let picker = Picker::new(servers.iter().map(|(w, b)| candidate(*w, *b)));
            let mut state = RoundRobin::new(Arc::new(picker), worker, now);
            let backups_only = servers.iter().all(|(_, backup)| *backup);
            let takes_part = |backup: bool| backups_only || !backup;
            let cycle: usize =
                servers.iter().filter(|(_, b)| takes_part(*b)).map(|(w, _)| usize::from(*w)).sum();
            firsts(&mut state, skip, now);
            let picks = firsts(&mut state, cycle, now);
            for (index, (weight, backup)) in servers.iter().enumerate() {
                let share = picks.iter().filter(|pick| **pick == index).count();
                let expected = if takes_part(*backup) { usize::from(*weight) } else { 0 };
                prop_assert_eq!(share, expected, "server {} of {:?}", index, servers);
            }
        }

        /// Under any course of failures: each server once, working before failing, primaries first.
        #[test]
        fn every_server_is_in_every_order_once(
            servers in servers(),
            events in prop::collection::vec((0usize..20, any::<bool>(), 0u64..3000), 0..60),
        ) {
            let mut now = Instant::now();
            let mut state = round_robin(&servers, now);
            for (index, failed, millis) in events {
                now += Duration::from_millis(millis);
                if failed { state.note_failure(index, now) } else { state.note_success(index) }
                let order: Vec<usize> = state.order(now).collect();
                let tiers: Vec<(bool, bool)> =
                    order.iter().map(|i| (state.is_backing_off(*i, now), servers[*i].1)).collect();
                prop_assert!(tiers.is_sorted(), "{tiers:?}");
                let mut sorted = order;
                sorted.sort_unstable();
                prop_assert_eq!(sorted, (0..servers.len()).collect::<Vec<_>>());
            }
        }

        /// After any course of failures, once all work again, no primary waits for ever.
        #[test]
        fn none_starves_after_failures(
            servers in servers(),
            events in prop::collection::vec((0usize..20, 0u64..3000), 0..60),
        ) {
            let mut now = Instant::now();
            let mut state = round_robin(&servers, now);
            for (index, millis) in events {
                now += Duration::from_millis(millis);
                state.note_failure(index, now);
                state.order(now);
            }
            now += BACK_OFF_LIMIT;
            let total: usize = servers.iter().map(|(weight, _)| usize::from(*weight)).sum();
            let picks = firsts(&mut state, (servers.len() + 2) * total, now);
            let backups_only = servers.iter().all(|(_, backup)| *backup);
            for (index, (_, backup)) in servers.iter().enumerate() {
                prop_assert_eq!(picks.contains(&index), backups_only || !backup, "server {}", index);
            }
        }
    }
}
