//! The store's thread: writes batches one after the other, with upkeep between them. Only this thread waits
//! for the store.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime};

use offramp_observe::panics;

use crate::background::keeper::KeeperMessage;
use crate::background::notice::StoreNotice;
use crate::batch::BatchId;
use crate::error::Error;
use crate::ingest::{RetryPause, StopSignal, Waited};
use crate::sink::{StoreSink, may_pass};
use crate::upkeep::Upkeep;
use crate::writer::{move_aside, was_a_store};

/// A batch to write.
pub(crate) struct WriteJob {
    pub(crate) identity: BatchId,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// A report to the keeper.
pub(crate) enum StoreReport {
    /// The store is open; its last batch is this one.
    Opened(Option<BatchId>),
    /// The batch is committed.
    Done,
    /// An attempt failed and will be retried.
    Trouble(String),
    /// A condition that an operator should know about.
    Notice(StoreNotice),
    /// The store is closed.
    Ended,
}

/// The interval between checks for due upkeep.
const UPKEEP_EVERY: Duration = Duration::from_secs(60);

/// The pause after a step of upkeep, as a multiple of the step's time, with a minimum.
const UPKEEP_REST: u32 = 4;
const UPKEEP_LEAST_REST: Duration = Duration::from_millis(20);

pub(crate) struct Storing {
    url: String,
    sink: StoreSink,
    stop: StopSignal,
    reports: SyncSender<KeeperMessage>,
}

impl Storing {
    pub(crate) fn new(
        url: String,
        sink: StoreSink,
        stop: StopSignal,
        reports: SyncSender<KeeperMessage>,
    ) -> Self {
        let troubles = reports.clone();
        let sink = sink.on_trouble(move |error| {
            drop(troubles.send(KeeperMessage::Store(StoreReport::Trouble(error.to_string()))));
        });
        Self { url, sink, stop, reports }
    }

    /// Runs until all senders are gone. `opened` receives the result of the first attempt to open the store.
    pub(crate) fn run(mut self, jobs: &Receiver<WriteJob>, opened: &SyncSender<Result<(), Error>>) {
        match self.sink.latest() {
            Ok(latest) => {
                drop(opened.send(Ok(())));
                self.report(StoreReport::Opened(latest));
                self.store(jobs);
            }
            // Needs an operator, and no event is lost yet: refuse to start.
            Err(error) if !may_pass(&error) && !self.may_be_moved(&error) => drop(opened.send(Err(error))),
            Err(error) => {
                drop(opened.send(Ok(())));
                self.sink.disconnect();
                if self.mend(error) == Waited::TimedOut
                    && let Some(latest) = self.retry(StoreSink::latest)
                {
                    self.report(StoreReport::Opened(latest));
                    self.store(jobs);
                }
            }
        }
        // Close the store before reporting it.
        let Self { sink, reports, .. } = self;
        drop(sink);
        drop(reports.send(KeeperMessage::Store(StoreReport::Ended)));
    }

    fn store(&mut self, jobs: &Receiver<WriteJob>) {
        let mut upkeep_at = Instant::now() + UPKEEP_LEAST_REST;
        loop {
            match jobs.recv_timeout(upkeep_at.saturating_duration_since(Instant::now())) {
                Ok(WriteJob { identity, bytes }) => {
                    if self.retry(|sink| sink.put(identity, &bytes)).is_none() {
                        return;
                    }
                    self.report(StoreReport::Done);
                }
                Err(RecvTimeoutError::Timeout) => upkeep_at = self.keep_up(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Does one step of upkeep; returns the time of the next.
    fn keep_up(&mut self) -> Instant {
        let begun = Instant::now();
        let kept_up = panics::catch(|| self.sink.keep_up(SystemTime::now()));
        let rest = match kept_up.unwrap_or_else(|panic| Err(panic.into())) {
            Ok(Upkeep::More) => (begun.elapsed() * UPKEEP_REST).max(UPKEEP_LEAST_REST),
            Ok(Upkeep::Done) => UPKEEP_EVERY,
            Err(error) => {
                self.report(StoreReport::Notice(StoreNotice::UpkeepFailed(error)));
                UPKEEP_EVERY
            }
        };
        Instant::now() + rest
    }

    /// Retries until success; `None` if asked to stop before.
    fn retry<T>(&mut self, mut attempt: impl FnMut(&mut StoreSink) -> Result<T, Error>) -> Option<T> {
        let mut pause = RetryPause::default();
        loop {
            match panics::catch(|| attempt(&mut self.sink)).unwrap_or_else(|panic| Err(panic.into())) {
                Ok(done) => return Some(done),
                Err(_) if self.stop.is_requested() => return None,
                Err(error @ Error::Corrupt(_)) => {
                    self.sink.disconnect();
                    if self.mend(error) == Waited::Stopped {
                        return None;
                    }
                }
                Err(error) => {
                    self.sink.disconnect();
                    self.report(StoreReport::Trouble(error.to_string()));
                }
            }
            if pause.wait(&self.stop) == Waited::Stopped {
                return None;
            }
        }
    }

    fn may_be_moved(&self, error: &Error) -> bool {
        matches!(error, Error::Corrupt(_)) && was_a_store(&self.url)
    }

    /// Moves a damaged store aside, so that a fresh one is created. Other kinds of files stay: an operator
    /// put them there.
    fn mend(&mut self, error: Error) -> Waited {
        let notice = match error {
            error if self.may_be_moved(&error) => match move_aside(&self.url) {
                Ok(path) => StoreNotice::MovedAside(path, error),
                Err(error) => StoreNotice::Damaged(error),
            },
            error @ Error::Corrupt(_) => StoreNotice::Damaged(error),
            error => {
                self.report(StoreReport::Trouble(error.to_string()));
                return Waited::TimedOut;
            }
        };
        self.report(StoreReport::Notice(notice));
        if self.stop.is_requested() { Waited::Stopped } else { Waited::TimedOut }
    }

    fn report(&self, report: StoreReport) {
        // At shutdown the keeper may be gone.
        drop(self.reports.send(KeeperMessage::Store(report)));
    }
}
