//! The store as everything that writes uses it: it waits for a store that is away, reconnects, and doubles nothing.
//!
//! A [`StoreSink`] keeps each batch until the store has it. When the store is locked, full or away, it drops the
//! connection, waits, connects again and adds the whole batch again. Each batch has an identity that is committed
//! with it. A connection that breaks in `COMMIT` leaves open whether the batch is in the store: the next
//! connection takes the writers' lock, by which the old transaction has ended, and looks for the identity first.

use std::hash::BuildHasher;
use std::time::{Duration, Instant, SystemTime};

use crate::entry::Entry;
use crate::error::Error;
use crate::ingest::{FileRecord, Mark, Pause, Sink, Stop, Waited};
use crate::pack::{Unpack, pack};
use crate::upkeep::Upkeep;
use crate::writer::{Options, Place, Writer};

/// What a batch is known by in the store: the latest of its source that is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// Rises with every start of the source.
    pub(crate) generation: u64,
    /// Rises with every batch.
    pub(crate) number: u64,
}

impl Identity {
    /// As it is stored.
    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.generation.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// From what is stored; `None` where that is something else.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (generation, number) = bytes.split_first_chunk::<8>()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        Some(Self { generation: u64::from_be_bytes(*generation), number })
    }
}

/// Sources of batches that nothing but this process knows begin so; upkeep removes those that are old.
pub(crate) const BATCH_SOURCE: &str = "batch-";

/// A store to write to that is waited for; see the module's documentation.
///
/// A batch is what was added since the last commit. The caller bounds it.
pub struct StoreSink {
    url: String,
    options: Options,
    stop: Stop,
    trouble: Box<dyn FnMut(&Error) + Send>,
    writer: Option<Writer>,
    source: String,
    /// The present batch's.
    identity: Identity,
    /// Packed entries of the present batch.
    batch: Vec<u8>,
    /// How many bytes of the batch the writer has.
    added: usize,
    tend_at: Instant,
}

impl StoreSink {
    /// Opens the store, trying once. From then on everything waits for the store until `stop` is requested.
    ///
    /// # Errors
    /// As [`Writer::open`].
    pub fn open(url: &str, options: &Options, stop: Stop) -> Result<Self, Error> {
        let random = std::hash::RandomState::new().hash_one(url);
        let started = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let source = format!("{BATCH_SOURCE}{random:016x}");
        let mut sink = Self::closed(url, options, stop, source);
        sink.identity.generation = started;
        sink.connect()?;
        Ok(sink)
    }

    /// The same without a connection, for batches of this source.
    pub(crate) fn closed(url: &str, options: &Options, stop: Stop, source: String) -> Self {
        Self {
            url: url.to_owned(),
            options: options.clone(),
            stop,
            trouble: Box::new(|_| {}),
            writer: None,
            source,
            identity: Identity { generation: 0, number: 1 },
            batch: Vec::new(),
            added: 0,
            tend_at: Instant::now(),
        }
    }

    /// Tells of each attempt that failed and will be repeated.
    #[must_use]
    pub fn on_trouble(mut self, tell: impl FnMut(&Error) + Send + 'static) -> Self {
        self.trouble = Box::new(tell);
        self
    }

    /// Does all upkeep after an import, and closes the store.
    ///
    /// # Errors
    /// The store refused; what was committed lasts.
    pub fn finish(mut self, now: SystemTime) -> Result<(), Error> {
        self.retry(|sink| sink.writer()?.finish(now))?;
        // It is only needed while the outcome of a commit may be unknown. Upkeep removes what stays.
        if let Some(writer) = &mut self.writer {
            drop(writer.forget_position(&self.source));
        }
        Ok(())
    }

    /// Connects, trying once.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        self.writer().map(drop)
    }

    /// Commits packed entries under an identity, unless the store has that or a later one of the source.
    pub(crate) fn put(&mut self, identity: Identity, entries: &[u8]) -> Result<(), Error> {
        self.identity = identity;
        self.batch.clear();
        self.batch.extend_from_slice(entries);
        self.retry(|sink| sink.try_commit(None))?;
        self.begin_batch();
        Ok(())
    }

    /// The latest identity of the source that is in the store, trying once.
    pub(crate) fn latest(&mut self) -> Result<Option<Identity>, Error> {
        let source = self.source.clone();
        Ok(self.writer()?.position(&source)?.as_deref().and_then(Identity::of))
    }

    /// One step of upkeep, trying once. Only between batches.
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

    /// Tries until it succeeds, fails permanently, or must stop; each time but the first with a new connection.
    fn retry<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let mut pause = Pause::default();
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
                // Of a connection that broke nobody knows what it still did.
                if is_new && writer.has(&source, |place| Identity::of(place) >= Some(identity))? {
                    return Ok(());
                }
                let from = if is_new { 0 } else { from };
                Unpack(&batch[from..]).try_for_each(|entry| writer.add(&entry))?;
            }
            let place = identity.bytes();
            let own = (!batch.is_empty()).then_some(Place::Position(&source, &place));
            let mark = mark.map(|mark| Place::File(mark.source, mark.file));
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

/// Whether the same may succeed later without anybody repairing the store. What took too long may: the store was
/// busy with something else.
pub(crate) fn may_pass(error: &Error) -> bool {
    error.is_passing() || matches!(error, Error::TimedOut)
}

impl Sink for StoreSink {
    /// Never waits: a store that fails now is waited for by the commit.
    fn add(&mut self, entry: &Entry<'_>) -> Result<(), Error> {
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

    /// Waits until the store has the batch and the mark, both or neither. Where it is to stop before, the error is
    /// what the store failed with last.
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
            // What is not done now is done the next time.
            Ok(Upkeep::Done) | Err(_) => {
                self.tend_at = Instant::now() + BETWEEN_UPKEEP;
                Ok(())
            }
        }
    }
}

/// Memory for a batch that is kept from one to the next, in bytes.
const KEPT: usize = 1 << 20;

/// Where nothing fell due, upkeep is looked at again after this.
const BETWEEN_UPKEEP: Duration = Duration::from_secs(30);
