//! Messages on their way to one receiver: bounded in number, tries and time. Pure: the time is an argument.
//!
//! One message is under way at a time, the oldest first. A failure for now is tried again, at growing intervals and until
//! the message is an hour old; a refusal for good drops it. A receiver that hangs thus costs a queue of a known size, and
//! no task waits for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Messages that wait; a further one drops the oldest, whose news is the stalest.
pub(super) const WAITING: usize = 100;
/// The wait after the first failure; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// The age at which a message is given up.
pub(super) const OLDEST: Duration = Duration::from_secs(3600);

/// The outcome of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The receiver has taken the message.
    Taken,
    /// It may take it later: no connection, no answer in time, 429, 5xx.
    Later {
        /// The wait that the receiver asked for (`Retry-After`).
        wait: Option<Duration>,
    },
    /// It will never take it.
    Refused,
}

/// The outcome of a try, with its words.
#[derive(Debug)]
pub(crate) struct TryOutcome {
    pub(crate) delivery: Delivery,
    /// The answer, or the reason why there is none, in one line.
    pub(crate) says: String,
}

impl TryOutcome {
    /// A failure for now.
    pub(super) fn later(says: String) -> Self {
        Self { delivery: Delivery::Later { wait: None }, says }
    }

    /// A failure for good.
    pub(super) fn refused(says: String) -> Self {
        Self { delivery: Delivery::Refused, says }
    }
}

/// The fates of messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveryTally {
    pub(crate) sent: u64,
    /// Tries that failed for now.
    pub(crate) retried: u64,
    pub(crate) refused: u64,
    /// Messages that were too many or too old.
    pub(crate) dropped: u64,
}

/// The messages for one receiver.
#[derive(Debug)]
pub(crate) struct Outbox<M> {
    waiting: VecDeque<Waiting<M>>,
    failures: u32,
    /// No try before this.
    not_before: Option<Instant>,
    tally: DeliveryTally,
    numbers: u64,
}

#[derive(Debug)]
struct Waiting<M> {
    number: u64,
    since: Instant,
    message: M,
}

