//! The queue of spans from the flusher's thread to the sender: bounded, and nobody waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bounded queue of encoded spans. Cheap to clone; all clones are the same queue.
#[derive(Clone, Debug, Default)]
pub struct SpanQueue(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    spans: Vec<Box<[u8]>>,
    tally: SpanTally,
}

/// What became of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanTally {
    /// Taken by the collector.
    pub exported: u64,
    /// Lost because the queue was full.
    pub dropped: u64,
    /// Refused by the collector.
    pub refused: u64,
}

impl SpanQueue {
    /// The most spans that wait: what collectors' own clients keep by default, some 2 MB.
    pub const CAPACITY: usize = 2048;

    /// Takes all of `batch`; what has no room is counted and dropped.
    pub(super) fn add(&self, batch: &mut Vec<Box<[u8]>>) {
        let mut queue = self.lock();
        let room = Self::CAPACITY.saturating_sub(queue.spans.len());
        queue.tally.dropped += batch.len().saturating_sub(room) as u64;
        queue.spans.extend(batch.drain(..).take(room));
    }

    /// Gives at most `most` of the spans that waited longest.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<Box<[u8]>> {
        let mut queue = self.lock();
        let most = most.min(queue.spans.len());
        queue.spans.drain(..most).collect()
    }

    /// Counts spans that the collector took.
    pub fn exported(&self, spans: usize) {
        self.lock().tally.exported += spans as u64;
    }

    /// Counts spans that the collector refused.
    pub fn refused(&self, spans: usize) {
        self.lock().tally.refused += spans as u64;
    }

    /// What became of spans so far.
    #[must_use]
    pub fn tally(&self) -> SpanTally {
        self.lock().tally
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
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
