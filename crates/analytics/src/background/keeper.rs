//! The store's thread: what it does with each batch, and when.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use crate::background::{BackgroundSettings, Counts, Notice};
use crate::error::Error;
use crate::pack::Unpack;
use crate::spool::{Kept, Spool};
use crate::upkeep::Upkeep;
use crate::writer::{Writer, move_aside};

/// What the thread is told.
pub(crate) enum Message {
    /// Packed entries.
    Batch { events: u32, bytes: Vec<u8> },
    /// Look at the flag that says stop.
    Stop,
}

/// A batch that is not committed for so long is.
const COMMIT_AFTER: Duration = Duration::from_millis(900);

/// So many bytes of entries are committed without waiting.
const COMMIT_BYTES: usize = 2 << 20;

/// A store that failed is tried again after this, then after twice as long, and so on.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(15);

/// How often upkeep is looked at, and how long the thread rests between its steps.
const UPKEEP_EVERY: Duration = Duration::from_secs(60);
const UPKEEP_REST: Duration = Duration::from_millis(20);

/// So long another process may hold the store before events go to the spool.
const BUSY: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    settings: BackgroundSettings,
    counts: Arc<Counts>,
    spool: Spool,
    /// The store, while it takes events.
    writer: Option<Writer>,
    /// What was added and is not committed: it goes to the spool if the store fails.
    uncommitted: Vec<(u32, Vec<u8>)>,
    commit_at: Option<Instant>,
    retry_at: Instant,
    retry_after: Duration,
    upkeep_at: Instant,
    /// Events that went to the spool since the store failed.
    waited: u64,
    /// Whether the store took what it was last given: only changes are told.
    well: bool,
    dropping: bool,
}

impl Keeper {
    /// Opens spool and store.
    pub(crate) fn begin(mut settings: BackgroundSettings, counts: Arc<Counts>) -> Result<Self, Error> {
        settings.options.busy_timeout = settings.options.busy_timeout.min(BUSY);
        let spool = Spool::open(&settings.spool, settings.spool_limit)?;
        let now = Instant::now();
        let mut keeper = Self {
            settings,
            counts,
            spool,
            writer: None,
            uncommitted: Vec::new(),
            commit_at: None,
            retry_at: now,
            retry_after: FIRST_RETRY,
            upkeep_at: now + UPKEEP_REST,
            waited: 0,
            well: true,
            dropping: false,
        };
        match keeper.reopen() {
            Err(error) if !error.is_passing() && !matches!(error, Error::Corrupt(_)) => Err(error),
            Err(error) => {
                keeper.failed(error);
                Ok(keeper)
            }
            Ok(()) => Ok(keeper),
        }
    }

    /// Works until it is told to stop, or nobody is left who could tell it anything.
    pub(crate) fn run(&mut self, receiver: &Receiver<Message>) {
        loop {
            let message = match self.due() {
                Some(at) => receiver.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Batch { events, bytes }) => self.take(events, bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(Message::Stop) | Err(RecvTimeoutError::Timeout) => {}
            }
            if self.counts.stopping.load(Ordering::Acquire) {
                while let Ok(message) = receiver.try_recv() {
                    if let Message::Batch { events, bytes } = message {
                        self.take(events, bytes);
                    }
                }
                break;
            }
            self.work();
        }
        self.commit();
    }

    /// When something is to be done even if no batch comes.
    fn due(&self) -> Option<Instant> {
        let store = if self.writer.is_none() { self.retry_at } else { self.upkeep_at };
        let spool = (self.writer.is_some() && self.spool.waiting() > 0).then(Instant::now);
        [Some(store), spool, self.commit_at].into_iter().flatten().min()
    }

    fn take(&mut self, events: u32, bytes: Vec<u8>) {
        // What waits goes first.
        if self.writer.is_none() || self.spool.waiting() > 0 {
            self.push(events, &bytes);
            return;
        }
        let result = self.add(&bytes);
        self.uncommitted.push((events, bytes));
        if let Err(error) = result {
            self.failed(error);
            return;
        }
        let size: usize = self.uncommitted.iter().map(|(_, bytes)| bytes.len()).sum();
        if size >= COMMIT_BYTES {
            self.commit();
        } else if self.commit_at.is_none() {
            self.commit_at = Some(Instant::now() + COMMIT_AFTER);
        }
    }

    fn work(&mut self) {
        let now = Instant::now();
        if self.commit_at.is_some_and(|at| at <= now) {
            self.commit();
        }
        if self.writer.is_none()
            && self.retry_at <= now
            && let Err(error) = self.reopen()
        {
            self.failed(error);
        }
        if self.writer.is_some() && self.spool.waiting() > 0 {
            self.catch_up();
        }
        if self.upkeep_at <= now && self.writer.is_some() && self.uncommitted.is_empty() {
            self.keep_up();
        }
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        Unpack(bytes).try_for_each(|entry| writer.add(&entry))
    }

