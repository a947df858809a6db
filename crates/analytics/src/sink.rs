//! The writing side of the store for long-running writers: waits for an unavailable store, reconnects, and
//! never stores a batch twice.
//!
//! A [`StoreSink`] keeps each batch until the store has it. When the store is locked, full or unreachable, it
//! drops the connection, waits, reconnects and adds the whole batch again. Each batch has an identity that is
//! committed with it. A connection that breaks during `COMMIT` leaves the outcome unknown: the next
//! connection takes the writers' lock, which means that the old transaction has ended, and looks for the
//! identity first.

use std::hash::BuildHasher;
use std::time::{Duration, Instant, SystemTime};

use crate::batch::{BATCH_SOURCE, BatchId};
use crate::entry::LogEntry;
use crate::error::Error;
use crate::ingest::{EntrySink, FileRecord, Mark, RetryPause, StopSignal, Waited};
use crate::pack::{Unpack, pack};
use crate::store::positions::ReadProgress;
use crate::upkeep::Upkeep;
use crate::writer::{Options, Writer};

/// A sink for a store that may be unavailable for a while; see the module's documentation.
///
/// A batch is everything since the last commit. The caller bounds it.
pub struct StoreSink {
    url: String,
    options: Options,
    stop: StopSignal,
    trouble: Box<dyn FnMut(&Error) + Send>,
    writer: Option<Writer>,
    source: String,
    /// The identity of the current batch.
    identity: BatchId,
    /// Packed entries of the current batch.
    batch: Vec<u8>,
    /// The bytes of the batch that the writer has.
    added: usize,
    tend_at: Instant,
}

impl StoreSink {
    /// Opens the store in a single attempt. Later operations wait for the store until `stop` is requested.
    ///
    /// # Errors
    /// Like [`Writer::open`].
    pub fn open(url: &str, options: &Options, stop: StopSignal) -> Result<Self, Error> {
        let random = std::hash::RandomState::new().hash_one(url);
        let started = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let source = format!("{BATCH_SOURCE}{random:016x}");
        let mut sink = Self::closed(url, options, stop, source);
        sink.identity.generation = started;
        sink.connect()?;
        Ok(sink)
    }

    /// A sink without a connection, for batches of this source.
    pub(crate) fn closed(url: &str, options: &Options, stop: StopSignal, source: String) -> Self {
        Self {
            url: url.to_owned(),
            options: options.clone(),
            stop,
            trouble: Box::new(|_| {}),
            writer: None,
            source,
            identity: BatchId { generation: 0, number: 1 },
            batch: Vec::new(),
            added: 0,
            tend_at: Instant::now(),
        }
    }

    /// Sets a callback for failed attempts that will be repeated.
    #[must_use]
    pub fn on_trouble(mut self, observer: impl FnMut(&Error) + Send + 'static) -> Self {
        self.trouble = Box::new(observer);
        self
    }

    /// Does all upkeep after an import, and closes the store.
    ///
    /// # Errors
    /// The store refused; committed batches stay.
    pub fn finish(mut self, now: SystemTime) -> Result<(), Error> {
        self.retry(|sink| sink.writer()?.finish(now))?;
        // Needed only while the outcome of a commit is unknown. Upkeep removes leftovers.
        if let Some(writer) = &mut self.writer {
            drop(writer.forget_position(&self.source));
        }
        Ok(())
    }

