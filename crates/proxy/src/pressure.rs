//! The memory of the process: its bound, and measures while it is reached.
//!
//! The kernel kills a process that takes too much. Before that, no client is accepted (clients wait in the queue of
//! the socket), caches of files are emptied, connections of HTTP/2 get no more than a few requests each, responses
//! are not compressed, and batches for clients are small. What is open goes on.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use offramp_net::process;
use offramp_observe::Log;
use offramp_observe::process::resident_bytes;
use tokio::sync::Notify;

/// Interval at which the kernel is asked, if memory is bounded.
const LOOK: Duration = Duration::from_millis(100);
/// Interval at which free memory is given back while too much is held.
const GIVE_BACK: Duration = Duration::from_secs(1);
/// The shortest time between two warnings.
const SILENCE: Duration = Duration::from_secs(60);
/// Value of no bound.
const NONE: u64 = u64::MAX;

/// State of the memory of the process.
#[derive(Debug)]
pub struct Pressure {
    /// Bound in bytes; or [`NONE`].
    bound: AtomicU64,
    high: AtomicBool,
    changed: Notify,
}

/// Result of a look at the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PressureChange {
    /// The same as before.
    Same,
    /// It is too much from now on.
    High,
    /// It is not too much any more.
    Low,
}

impl Pressure {
    /// No bound yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (high, changed) = Default::default();
        Arc::new(Self { bound: NONE.into(), high, changed })
    }

    /// The process may hold so many bytes from now on.
    pub fn bound(&self, bytes: Option<u64>) {
        let bytes = bytes.unwrap_or(NONE);
        if self.bound.swap(bytes, Ordering::Relaxed) != bytes {
            self.changed.notify_one();
        }
    }

    /// Number of bytes that the process may hold, if it is bounded.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        Some(self.bound.load(Ordering::Relaxed)).filter(|bytes| *bytes != NONE)
    }

    /// Returns true if too much is held.
    #[must_use]
    pub fn is_high(&self) -> bool {
        self.high.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn set_high(&self, high: bool) {
        self.high.store(high, Ordering::Relaxed);
    }

    /// The process holds so many bytes. It has to give back a sixteenth of the bound before that is little: else it would
    /// accept and refuse in turn.
    fn look(&self, resident: u64) -> PressureChange {
        let bound = self.bound.load(Ordering::Relaxed);
        let was = self.is_high();
        let is = bound != NONE && resident >= if was { bound - bound / 16 } else { bound };
        self.high.store(is, Ordering::Relaxed);
        match (was, is) {
            (false, true) => PressureChange::High,
            (true, false) => PressureChange::Low,
            _ => PressureChange::Same,
        }
    }

    /// Looks at the memory of the process, for as long as it runs.
    pub async fn watch(&self, log: &Log) -> Infallible {
        let mut said: Option<Instant> = None;
        let mut gave_back: Option<Instant> = None;
        loop {
            let bound = self.bound.load(Ordering::Relaxed);
            let unbounded = bound == NONE && !self.is_high();
            // Where the kernel hides it there is no bound that could hold; the start says so.
            let resident = if unbounded { None } else { resident_bytes() };
            let now = Instant::now();
            let due =
                |last: Option<Instant>, pause| last.is_none_or(|last| now.duration_since(last) >= pause);
            let turn = resident.map_or(PressureChange::Same, |resident| self.look(resident));
            if self.is_high() && due(gave_back, GIVE_BACK) {
                gave_back = Some(now);
                process::give_memory_back();
            }
            match turn {
                PressureChange::High if due(said, SILENCE) => {
                    said = Some(now);
                    let fields = [
                        ("resident_bytes", resident.unwrap_or_default().into()),
                        ("process_memory_bytes", bound.into()),
                        ("advice", "raise `limits.process_memory`, or lower `limits.connections`".into()),
                    ];
                    log.warn("the process holds as much memory as it may: new connections wait", &fields);
                }
                PressureChange::Low => log.info(
                    "the process holds less memory than it may: new connections are accepted",
                    &[("resident_bytes", resident.unwrap_or_default().into())],
                ),
                PressureChange::High | PressureChange::Same => {}
            }
            if unbounded {
                self.changed.notified().await;
            } else {
                let _ = tokio::time::timeout(LOOK, self.changed.notified()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_high_at_the_bound_until_a_sixteenth_is_given_back() {
        let pressure = Pressure::new();
        assert_eq!((pressure.look(u64::MAX), pressure.is_high()), (PressureChange::Same, false));
        pressure.bound(Some(1600));
        for (resident, turn, high) in [
            (1599, PressureChange::Same, false),
            (1600, PressureChange::High, true),
            (1599, PressureChange::Same, true),
            (1500, PressureChange::Same, true),
            (1499, PressureChange::Low, false),
            (1599, PressureChange::Same, false),
            (5000, PressureChange::High, true),
        ] {
            assert_eq!((pressure.look(resident), pressure.is_high()), (turn, high), "{resident}");
        }
        pressure.bound(None);
        assert_eq!((pressure.look(5000), pressure.is_high()), (PressureChange::Low, false));
    }

    #[tokio::test]
    async fn the_process_is_looked_at_while_there_is_a_bound() {
        let pressure = Pressure::new();
        let log = Log::silent();
        let watched = async {
            for (bound, high) in [(Some(1), true), (None, false), (Some(1), true), (Some(1 << 50), false)] {
                pressure.bound(bound);
                while pressure.is_high() != high {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        tokio::select! {
            never = pressure.watch(&log) => match never {},
            outcome = tokio::time::timeout(Duration::from_secs(60), watched) => outcome.unwrap(),
        }
    }
}
