//! Certificates on demand, ordered when the first client asks for a name: the rate of orders and the
//! retention.

use std::time::{Duration, Instant, SystemTime};

/// Returns `true` if a certificate with this validity should be renewed at `now`: a client got it within the
/// last third of a lifetime.
///
/// Uses recorded after `now` date from before the clock was set back, and count.
pub fn is_used(last: SystemTime, not_before: SystemTime, not_after: SystemTime, now: SystemTime) -> bool {
    let life = not_after.duration_since(not_before).unwrap_or_default();
    now.duration_since(last).map_or(true, |since| since <= life / 3)
}

/// A rate limit with a burst of one period's allowance.
#[derive(Clone, Debug)]
pub struct RateLimit {
    count: u32,
    per: Duration,
    /// The remaining allowance, including fractions.
    left: f64,
    at: Instant,
}

impl RateLimit {
    /// A limit of `count` per period `per`.
    pub fn new(count: u32, per: Duration, now: Instant) -> Self {
        Self { count, per, left: f64::from(count), at: now }
    }

    /// Returns `true` if this is the limit of `count` per `per`.
    pub fn is_of(&self, count: u32, per: Duration) -> bool {
        self.count == count && self.per == per
    }

    /// The allowance at `now`, including fractions.
    pub fn left(&self, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at);
        let more = f64::from(self.count) * since.as_secs_f64() / self.per.as_secs_f64();
        (self.left + more).min(f64::from(self.count))
    }

    /// Takes one from the allowance; returns `false` if nothing is left.
    pub fn admit(&mut self, now: Instant) -> bool {
        self.left = self.left(now);
        self.at = now;
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
            let mut pace = RateLimit::new(count, per, begun);
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
        let mut pace = RateLimit::new(3, Duration::from_secs(3600), begun);
        assert_eq!((0..9).filter(|_| pace.admit(begun)).count(), 3);
        assert!(!pace.admit(begun + Duration::from_secs(1100)));
        assert!(pace.admit(begun + Duration::from_secs(1201)));
        assert!(!pace.admit(begun));
    }

    #[test]
    fn unused_certificates_are_not_renewed() {
        let at = |hours: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600);
        let used = |last, now| is_used(at(last), at(0), at(90), at(now));
        assert!(used(30, 60) && used(60, 60) && used(40, 70));
        assert!(!used(29, 60) && !used(0, 60));
        // The clock was set back.
        assert!(used(8000, 60));
    }
}
