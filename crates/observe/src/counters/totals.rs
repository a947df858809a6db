//! Sums over all workers.

use std::fmt;

use super::{
    ACCEPT_PAUSES, ACCEPTED, BYTES, CELLS, CLOSED, COMPRESSIONS, CONNECT_ATTEMPTS, CONNECT_FAILURES,
    CONNECTION_BOUNDS, CONNECTION_TIME, Compression, Direction, END_CELLS, HANDSHAKE_BOUNDS, HANDSHAKE_TIME,
    HANDSHAKES_FAILED, HISTOGRAM_CELLS, HTTP_CONNECTIONS, KEY_UPDATES, MIRRORED, Mirrored, PauseReason,
    RECORDS, REQUESTS_BEGUN, REQUESTS_BY_VERSION, REQUESTS_ENDED, TURNS, YIELDS, by_end, handshake_cell,
};
use crate::facts::{Cause, Fault, Handshake, HttpVersion, TlsVersion};

/// The counters of all workers at one moment.
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

    /// Connections accepted since start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.0[ACCEPTED]
    }

    /// Connections that are open.
    #[must_use]
    pub fn active(&self) -> u64 {
        let closed = self.0[CLOSED..CLOSED + END_CELLS].iter().sum();
        self.accepted().saturating_sub(closed)
    }

    /// Connections that ended with this cause and fault.
    #[must_use]
    pub fn closed(&self, cause: Cause, fault: Fault) -> u64 {
        self.0[by_end(CLOSED, cause, fault)]
    }

    /// Connections of `http` listeners by initial version.
    #[must_use]
    pub fn http_connections(&self, version: HttpVersion) -> u64 {
        self.0[HTTP_CONNECTIONS + version as usize]
    }

    /// Requests with a complete head that have not ended.
    #[must_use]
    pub fn requests_active(&self) -> u64 {
        let ended = self.0[REQUESTS_ENDED..REQUESTS_ENDED + END_CELLS].iter().sum();
        self.0[REQUESTS_BEGUN].saturating_sub(ended)
    }

    /// Finished requests by version.
    #[must_use]
    pub fn requests(&self, version: HttpVersion) -> u64 {
        self.0[REQUESTS_BY_VERSION + version as usize]
    }

    /// Requests that ended with this cause and fault.
    #[must_use]
    pub fn requests_ended(&self, cause: Cause, fault: Fault) -> u64 {
        self.0[by_end(REQUESTS_ENDED, cause, fault)]
    }

    /// Completed handshakes by version and kind.
    #[must_use]
    pub fn handshakes(&self, version: TlsVersion, kind: Handshake) -> u64 {
        self.0[handshake_cell(version, kind)]
    }

    /// Handshakes that failed or were abandoned.
    #[must_use]
    pub fn handshakes_failed(&self) -> u64 {
        self.0[HANDSHAKES_FAILED]
    }

    /// Plaintext bytes relayed in one direction.
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

    /// Polls of relayed connections.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.0[TURNS]
    }

    /// Polls after which a connection yielded with more to do.
    #[must_use]
    pub fn yields(&self) -> u64 {
        self.0[YIELDS]
    }

    /// Pauses in accepting, by reason.
    #[must_use]
    pub fn accept_pauses(&self, reason: PauseReason) -> u64 {
        self.0[ACCEPT_PAUSES + reason as usize]
    }

    /// Responses eligible for compression, by outcome.
    #[must_use]
    pub fn compressions(&self, compression: Compression) -> u64 {
        self.0[COMPRESSIONS + compression as usize]
    }

    /// Requests of routes with a mirror, by outcome of the copy.
    #[must_use]
    pub fn mirrored(&self, mirrored: Mirrored) -> u64 {
        self.0[MIRRORED + mirrored as usize]
    }

    /// Connection attempts to servers.
    #[must_use]
    pub fn connect_attempts(&self) -> u64 {
        self.0[CONNECT_ATTEMPTS]
    }

    /// Connection attempts to servers that failed.
    #[must_use]
    pub fn connect_failures(&self) -> u64 {
        self.0[CONNECT_FAILURES]
    }

    /// Durations of completed handshakes.
    #[must_use]
    pub fn handshake_time(&self) -> Histogram<'_> {
        Histogram::new(&self.0[HANDSHAKE_TIME..HANDSHAKE_TIME + HISTOGRAM_CELLS], &HANDSHAKE_BOUNDS)
    }

    /// Durations of closed connections.
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
        // Both slices are sized by constants: one cell per bound, one above all bounds, and the sum.
        let (counts, sum) = cells.split_at(bounds.len() + 1);
        Self { bounds, counts, sum: sum[0] }
    }

    /// The cumulative buckets: an inclusive upper bound in microseconds (`None` for +Inf), and the durations
    /// up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> + 'a {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts).scan(0_u64, |below, (bound, &count)| {
            *below += count;
            Some((bound, *below))
        })
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all durations, in microseconds.
    #[must_use]
    pub const fn sum_micros(&self) -> u64 {
        self.sum
    }
}
