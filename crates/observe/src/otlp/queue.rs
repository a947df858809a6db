//! The span queue between the flusher and the exporter: bounded, and never blocking.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bounded queue of encoded spans. Cheap to clone; all clones are the same queue.
#[derive(Clone, Debug, Default)]
pub struct SpanQueue(Arc<Mutex<QueuedSpans>>);

#[derive(Debug, Default)]
struct QueuedSpans {
    spans: Vec<Box<[u8]>>,
    tally: SpanTally,
}

/// The outcome of all spans so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanTally {
    /// Accepted by the collector.
    pub exported: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Rejected by the collector.
    pub refused: u64,
}

impl SpanQueue {
    /// The maximum number of queued spans: the default of OpenTelemetry's own SDKs, some 2 MB.
    pub const CAPACITY: usize = 2048;

    /// Queues all of `batch`; spans without room are counted and dropped.
    pub(super) fn add(&self, batch: &mut Vec<Box<[u8]>>) {
        let mut queue = self.lock();
        let room = Self::CAPACITY.saturating_sub(queue.spans.len());
        queue.tally.dropped += batch.len().saturating_sub(room) as u64;
        queue.spans.extend(batch.drain(..).take(room));
    }

    /// Removes at most `most` spans, oldest first.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<Box<[u8]>> {
        let mut queue = self.lock();
        let most = most.min(queue.spans.len());
        queue.spans.drain(..most).collect()
    }

    /// Counts spans that the collector accepted.
    pub fn exported(&self, spans: usize) {
        self.lock().tally.exported += spans as u64;
    }

    /// Counts spans that the collector rejected.
    pub fn refused(&self, spans: usize) {
        self.lock().tally.refused += spans as u64;
    }

    /// The outcome of all spans so far.
    #[must_use]
    pub fn tally(&self) -> SpanTally {
        self.lock().tally
    }

    fn lock(&self) -> MutexGuard<'_, QueuedSpans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{SpanQueue, SpanTally};

    #[test]
    fn what_has_no_room_is_counted() {
        let queue = SpanQueue::default();
        let mut batch: Vec<Box<[u8]>> = vec![Box::default(); SpanQueue::CAPACITY - 1];
        batch.push((*b"last").into());
        batch.push((*b"lost").into());
        queue.add(&mut batch);
        assert!(batch.is_empty());
        let first = queue.take(SpanQueue::CAPACITY - 1);
        assert_eq!(first.len(), SpanQueue::CAPACITY - 1);
        assert_eq!(queue.take(100), [Box::from(*b"last")]);
        queue.exported(2);
        queue.refused(1);
        assert_eq!(queue.tally(), SpanTally { exported: 2, dropped: 1, refused: 1 });
    }
}
