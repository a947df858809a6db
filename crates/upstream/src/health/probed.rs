//! Active checks: their configuration, and the state machine over results.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Configuration of the probes of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSettings {
    /// Type of the probes.
    pub kind: CheckKind,
    /// Time from the end of one probe to the next, spread by a tenth either way.
    pub interval: Duration,
    /// Timeout of one probe.
    pub timeout: Duration,
    /// Consecutive good probes that mark a server as up; at least 1.
    pub rise: u32,
    /// Consecutive bad probes that mark a server as down; at least 1.
    pub fall: u32,
    /// Bytes before everything else: a PROXY header, if the servers require one. Usually empty.
    pub prologue: Box<[u8]>,
}

/// Type of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// A connection that is made and closed.
    Tcp,
    /// A GET with one of these statuses in response.
    Http {
        /// Target of the request, with its leading slash.
        path: Box<str>,
        /// Value of `Host` in the request.
        host: Box<str>,
        /// Ranges of good statuses.
        status: Box<[RangeInclusive<u16>]>,
    },
}

impl Default for ProbeSettings {
    /// A connect every 5 seconds, the default of the configuration.
    fn default() -> Self {
        ProbeSettings {
            kind: CheckKind::Tcp,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
            prologue: Box::default(),
        }
    }
}

/// State of one server by its probes. A server is up until probes say otherwise, so that a start does not
/// begin with an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    down: bool,
    /// Consecutive probes that contradict the current state.
    against: u32,
}

/// A change of a server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// The server gets requests from now on.
    Up,
    /// The server gets no requests any more.
    Down,
}

impl Probed {
    pub(super) const fn of(down: bool, against: u32) -> Self {
        Probed { down, against }
    }

    pub(super) const fn against(&self) -> u32 {
        self.against
    }

    /// Returns true if the server is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Records the result of a probe; returns a change of the state.
    pub fn note(&mut self, good: bool, check: &ProbeSettings) -> Option<HealthChange> {
        if good != self.down {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if self.down { check.rise } else { check.fall };
        if self.against < needed {
            return None;
        }
        *self = Probed { down: !self.down, against: 0 };
        Some(if self.down { HealthChange::Down } else { HealthChange::Up })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fall_and_rise_are_counted() {
        let check = ProbeSettings::default();
        let mut probed = Probed::default();
        let mut changes = Vec::new();
        for (at, good) in "--+---+-++---".chars().map(|sign| sign == '+').enumerate() {
            changes.extend(probed.note(good, &check).map(|change| (at, change)));
        }
        assert_eq!(changes, [(5, HealthChange::Down), (9, HealthChange::Up), (12, HealthChange::Down)]);
        assert!(probed.is_down());
    }

    proptest! {
        /// The state changes exactly when the last `rise` or `fall` probes contradict it.
        #[test]
        fn rows_decide(probes in prop::collection::vec(any::<bool>(), 0..80), rise in 1u32..5, fall in 1u32..5) {
            let check = ProbeSettings { rise, fall, ..ProbeSettings::default() };
            let mut probed = Probed::default();
            let mut since = 0;
            for at in 0..probes.len() {
                let needed = if probed.is_down() { rise } else { fall } as usize;
                let row = probes[since..=at].iter().rev().take_while(|good| **good == probed.is_down()).count();
                let change = probed.note(probes[at], &check);
                prop_assert_eq!(change.is_some(), row >= needed);
                if change.is_some() { since = at + 1; }
            }
        }
    }
}
