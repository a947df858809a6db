//! Times that bound a connection with requests, and the requests on it, whatever protocol it speaks. Each protocol looks at
//! them with one [`DeadlineTimer`], at intervals of [`Deadlines::tick`] at most while something is under way.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use offramp_net::clock::{COARSE_MS, coarse_ms};
use offramp_observe::Cause;
use tokio::time::{Instant, Sleep};

use super::record::RequestRecord;
use crate::snapshot::http::RequestLimits;

/// Maximum time between two looks; also the time after which a quiet client keeps no memory.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Minimum time between two looks at what is quiet: the coarse clock lags, and a bound would be looked at too early again
/// and again.
pub(super) const SOONEST: Duration = Duration::from_millis(COARSE_MS);

/// The time before it is due at which a timer is asked again, in milliseconds: longer than the coarse clock lags.
const EARLY: u64 = 5 * COARSE_MS;

/// Bounds of a connection in time.
#[derive(Clone, Copy)]
pub(super) struct Deadlines {
    /// From the first byte of a head to its last.
    pub(super) header: Duration,
    /// Between a response and the next request.
    pub(super) keepalive: Duration,
    /// Without a byte in either direction.
    pub(super) idle: Duration,
    /// Time between two looks at the others: none of them is shorter.
    pub(super) tick: Duration,
}

impl Deadlines {
    pub(super) fn new(limits: &RequestLimits, idle: Duration) -> Self {
        let (header, keepalive) = (limits.request_header_timeout, limits.keepalive_timeout);
        Self { header, keepalive, idle, tick: TICK.min(header).min(keepalive).min(idle) }
    }

    /// The reason to end a request at `now`, if there is one: it is overdue, or nothing has moved for too long. `moved` is the
    /// time of the last byte of its connection, or 0 if others share that; both in milliseconds of the coarse clock.
    pub(super) fn end_of(&self, record: &RequestRecord, now: u64, moved: u64) -> Option<Cause> {
        if let Some(cause) = record.overdue() {
            return Some(cause);
        }
        let still = Duration::from_millis(now.saturating_sub(record.still_since()?.max(moved)));
        (still >= record.idle.get().unwrap_or(self.idle)).then_some(Cause::IdleTimeout)
    }
}

/// The result of a look at the deadlines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look<E> {
    /// One has passed.
    End(E),
    /// The next look is to come after this time.
    Again(Duration),
}

/// The timer of a connection or a tunnel. A request sets none: deadlines are looked at when the timer rings, and the look says
/// when the next one is to come.
pub(super) struct DeadlineTimer<'a> {
    alarm: Pin<&'a mut Sleep>,
    /// The time of the coarse clock at which it rings, once the runtime knows whom to wake.
    due: Option<u64>,
}

impl<'a> DeadlineTimer<'a> {
    pub(super) fn new(alarm: Pin<&'a mut Sleep>) -> Self {
        Self { alarm, due: None }
    }

    /// Sets another time for the next look.
    pub(super) fn reset(&mut self, deadline: Instant) {
        self.alarm.as_mut().reset(deadline);
        self.due = None;
    }

    /// Has `look` look if it is time. Ready with the end that it found, or with `None` if there is to be another look: what
    /// the look has changed is to be polled, and then this again. Always polled by the same task.
    pub(super) fn poll<E>(
        &mut self,
        cx: &mut Context<'_>,
        look: impl FnOnce() -> Look<E>,
    ) -> Poll<Option<E>> {
        // Asking the runtime costs more than the time of day.
        let now = coarse_ms();
        if self.due.is_some_and(|due| now + EARLY < due) {
            return Poll::Pending;
        }
        if self.alarm.as_mut().poll(cx).is_pending() {
            let left = self.alarm.deadline().saturating_duration_since(Instant::now());
            self.due = Some(now.saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2)));
            return Poll::Pending;
        }
        match look() {
            Look::End(end) => Poll::Ready(Some(end)),
            Look::Again(after) => {
                self.reset(Instant::now() + after);
                Poll::Ready(None)
            }
        }
    }

    /// The same where a look changes nothing that could go on.
    pub(super) fn poll_end<E>(&mut self, cx: &mut Context<'_>, mut look: impl FnMut() -> Look<E>) -> Poll<E> {
        loop {
            match self.poll(cx, &mut look) {
                Poll::Ready(Some(end)) => return Poll::Ready(end),
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn a_timer_looks_when_it_rings_until_there_is_an_end() {
        let begun = Instant::now();
        let mut looks = 0;
        let alarm = pin!(sleep(Duration::from_millis(20)));
        let mut timer = DeadlineTimer::new(alarm);
        let end = poll_fn(|cx| {
            timer.poll_end(cx, || {
                looks += 1;
                if looks < 3 { Look::Again(Duration::from_millis(20)) } else { Look::End("over") }
            })
        });
        assert_eq!(end.await, "over");
        assert_eq!(looks, 3);
        assert!(begun.elapsed() >= Duration::from_millis(60), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_timer_that_is_far_off_is_not_asked_and_one_that_was_set_anew_is() {
        let alarm = pin!(sleep(Duration::from_secs(3600)));
        let mut timer = DeadlineTimer::new(alarm);
        let cx = &mut Context::from_waker(Waker::noop());
        let never = || -> Look<()> { panic!("it is not time") };
        assert_eq!(timer.poll(cx, never), Poll::Pending);
        assert!(timer.due.is_some_and(|due| due > coarse_ms() + 3_500_000));
        assert_eq!(timer.poll(cx, never), Poll::Pending);
        timer.reset(Instant::now());
        let end = poll_fn(|cx| timer.poll(cx, || Look::End("over")));
        assert_eq!(end.await, Some("over"));
    }
}
