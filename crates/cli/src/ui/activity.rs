//! The time since the page was last used.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Frame, SizeHint};

/// Requests of the page: those being answered, and the end of the last one. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct PageActivity(Arc<Mutex<ActivityState>>);

#[derive(Debug)]
struct ActivityState {
    open: usize,
    last: Instant,
}

impl PageActivity {
    /// No request yet; the time runs from now on.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(ActivityState { open: 0, last: now })))
    }

    /// Counts a request until the result is dropped.
    pub(super) fn begin(&self) -> ActivityMark {
        self.lock().open += 1;
        ActivityMark(self.clone())
    }

    /// The time after which the page was unused for `linger`, if nothing comes; `None` if that is so already.
    pub(super) fn remaining(&self, linger: Duration, now: Instant) -> Option<Duration> {
        let state = self.lock();
        let since = if state.open > 0 { now } else { state.last };
        (since + linger).checked_duration_since(now).filter(|left| !left.is_zero())
    }

    fn lock(&self) -> MutexGuard<'_, ActivityState> {
        // Nothing in here panics with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct ActivityMark(PageActivity);

impl Drop for ActivityMark {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open -= 1;
        state.last = Instant::now();
    }
}

/// A body that counts as a request until it was sent.
pub(super) struct CountedBody<B> {
    pub(super) body: B,
    /// Resolves with the session of the browser, which ends a stream.
    pub(super) end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(super) _mark: Option<ActivityMark>,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            self.end = None;
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_stream_keeps_the_page_and_its_end_begins_the_time() {
        let (begun, minute) = (Instant::now(), Duration::from_secs(60));
        let activity = PageActivity::new(begun);
        assert_eq!(activity.remaining(minute, begun + minute / 2), Some(minute / 2));
        assert_eq!(activity.remaining(minute, begun + minute), None, "nobody has opened it");
        let (stream, other) = (activity.begin(), activity.begin());
        drop(other);
        let late = begun + 60 * minute;
        assert_eq!(activity.remaining(minute, late), Some(minute), "an hour later");
        drop(stream);
        assert!(activity.remaining(minute, Instant::now()).is_some());
        assert_eq!(activity.remaining(minute, late), None);
    }
}
