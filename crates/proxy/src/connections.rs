//! Questions about open connections to all workers, one after the other and piece by piece.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::command::WorkerCommand;
use crate::live::{ConnectionQuery, Filter, LiveConnection, QueryAction, QueryReply};
use crate::worker::WorkerHandle;

/// The time that a worker has for one reply. It answers within a turn of its loop, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// The connections of all workers. Cheap to clone; keeps no worker running.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<[WeakUnboundedSender<WorkerCommand>]>);

/// A place among the connections: where a page ended, and the next one begins.
///
/// It stays valid whatever connections come and go. Written as text, it is the worker's number and the place in its
/// table: `1-1000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    worker: u16,
    slot: u32,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.worker, self.slot)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (worker, slot) = text.split_once('-').ok_or(())?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(worker) || !is_number(slot) {
            return Err(());
        }
        Ok(Self { worker: worker.parse().map_err(|_| ())?, slot: slot.parse().map_err(|_| ())? })
    }
}

/// A part of the connections.
#[derive(Debug, Default)]
pub struct ConnectionPage {
    /// Connections that the filter selects.
    pub connections: Vec<LiveConnection>,
    /// The beginning of the next page; `None`: this was the last one.
    pub next: Option<Cursor>,
}

/// A worker did not answer in time: it is stuck, or the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckWorker {
    /// Number of the worker.
    pub worker: usize,
}

/// The outcome of closing connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseReport {
    /// The number of closed connections.
    pub count: u64,
    /// A worker that did not answer. The rest of its connections stay open: it ignores a query without a caller.
    pub unanswered: Option<StuckWorker>,
}

impl fmt::Display for StuckWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} does not answer; try again", self.worker)
    }
}

impl std::error::Error for StuckWorker {}

impl Connections {
    /// The connections of these workers.
    #[must_use]
    pub fn of(workers: &[WorkerHandle]) -> Self {
        Self(workers.iter().map(WorkerHandle::weak).collect())
    }

    /// Lists up to `most` connections that the filter selects, from a place on.
    ///
    /// # Errors
    /// A worker does not answer.
    pub async fn page(
        &self,
        filter: &Arc<Filter>,
        from: Cursor,
        most: usize,
    ) -> Result<ConnectionPage, StuckWorker> {
        let mut page = ConnectionPage::default();
        let mut at = from;
        while usize::from(at.worker) < self.0.len() {
            if page.connections.len() >= most {
                page.next = Some(at);
                break;
            }
            let left = most - page.connections.len();
            let reply = self.reply(filter, at, left, QueryAction::List).await?;
            page.connections.extend(reply.listed);
            at = after(at, reply.next);
        }
        Ok(page)
    }

    /// Counts the connections that the filter selects.
    ///
    /// # Errors
    /// A worker does not answer.
    pub async fn count(&self, filter: &Arc<Filter>) -> Result<u64, StuckWorker> {
        let CloseReport { count, unanswered } = self.all(filter, QueryAction::Count).await;
        unanswered.map_or(Ok(count), Err)
    }

    /// Closes the connections that the filter selects. They end in order where they can, each with the cause
    /// [`offramp_observe::Cause::ClosedByOperator`]. A worker that does not answer does not keep those of others open.
    pub async fn close(&self, filter: &Arc<Filter>) -> CloseReport {
        self.all(filter, QueryAction::Close).await
    }

    async fn all(&self, filter: &Arc<Filter>, action: QueryAction) -> CloseReport {
        // All are asked at once: each comes round in its own time.
        let starts = (0..self.0.len()).filter_map(|worker| u16::try_from(worker).ok());
        let starts = starts.map(|worker| Cursor { worker, slot: 0 });
        let asked: Vec<_> = starts.map(|at| (at, self.query(filter, at, usize::MAX, action))).collect();
        let mut done = CloseReport { count: 0, unanswered: None };
        // However many are stuck, their time is over together.
        let until = Instant::now() + PATIENCE;
        for (at, answer) in asked {
            let mut reply = Self::answer(at, answer, until).await;
            while let Ok(QueryReply { count, next, .. }) = reply {
                done.count += count;
                let Some(slot) = next else { break };
                reply = self.reply(filter, Cursor { slot, ..at }, usize::MAX, action).await;
            }
            done.unanswered = done.unanswered.or(reply.err());
        }
        done
    }

