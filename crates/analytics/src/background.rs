//! The store in the background of the proxy: a separate thread takes the events of the flusher.
//!
//! Traffic never waits for the store. What the store does not take (it is locked, full, read-only, away, or does not
//! answer) waits in a spool and is written in order once it is back; what finds no room there is dropped and
//! counted. A damaged SQLite file is moved aside and a fresh one begun.
//!
//! ```text
//! taps --batches--> keeper (spool) --jobs--> storing (StoreSink) --> store
//!                          ^------reports------'
//! ```

mod keeper;
mod notice;
mod storing;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use offramp_observe::format::coarse;
use offramp_observe::{Event, Tap};

use crate::background::keeper::{Keeper, Message};
use crate::background::storing::Storing;
use crate::entry::Entry;
use crate::error::Error;
use crate::ingest::Stop;
use crate::pack::pack;
use crate::record;
use crate::sink::StoreSink;
use crate::spool::Spool;
use crate::writer::Options;
use crate::writer::shape::OTHER;

pub use notice::Notice;

/// How the store is kept in the background.
pub struct BackgroundSettings {
    /// The store's URL.
    pub url: String,
    /// How it is written.
    pub options: Options,
    /// The file in which events wait while the store does not take them.
    pub spool: PathBuf,
    /// The most bytes of that file.
    pub spool_limit: u64,
    /// Told whenever something happens that an operator should know.
    pub notify: Box<dyn FnMut(&Notice) + Send>,
}

/// What became of events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Events that are in the store.
    pub stored: u64,
    /// Bytes that wait in the spool.
    pub waiting: u64,
    /// Events that found no room anywhere.
    pub dropped: u64,
    /// Whether the store takes events, as far as is known.
    pub is_well: bool,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) stored: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) is_well: AtomicBool,
    /// How often the thread between taps and store woke up.
    pub(crate) turns: AtomicU64,
    /// Set when the thread must end; earlier events are still written.
    pub(crate) stopping: AtomicBool,
}

impl Counts {
    fn figures(&self) -> Figures {
        Figures {
            stored: self.stored.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            is_well: self.is_well.load(Ordering::Relaxed),
        }
    }
}

/// Tells what becomes of events, from anywhere. Cheap to clone.
#[derive(Clone)]
pub struct Monitor(Arc<Counts>);

impl Monitor {
    /// What became of events so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.0.figures()
    }

    /// How often the thread between taps and store woke up: a measure of its work.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }
}

/// A running store. Dropping it writes what was handed over, into the store or the spool, and waits for that, but
/// never long: a store or a disk that hangs does not hold up the end.
pub struct Background {
    sender: Option<SyncSender<Message>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread ends, in whatever way.
    ended: Receiver<()>,
}

/// Batches that may be on their way to the thread.
const ON_THE_WAY: usize = 32;

/// A batch is handed over when it has so many bytes, even if more events follow at once.
const BATCH_BYTES: usize = 64 << 10;

/// A store that has not answered after so long at the start is left to itself.
const START: Duration = Duration::from_secs(5);

/// So long the end may take.
const END: Duration = Duration::from_secs(8);

/// More than this is not kept while the thread takes nothing.
const MOST_BYTES: usize = 4 << 20;

