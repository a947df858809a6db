//! Accounting of frames that cost their sender next to nothing and the receiver more, for clients and servers
//! alike.
//!
//! Each such frame must be paid for. Time pays for some. Data pays for the frames that it triggers, in either
//! direction: gRPC libraries send a PING and one or two WINDOW_UPDATE for each DATA frame, to measure the
//! connection. A response pays for one RST_STREAM, since a client may cancel what it has begun to read; so
//! does a request, which a server may refuse. A peer that sends nothing else gets the allowance of time, and
//! no more.

use super::{FrameHeader, Kind, flag};

/// Frames that time pays for in a burst.
const BURST: u64 = 1000;
/// Frames that time pays for per second.
const PER_SECOND: u64 = 200;
/// Bytes of data that pay for one frame.
const BYTES: u64 = 512;
/// Frames that a DATA frame pays for besides its bytes: WINDOW_UPDATE for stream and connection, and a PING.
const PER_DATA: u64 = 3;
/// Maximum frames that data pays for in advance: the replies to a window of a few MiB, which may arrive all
/// at once.
const MOST_EARNED: u64 = 8192;
/// Maximum resets that responses pay for in advance.
const MOST_ANSWERS: u32 = 1024;
/// Cost of a stream reset because of a violation by the peer (CVE-2025-8671).
const FAULT: u64 = 10;
/// Minimum size of a CONTINUATION that is free: its fields need it. Header blocks have a bound of their own.
const CONTINUATION: usize = 1024;
/// Unit of the allowance: a thousandth of a frame, so that a millisecond yields a whole number.
const FRAME: u64 = 1000;

/// Traffic of a connection that pays for control frames.
#[derive(Debug, Default)]
pub struct Traffic {
    frames: u64,
    bytes: u64,
    answers: u32,
}

