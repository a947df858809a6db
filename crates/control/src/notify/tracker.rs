//! The decision what a receiver is reported, and when. Pure: the time is an argument.
//!
//! A condition (a server that is down) begins and ends; an occurrence (a panic) has no end. For each, a tracker keeps
//! the present state beside the state that the receiver knows, and a notification brings the second to the first. So a
//! flapping server can be kept quiet without a receiver that believes in a wrong state for longer than the rest time:
//!
//! | known | present | reported |
//! | --- | --- | --- |
//! | over | active | [`Begins`](LineState::Begins), once the rest time is over |
//! | active | over | [`Ends`](LineState::Ends), at once |
//! | over | over, with something untold | [`Happened`](LineState::Happened), once the rest time is over |
//! | active | active | nothing |
//!
//! Everything that becomes due within the group time of the first is one notification.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Alerts that are tracked at a time: a flood of names costs no more memory.
const TRACKED: usize = 4096;
/// The shortest time between two looks for settled alerts.
const SWEEP: Duration = Duration::from_secs(1);
/// Lines of one notification; further ones are counted.
const LINES: usize = 50;

/// The identity of an alert: its kind, and the server, certificate or limit that it concerns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AlertKey<K> {
    pub(crate) kind: K,
    pub(crate) about: Box<str>,
}

/// The times of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlertTimes {
    /// The time that a notification waits for others.
    pub(crate) group: Duration,
    /// The time within which an alert is not reported again.
    pub(crate) rest: Duration,
}

/// A message to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification<K> {
    /// In the order of kinds and names.
    pub(crate) lines: Vec<NotificationLine<K>>,
    /// Alerts that had no line, or no place in the tracker.
    pub(crate) more: u64,
}

/// One alert of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotificationLine<K> {
    pub(crate) key: AlertKey<K>,
    pub(crate) state: LineState,
    /// The number of beginnings or occurrences since the latest report; at least 1.
    pub(crate) times: u64,
    /// The latest reason, for people.
    pub(crate) says: String,
}

/// The news of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineState {
    /// The condition holds now.
    Begins,
    /// The condition that was reported is over.
    Ends,
    /// An occurrence, or a condition that is over before it was reported.
    Happened,
    /// A message that an operator has asked for.
    Test,
}

/// An alert that another process goes on with: reported, resting, or not told yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CarriedAlert<K> {
    pub(crate) key: AlertKey<K>,
    /// Set if the condition holds.
    pub(crate) active: bool,
    /// Set if the receiver knows it as active.
    pub(crate) reported: bool,
    /// Beginnings or occurrences that the receiver does not know.
    pub(crate) untold: u64,
    /// The time for which the receiver has not known of the present state.
    pub(crate) differs: Option<Duration>,
    /// The rest time that is left.
    pub(crate) rests: Duration,
    pub(crate) says: String,
}

/// The alerts of one receiver.
#[derive(Debug)]
pub(crate) struct AlertTracker<K> {
    times: AlertTimes,
    alerts: HashMap<AlertKey<K>, Tracked>,
    /// Alerts without a place, and since when.
    beyond: Option<(u64, Instant)>,
    /// Conditions without a place at the latest look, by kind.
    homeless: HashMap<K, u64>,
    /// The time at which settled alerts were dropped to make room.
    swept: Option<Instant>,
    /// Set if it goes on where another process has ended.
    resumed: bool,
}

#[derive(Debug, Default)]
struct Tracked {
    active: bool,
    reported: bool,
    rests_until: Option<Instant>,
    /// Beginnings or occurrences since the last line.
    untold: u64,
    /// Those of them that another process was given.
    given: u64,
    /// The time at which the known state began to differ from the present one.
    differs_since: Option<Instant>,
    says: String,
}

impl Tracked {
    /// The next line, and when it may be reported; nothing where the receiver knows all.
    fn due(&self) -> Option<(LineState, Instant)> {
        let since = self.differs_since?;
        let rested = self.rests_until.map_or(since, |until| until.max(since));
        match (self.reported, self.active) {
            (true, true) => None,
            (true, false) => Some((LineState::Ends, since)),
            (false, true) => Some((LineState::Begins, rested)),
            (false, false) => (self.untold > 0).then_some((LineState::Happened, rested)),
        }
    }