impl Background {
    /// Starts the thread. A store that is locked, full or away is no error: its events wait.
    ///
    /// # Errors
    /// A wrong URL, a store of a later version, or a spool that cannot be used.
    pub fn start(settings: BackgroundSettings) -> Result<Self, Error> {
        let failed = |error| Error::Io("starting the store's threads".to_owned(), error);
        let counts = Arc::new(Counts::default());
        let (sender, receiver) = sync_channel(ON_THE_WAY);
        let spool = Spool::open(&settings.spool, settings.spool_limit)?;
        let stop = Stop::new().map_err(failed)?;
        let sink = StoreSink::closed(&settings.url, &settings.options, stop.clone(), spool.source());
        let storing = Storing::new(settings.url.clone(), sink, stop.clone(), sender.clone());
        let ((jobs, given), (opened, is_open)) = (sync_channel(1), sync_channel(1));
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("offramp-store").spawn(move || storing.run(&given, &opened)).map_err(failed)?;
        match is_open.recv_timeout(START) {
            Ok(Err(error)) => return Err(error),
            Ok(Ok(())) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Store("its thread ended because of a fault in Offramp".to_owned()));
            }
        }
        let keeper = Keeper::new(settings, Arc::clone(&counts), spool, jobs, stop);
        let (ends, ended) = channel::<()>();
        let run = move || {
            keeper.run(&receiver);
            drop(ends);
        };
        let thread = thread("offramp-spool").spawn(run).map_err(failed)?;
        Ok(Self { sender: Some(sender), counts, thread: Some(thread), ended })
    }

    /// A tap for the flusher; `anonymize` has it forget the host part of clients' addresses. Taps may be many;
    /// each hands over batches of its own.
    #[must_use]
    pub fn tap(&self, anonymize: bool) -> StoreTap {
        StoreTap {
            anonymize,
            keeps_host: None,
            sender: self.sender.clone(),
            counts: Arc::clone(&self.counts),
            batch: Vec::with_capacity(BATCH_BYTES + 4096),
            events: 0,
        }
    }

    /// What became of events so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.counts.figures()
    }

    /// Who tells that later.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.counts))
    }

    /// Writes what was handed over, ends, and says what became of everything. Taps that still exist drop what
    /// they are given from now on.
    pub fn stop(self) -> Figures {
        let counts = Arc::clone(&self.counts);
        drop(self);
        counts.figures()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.counts.stopping.store(true, Ordering::Release);
        if let Some(sender) = self.sender.take() {
            // Wakes the thread. Where the queue is full it is awake.
            drop(sender.try_send(Message::Stop));
        }
        if self.ended.recv_timeout(END) != Err(RecvTimeoutError::Timeout)
            && let Some(thread) = self.thread.take()
        {
            // A thread that panicked has said so itself.
            drop(thread.join());
        }
    }
}

/// Whether a host is kept by name.
type KeepsHost = Box<dyn Fn(&[u8]) -> bool + Send>;

/// Hands the flusher's events to the store's thread. Never blocks: a batch that the thread has no room for stays
/// here until the next flush, and what is too much even then is dropped and counted.
pub struct StoreTap {
    anonymize: bool,
    /// Which hosts are kept by name; all where it is not there.
    keeps_host: Option<KeepsHost>,
    sender: Option<SyncSender<Message>>,
    counts: Arc<Counts>,
    batch: Vec<u8>,
    events: u32,
}

impl StoreTap {
    /// Hosts that this does not know are kept as one: clients can make up as many as they like.
    #[must_use]
    pub fn keeping_hosts(mut self, knows: impl Fn(&[u8]) -> bool + Send + 'static) -> Self {
        self.keeps_host = Some(Box::new(knows));
        self
    }

    /// Takes an entry from elsewhere than the flusher.
    pub fn take_entry(&mut self, entry: &Entry<'_>) {
        if self.batch.len() >= MOST_BYTES {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match (&self.keeps_host, entry.host) {
            (Some(keeps), Some(host)) if !keeps(host) => {
                pack(&Entry { host: Some(OTHER.as_bytes()), ..*entry }, &mut self.batch);
            }
            _ => pack(entry, &mut self.batch),
        }
        self.events += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if self.events == 0 {
            return;
        }
        let Some(sender) = &self.sender else { return };
        let batch = std::mem::take(&mut self.batch);
        match sender.try_send(Message::Batch { events: self.events, bytes: batch }) {
            Ok(()) => {
                self.batch.reserve(1024);
                self.events = 0;
            }
            Err(TrySendError::Full(Message::Batch { bytes, .. })) => self.batch = bytes,
            Err(_) => {
                self.counts.dropped.fetch_add(u64::from(self.events), Ordering::Relaxed);
                self.events = 0;
                self.sender = None;
            }
        }
    }
}

impl Tap for StoreTap {
    fn take(&mut self, event: &Event) {
        let mut entry = record::entry(event);
        if self.anonymize {
            entry.client = entry.client.map(coarse);
        }
        self.take_entry(&entry);
    }

    fn flush(&mut self) {
        self.hand_over();
    }
}

impl Drop for StoreTap {
    fn drop(&mut self) {
        self.hand_over();
        self.counts.dropped.fetch_add(u64::from(self.events), Ordering::Relaxed);
    }
}