impl Traffic {
    /// Adds a DATA frame with `bytes` bytes of content, in either direction.
    pub fn data(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// Adds a DATA frame that is short because the receiver's window was: it pays for its bytes only, or
    /// windows of one byte would pay for themselves.
    pub fn dribble(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Adds the head of a response sent, or of a request.
    pub fn answer(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }
}

/// Account of a peer's control frames.
#[derive(Debug)]
pub struct Flood {
    /// Remaining allowance of time, in thousandths of a frame.
    left: u64,
    /// Time of the last allowance, in milliseconds.
    grown: u64,
    /// Advance payment of data, in bytes.
    earned: u64,
    /// Responses, or requests, that have not paid for a reset yet.
    answers: u32,
}

impl Flood {
    /// Starts at `now`, in milliseconds, with the burst.
    pub fn new(now: u64) -> Self {
        Self { left: BURST * FRAME, grown: now, earned: 0, answers: 0 }
    }

    /// Adds the payment of `traffic`.
    pub fn earn(&mut self, traffic: &Traffic) {
        let more = traffic.frames * PER_DATA * BYTES + traffic.bytes;
        self.earned = self.earned.saturating_add(more).min(MOST_EARNED * BYTES);
        self.answers = self.answers.saturating_add(traffic.answers).min(MOST_ANSWERS);
    }

    /// Adds the allowance of the time passed.
    pub fn grow(&mut self, now: u64) {
        let passed = now.saturating_sub(self.grown);
        self.left = passed.saturating_mul(PER_SECOND * FRAME / 1000).saturating_add(self.left);
        self.left = self.left.min(BURST * FRAME);
        self.grown = self.grown.max(now);
    }

    /// Charges a frame with `content` bytes of content; returns false if the account is empty.
    pub fn frame(&mut self, head: &FrameHeader, content: usize) -> bool {
        let cost = match head.kind {
            // Empty frames without END_STREAM.
            Kind::Data if content == 0 && !head.has(flag::END_STREAM) => 1,
            Kind::Data | Kind::Headers => 0,
            Kind::Continuation if content >= CONTINUATION => 0,
            Kind::ResetStream if self.answers > 0 => {
                self.answers -= 1;
                0
            }
            Kind::ResetStream | Kind::Continuation => 2,
            Kind::Settings if !head.has(flag::ACK) => 4,
            Kind::WindowUpdate | Kind::Ping if self.earned >= BYTES => {
                self.earned -= BYTES;
                0
            }
            _ => 1,
        };
        self.take(cost)
    }

    /// Charges a reset before the response had begun, which responses to other requests do not pay for.
    pub fn early_reset(&mut self) -> bool {
        self.take(2)
    }

    /// Charges `n` streams reset because of violations by the peer.
    pub fn faults(&mut self, n: u32) -> bool {
        self.take(u64::from(n) * FAULT)
    }

    /// Charges `n` streams beyond a maximum that the peer could know.
    pub fn turned_away(&mut self, n: u32) -> bool {
        self.take(n.into())
    }

    fn take(&mut self, frames: u64) -> bool {
        match self.left.checked_sub(frames * FRAME) {
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

    fn head(kind: Kind, flags: u8) -> FrameHeader {
        FrameHeader { length: 0, kind, flags, stream: 1 }
    }

    fn flood(kind: Kind, flags: u8, content: usize) -> usize {
        let mut flood = Flood::new(0);
        (0..10_000).take_while(|_| flood.frame(&head(kind, flags), content)).count()
    }

    fn data(bytes: usize) -> Traffic {
        let mut traffic = Traffic::default();
        traffic.data(bytes);
        traffic
    }

    #[test]
    fn responses_do_not_pay_for_resets_that_came_before_one() {
        let mut flood = Flood::new(0);
        let mut traffic = Traffic::default();
        (0..1000).for_each(|_| traffic.answer());
        flood.earn(&traffic);
        assert_eq!((0..10_000).take_while(|_| flood.early_reset()).count(), 500);
    }

    #[test]
    fn floods_end_the_connection_and_ordinary_frames_do_not() {
        assert_eq!(flood(Kind::Ping, 0, 8), 1000);
        assert_eq!(flood(Kind::Settings, 0, 0), 250);
        assert_eq!(flood(Kind::Settings, flag::ACK, 0), 1000);
        assert_eq!(flood(Kind::ResetStream, 0, 4), 500);
        assert_eq!(flood(Kind::Continuation, 0, 4), 500);
        assert_eq!(flood(Kind::Data, 0, 0), 1000);
        assert_eq!(flood(Kind::WindowUpdate, 0, 4), 1000);
        assert_eq!(flood(Kind::Unknown, 0, 100), 1000);
        assert_eq!(flood(Kind::Data, 0, 20), 10_000);
        assert_eq!(flood(Kind::Data, flag::END_STREAM, 0), 10_000);
        assert_eq!(flood(Kind::Headers, 5, 20), 10_000);
        assert_eq!(flood(Kind::Continuation, 0, 16_384), 10_000);
        let mut flood = Flood::new(0);
        assert_eq!((0..1000).take_while(|_| flood.faults(1)).count(), 100);
    }

    /// Any sequence of steps yields the same allowance per second: 8 ms yield 1.6 frames, not 1.
    #[test]
    fn the_allowance_is_renewed() {
        for step in [1, 2, 3, 4, 7, 8, 9, 10, 13, 999, 1000, 3500] {
            let mut flood = Flood::new(0);
            let ping = head(Kind::Ping, 0);
            assert!((0..1000).all(|_| flood.frame(&ping, 8)), "{step}");
            assert!(!flood.frame(&ping, 8), "{step}");
            let mut count = 0;
            for at in 1..=20_000 / step {
                flood.grow(at * step);
                count += (0..1000).take_while(|_| flood.frame(&ping, 8)).count() as u64;
            }
            assert_eq!(count, 20_000 / step * step * 200 / 1000, "{step}");
        }
        let mut flood = Flood::new(0);
        flood.grow(1 << 40);
        assert_eq!((0..2000).take_while(|_| flood.frame(&head(Kind::Ping, 0), 8)).count(), 1000);
    }

    /// A client that answers each DATA frame, however small, with two WINDOW_UPDATE and a PING may go on for
    /// ever; one more frame for each exceeds the account in the end.
    #[test]
    fn data_pays_for_its_replies() {
        for size in [1, 5, 100, 512, 16_384] {
            let rounds = |answers: usize| {
                let mut flood = Flood::new(0);
                let kinds = [Kind::WindowUpdate, Kind::WindowUpdate, Kind::Ping, Kind::Ping];
                let round = |_: &u32| {
                    flood.earn(&data(size));
                    kinds[..answers].iter().all(|kind| flood.frame(&head(*kind, 0), 4))
                };
                (0..50_000).take_while(round).count()
            };
            assert_eq!(rounds(3), 50_000, "{size}");
            assert_eq!(rounds(4) == 50_000, size >= 512, "{size}");
        }
    }

    /// Small frames add up to what their bytes pay for: 100 bytes are a fifth of a frame, not nothing.
    #[test]
    fn bytes_pay_without_rounding() {
        let mut flood = Flood::new(0);
        flood.left = 0;
        for _ in 0..512 {
            let mut traffic = Traffic::default();
            traffic.dribble(100);
            flood.earn(&traffic);
        }
        assert_eq!((0..1000).take_while(|_| flood.frame(&head(Kind::WindowUpdate, 0), 4)).count(), 100);
    }

    #[test]
    fn advance_payment_is_bounded() {
        let mut flood = Flood::new(0);
        flood.left = 0;
        for _ in 0..100_000 {
            let mut traffic = data(16_384);
            traffic.answer();
            flood.earn(&traffic);
        }
        let mut count = |kind| (0..100_000).take_while(|_| flood.frame(&head(kind, 0), 4)).count() as u64;
        assert_eq!(count(Kind::ResetStream), u64::from(MOST_ANSWERS));
        assert_eq!(count(Kind::Ping), MOST_EARNED);
    }

    #[test]
    fn a_response_pays_for_one_reset() {
        let mut flood = Flood::new(0);
        let reset = head(Kind::ResetStream, 0);
        for _ in 0..10_000 {
            let mut traffic = Traffic::default();
            traffic.answer();
            flood.earn(&traffic);
            assert!(flood.frame(&reset, 4));
        }
        assert_eq!((0..1000).take_while(|_| flood.frame(&reset, 4)).count(), 500);
    }
}