    /// Without anything to tell or to remember.
    fn is_settled(&self, now: Instant) -> bool {
        let is_resting = self.rests_until.is_some_and(|until| until > now);
        !self.active && !self.reported && self.untold == 0 && !is_resting
    }

    fn begin(&mut self, says: &str, now: Instant) {
        if !self.active {
            self.active = true;
            self.untold = self.untold.saturating_add(1);
            says.clone_into(&mut self.says);
            self.changed(now);
        }
    }

    fn changed(&mut self, now: Instant) {
        self.differs_since.get_or_insert(now);
        if self.due().is_none() {
            self.differs_since = None;
        }
    }

    /// Takes the number of beginnings that a line tells.
    fn tell(&mut self, state: LineState, rest: Duration, now: Instant) -> u64 {
        self.reported = state == LineState::Begins;
        self.differs_since = None;
        if state != LineState::Ends {
            self.rests_until = now.checked_add(rest);
        }
        self.given = 0;
        std::mem::take(&mut self.untold).max(1)
    }
}

impl<K: Copy + Ord + Hash> AlertTracker<K> {
    /// A tracker of a receiver that knows nothing.
    pub(crate) fn new(times: AlertTimes) -> Self {
        Self {
            times,
            alerts: HashMap::new(),
            beyond: None,
            homeless: HashMap::new(),
            swept: None,
            resumed: false,
        }
    }

    /// Takes new times; what was reported stays reported.
    pub(crate) fn set_times(&mut self, times: AlertTimes) {
        self.times = times;
    }

    /// Forgets the kinds that are not reported any more.
    pub(crate) fn keep_kinds(&mut self, keep: impl Fn(K) -> bool) {
        self.alerts.retain(|key, _| keep(key.kind));
        self.homeless.retain(|kind, _| keep(*kind));
    }

    /// A condition holds. Does nothing where it held before.
    #[cfg(test)]
    pub(crate) fn begin(&mut self, key: &AlertKey<K>, says: &str, now: Instant) {
        match self.place(key, now) {
            Some(alert) => alert.begin(says, now),
            None => self.count_beyond(1, now),
        }
    }

    /// A condition is over. Does nothing where it was over before.
    pub(crate) fn end(&mut self, key: &AlertKey<K>, says: &str, now: Instant) {
        if let Some(alert) = self.alerts.get_mut(key).filter(|alert| alert.active) {
            alert.active = false;
            says.clone_into(&mut alert.says);
            alert.changed(now);
        }
    }

    /// Something without an end happened `times` times.
    pub(crate) fn occur(&mut self, key: &AlertKey<K>, says: &str, times: u64, now: Instant) {
        if times == 0 {
            return;
        }
        match self.place(key, now) {
            Some(alert) => {
                alert.untold = alert.untold.saturating_add(times);
                says.clone_into(&mut alert.says);
                alert.changed(now);
            }
            None => self.count_beyond(times, now),
        }
    }

    /// The conditions of a kind that hold now are exactly these, each with its reason.
    pub(crate) fn observe(&mut self, kind: K, present: &[(Box<str>, String)], over: &str, now: Instant) {
        let names: HashSet<&str> = present.iter().map(|(about, _)| &**about).collect();
        let holds = |key: &AlertKey<K>| names.contains(&*key.about);
        let ended = self.alerts.iter().filter(|(key, alert)| key.kind == kind && alert.active && !holds(key));
        let ended: Vec<AlertKey<K>> = ended.map(|(key, _)| key.clone()).collect();
        for key in &ended {
            self.end(key, over, now);
        }
        self.observe_some(kind, present, now);
    }

    /// Conditions of a kind hold now, perhaps among others: what the process before has seen of recent events, this one
    /// cannot tell yet.
    pub(crate) fn observe_some(&mut self, kind: K, present: &[(Box<str>, String)], now: Instant) {
        let mut homeless = 0;
        for (about, says) in present {
            let key = AlertKey { kind, about: about.clone() };
            match self.place(&key, now) {
                Some(alert) => alert.begin(says, now),
                None => homeless += 1,
            }
        }
        // The same ones are met again at each look.
        let before = self.homeless.insert(kind, homeless).unwrap_or(0);
        self.count_beyond(homeless.saturating_sub(before), now);
    }

    /// Forgets the alerts of a kind about things that do not exist any more, or are not meant to work: their end would be no news.
    pub(crate) fn forget(&mut self, kind: K, is_gone: impl Fn(&str) -> bool) {
        self.alerts.retain(|key, _| key.kind != kind || !is_gone(&key.about));
    }

