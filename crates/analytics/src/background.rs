//! The log store inside the proxy: a thread of its own takes the events of the flusher.
//!
//! Traffic never waits for the store. Events that the store does not take (because it is locked, full,
//! read-only, unreachable, or hangs) wait in a spool and are written in order once it recovers; events
//! without room there are dropped and counted. A damaged SQLite file is moved aside and a fresh one created.
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

use crate::background::keeper::{KeeperMessage, StoreKeeper};
use crate::background::storing::Storing;
use crate::entry::LogEntry;
use crate::error::Error;
use crate::ingest::StopSignal;
use crate::pack::pack;
use crate::record;
use crate::sink::StoreSink;
use crate::spool::Spool;
use crate::store::schema::OTHER_HOSTS;
use crate::writer::Options;

pub use notice::StoreNotice;

/// The parameters of a background store.
pub struct BackgroundSettings {
    /// The URL of the store.
    pub url: String,
    /// Options of the store, such as retention.
    pub options: Options,
    /// The path of the spool, where events wait while the store is unavailable.
    pub spool: PathBuf,
    /// The maximum size of the spool, in bytes.
    pub spool_limit: u64,
    /// Called for every condition that an operator should know about.
    pub notify: Box<dyn FnMut(&StoreNotice) + Send>,
}

/// Event counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Events committed to the store.
    pub stored: u64,
    /// Bytes waiting in the spool.
    pub waiting: u64,
    /// Events dropped for want of room.
    pub dropped: u64,
    /// Set while the store accepts events, as far as is known.
    pub is_well: bool,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) stored: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) is_well: AtomicBool,
    /// Wake-ups of the thread between taps and store.
    pub(crate) turns: AtomicU64,
    /// Set to end the thread, which first writes earlier events.
    pub(crate) stopping: AtomicBool,
}

impl Counts {
    fn figures(&self) -> StoreStats {
        StoreStats {
            stored: self.stored.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            is_well: self.is_well.load(Ordering::Relaxed),
        }
    }
}

/// A handle to the counts for any thread. Cheap to clone.
#[derive(Clone)]
pub struct Monitor(Arc<Counts>);

impl Monitor {
    /// The counts so far.
    #[must_use]
    pub fn figures(&self) -> StoreStats {
        self.0.figures()
    }

    /// Wake-ups of the thread between taps and store: a measure of its work.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }
}

/// A running store. Dropping it writes queued events to the store or the spool, and waits for that up to
/// eight seconds: a store or disk that hangs does not block shutdown.
pub struct Background {
    sender: Option<SyncSender<KeeperMessage>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread ends, even by a panic.
    ended: Receiver<()>,
}

/// The capacity of the channel to the thread, in batches.
const ON_THE_WAY: usize = 32;

/// The size at which a batch is sent without waiting for a flush.
const BATCH_BYTES: usize = 64 << 10;

/// The time for the store to answer at start-up, after which the start goes on without it.
const START: Duration = Duration::from_secs(5);

/// The longest wait at shutdown.
const END: Duration = Duration::from_secs(8);

/// The bytes that a tap keeps while the thread takes nothing; more is dropped.
const MOST_BYTES: usize = 4 << 20;

impl Background {
    /// Starts the thread. A store that is locked, full or unreachable is not an error: its events wait.
    ///
    /// # Errors
    /// A wrong URL, a store of a later version, or a spool that cannot be used.
    pub fn start(settings: BackgroundSettings) -> Result<Self, Error> {
        let failed = |error| Error::Io("starting the store's threads".to_owned(), error);
        let counts = Arc::new(Counts::default());
        let (sender, receiver) = sync_channel(ON_THE_WAY);
        let spool = Spool::open(&settings.spool, settings.spool_limit)?;
        let stop = StopSignal::new().map_err(failed)?;
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
        let keeper = StoreKeeper::new(settings, Arc::clone(&counts), spool, jobs, stop);
        let (ends, ended) = channel::<()>();
        let run = move || {
            keeper.run(&receiver);
            drop(ends);
        };
        let thread = thread("offramp-spool").spawn(run).map_err(failed)?;
        Ok(Self { sender: Some(sender), counts, thread: Some(thread), ended })
    }

    /// A tap for the flusher; with `anonymize` it drops the host part of client addresses. There may be
    /// several taps, each with batches of its own.
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

    /// The counts so far.
    #[must_use]
    pub fn figures(&self) -> StoreStats {
        self.counts.figures()
    }

    /// A handle to the counts that outlives the store.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.counts))
    }

    /// Writes queued events, ends the thread, and returns the final counts. Taps that still exist drop events
    /// from then on.
    pub fn stop(self) -> StoreStats {
        let counts = Arc::clone(&self.counts);
        drop(self);
        counts.figures()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.counts.stopping.store(true, Ordering::Release);
        if let Some(sender) = self.sender.take() {
            // Wakes the thread. With a full queue it is awake already.
            drop(sender.try_send(KeeperMessage::Stop));
        }
        if self.ended.recv_timeout(END) != Err(RecvTimeoutError::Timeout)
            && let Some(thread) = self.thread.take()
        {
            // The panic hook has reported any panic of the thread.
            drop(thread.join());
        }
    }
}

/// Decides which hosts are stored by name.
type KeepsHost = Box<dyn Fn(&[u8]) -> bool + Send>;

/// Sends the flusher's events to the store's thread. Never blocks: a batch without room in the channel stays
/// here until the next flush, and beyond `MOST_BYTES` events are dropped and counted.
pub struct StoreTap {
    anonymize: bool,
    /// The filter of hosts to store by name; `None` stores all.
    keeps_host: Option<KeepsHost>,
    sender: Option<SyncSender<KeeperMessage>>,
    counts: Arc<Counts>,
    batch: Vec<u8>,
    events: u32,
}

impl StoreTap {
    /// Stores unknown hosts under one common name: clients can invent any number of hosts.
    #[must_use]
    pub fn keeping_hosts(mut self, knows: impl Fn(&[u8]) -> bool + Send + 'static) -> Self {
        self.keeps_host = Some(Box::new(knows));
        self
    }

    /// Takes an entry from another source than the flusher.
    pub fn take_entry(&mut self, entry: &LogEntry<'_>) {
        if self.batch.len() >= MOST_BYTES {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match (&self.keeps_host, entry.host) {
            (Some(keeps), Some(host)) if !keeps(host) => {
                pack(&LogEntry { host: Some(OTHER_HOSTS.as_bytes()), ..*entry }, &mut self.batch);
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
        match sender.try_send(KeeperMessage::Batch { events: self.events, bytes: batch }) {
            Ok(()) => {
                self.batch.reserve(1024);
                self.events = 0;
            }
            Err(TrySendError::Full(KeeperMessage::Batch { bytes, .. })) => self.batch = bytes,
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
