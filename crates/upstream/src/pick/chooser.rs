//! Choices of one worker among the servers of a backend.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{BalancePolicy, Picker, ServerStanding, Tried, Use, hash};

/// Back-off after the first failure of a server, during which it is not the first choice.
pub const BACK_OFF_START: Duration = Duration::from_secs(1);

/// Maximum back-off; each consecutive failure doubles it up to here.
pub const BACK_OFF_LIMIT: Duration = Duration::from_secs(30);

/// Parameters of a choice.
#[derive(Clone, Copy, Debug)]
pub struct ChoiceParams<'q> {
    /// Policy by which the first server is chosen.
    pub policy: &'q BalancePolicy,
    /// Hash key of the request, for [`BalancePolicy::Hash`]; without it the policy is round robin.
    pub key: Option<u64>,
    /// Servers that were tried already.
    pub tried: &'q Tried,
    /// Current time, for back-offs.
    pub now: Instant,
}

/// Result of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picked {
    /// The server at this index.
    Server(usize),
    /// There are servers to try, but all have their maximum of requests.
    Full,
    /// All permitted servers were tried.
    Exhausted,
    /// Every server is down or leaving.
    NoneAlive,
}

/// State of one worker for the servers of a backend.
#[derive(Clone, Debug)]
pub struct Chooser {
    picker: Arc<Picker>,
    states: Box<[WorkerServerState]>,
    /// Number of choices, which rotates the servers behind the first one.
    turn: usize,
    /// State of the random generator of [`BalancePolicy::TwoChoices`].
    random: u64,
    since: Instant,
    /// Number of servers that have failed and not succeeded since.
    troubled: usize,
}

/// A worker's state of a server.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerServerState {
    /// Claim to the next connection: grows by the server's weight with each pick it takes part in, and falls
    /// by the weight of all when it is picked.
    claim: i64,
    /// Duration and end of the back-off after its last failure.
    back_off: Option<(Duration, Instant)>,
}

/// A server that may be chosen now, with its current weight and load.
#[derive(Clone, Copy)]
struct EligibleServer {
    index: usize,
    weight: u64,
    load: u32,
}

impl EligibleServer {
    /// Returns true if it has less load in proportion to its weight than `other`.
    fn is_less_loaded_than(&self, other: &EligibleServer) -> bool {
        u64::from(self.load) * other.weight < u64::from(other.load) * self.weight
    }
}

impl Chooser {
    /// Creates the state of worker `worker`, counted from 0. Workers start one server apart, so that the
    /// first connections of all do not go to the same one.
    #[must_use]
    pub fn new(picker: Arc<Picker>, worker: usize, now: Instant) -> Self {
        let states = vec![WorkerServerState::default(); picker.len()].into();
        let mut this = Chooser {
            picker,
            states,
            turn: worker,
            random: hash::mix(worker as u64 + 1),
            since: now,
            troubled: 0,
        };
        let tried = Tried::default();
        let question = ChoiceParams { policy: &BalancePolicy::RoundRobin, key: None, tried: &tried, now };
        for _ in 0..worker % this.picker.len().max(1) {
            this.next(question, |_| ServerStanding::default());
        }
        this.turn = worker;
        this
    }

    /// Chooses the next server for a request that has tried `question.tried`.
    pub fn next(&mut self, question: ChoiceParams<'_>, standing: impl Fn(usize) -> ServerStanding) -> Picked {
        let count = self.states.len();
        let (mut best, mut alive, mut full) = (None, false, false);
        for index in 0..count {
            let server = standing(index);
            alive |= server.usage != Use::Never;
            let Some(tier) = self.tier(index, server.usage, question.now) else { continue };
            if !question.tried.contains(index) && best.is_none_or(|(least, _)| tier <= least) {
                // If all servers of a tier are full, the request waits for them; the next tier is for
                // outages.
                full = server.full && (full || best.is_none_or(|(least, _)| tier < least));
                best = Some((tier, index));
            }
        }
        let Some((tier, only)) = best else {
            return if alive { Picked::Exhausted } else { Picked::NoneAlive };
        };
        if full {
            return Picked::Full;
        }
        if count == 1 {
            return Picked::Server(only);
        }
        let open = |this: &Self, index: usize| {
            let server = standing(index);
            let fits = this.tier(index, server.usage, question.now) == Some(tier)
                && !server.full
                && !question.tried.contains(index);
            let weight = u64::from(this.picker.servers[index].weight.get()) * u64::from(server.share.max(1));
            fits.then_some(EligibleServer { index, weight, load: server.load })
        };
        self.choose(question, open).map_or(Picked::Full, Picked::Server)
    }