    fn commit(&mut self) {
        self.commit_at = None;
        let Some(writer) = &mut self.writer else { return };
        match writer.commit() {
            Ok(()) => {
                let events: u64 = self.uncommitted.drain(..).map(|(events, _)| u64::from(events)).sum();
                self.counts.stored.fetch_add(events, Ordering::Relaxed);
                self.recovered();
            }
            Err(error) => self.failed(error),
        }
    }

    /// The store took something, and nothing waits any more.
    fn recovered(&mut self) {
        self.retry_after = FIRST_RETRY;
        let events = std::mem::take(&mut self.waited);
        if !std::mem::replace(&mut self.well, true) || events > 0 {
            (self.settings.notify)(&Notice::CaughtUp { events });
        }
    }

    fn keep_up(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        let rest = match writer.upkeep(SystemTime::now()) {
            Ok(Upkeep::More) => UPKEEP_REST,
            Ok(Upkeep::Done) => UPKEEP_EVERY,
            Err(error @ Error::Corrupt(_)) => return self.failed(error),
            Err(error) => {
                (self.settings.notify)(&Notice::UpkeepFailed(error));
                UPKEEP_EVERY
            }
        };
        self.upkeep_at = Instant::now() + rest;
    }

    /// The store failed: what is not committed waits, and it is tried again later.
    fn failed(&mut self, error: Error) {
        self.commit_at = None;
        self.writer = None;
        let was_well = std::mem::replace(&mut self.well, false);
        let mut again = self.retry_after;
        if matches!(error, Error::Corrupt(_)) {
            match move_aside(&self.settings.url) {
                Ok(path) => {
                    (self.settings.notify)(&Notice::MovedAside(path, error));
                    again = Duration::ZERO;
                }
                Err(error) => (self.settings.notify)(&Notice::Damaged(error)),
            }
        } else if was_well {
            (self.settings.notify)(&Notice::Waiting(error));
        }
        self.retry_at = Instant::now() + again;
        self.retry_after = (self.retry_after * 2).min(LAST_RETRY);
        for (events, bytes) in std::mem::take(&mut self.uncommitted) {
            self.push(events, &bytes);
        }
    }

    fn push(&mut self, events: u32, bytes: &[u8]) {
        let notice = match self.spool.push(events, bytes) {
            Ok(Kept::Yes) => {
                self.dropping = false;
                self.waited += u64::from(events);
                self.counts.waiting.store(self.spool.waiting(), Ordering::Relaxed);
                return;
            }
            Ok(Kept::Full) => Notice::Dropping(None),
            Err(error) => Notice::Dropping(Some(error)),
        };
        self.counts.dropped.fetch_add(u64::from(events), Ordering::Relaxed);
        if !std::mem::replace(&mut self.dropping, true) {
            (self.settings.notify)(&notice);
        }
    }

    fn reopen(&mut self) -> Result<(), Error> {
        let mut writer = Writer::open(&self.settings.url, &self.settings.options)?;
        let position = writer.position(&self.spool.source())?;
        self.spool.seek(position.as_deref());
        self.writer = Some(writer);
        Ok(())
    }

    /// Writes one part of what waits, in order, together with how far it was read.
    fn catch_up(&mut self) {
        match self.catch_up_some() {
            Ok(events) => {
                self.counts.stored.fetch_add(events, Ordering::Relaxed);
                self.counts.waiting.store(self.spool.waiting(), Ordering::Relaxed);
                self.waited = self.waited.max(events);
                if self.spool.waiting() == 0 {
                    let cleared = self.spool.clear();
                    self.recovered();
                    if let Err(error) = cleared {
                        (self.settings.notify)(&Notice::Dropping(Some(error)));
                    }
                }
            }
            // Nothing was committed: where to go on is looked up when the store is opened again.
            Err(error) => self.failed(error),
        }
    }

    fn catch_up_some(&mut self) -> Result<u64, Error> {
        let (mut events, mut size) = (0, 0);
        while size < COMMIT_BYTES {
            let Some(record) = self.spool.take()? else { break };
            self.add(&record.bytes)?;
            events += u64::from(record.events);
            size += record.bytes.len();
        }
        let (source, position) = (self.spool.source(), self.spool.position());
        if let Some(writer) = &mut self.writer {
            writer.commit_with(&source, &position)?;
        }
        Ok(events)
    }
}
