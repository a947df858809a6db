//! Frames that cost a client next to nothing and us more: counted.
//!
//! Each such frame takes from an allowance that grows with time, and window updates also with what was sent.
//! Honest clients stay far below.

use offramp_wire::http2::{Head, Kind, flag};

/// What may come in a burst.
const BURST: u32 = 1000;
/// What is added in a second.
const PER_SECOND: u32 = 200;
/// For so many bytes that were sent one window update is free.
const BYTES_PER_UPDATE: u64 = 512;
/// The most window updates that are saved up.
const MOST_UPDATES: u64 = 4096;
/// What a stream costs that has to be reset for a fault of the client's (CVE-2025-8671).
const FAULT: u32 = 10;

/// Counts the frames of one client.
#[derive(Debug)]
pub(super) struct Flood {
    /// What is left of the allowance.
    left: u32,
    /// When it last grew, in milliseconds.
    grown: u64,
    updates: u64,
}

impl Flood {
    /// Nothing has come yet, at `now` in milliseconds.
    pub(super) fn new(now: u64) -> Self {
        Self { left: BURST, grown: now, updates: 64 }
    }

    /// Bytes went to the client.
    pub(super) fn sent(&mut self, n: usize) {
        self.updates = (self.updates + n as u64 / BYTES_PER_UPDATE + 1).min(MOST_UPDATES);
    }

    /// Time has passed.
    pub(super) fn grow(&mut self, now: u64) {
        let passed = now.saturating_sub(self.grown);
        let more = passed * u64::from(PER_SECOND) / 1000;
        if more > 0 {
            self.left = u32::try_from(more).unwrap_or(BURST).saturating_add(self.left).min(BURST);
            self.grown = now;
        }
    }

    /// Takes the cost of a frame with so many bytes of content; `false` where it is too much.
    pub(super) fn frame(&mut self, head: &Head, content: usize) -> bool {
        let cost = match head.kind {
            // Empty ones that end nothing.
            Kind::Data if content == 0 && !head.has(flag::END_STREAM) => 1,
            Kind::Data | Kind::Headers => 0,
            Kind::ResetStream | Kind::Continuation => 2,
            Kind::Settings if !head.has(flag::ACK) => 4,
            Kind::WindowUpdate if self.updates > 0 => {
                self.updates -= 1;
                0
            }
            _ => 1,
        };
        self.take(cost)
    }

    /// Takes the cost of streams that were reset for faults of the client's.
    pub(super) fn faults(&mut self, n: u32) -> bool {
        self.take(n.saturating_mul(FAULT))
    }

    /// Takes the cost of streams beyond what a client could know to be allowed.
    pub(super) fn turned_away(&mut self, n: u32) -> bool {
        self.take(n)
    }

    fn take(&mut self, cost: u32) -> bool {
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: Kind, flags: u8) -> Head {
        Head { length: 0, kind, flags, stream: 1 }
    }

    fn flood(kind: Kind, flags: u8, content: usize) -> usize {
        let mut flood = Flood::new(0);
        (0..10_000).take_while(|_| flood.frame(&head(kind, flags), content)).count()
    }

    #[test]
    fn floods_end_and_honest_frames_do_not() {
        assert_eq!(flood(Kind::Ping, 0, 8), 1000);
        assert_eq!(flood(Kind::Settings, 0, 0), 250);
        assert_eq!(flood(Kind::Settings, flag::ACK, 0), 1000);
        assert_eq!(flood(Kind::ResetStream, 0, 4), 500);
        assert_eq!(flood(Kind::Continuation, 0, 4), 500);
        assert_eq!(flood(Kind::Data, 0, 0), 1000);
        assert_eq!(flood(Kind::WindowUpdate, 0, 4), 1064);
        assert_eq!(flood(Kind::Unknown, 0, 100), 1000);
        assert_eq!(flood(Kind::Data, 0, 20), 10_000);
        assert_eq!(flood(Kind::Data, flag::END_STREAM, 0), 10_000);
        assert_eq!(flood(Kind::Headers, 5, 20), 10_000);
        let mut flood = Flood::new(0);
        assert_eq!((0..1000).take_while(|_| flood.faults(1)).count(), 100);
    }

    #[test]
    fn the_allowance_comes_back() {
        let mut flood = Flood::new(0);
        let ping = head(Kind::Ping, 0);
        let mut at = |now| {
            flood.grow(now);
            flood.frame(&ping, 8)
        };
        assert!((0..1000).all(|_| at(0)));
        assert!(!at(0));
        assert!(at(10));
        assert!((0..1000).all(|n| at(1000 + n * 5)));
    }

    #[test]
    fn updates_are_free_for_what_was_sent() {
        let mut flood = Flood::new(0);
        let update = head(Kind::WindowUpdate, 0);
        for _ in 0..100_000 {
            flood.sent(16 * 1024);
            assert!(flood.frame(&update, 4) && flood.frame(&update, 4));
        }
    }
}
