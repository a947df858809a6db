//! One worker's choices among the servers of a backend.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Picker, Policy, Standing, Tried, Use, hash};

/// How long a server is not the first choice after its first failure.
pub const BACK_OFF_START: Duration = Duration::from_secs(1);

/// The longest back-off; each failure in a row doubles it up to here.
pub const BACK_OFF_LIMIT: Duration = Duration::from_secs(30);

/// What is to be chosen for.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// How.
    pub policy: &'q Policy,
    /// What the request is known by, for [`Policy::Hash`]; without it the policy is round robin.
    pub key: Option<u64>,
    /// Who was tried already.
    pub tried: &'q Tried,
    /// When.
    pub now: Instant,
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picked {
    /// The server at this index.
    Server(usize),
    /// There are servers to try, but they have as many requests as they may have.
    Full,
    /// All that may be tried were.
    Exhausted,
    /// Every server is down or leaving.
    NoneAlive,
}

/// One worker's turn among the servers of a backend, and what it learnt of them.
#[derive(Clone, Debug)]
pub struct Chooser {
    picker: Arc<Picker>,
    states: Box<[State]>,
    /// How many choices were made, to spread what falls to other servers than the first.
    turn: usize,
    /// The state of the generator of [`Policy::TwoChoices`].
    random: u64,
    since: Instant,
    /// How many servers have failed since they last worked.
    troubled: usize,
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

/// A server that may be chosen now, with what it weighs now and has to do.
#[derive(Clone, Copy)]
struct Open {
    index: usize,
    weight: u64,
    load: u32,
}

impl Open {
    /// Whether it has less to do for its weight than `other`.
    fn is_freer_than(&self, other: &Open) -> bool {
        u64::from(self.load) * other.weight < u64::from(other.load) * self.weight
    }
}

impl Chooser {
    /// The state of worker `worker`, counted from 0. Workers start one server apart, lest the first
    /// connection of each goes to the same one.
    #[must_use]
    pub fn new(picker: Arc<Picker>, worker: usize, now: Instant) -> Self {
        let states = vec![State::default(); picker.len()].into();
        let mut this = Chooser {
            picker,
            states,
            turn: worker,
            random: hash::mix(worker as u64 + 1),
            since: now,
            troubled: 0,
        };
        let tried = Tried::default();
        let question = Question { policy: &Policy::RoundRobin, key: None, tried: &tried, now };
        for _ in 0..worker % this.picker.len().max(1) {
            this.next(question, |_| Standing::default());
        }
        this.turn = worker;
        this
    }

    /// The server to try next for a request that has tried `question.tried`.
    pub fn next(&mut self, question: Question<'_>, standing: impl Fn(usize) -> Standing) -> Picked {
        let count = self.states.len();
        let (mut best, mut alive, mut full) = (None, false, false);
        for index in 0..count {
            let server = standing(index);
            alive |= server.usage != Use::Never;
            let Some(tier) = self.tier(index, server.usage, question.now) else { continue };
            if !question.tried.contains(index) && best.is_none_or(|(least, _)| tier <= least) {
                // A tier whose servers are all full is waited for; the next one is for outages.
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
            fits.then_some(Open { index, weight, load: server.load })
        };
        self.choose(question, open).map_or(Picked::Full, Picked::Server)
    }

    /// Takes note that a connection to server `index` failed: it stops being the first choice for
    /// [`BACK_OFF_START`], twice as long with each failure in a row, at most [`BACK_OFF_LIMIT`].
    ///
    /// A failure during a back-off changes nothing: of many connections that fail together the first
    /// counts, or a moment's outage would be punished like a long one.
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

    /// Takes note that a connection to server `index` succeeded: whatever went wrong before is
    /// forgotten.
    pub fn note_success(&mut self, index: usize) {
        if self.troubled > 0
            && let Some(state) = self.states.get_mut(index)
        {
            self.troubled -= usize::from(state.back_off.take().is_some());
        }
    }

    /// Whether no server has failed since it last worked: the time does not matter then.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.troubled == 0
    }

    /// When this state was made.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Whether server `index` is passed over as the first choice at `now`.
    #[must_use]
    pub fn is_backing_off(&self, index: usize, now: Instant) -> bool {
        let end = self.states.get(index).and_then(|state| state.back_off).map(|(_, end)| end);
        end.is_some_and(|end| now < end)
    }

    /// The tier of a server, from 0; `None`: it is not to be tried.
    fn tier(&self, index: usize, usage: Use, now: Instant) -> Option<u8> {
        let trouble = match usage {
            Use::Never => return None,
            Use::LastResort => true,
            Use::Normal => self.is_backing_off(index, now),
        };
        Some(2 * u8::from(trouble) + u8::from(self.picker.servers[index].backup))
    }

    /// Chooses among those that `open` names.
    fn choose(
        &mut self,
        question: Question<'_>,
        open: impl Fn(&Self, usize) -> Option<Open>,
    ) -> Option<usize> {
        if let (Policy::Hash(_), Some(key)) = (question.policy, question.key) {
            return self.owner(key, open);
        }
        if !question.tried.is_empty() {
            let count = self.states.len();
            let turn = self.turn;
            return (0..count).map(|step| (turn % count + step) % count).find(|at| open(self, *at).is_some());
        }
        self.turn = self.turn.wrapping_add(1);
        match question.policy {
            Policy::RoundRobin | Policy::Hash(_) => self.claim(open),
            Policy::LeastConn => {
                let freest = self.freest(&open)?;
                let equal = |this: &Self, index| open(this, index).filter(|at| !freest.is_freer_than(at));
                self.claim(equal)
            }
            Policy::TwoChoices => {
                let first = self.drawn(None, &open)?;
                let second = self.drawn(Some(first.index), &open);
                Some(second.filter(|second| second.is_freer_than(&first)).unwrap_or(first).index)
            }
        }
    }

    /// Who draws the smallest number for the key.
    fn owner(&self, key: u64, open: impl Fn(&Self, usize) -> Option<Open>) -> Option<usize> {
        let all = (0..self.states.len()).filter_map(|index| open(self, index));
        let drawn = all.map(|at| (at.index, hash::draw(key, self.picker.seeds[at.index], at.weight)));
        drawn.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(index, _)| index)
    }

    fn freest(&self, open: impl Fn(&Self, usize) -> Option<Open>) -> Option<Open> {
        let all = (0..self.states.len()).filter_map(|index| open(self, index));
        all.reduce(|best, at| if at.is_freer_than(&best) { at } else { best })
    }

    /// One drawn by weight, other than `not`.
    fn drawn(&mut self, not: Option<usize>, open: impl Fn(&Self, usize) -> Option<Open>) -> Option<Open> {
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

    /// The server whose turn it is: smooth weighted round robin as nginx has it. Every claim grows by
    /// the server's weight, the largest wins and pays the sum of the weights. Over as many picks as
    /// that sum each server wins as often as its weight, spread out evenly.
    fn claim(&mut self, open: impl Fn(&Self, usize) -> Option<Open>) -> Option<usize> {
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
