//! Active checks: how servers are probed, and what a row of probes means.

use std::ops::RangeInclusive;
use std::time::Duration;

/// How the servers of a backend are probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What a probe is.
    pub kind: CheckKind,
    /// From the end of one probe to the next, spread by a tenth either way.
    pub interval: Duration,
    /// How long one probe may take.
    pub timeout: Duration,
    /// So many good probes in a row bring a server up; at least 1.
    pub rise: u32,
    /// So many bad ones in a row bring it down; at least 1.
    pub fall: u32,
    /// What comes before everything else: a PROXY header, where the servers demand one. Mostly empty.
    pub prologue: Box<[u8]>,
}

/// What a probe is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// A connection that is made and closed.
    Tcp,
    /// A GET that is answered with one of these statuses.
    Http {
        /// The target of the request, with its leading slash.
        path: Box<str>,
        /// The `Host`.
        host: Box<str>,
        /// The statuses that are good; any of these ranges will do.
        status: Box<[RangeInclusive<u16>]>,
    },
}

impl Default for Check {
    /// A connect every 5 seconds, as the configuration has it.
    fn default() -> Self {
        Check {
            kind: CheckKind::Tcp,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
            prologue: Box::default(),
        }
    }
}

/// What the probes of one server have shown. A server is up until probes say otherwise, so that a
/// start does not begin with an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    down: bool,
    /// Probes in a row that speak against the present state.
    against: u32,
}

/// A server's state has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is asked again from now on.
    Up,
    /// It is not asked any more.
    Down,
}

impl Probed {
    pub(super) const fn of(down: bool, against: u32) -> Self {
        Probed { down, against }
    }

    pub(super) const fn against(&self) -> u32 {
        self.against
    }

    /// Whether the server is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Takes note of a probe.
    pub fn note(&mut self, good: bool, check: &Check) -> Option<Change> {
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
        Some(if self.down { Change::Down } else { Change::Up })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn three_strikes_and_two_good_ones() {
        let check = Check::default();
        let mut probed = Probed::default();
        let mut changes = Vec::new();
        for (at, good) in "--+---+-++---".chars().map(|sign| sign == '+').enumerate() {
            changes.extend(probed.note(good, &check).map(|change| (at, change)));
        }
        assert_eq!(changes, [(5, Change::Down), (9, Change::Up), (12, Change::Down)]);
        assert!(probed.is_down());
    }

    proptest! {
        /// The state changes exactly where the last `rise` or `fall` probes agree against it.
        #[test]
        fn rows_decide(probes in prop::collection::vec(any::<bool>(), 0..80), rise in 1u32..5, fall in 1u32..5) {
            let check = Check { rise, fall, ..Check::default() };
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