impl<M: Clone> Outbox<M> {
    /// An outbox without a message.
    pub(crate) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            failures: 0,
            not_before: None,
            tally: DeliveryTally::default(),
            numbers: 0,
        }
    }

    /// Adds a message behind those that wait.
    pub(crate) fn push(&mut self, message: M, now: Instant) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
            self.tally.dropped += 1;
        }
        self.numbers += 1;
        self.waiting.push_back(Waiting { number: self.numbers, since: now, message });
    }

    /// Adds a message that has waited elsewhere since `since`, in its place by age. None may be under way.
    pub(crate) fn restore(&mut self, message: M, since: Instant) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
            self.tally.dropped += 1;
        }
        self.numbers += 1;
        let at = self.waiting.partition_point(|one| one.since <= since);
        self.waiting.insert(at, Waiting { number: self.numbers, since, message });
    }

    /// Takes out all messages but the one of this number, the oldest first, each with its age.
    pub(crate) fn take_all_but(&mut self, under_way: Option<u64>, now: Instant) -> Vec<(Duration, M)> {
        let is_under_way = |one: &Waiting<M>| Some(one.number) == under_way;
        let (kept, taken) = std::mem::take(&mut self.waiting).into_iter().partition(is_under_way);
        self.waiting = kept;
        let taken: VecDeque<Waiting<M>> = taken;
        taken.into_iter().map(|one| (now.saturating_duration_since(one.since), one.message)).collect()
    }

    /// The time at which a message may be tried; nothing while none waits.
    pub(crate) fn next(&self) -> Option<Instant> {
        let oldest = self.waiting.front()?;
        Some(self.not_before.map_or(oldest.since, |at| at.max(oldest.since)))
    }

    /// The message to try now, with the number to [settle](Self::settle) it by. Messages that are too old are dropped.
    pub(crate) fn ready(&mut self, now: Instant) -> Option<(u64, M)> {
        let is_old = |one: &Waiting<M>| now.saturating_duration_since(one.since) > OLDEST;
        while self.waiting.front().is_some_and(is_old) {
            self.waiting.pop_front();
            self.tally.dropped += 1;
        }
        self.next().filter(|at| *at <= now)?;
        self.waiting.front().map(|one| (one.number, one.message.clone()))
    }

    /// Takes the outcome of a try. A message that was dropped meanwhile is not counted again.
    pub(crate) fn settle(&mut self, number: u64, outcome: Delivery, now: Instant) {
        let is_first = self.waiting.front().is_some_and(|one| one.number == number);
        match outcome {
            Delivery::Later { wait } => {
                self.tally.retried += 1;
                let grown = FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT);
                self.failures = self.failures.saturating_add(1);
                self.not_before = now.checked_add(wait.unwrap_or(grown).clamp(grown, OLDEST));
                return;
            }
            Delivery::Taken if is_first => self.tally.sent += 1,
            Delivery::Refused if is_first => self.tally.refused += 1,
            Delivery::Taken | Delivery::Refused => {}
        }
        (self.failures, self.not_before) = (0, None);
        if is_first {
            self.waiting.pop_front();
        }
    }

    /// The fates of messages.
    pub(crate) fn tally(&self) -> DeliveryTally {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Delivery = Delivery::Later { wait: None };

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn tries_grow_apart_and_end() {
        let (start, mut outbox) = (Instant::now(), Outbox::new());
        assert_eq!(outbox.next(), None);
        outbox.push("a", start);
        let mut tries = Vec::new();
        for second in 0..5000 {
            let now = start + seconds(second);
            if let Some((number, message)) = outbox.ready(now) {
                assert_eq!(message, "a");
                tries.push(second);
                outbox.settle(number, LATER, now);
            }
        }
        assert_eq!(tries[..8], [0, 5, 15, 35, 75, 155, 315, 615]);
        assert!(*tries.last().unwrap() <= OLDEST.as_secs() && tries.len() == 17, "{tries:?}");
        let tally = DeliveryTally { retried: 17, dropped: 1, ..DeliveryTally::default() };
        assert_eq!((outbox.tally(), outbox.next()), (tally, None));
    }

    #[test]
    fn outcomes_in_order() {
        let (now, mut outbox) = (Instant::now(), Outbox::new());
        for message in ["a", "b", "c"] {
            outbox.push(message, now);
        }
        let mut story = [Delivery::Taken, LATER, Delivery::Taken, Delivery::Refused].into_iter();
        let mut reported = Vec::new();
        for second in 0..20 {
            let at = now + seconds(second);
            if let Some((number, message)) = outbox.ready(at) {
                reported.push((second, message));
                outbox.settle(number, story.next().unwrap(), at);
            }
        }
        assert_eq!(reported, [(0, "a"), (1, "b"), (6, "b"), (7, "c")]);
        assert_eq!(outbox.tally(), DeliveryTally { sent: 2, retried: 1, refused: 1, dropped: 0 });
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_wait_within_bounds() {
        for (asked, expected) in [(0, 5), (60, 60), (u64::MAX, 3600)] {
            let (now, mut outbox) = (Instant::now(), Outbox::new());
            outbox.push((), now);
            let (number, ()) = outbox.ready(now).unwrap();
            outbox.settle(number, Delivery::Later { wait: Some(seconds(asked)) }, now);
            assert_eq!(outbox.next(), Some(now + seconds(expected)));
        }
    }

    #[test]
    fn messages_go_from_one_outbox_to_another_by_age() {
        let now = Instant::now();
        let (mut before, mut after) = (Outbox::new(), Outbox::new());
        for (message, at) in [("a", 0), ("b", 10), ("c", 20)] {
            before.push(message, now + seconds(at));
        }
        let later = now + seconds(30);
        let (number, _) = before.ready(later).unwrap();
        let taken = before.take_all_but(Some(number), later);
        assert_eq!(taken, [(seconds(20), "b"), (seconds(10), "c")]);
        before.settle(number, Delivery::Taken, later);
        assert_eq!((before.next(), before.tally().sent), (None, 1));
        after.push("d", now + seconds(15));
        for (age, message) in taken {
            after.restore(message, later.checked_sub(age).unwrap());
        }
        let mut told = Vec::new();
        while let Some((number, message)) = after.ready(later) {
            told.push(message);
            after.settle(number, Delivery::Taken, later);
        }
        assert_eq!(told, ["b", "d", "c"]);
        assert_eq!(after.take_all_but(None, later), []);
    }

    #[test]
    fn a_receiver_that_hangs_keeps_the_newest_hundred() {
        let (now, mut outbox) = (Instant::now(), Outbox::new());
        outbox.push(0, now);
        let (number, _) = outbox.ready(now).unwrap();
        for message in 1..=10_000 {
            outbox.push(message, now);
        }
        // The one that is under way was dropped from the queue; its outcome takes no other with it.
        outbox.settle(number, Delivery::Taken, now);
        assert_eq!(outbox.waiting.len(), WAITING);
        assert_eq!(outbox.ready(now).map(|(_, message)| message), Some(9_901));
        assert_eq!(outbox.tally(), DeliveryTally { dropped: 9_901, ..DeliveryTally::default() });
    }
}
