//! Receive window of a response: the bytes that the server may send before they are read.
//!
//! It begins with the size of a first read. A longer response gets [`USUAL`], which suffices for a near server. Over
//! a longer path the connection detects that the window limits the server
//! ([`Event::Stalled`](offramp_http::h2::Event::Stalled)), and reports the size that the path needs. The caller
//! decides how much of that is allowed, as a client that stops reading keeps it in memory.

use super::CONFIG;

/// Window of a long response that needs no permission of the caller, in bytes.
pub(super) const USUAL: u32 = 256 * 1024;
/// Initial window of a stream, in bytes.
const FIRST: u32 = CONFIG.stream_window;

/// Bytes of a response that an HTTP/2 server may send before they are read, beyond
/// [`FIRST_READ`](crate::FIRST_READ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAhead {
    /// Bytes that the server may send ahead now.
    pub allowed: usize,
    /// Bytes that its path needs.
    pub needed: usize,
}

/// Receive window of one response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseWindow {
    /// Size granted to the server, the maximum that the caller allows, and the size that the path needs.
    given: u32,
    most: u32,
    needed: u32,
    /// Bytes of the response that were consumed.
    taken: usize,
}

impl ResponseWindow {
    /// Window of a response that has not begun.
    pub(super) const fn new() -> Self {
        Self { given: FIRST, most: USUAL, needed: USUAL, taken: 0 }
    }

    /// Sets the maximum size; the initial one is granted in any case.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = u32::try_from(most).unwrap_or(u32::MAX);
    }

    /// Returns true if a response with `left` bytes to come needs more than the initial window. One of unknown
    /// length that may be small does not: each message of a gRPC call would cost a frame more.
    pub(super) fn is_long(&self, left: Option<u64>) -> bool {
        left.map_or(self.taken >= FIRST as usize / 2, |left| left > FIRST.into())
    }

    /// Bytes beyond the initial window that are allowed and needed; `None` where that suffices.
    pub(super) fn ahead(&self, left: Option<u64>) -> Option<SentAhead> {
        let beyond = |window: u32| (window - FIRST) as usize;
        (self.given > FIRST || self.is_long(left)).then(|| SentAhead {
            allowed: beyond(self.given),
            needed: beyond(self.needed.min(rest(left)).max(FIRST)),
        })
    }

    /// Records `n` consumed bytes, with `waits` bytes received and not consumed. If those exceed half of a
    /// window that has grown, the caller is slower than the server, and half of the window suffices.
    pub(super) fn took(&mut self, n: usize, waits: usize) {
        self.taken = self.taken.saturating_add(n);
        if waits > self.given as usize / 2 && self.needed > USUAL {
            self.needed = (self.given / 2).clamp(USUAL, self.needed);
        }
    }

    /// Records that the path needs a window of `needed` bytes.
    pub(super) fn stalls(&mut self, needed: u32) {
        self.needed = self.needed.max(needed);
    }

    /// New size of the window, if it is to change.
    pub(super) fn other(&self, left: Option<u64>) -> Option<u32> {
        self.ahead(left)?;
        let wanted = self.needed.min(self.most).min(rest(left)).max(FIRST);
        (wanted != self.given).then_some(wanted)
    }

    /// Records the size that was granted.
    pub(super) fn set(&mut self, given: u32) {
        self.given = given;
    }
}

/// Rest of a response, as far as a window can cover it.
fn rest(left: Option<u64>) -> u32 {
    left.map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    /// Grants the window that is wanted; returns its size.
    fn settle(window: &mut ResponseWindow, left: Option<u64>) -> u32 {
        if let Some(wanted) = window.other(left) {
            window.set(wanted);
        }
        window.given
    }

    #[test]
    fn long_responses_get_the_usual_window_and_short_ones_their_first() {
        for (left, wanted) in
            [(Some(0), FIRST), (Some(8192), FIRST), (Some(100_000), 100_000), (Some(1 << 40), USUAL)]
        {
            assert_eq!(settle(&mut ResponseWindow::new(), left), wanted, "{left:?}");
        }
        let mut window = ResponseWindow::new();
        assert_eq!((settle(&mut window, None), window.ahead(None)), (FIRST, None));
        window.took(5000, 0);
        assert_eq!(settle(&mut window, None), USUAL);
    }

    #[test]
    fn windows_grow_as_far_as_they_may_and_shrink_behind_a_slow_user() {
        let (mut window, left) = (ResponseWindow::new(), Some(1 << 30));
        window.limit(USUAL as usize);
        settle(&mut window, left);
        // The first window, of which the path needs more, is smaller than the usual one.
        window.stalls(16 * FIRST);
        assert_eq!(settle(&mut window, left), USUAL);
        window.stalls(4 * MIB);
        // The caller has not allowed it yet.
        assert_eq!(settle(&mut window, left), USUAL);
        let needed = (4 * MIB - FIRST) as usize;
        assert_eq!(window.ahead(left), Some(SentAhead { allowed: (USUAL - FIRST) as usize, needed }));
        window.limit(3 << 20);
        assert_eq!(settle(&mut window, left), 3 * MIB);
        // A caller that keeps up changes nothing.
        window.took(1 << 20, 1 << 20);
        assert_eq!(settle(&mut window, left), 3 * MIB);
        for wanted in [3 * MIB / 2, 3 * MIB / 4, 3 * MIB / 8, USUAL, USUAL] {
            window.took(1 << 14, 2 << 20);
            assert_eq!(settle(&mut window, left), wanted);
        }
        // The rest of the response bounds the window.
        window.stalls(4 * MIB);
        window.limit(usize::MAX);
        assert_eq!(settle(&mut window, Some(1 << 19)), 1 << 19);
    }
}