    async fn reply(
        &self,
        filter: &Arc<Filter>,
        at: Cursor,
        most: usize,
        action: QueryAction,
    ) -> Result<QueryReply, StuckWorker> {
        Self::answer(at, self.query(filter, at, most, action), Instant::now() + PATIENCE).await
    }

    /// Sends a query to a worker. One that has ended has no connections, and drops the query.
    fn query(
        &self,
        filter: &Arc<Filter>,
        at: Cursor,
        most: usize,
        action: QueryAction,
    ) -> oneshot::Receiver<QueryReply> {
        let (reply, answer) = oneshot::channel();
        if let Some(commands) = self.0.get(usize::from(at.worker)).and_then(WeakUnboundedSender::upgrade) {
            let query = ConnectionQuery { filter: Arc::clone(filter), from: at.slot, most, action };
            let _ = commands.send(WorkerCommand::Connections { query, reply });
        }
        answer
    }

    async fn answer(
        at: Cursor,
        answer: oneshot::Receiver<QueryReply>,
        until: Instant,
    ) -> Result<QueryReply, StuckWorker> {
        match timeout_at(until, answer).await {
            Ok(answer) => Ok(answer.unwrap_or_default()),
            Err(_) => Err(StuckWorker { worker: usize::from(at.worker) }),
        }
    }
}

/// The next place: `slot` of the same worker, or the next worker.
fn after(at: Cursor, slot: Option<u32>) -> Cursor {
    match slot {
        Some(slot) => Cursor { slot, ..at },
        None => Cursor { worker: at.worker.saturating_add(1), slot: 0 },
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn one_worker_that_is_stuck_hides_nothing_that_others_have_closed() {
        let (stuck, mut questions) = mpsc::unbounded_channel();
        let (works, mut orders) = mpsc::unbounded_channel();
        let connections = Connections([stuck.downgrade(), works.downgrade()].into());
        let filter = Arc::default();
        let answers = async {
            for next in [Some(1000), None] {
                let Some(WorkerCommand::Connections { query, reply }) = orders.recv().await else { panic!() };
                assert_eq!((query.from, query.action), (next.map_or(1000, |_| 0), QueryAction::Close));
                reply.send(QueryReply { count: 3, next, ..QueryReply::default() }).unwrap();
            }
        };
        let (done, ()) = tokio::join!(connections.close(&filter), answers);
        assert_eq!(done, CloseReport { count: 6, unanswered: Some(StuckWorker { worker: 0 }) });
        let Some(WorkerCommand::Connections { reply, .. }) = questions.recv().await else { panic!() };
        assert!(reply.is_closed(), "it closes none later");
    }

    #[tokio::test]
    async fn however_many_are_stuck_it_takes_no_longer() {
        let stuck: Vec<_> = (0..8).map(|_| mpsc::unbounded_channel()).collect();
        let connections = Connections(stuck.iter().map(|(commands, _)| commands.downgrade()).collect());
        let begun = Instant::now();
        assert_eq!(connections.count(&Arc::default()).await, Err(StuckWorker { worker: 0 }));
        assert!(begun.elapsed() < 4 * PATIENCE, "{:?}", begun.elapsed());
    }

    #[test]
    fn cursors_are_read_as_they_are_written() {
        for (text, cursor) in [
            ("0-0", Some(Cursor::default())),
            ("12-1000", Some(Cursor { worker: 12, slot: 1000 })),
            ("1", None),
            ("-1", None),
            ("1-", None),
            ("+1-2", None),
            ("1-2-3", None),
            ("65536-0", None),
            ("0-4294967296", None),
        ] {
            assert_eq!(text.parse().ok(), cursor, "{text}");
            if let Some(cursor) = cursor {
                assert_eq!(cursor.to_string(), text);
            }
        }
    }
}
