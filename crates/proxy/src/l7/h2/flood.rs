//! Frames that cost a client next to nothing and us more: counted, without a look at what is in them.
//!
//! Each such frame takes from an allowance that grows with time, and window updates also with what was sent.
//! Honest clients stay far below. What streams and header blocks may cost is bounded by the library.

/// What may come in a burst.
const BURST: u32 = 1000;
/// What is added in a second.
const PER_SECOND: u32 = 200;
/// For so many bytes that were sent one window update is free.
const BYTES_PER_UPDATE: u64 = 512;
/// The most window updates that are saved up.
const MOST_UPDATES: u64 = 4096;
/// The preface of a client (RFC 9113 §3.4).
const PREFACE: usize = 24;
/// The head of a frame (RFC 9113 §4.1).
const HEAD: usize = 9;

/// Counts the frames of one client.
#[derive(Debug)]
pub(super) struct Flood {
    /// What is left of the allowance.
    left: u32,
    /// When it last grew, in milliseconds.
    grown: u64,
    updates: u64,
    /// Bytes of the frame or preface that are still to come.
    skip: usize,
    head: [u8; HEAD],
    have: usize,
    /// The highest stream that the client has opened.
    pub(super) last_stream: u32,
}

impl Flood {
    /// Nothing has come yet, at `now` in milliseconds.
    pub(super) fn new(now: u64) -> Self {
        Self { left: BURST, grown: now, updates: 64, skip: PREFACE, head: [0; HEAD], have: 0, last_stream: 0 }
    }

    /// Bytes went to the client.
    pub(super) fn sent(&mut self, n: usize) {
        self.updates = (self.updates + n as u64 / BYTES_PER_UPDATE + 1).min(MOST_UPDATES);
    }

    /// Looks at what has come; `false` where it is too much.
    pub(super) fn look(&mut self, mut bytes: &[u8], now: u64) -> bool {
        self.grow(now);
        while !bytes.is_empty() {
            let over = self.skip.min(bytes.len());
            self.skip -= over;
            bytes = &bytes[over..];
            let take = (HEAD - self.have).min(bytes.len());
            if self.skip > 0 || take == 0 {
                continue;
            }
            self.head[self.have..self.have + take].copy_from_slice(&bytes[..take]);
            self.have += take;
            bytes = &bytes[take..];
            if self.have == HEAD {
                self.have = 0;
                if !self.frame() {
                    return false;
                }
            }
        }
        true
    }

    fn grow(&mut self, now: u64) {
        let passed = now.saturating_sub(self.grown);
        let more = passed * u64::from(PER_SECOND) / 1000;
        if more > 0 {
            self.left = u32::try_from(more).unwrap_or(BURST).saturating_add(self.left).min(BURST);
            self.grown = now;
        }
    }

    fn frame(&mut self) -> bool {
        let [a, b, c, kind, flags, ids @ ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]);
        self.skip = length as usize;
        let stream = u32::from_be_bytes(ids) & 0x7fff_ffff;
        let cost = match kind {
            // DATA: empty ones that end nothing.
            0 if length == 0 && flags & 1 == 0 => 1,
            0 => 0,
            // HEADERS.
            1 => {
                self.last_stream = self.last_stream.max(stream);
                0
            }
            // RST_STREAM, SETTINGS that are no acknowledgement, CONTINUATION.
            3 | 9 => 2,
            4 if flags & 1 == 0 => 4,
            // WINDOW_UPDATE.
            8 if self.updates > 0 => {
                self.updates -= 1;
                0
            }
            // PRIORITY, PING, GOAWAY, and whatever is not known.
            _ => 1,
        };
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

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        bytes.extend_from_slice(payload);
        bytes
    }

    fn flood(kind: u8, flags: u8, payload: &[u8], step: usize) -> usize {
        let mut flood = Flood::new(0);
        assert!(flood.look(&[0; PREFACE], 0));
        let one = frame(kind, flags, payload);
        (0..10_000).take_while(|_| one.chunks(step).all(|part| flood.look(part, 0))).count()
    }

    #[test]
    fn floods_end_and_honest_frames_do_not() {
        for step in [1, 4, 100] {
            assert_eq!(flood(6, 0, &[0; 8], step), 1000, "PING");
            assert_eq!(flood(4, 0, &[], step), 250, "SETTINGS");
            assert_eq!(flood(3, 0, &[0; 4], step), 500, "RST_STREAM");
            assert_eq!(flood(9, 0, &[0; 4], step), 500, "CONTINUATION");
            assert_eq!(flood(0, 0, &[], step), 1000, "empty DATA");
            assert_eq!(flood(8, 0, &[0; 4], step), 1064, "WINDOW_UPDATE");
            assert_eq!(flood(0, 0, &[1; 20], step), 10_000, "DATA");
            assert_eq!(flood(1, 5, &[1; 20], step), 10_000, "HEADERS");
        }
    }

    #[test]
    fn the_allowance_comes_back() {
        let mut flood = Flood::new(0);
        assert!(flood.look(&[0; PREFACE], 0));
        let ping = frame(6, 0, &[0; 8]);
        assert!((0..1000).all(|_| flood.look(&ping, 0)));
        assert!(flood.look(&ping, 10));
        assert!((0..1000).all(|at| flood.look(&ping, 1000 + at * 5)));
    }

    #[test]
    fn updates_are_free_for_what_was_sent() {
        let mut flood = Flood::new(0);
        assert!(flood.look(&[0; PREFACE], 0));
        let update = frame(8, 0, &[0; 4]);
        for _ in 0..100_000 {
            flood.sent(16 * 1024);
            assert!(flood.look(&update, 0) && flood.look(&update, 0));
        }
    }
}
