//! Flow control of a stream (RFC 9113 §5.2).

use crate::h2::connection::MOST_DROPPED;

/// Number of bytes that are worth a WINDOW_UPDATE however large the window.
const WORTH_ANNOUNCING: u32 = 256 * 1024;

/// Flow control of a stream.
#[derive(Debug)]
pub(in crate::h2::connection) struct StreamFlow {
    /// Send window, in bytes.
    pub(in crate::h2::connection) window: i64,
    /// Receive window, in bytes.
    pub(in crate::h2::connection) room: i64,
    /// Bytes that the caller holds and has not released, and bytes released but not announced to the peer.
    pub(in crate::h2::connection) held: u32,
    pub(in crate::h2::connection) owed: u32,
    /// Maximum of the sum of receive window, held and unannounced bytes.
    pub(in crate::h2::connection) target: u32,
    /// Part of the target by which the connection's window has grown.
    pub(in crate::h2::connection) grown: u32,
    /// Condition that the caller waits for.
    pub(in crate::h2::connection) blocked: Blocked,
    /// Time of the last content, in milliseconds.
    pub(in crate::h2::connection) came: u64,
    /// Bytes dropped since the caller does not read the content any more.
    pub(in crate::h2::connection) dropped: Option<u32>,
    /// Set if held bytes may be taken out of the connection's window.
    pub(in crate::h2::connection) apart: bool,
}

/// Windows of a stream when it is opened.
#[derive(Debug, Clone, Copy)]
pub(in crate::h2::connection) struct InitialWindows {
    /// Send window, in bytes.
    pub(in crate::h2::connection) send: i64,
    /// Receive window, as the peer knows it now.
    pub(in crate::h2::connection) receive: i64,
    /// Maximum of received and unreleased bytes.
    pub(in crate::h2::connection) target: u32,
}

/// Condition that a stream waits for to send more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::h2::connection) enum Blocked {
    /// No condition: it does not wait.
    No,
    /// Space in the output.
    Output,
    /// Space in the output, and windows.
    Windows,
}

impl StreamFlow {
    /// Windows of a new stream, whose content is read.
    #[inline]
    pub(in crate::h2::connection) fn new(windows: InitialWindows) -> Self {
        Self {
            window: windows.send,
            room: windows.receive,
            held: 0,
            owed: 0,
            target: windows.target,
            grown: 0,
            blocked: Blocked::No,
            came: 0,
            dropped: None,
            apart: false,
        }
    }

    /// Minimum amount that is worth a WINDOW_UPDATE: half of the window, and less of a large one, so that the
    /// peer can use nearly all of it.
    pub(in crate::h2::connection) fn worth_announcing(&self) -> u32 {
        (self.target / 2).min(WORTH_ANNOUNCING)
    }

    /// Returns true if the peer may get a window: the content is read, or may still be dropped.
    pub(in crate::h2::connection) fn is_open(&self) -> bool {
        self.dropped.is_none_or(|dropped| dropped < MOST_DROPPED)
    }

    /// Lowers the target if the caller is slower than the peer, or if it has grown by more than `share`.
    /// Returns the growth that the connection can give up.
    pub(in crate::h2::connection) fn follow_user(&mut self, share: u32) -> u32 {
        if self.grown == 0 {
            return 0;
        }
        let first = self.target - self.grown;
        let enough = if self.held > self.target / 2 { self.target / 2 } else { u32::MAX };
        self.narrow(enough.min(first + share).max(first))
    }

    /// Lowers the target to `target`, as far as the window is not announced. Returns the growth that the
    /// connection can give up.
    pub(in crate::h2::connection) fn narrow(&mut self, target: u32) -> u32 {
        let less = self.target.saturating_sub(target).min(self.owed);
        self.target -= less;
        self.owed -= less;
        let grown = less.min(self.grown);
        self.grown -= grown;
        grown
    }
}