    /// Records a failed connection to server `index`: it is not the first choice for [`BACK_OFF_START`],
    /// doubled by each consecutive failure up to [`BACK_OFF_LIMIT`].
    ///
    /// A failure during a back-off changes nothing: of many connections that fail together only the first
    /// counts; otherwise a short outage would have the back-off of a long one.
    pub fn note_failure(&mut self, index: usize, now: Instant) {
        let Some(state) = self.states.get_mut(index) else { return };
        let length = match state.back_off {
            None => {
                self.troubled += 1;
                BACK_OFF_START
            }
            Some((_, end)) if now < end => return,
            Some((length, _)) => (length * 2).min(BACK_OFF_LIMIT),
        };
        state.back_off = Some((length, now + length));
    }

    /// Records a successful connection to server `index`, which resets its back-off.
    pub fn note_success(&mut self, index: usize) {
        if self.troubled > 0
            && let Some(state) = self.states.get_mut(index)
        {
            self.troubled -= usize::from(state.back_off.take().is_some());
        }
    }

    /// Returns true if no server has failed since its last success: the time does not matter then.
    #[must_use]
    pub fn is_untroubled(&self) -> bool {
        self.troubled == 0
    }

    /// Time when this state was created.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Returns true if server `index` is in its back-off at `now`.
    #[must_use]
    pub fn is_backing_off(&self, index: usize, now: Instant) -> bool {
        let end = self.states.get(index).and_then(|state| state.back_off).map(|(_, end)| end);
        end.is_some_and(|end| now < end)
    }

    /// Tier of a server, from 0; `None` if it must not be tried.
    fn tier(&self, index: usize, usage: Use, now: Instant) -> Option<u8> {
        let trouble = match usage {
            Use::Never => return None,
            Use::LastResort => true,
            Use::Normal => self.is_backing_off(index, now),
        };
        Some(2 * u8::from(trouble) + u8::from(self.picker.servers[index].backup))
    }

    /// Chooses among the servers for which `open` returns a value.
    fn choose(
        &mut self,
        question: ChoiceParams<'_>,
        open: impl Fn(&Self, usize) -> Option<EligibleServer>,
    ) -> Option<usize> {
        if let (BalancePolicy::Hash(_), Some(key)) = (question.policy, question.key) {
            return self.owner(key, open);
        }
        if !question.tried.is_empty() {
            let count = self.states.len();
            let turn = self.turn;
            return (0..count).map(|step| (turn % count + step) % count).find(|at| open(self, *at).is_some());
        }
        self.turn = self.turn.wrapping_add(1);
        match question.policy {
            BalancePolicy::RoundRobin | BalancePolicy::Hash(_) => self.claim(open),
            BalancePolicy::LeastConn => {
                let least_loaded = self.least_loaded(&open)?;
                let equal =
                    |this: &Self, index| open(this, index).filter(|at| !least_loaded.is_less_loaded_than(at));
                self.claim(equal)
            }
            BalancePolicy::TwoChoices => {
                let first = self.drawn(None, &open)?;
                let second = self.drawn(Some(first.index), &open);
                Some(second.filter(|second| second.is_less_loaded_than(&first)).unwrap_or(first).index)
            }
        }
    }

    /// Owner of the key: the server that draws the smallest number.
    fn owner(&self, key: u64, open: impl Fn(&Self, usize) -> Option<EligibleServer>) -> Option<usize> {
        let all = (0..self.states.len()).filter_map(|index| open(self, index));
        let drawn = all.map(|at| (at.index, hash::draw(key, self.picker.seeds[at.index], at.weight)));
        drawn.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(index, _)| index)
    }

    fn least_loaded(&self, open: impl Fn(&Self, usize) -> Option<EligibleServer>) -> Option<EligibleServer> {
        let all = (0..self.states.len()).filter_map(|index| open(self, index));
        all.reduce(|best, at| if at.is_less_loaded_than(&best) { at } else { best })
    }

    /// A server drawn by weight, other than `not`.
    fn drawn(
        &mut self,
        not: Option<usize>,
        open: impl Fn(&Self, usize) -> Option<EligibleServer>,
    ) -> Option<EligibleServer> {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let all = || {
            let others = (0..self.states.len()).filter(move |index| Some(*index) != not);
            others.filter_map(|index| open(self, index))
        };
        let total: u64 = all().map(|at| at.weight).sum();
        let mut left = hash::mix(self.random).checked_rem(total)?;
        let mut last = None;
        for at in all() {
            last = Some(at);
            match left.checked_sub(at.weight) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        last
    }

    /// Smooth weighted round robin, as in nginx. Every claim grows by the server's weight, the largest wins
    /// and pays the sum of the weights. Over as many picks as that sum each server wins as often as its
    /// weight, spread out evenly.
    fn claim(&mut self, open: impl Fn(&Self, usize) -> Option<EligibleServer>) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for index in 0..self.states.len() {
            let Some(at) = open(self, index) else { continue };
            // At most 2^16 times 2^8.
            let weight = at.weight as i64;
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

#[cfg(test)]
mod tests;
