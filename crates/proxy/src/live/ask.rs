//! Asking all workers, one after the other and piece by piece.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{Filter, LiveConnection, Piece, Question, Wish};
use crate::worker::{Command, WorkerHandle};

/// How long a worker may take for one piece. It answers within a turn of its loop, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// The connections of all workers, for whoever asks. Cheap to clone; keeps no worker running.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<[WeakUnboundedSender<Command>]>);

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
pub struct Page {
    /// Those that are meant.
    pub connections: Vec<LiveConnection>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<Cursor>,
}

/// A worker did not answer in time: it is stuck, or the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Its number.
    pub worker: usize,
}

/// What came of closing connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// How many were closed.
    pub count: u64,
    /// A worker that did not answer. The rest of its connections stay open: it does nothing for a question that nobody
    /// waits for any more.
    pub unanswered: Option<Unanswered>,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} does not answer; try again", self.worker)
    }
}

impl std::error::Error for Unanswered {}

impl Connections {
    /// Those of these workers.
    #[must_use]
    pub fn of(workers: &[WorkerHandle]) -> Self {
        Self(workers.iter().map(WorkerHandle::weak).collect())
    }

    /// Up to `most` connections that are meant, from a place on.
    ///
    /// # Errors
    /// A worker does not answer.
    pub async fn page(&self, filter: &Arc<Filter>, from: Cursor, most: usize) -> Result<Page, Unanswered> {
        let mut page = Page::default();
        let mut at = from;
        while usize::from(at.worker) < self.0.len() {
            if page.connections.len() >= most {
                page.next = Some(at);
                break;
            }
            let left = most - page.connections.len();
            let piece = self.piece(filter, at, left, Wish::Tell).await?;
            page.connections.extend(piece.told);
            at = after(at, piece.next);
        }
        Ok(page)
    }

    /// How many connections are meant.
    ///
    /// # Errors
    /// A worker does not answer.
    pub async fn count(&self, filter: &Arc<Filter>) -> Result<u64, Unanswered> {
        let Closing { count, unanswered } = self.all(filter, Wish::Count).await;
        unanswered.map_or(Ok(count), Err)
    }

    /// Has the connections closed that are meant. They end in order where they can, each with the cause
    /// [`offramp_observe::Cause::ClosedByOperator`]. A worker that does not answer keeps nobody from closing those of others.
    pub async fn close(&self, filter: &Arc<Filter>) -> Closing {
        self.all(filter, Wish::Close).await
    }

    async fn all(&self, filter: &Arc<Filter>, wish: Wish) -> Closing {
        // All are asked at once: each comes round in its own time.
        let starts = (0..self.0.len()).filter_map(|worker| u16::try_from(worker).ok());
        let starts = starts.map(|worker| Cursor { worker, slot: 0 });
        let asked: Vec<_> = starts.map(|at| (at, self.question(filter, at, usize::MAX, wish))).collect();
        let mut done = Closing { count: 0, unanswered: None };
        // However many are stuck, their time is over together.
        let until = Instant::now() + PATIENCE;
        for (at, answer) in asked {
            let mut piece = Self::answer(at, answer, until).await;
            while let Ok(Piece { count, next, .. }) = piece {
                done.count += count;
                let Some(slot) = next else { break };
                piece = self.piece(filter, Cursor { slot, ..at }, usize::MAX, wish).await;
            }
            done.unanswered = done.unanswered.or(piece.err());
        }
        done
    }

    async fn piece(
        &self,
        filter: &Arc<Filter>,
        at: Cursor,
        most: usize,
        wish: Wish,
    ) -> Result<Piece, Unanswered> {
        Self::answer(at, self.question(filter, at, most, wish), Instant::now() + PATIENCE).await
    }

    /// Asks a worker. One that has ended has no connections, and drops the question.
    fn question(
        &self,
        filter: &Arc<Filter>,
        at: Cursor,
        most: usize,
        wish: Wish,
    ) -> oneshot::Receiver<Piece> {
        let (told, answer) = oneshot::channel();
        if let Some(commands) = self.0.get(usize::from(at.worker)).and_then(WeakUnboundedSender::upgrade) {
            let question = Question { filter: Arc::clone(filter), from: at.slot, most, wish };
            let _ = commands.send(Command::Connections { question, told });
        }
        answer
    }

    async fn answer(
        at: Cursor,
        answer: oneshot::Receiver<Piece>,
        until: Instant,
    ) -> Result<Piece, Unanswered> {
        match timeout_at(until, answer).await {
            Ok(answer) => Ok(answer.unwrap_or_default()),
            Err(_) => Err(Unanswered { worker: usize::from(at.worker) }),
        }
    }
}

/// Where to go on: at `slot` of the same worker, or with the next one.
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
                let Some(Command::Connections { question, told }) = orders.recv().await else { panic!() };
                assert_eq!((question.from, question.wish), (next.map_or(1000, |_| 0), Wish::Close));
                told.send(Piece { count: 3, next, ..Piece::default() }).unwrap();
            }
        };
        let (done, ()) = tokio::join!(connections.close(&filter), answers);
        assert_eq!(done, Closing { count: 6, unanswered: Some(Unanswered { worker: 0 }) });
        let Some(Command::Connections { told, .. }) = questions.recv().await else { panic!() };
        assert!(told.is_closed(), "it closes none later");
    }

    #[tokio::test]
    async fn however_many_are_stuck_it_takes_no_longer() {
        let stuck: Vec<_> = (0..8).map(|_| mpsc::unbounded_channel()).collect();
        let connections = Connections(stuck.iter().map(|(commands, _)| commands.downgrade()).collect());
        let begun = Instant::now();
        assert_eq!(connections.count(&Arc::default()).await, Err(Unanswered { worker: 0 }));
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