    /// The time at which [`take`](Self::take) will have a notification, if nothing else happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        let alerts = self.alerts.values().filter_map(|alert| alert.due().map(|(_, at)| at));
        let first = alerts.chain(self.beyond.map(|(_, since)| since)).min()?;
        first.checked_add(self.times.group)
    }

    /// The notification that is due, if one is.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Notification<K>> {
        self.next().filter(|next| *next <= now)?;
        let mut due: Vec<(AlertKey<K>, LineState)> = Vec::new();
        for (key, alert) in &self.alerts {
            due.extend(alert.due().filter(|(_, at)| *at <= now).map(|(state, _)| (key.clone(), state)));
        }
        due.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut more = self.beyond.take().map_or(0, |(count, _)| count);
        let mut lines = Vec::with_capacity(due.len().min(LINES));
        for (key, state) in due {
            let Some(alert) = self.alerts.get_mut(&key) else { continue };
            let times = alert.tell(state, self.times.rest, now);
            if lines.len() < LINES {
                lines.push(NotificationLine { key, state, times, says: alert.says.clone() });
            } else {
                more += 1;
            }
        }
        self.alerts.retain(|_, alert| !alert.is_settled(now));
        Some(Notification { lines, more })
    }

    /// The knowledge by which another process reports nothing twice and forgets nothing.
    pub(crate) fn give(&mut self, now: Instant) -> Vec<CarriedAlert<K>> {
        self.alerts.values_mut().for_each(|alert| alert.given = alert.untold);
        let known = self.alerts.iter().filter(|(_, alert)| !alert.is_settled(now));
        let carried = known.map(|(key, alert)| CarriedAlert {
            key: key.clone(),
            active: alert.active,
            reported: alert.reported,
            untold: alert.untold,
            differs: alert.differs_since.map(|since| now.saturating_duration_since(since)),
            rests: alert.rests_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)),
            says: alert.says.clone(),
        });
        carried.collect()
    }

    /// The occurrences since [`give`](Self::give), which the other process does not know: a last notification. It sees for
    /// itself what still holds.
    pub(crate) fn take_rest(&mut self) -> Option<Notification<K>> {
        let rest = self.alerts.iter().filter(|(_, alert)| !alert.active && alert.untold > alert.given);
        let lines = rest.map(|(key, alert)| NotificationLine {
            key: key.clone(),
            state: LineState::Happened,
            times: alert.untold - alert.given,
            says: alert.says.clone(),
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort_by(|one, other| one.key.cmp(&other.key));
        let more = lines.len().saturating_sub(LINES) as u64;
        lines.truncate(LINES);
        self.alerts.clear();
        (!lines.is_empty()).then_some(Notification { lines, more })
    }

    /// Goes on where another process has ended. A condition that is over meanwhile ends at the next look.
    pub(crate) fn resume(&mut self, carried: Vec<CarriedAlert<K>>, now: Instant) {
        self.resumed |= !carried.is_empty();
        for CarriedAlert { key, active, reported, untold, differs, rests, says } in carried {
            let Some(alert) = self.place(&key, now) else { continue };
            (alert.active, alert.reported, alert.untold, alert.says) = (active, reported, untold, says);
            alert.rests_until = now.checked_add(rests);
            alert.differs_since = differs.map(|age| now.checked_sub(age).unwrap_or(now));
        }
    }

    /// Returns `true` if some alerts were reported by another process.
    pub(crate) fn has_resumed(&self) -> bool {
        self.resumed
    }

    /// The place of an alert, if there is one.
    fn place(&mut self, key: &AlertKey<K>, now: Instant) -> Option<&mut Tracked> {
        if self.alerts.len() >= TRACKED && !self.alerts.contains_key(key) {
            // A flood must not have every name look through all.
            if self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
                self.alerts.retain(|_, alert| !alert.is_settled(now));
                self.swept = Some(now);
            }
            if self.alerts.len() >= TRACKED {
                return None;
            }
        }
        Some(self.alerts.entry(key.clone()).or_default())
    }

    /// Counts alerts without a place.
    fn count_beyond(&mut self, count: u64, now: Instant) {
        if count > 0 {
            let beyond = self.beyond.get_or_insert((0, now));
            beyond.0 = beyond.0.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests;
