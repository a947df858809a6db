//! Certificates that are ordered when the first client asks for their name: how fast, and how long they are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Whether a certificate was given to clients since the last look. Clones are one mark.
#[derive(Clone, Debug, Default)]
pub struct UseMark(Arc<AtomicBool>);

impl UseMark {
    /// A client gets the certificate. Costs a load while nobody has looked since the last client.
    pub fn set(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a client got it since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl PartialEq for UseMark {
    /// Whether they are one mark.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for UseMark {}

/// Whether a certificate of this life is worth a renewal at `now`: a client got it within the last third of a life.
///
/// What was noted after `now` was noted before the clock was set back, and counts.
pub fn is_used(last: SystemTime, not_before: SystemTime, not_after: SystemTime, now: SystemTime) -> bool {
    let life = not_after.duration_since(not_before).unwrap_or_default();
    now.duration_since(last).map_or(true, |since| since <= life / 3)
}

/// A limit on how often something begins, with a burst of as much as one span allows.
#[derive(Clone, Debug)]
pub struct Pace {
    count: u32,
    per: Duration,
    /// What may begin now, in parts of one.
    left: f64,
    at: Instant,
}

impl Pace {
    /// At most `count` in each `per`.
    pub fn new(count: u32, per: Duration, now: Instant) -> Self {
        Self { count, per, left: f64::from(count), at: now }
    }

    /// Whether it is a limit of so many in each `per`.
    pub fn is_of(&self, count: u32, per: Duration) -> bool {
        self.count == count && self.per == per
    }

    /// Whether one more may begin now, which then counts.
    pub fn admit(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at);
        self.at = now;
        let more = f64::from(self.count) * since.as_secs_f64() / self.per.as_secs_f64();
        self.left = (self.left + more).min(f64::from(self.count));
        let admitted = self.left >= 1.0;
        if admitted {
            self.left -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_span_has_more_than_twice_what_it_allows_and_the_long_run_no_more(
            count in 1..50u32,
            pauses in proptest::collection::vec(0..5000u64, 1..400),
        ) {
            let (begun, per) = (Instant::now(), Duration::from_secs(60));
            let mut pace = Pace::new(count, per, begun);
            let (mut now, mut admitted) = (begun, 0u32);
            for pause in pauses {
                now += Duration::from_millis(pause);
                admitted += u32::from(pace.admit(now));
                let spans = (now - begun).as_secs_f64() / per.as_secs_f64();
                prop_assert!(f64::from(admitted) <= f64::from(count) * (1.0 + spans) + 0.001);
            }
        }
    }

    #[test]
    fn a_burst_is_what_one_span_allows() {
        let begun = Instant::now();
        let mut pace = Pace::new(3, Duration::from_secs(3600), begun);
        assert_eq!((0..9).filter(|_| pace.admit(begun)).count(), 3);
        assert!(!pace.admit(begun + Duration::from_secs(1100)));
        assert!(pace.admit(begun + Duration::from_secs(1201)));
        assert!(!pace.admit(begun));
    }

    #[test]
    fn what_nobody_asks_for_is_not_renewed() {
        let at = |hours: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600);
        let used = |last, now| is_used(at(last), at(0), at(90), at(now));
        assert!(used(30, 60) && used(60, 60) && used(40, 70));
        assert!(!used(29, 60) && !used(0, 60));
        // The clock was set back.
        assert!(used(8000, 60));
    }

    #[test]
    fn a_mark_is_taken_once_and_clones_are_one() {
        let mark = UseMark::default();
        let other = mark.clone();
        assert!(!mark.take());
        other.set();
        other.set();
        assert!(mark.take() && !other.take());
        assert!(mark == other && mark != UseMark::default());
    }
}
