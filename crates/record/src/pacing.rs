//! Sizes of the next records.
//!
//! A receiver can use a record only when all of it has arrived. The congestion window of a new connection is
//! a few packets, so a record of 16 KiB would delay the first bytes by round trips. Small records cost CPU
//! time on bulk data. So the first bytes after the handshake, and after a pause, are sent in records of about
//! one packet, and everything after that in full records.

/// Plaintext bytes of a record that fits one packet: the 1,500 bytes of Ethernet, minus the headers of IPv6
/// (40), TCP with timestamps (32) and a TLS 1.2 AES-GCM record (29), minus 30 bytes for a tunnel.
const ONE_PACKET: usize = 1369;

/// Bytes sent in small records before full ones begin.
const WARM_UP: u32 = 64 * 1024;

/// Pause after which small records begin again, in milliseconds: by then the kernel has reduced the
/// congestion window (RFC 5681 §4.1).
const PAUSE_MS: u64 = 1000;

/// Configured size of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSize {
    /// Small records first on a new or idle connection, then full ones.
    Adaptive,
    /// Always this many plaintext bytes; clamped to 512 to 2^14.
    Fixed(u16),
}

/// Record sizes of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    size: RecordSize,
    sent: u32,
    last_ms: u64,
}

impl Pacing {
    /// Starts with a new connection at `now_ms` milliseconds of any monotonic clock.
    #[must_use]
    pub const fn new(size: RecordSize, now_ms: u64) -> Self {
        Self { size, sent: 0, last_ms: now_ms }
    }

    /// Plaintext bytes of each of the next records.
    #[must_use]
    pub fn slot(&self, now_ms: u64) -> usize {
        match self.size {
            RecordSize::Fixed(size) => usize::from(size).clamp(512, crate::MAX_PLAINTEXT),
            RecordSize::Adaptive if self.sent < WARM_UP || self.paused(now_ms) => ONE_PACKET,
            RecordSize::Adaptive => crate::MAX_PLAINTEXT,
        }
    }

    /// Accounts `bytes` of sealed plaintext.
    pub fn sent(&mut self, bytes: usize, now_ms: u64) {
        if self.paused(now_ms) {
            self.sent = 0;
        }
        self.sent = self.sent.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.last_ms = now_ms;
    }

    fn paused(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.last_ms) >= PAUSE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_records_first_and_after_a_pause() {
        let mut pacing = Pacing::new(RecordSize::Adaptive, 0);
        let mut now = 0;
        let mut small = 0;
        while pacing.slot(now) == ONE_PACKET {
            pacing.sent(ONE_PACKET, now);
            small += ONE_PACKET;
            now += 10;
        }
        assert!((64 * 1024..64 * 1024 + ONE_PACKET).contains(&small));
        assert_eq!(pacing.slot(now + 900), crate::MAX_PLAINTEXT);
        assert_eq!(pacing.slot(now + 1100), ONE_PACKET);
        pacing.sent(10, now + 1100);
        assert_eq!(pacing.slot(now + 1200), ONE_PACKET);
    }

    #[test]
    fn a_fixed_size_is_clamped() {
        assert_eq!(Pacing::new(RecordSize::Fixed(4096), 0).slot(5000), 4096);
        assert_eq!(Pacing::new(RecordSize::Fixed(u16::MAX), 0).slot(0), crate::MAX_PLAINTEXT);
        assert_eq!(Pacing::new(RecordSize::Fixed(1), 0).slot(0), 512);
    }
}
