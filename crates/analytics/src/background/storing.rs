//! The store's thread: it writes batches one after the other, and does upkeep between them.
//! Whatever the store does, only this thread waits for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime};

use offramp_observe::panics;

use crate::background::keeper::Message;
use crate::background::notice::Notice;
use crate::error::Error;
use crate::ingest::{Pause, Stop, Waited};
use crate::sink::{Identity, StoreSink, may_pass};
use crate::upkeep::Upkeep;
use crate::writer::{move_aside, was_a_store};

/// A batch to write.
pub(crate) struct Job {
    pub(crate) identity: Identity,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// What the thread says.
pub(crate) enum Report {
    /// The store is open, and has everything up to this.
    Opened(Option<Identity>),
    /// It has the batch that was given.
    Done,
    /// It failed, and is tried again.
    Trouble(String),
    /// Something that an operator should know.
    Notice(Notice),
    /// The store is closed.
    Ended,
}

/// How often upkeep is looked at.
const UPKEEP_EVERY: Duration = Duration::from_secs(60);

/// Between its steps the thread rests, so many times as long as the step took, and no less than this.
const UPKEEP_REST: u32 = 4;
const UPKEEP_LEAST_REST: Duration = Duration::from_millis(20);

pub(crate) struct Storing {
    url: String,
    sink: StoreSink,
    stop: Stop,
    reports: SyncSender<Message>,
}

impl Storing {
    pub(crate) fn new(url: String, sink: StoreSink, stop: Stop, reports: SyncSender<Message>) -> Self {
        let troubles = reports.clone();
        let sink = sink.on_trouble(move |error| {
            drop(troubles.send(Message::Store(Report::Trouble(error.to_string()))));
        });
        Self { url, sink, stop, reports }
    }

    /// Works until all senders are gone. `opened` gets the result of the first attempt to open the store.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>, opened: &SyncSender<Result<(), Error>>) {
        match self.sink.latest() {
            Ok(latest) => {
                drop(opened.send(Ok(())));
                self.report(Report::Opened(latest));
                self.store(jobs);
            }
            // It needs somebody to mend it, and nothing is lost yet.
            Err(error) if !may_pass(&error) && !self.may_be_moved(&error) => drop(opened.send(Err(error))),
            Err(error) => {
                drop(opened.send(Ok(())));
                self.sink.disconnect();
                if self.mend(error) == Waited::TimedOut
                    && let Some(latest) = self.patiently(StoreSink::latest)
                {
                    self.report(Report::Opened(latest));
                    self.store(jobs);
                }
            }
        }
        // The store is closed before that is said.
        let Self { sink, reports, .. } = self;
        drop(sink);
        drop(reports.send(Message::Store(Report::Ended)));
    }

    fn store(&mut self, jobs: &Receiver<Job>) {
        let mut upkeep_at = Instant::now() + UPKEEP_LEAST_REST;
        loop {
            match jobs.recv_timeout(upkeep_at.saturating_duration_since(Instant::now())) {
                Ok(Job { identity, bytes }) => {
                    if self.patiently(|sink| sink.put(identity, &bytes)).is_none() {
                        return;
                    }
                    self.report(Report::Done);
                }
                Err(RecvTimeoutError::Timeout) => upkeep_at = self.keep_up(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// One step of upkeep; gives when the next is due.
    fn keep_up(&mut self) -> Instant {
        let begun = Instant::now();
        let kept_up = panics::catch(|| self.sink.keep_up(SystemTime::now()));
        let rest = match kept_up.unwrap_or_else(|panic| Err(panic.into())) {
            Ok(Upkeep::More) => (begun.elapsed() * UPKEEP_REST).max(UPKEEP_LEAST_REST),
            Ok(Upkeep::Done) => UPKEEP_EVERY,
            Err(error) => {
                self.report(Report::Notice(Notice::UpkeepFailed(error)));
                UPKEEP_EVERY
            }
        };
        Instant::now() + rest
    }

    /// Tries until it succeeds; `None` if it must stop before.
    fn patiently<T>(&mut self, mut attempt: impl FnMut(&mut StoreSink) -> Result<T, Error>) -> Option<T> {
        let mut pause = Pause::default();
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
                    self.report(Report::Trouble(error.to_string()));
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

    /// Moves a damaged store aside, so that a fresh one is begun. Only what was a store: anything else was put
    /// there by somebody, who wants it back.
    fn mend(&mut self, error: Error) -> Waited {
        let notice = match error {
            error if self.may_be_moved(&error) => match move_aside(&self.url) {
                Ok(path) => Notice::MovedAside(path, error),
                Err(error) => Notice::Damaged(error),
            },
            error @ Error::Corrupt(_) => Notice::Damaged(error),
            error => {
                self.report(Report::Trouble(error.to_string()));
                return Waited::TimedOut;
            }
        };
        self.report(Report::Notice(notice));
        if self.stop.is_requested() { Waited::Stopped } else { Waited::TimedOut }
    }

    fn report(&self, report: Report) {
        // Nobody hears it at the end.
        drop(self.reports.send(Message::Store(report)));
    }
}