    /// Connects in a single attempt.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        self.writer().map(drop)
    }

    /// Commits packed entries under an identity, unless the store has that or a later one of the source.
    pub(crate) fn put(&mut self, identity: BatchId, entries: &[u8]) -> Result<(), Error> {
        self.identity = identity;
        self.batch.clear();
        self.batch.extend_from_slice(entries);
        self.retry(|sink| sink.try_commit(None))?;
        self.begin_batch();
        Ok(())
    }

    /// The latest identity of the source in the store, in a single attempt.
    pub(crate) fn latest(&mut self) -> Result<Option<BatchId>, Error> {
        let source = self.source.clone();
        Ok(self.writer()?.position(&source)?.as_deref().and_then(BatchId::of))
    }

    /// Does one step of upkeep in a single attempt. Only between batches.
    pub(crate) fn keep_up(&mut self, now: SystemTime) -> Result<Upkeep, Error> {
        let step = self.writer()?.upkeep(now);
        if step.is_err() {
            self.disconnect();
        }
        step
    }

    pub(crate) fn disconnect(&mut self) {
        self.writer = None;
        self.added = 0;
    }

    fn writer(&mut self) -> Result<&mut Writer, Error> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                self.added = 0;
                Writer::open(&self.url, &self.options)?
            }
        };
        Ok(self.writer.insert(writer))
    }

    /// Retries until success, a permanent failure, or a stop; reconnects before each retry.
    fn retry<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let mut pause = RetryPause::default();
        loop {
            let error = match attempt(self) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            self.disconnect();
            if !may_pass(&error) {
                return Err(error);
            }
            (self.trouble)(&error);
            if pause.wait(&self.stop) == Waited::Stopped {
                return Err(error);
            }
        }
    }

    fn try_commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error> {
        let is_new = self.writer.is_none();
        let (source, identity) = (self.source.clone(), self.identity);
        let Self { batch, added, .. } = self;
        let (batch, from) = (std::mem::take(batch), *added);
        let done = self.writer().and_then(|writer| {
            if !batch.is_empty() {
                // The outcome on a broken connection is unknown.
                if is_new && writer.has(&source, |place| BatchId::of(place) >= Some(identity))? {
                    return Ok(());
                }
                let from = if is_new { 0 } else { from };
                Unpack(&batch[from..]).try_for_each(|entry| writer.add(&entry))?;
            }
            let place = identity.bytes();
            let own = (!batch.is_empty()).then_some(ReadProgress::Position(&source, &place));
            let mark = mark.map(|mark| ReadProgress::File(mark.source, mark.file));
            writer.commit_places(own.into_iter().chain(mark))
        });
        self.batch = batch;
        done
    }

    fn begin_batch(&mut self) {
        self.batch.clear();
        self.batch.shrink_to(KEPT);
        self.added = 0;
        self.identity.number += 1;
    }
}

/// Returns `true` if a retry may succeed without repair of the store. Timeouts count: the store was busy with
/// something else.
pub(crate) fn may_pass(error: &Error) -> bool {
    error.is_passing() || matches!(error, Error::TimedOut)
}

impl EntrySink for StoreSink {
    /// Never waits: a failure now is retried by the commit.
    fn add(&mut self, entry: &LogEntry<'_>) -> Result<(), Error> {
        let before = self.batch.len();
        pack(entry, &mut self.batch);
        if self.added != before {
            return Ok(());
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        match writer.add(entry) {
            Ok(()) => self.added = self.batch.len(),
            Err(error) => {
                self.disconnect();
                if !may_pass(&error) {
                    return Err(error);
                }
                (self.trouble)(&error);
            }
        }
        Ok(())
    }

    /// Waits until the store has the batch and the mark, both or neither. After a stop, returns the store's
    /// last failure.
    fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error> {
        if self.batch.is_empty() && mark.is_none() {
            return Ok(());
        }
        self.retry(|sink| sink.try_commit(mark))?;
        self.begin_batch();
        Ok(())
    }

    fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error> {
        self.retry(|sink| sink.writer()?.files(source))
    }

    fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
        self.retry(|sink| sink.writer()?.files_with_head(head))
    }

    fn tend(&mut self) -> Result<(), Error> {
        if !self.batch.is_empty() || Instant::now() < self.tend_at {
            return Ok(());
        }
        match self.keep_up(SystemTime::now()) {
            Ok(Upkeep::More) => Ok(()),
            Err(error) if !may_pass(&error) => Err(error),
            // The rest is done next time.
            Ok(Upkeep::Done) | Err(_) => {
                self.tend_at = Instant::now() + BETWEEN_UPKEEP;
                Ok(())
            }
        }
    }
}

/// The capacity kept for the next batch, in bytes.
const KEPT: usize = 1 << 20;

/// The interval of upkeep while nothing is due.
const BETWEEN_UPKEEP: Duration = Duration::from_secs(30);
