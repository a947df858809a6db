//! The sums over all workers, as their readers see them.

use std::fmt;

use super::{
    ACCEPT_PAUSES, ACCEPTED, BYTES, CELLS, CLOSED, COMPRESSIONS, CONNECT_ATTEMPTS, CONNECT_FAILURES,
    CONNECTION_BOUNDS, CONNECTION_TIME, Compression, Direction, END_CELLS, HANDSHAKE_BOUNDS, HANDSHAKE_TIME,
    HANDSHAKES_FAILED, HISTOGRAM_CELLS, HTTP_CONNECTIONS, KEY_UPDATES, MIRRORED, Mirrored, PauseReason,
    RECORDS, REQUESTS_BEGUN, REQUESTS_BY_VERSION, REQUESTS_ENDED, TURNS, YIELDS, by_end, handshake_cell,
};
use crate::facts::{Cause, Fault, Handshake, HttpVersion, TlsVersion};

/// The sum over all workers at one moment.
#[derive(Clone)]
pub struct Totals([u64; CELLS]);

impl Totals {
    pub(super) const fn new(cells: [u64; CELLS]) -> Self {
        Self(cells)
    }

    #[cfg(test)]
    pub(super) const fn cells(&self) -> &[u64; CELLS] {
        &self.0
    }

    /// Connections accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.0[ACCEPTED]
    }

    /// Connections open now.
    #[must_use]
    pub fn active(&self) -> u64 {
        let closed = self.0[CLOSED..CLOSED + END_CELLS].iter().sum();
        self.accepted().saturating_sub(closed)
    }

    /// Connections that ended by this cause and fault.
    #[must_use]
    pub fn closed(&self, cause: Cause, fault: Fault) -> u64 {
        self.0[by_end(CLOSED, cause, fault)]
    }

    /// Connections of `http` listeners by what they spoke first.
    #[must_use]
    pub fn http_connections(&self, version: HttpVersion) -> u64 {
        self.0[HTTP_CONNECTIONS + version as usize]
    }

    /// Requests in progress.
    #[must_use]
    pub fn requests_active(&self) -> u64 {
        let ended = self.0[REQUESTS_ENDED..REQUESTS_ENDED + END_CELLS].iter().sum();
        self.0[REQUESTS_BEGUN].saturating_sub(ended)
    }

    /// Requests that ended, by version.
    #[must_use]
    pub fn requests(&self, version: HttpVersion) -> u64 {
        self.0[REQUESTS_BY_VERSION + version as usize]
    }

    /// Requests that ended by this cause and fault.
    #[must_use]
    pub fn requests_ended(&self, cause: Cause, fault: Fault) -> u64 {
        self.0[by_end(REQUESTS_ENDED, cause, fault)]
    }

    /// Handshakes completed.
    #[must_use]
    pub fn handshakes(&self, version: TlsVersion, kind: Handshake) -> u64 {
        self.0[handshake_cell(version, kind)]
    }

    /// Handshakes begun and not completed.
    #[must_use]
    pub fn handshakes_failed(&self) -> u64 {
        self.0[HANDSHAKES_FAILED]
    }

    /// Bytes of plaintext relayed.
    #[must_use]
    pub fn bytes_relayed(&self, direction: Direction) -> u64 {
        self.0[BYTES + direction as usize]
    }

    /// Records opened (client to server) or sealed (server to client).
    #[must_use]
    pub fn records(&self, direction: Direction) -> u64 {
        self.0[RECORDS + direction as usize]
    }

    /// Key updates received (client to server) or sent (server to client).
    #[must_use]
    pub fn key_updates(&self, direction: Direction) -> u64 {
        self.0[KEY_UPDATES + direction as usize]
    }

    /// How often relayed connections had their turn.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.0[TURNS]
    }

    /// How often connections let others go first, though they had more to do.
    #[must_use]
    pub fn yields(&self) -> u64 {
        self.0[YIELDS]
    }

    /// Pauses of accepting.
    #[must_use]
    pub fn accept_pauses(&self, reason: PauseReason) -> u64 {
        self.0[ACCEPT_PAUSES + reason as usize]
    }

    /// Responses that gained by compression and whose clients wanted it, by what they got.
    #[must_use]
    pub fn compressions(&self, compression: Compression) -> u64 {
        self.0[COMPRESSIONS + compression as usize]
    }

    /// Requests that were to be copied, by what became of that.
    #[must_use]
    pub fn mirrored(&self, mirrored: Mirrored) -> u64 {
        self.0[MIRRORED + mirrored as usize]
    }

    /// Attempts to connect to a server.
    #[must_use]
    pub fn connect_attempts(&self) -> u64 {
        self.0[CONNECT_ATTEMPTS]
    }

    /// Attempts to connect to a server that failed.
    #[must_use]
    pub fn connect_failures(&self) -> u64 {
        self.0[CONNECT_FAILURES]
    }

    /// How long handshakes took.
    #[must_use]
    pub fn handshake_time(&self) -> Histogram<'_> {
        Histogram::new(&self.0[HANDSHAKE_TIME..HANDSHAKE_TIME + HISTOGRAM_CELLS], &HANDSHAKE_BOUNDS)
    }

    /// How long connections lasted.
    #[must_use]
    pub fn connection_time(&self) -> Histogram<'_> {
        Histogram::new(&self.0[CONNECTION_TIME..CONNECTION_TIME + HISTOGRAM_CELLS], &CONNECTION_BOUNDS)
    }
}

impl fmt::Debug for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Totals").field("accepted", &self.accepted()).finish_non_exhaustive()
    }
}

/// A histogram of durations.
#[derive(Clone, Copy, Debug)]
pub struct Histogram<'a> {
    bounds: &'a [u64],
    counts: &'a [u64],
    sum: u64,
}

impl<'a> Histogram<'a> {
    fn new(cells: &'a [u64], bounds: &'a [u64]) -> Self {
        // Both slices come from constants: a histogram has one cell per bound, one above all, and the sum.
        let (counts, sum) = cells.split_at(bounds.len() + 1);
        Self { bounds, counts, sum: sum[0] }
    }

    /// The buckets: upper bound in microseconds (inclusive; `None` is no bound) and how many durations are
    /// within it, smaller buckets included.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> + 'a {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts).scan(0_u64, |below, (bound, &count)| {
            *below += count;
            Some((bound, *below))
        })
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum, in microseconds.
    #[must_use]
    pub const fn sum_micros(&self) -> u64 {
        self.sum
    }
}
