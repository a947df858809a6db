//! The thread between taps and store: gathers events into batches, gives them to the store's thread, and
//! spools what that does not take. It never touches the store, so no store can block it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use offramp_observe::panics;

use crate::background::notice::StoreNotice;
use crate::background::storing::{StoreReport, WriteJob};
use crate::background::{BackgroundSettings, Counts};
use crate::batch::BatchId;
use crate::ingest::StopSignal;
use crate::spool::{Spool, SpoolOutcome};

/// A message to this thread.
pub(crate) enum KeeperMessage {
    /// Packed entries from a tap.
    Batch { events: u32, bytes: Vec<u8> },
    /// A report of the store's thread.
    Store(StoreReport),
    /// A wake-up to check [`Counts::stopping`].
    Stop,
}

/// The age at which gathered entries are given to the store.
const GIVE_AFTER: Duration = Duration::from_millis(900);

/// The bytes of entries that are given to the store at once; beyond that they are spooled.
const GIVE_BYTES: usize = 2 << 20;

/// The time after which a store with an unfinished batch counts as hanging, and events are spooled.
const HANGS_AFTER: Duration = Duration::from_secs(5);

/// The time that a healthy store gets for the last batches at shutdown.
const LAST_BATCHES: Duration = Duration::from_secs(4);

/// The pause after a panic, which the panic hook has logged.
const AFTER_PANIC: Duration = Duration::from_secs(1);

pub(crate) struct StoreKeeper {
    counts: Arc<Counts>,
    notify: Box<dyn FnMut(&StoreNotice) + Send>,
    spool: Spool,
    jobs: SyncSender<WriteJob>,
    /// Interrupts waits of the store's thread.
    stop: StopSignal,
    /// The batch that the store's thread works on.
    given: Option<PendingBatch>,
    gathered: UnsentBatch,
    /// The identity of the last batch.
    identity: BatchId,
    /// Set while the store accepts events, as far as is known.
    well: bool,
    /// Set once the store has named its last batch: no batch is given before that.
    is_open: bool,
    begun: Instant,
    ended: bool,
    /// Events spooled since the store stopped to accept them.
    waited: u64,
    dropping: bool,
}

/// The next batch, gathered until it is large or old enough.
#[derive(Default)]
struct UnsentBatch {
    entries: Vec<u8>,
    events: u32,
    /// The time at which it is given to the store; `None` while it is empty.
    give_at: Option<Instant>,
}

struct PendingBatch {
    identity: BatchId,
    events: u64,
    bytes: Arc<Vec<u8>>,
    since: Instant,
    /// The end of the batch in the spool, if it was spooled.
    spooled: Option<u64>,
}

impl StoreKeeper {
    pub(crate) fn new(
        settings: BackgroundSettings,
        counts: Arc<Counts>,
        spool: Spool,
        jobs: SyncSender<WriteJob>,
        stop: StopSignal,
    ) -> Self {
        counts.waiting.store(spool.waiting(), Ordering::Relaxed);
        Self {
            counts,
            notify: settings.notify,
            identity: BatchId { generation: spool.generation(), number: 0 },
            spool,
            jobs,
            stop,
            given: None,
            gathered: UnsentBatch::default(),
            well: true,
            is_open: false,
            begun: Instant::now(),
            ended: false,
            waited: 0,
            dropping: false,
        }
    }

    /// Runs until ordered to stop, or until all senders are gone.
    pub(crate) fn run(mut self, receiver: &Receiver<KeeperMessage>) {
        while !self.counts.stopping.load(Ordering::Acquire) {
            self.counts.turns.fetch_add(1, Ordering::Relaxed);
            let message = match self.due() {
                Some(at) => receiver.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let message = match message {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => None,
            };
            let worked = panics::catch(|| {
                message.into_iter().for_each(|message| self.handle_message(message));
                self.work();
            });
            if worked.is_err() {
                std::thread::sleep(AFTER_PANIC);
            }
        }
        self.finish(receiver);
    }

    /// The time at which there is work without a message.
    fn due(&self) -> Option<Instant> {
        match self.waits_since() {
            // A gathered batch has to wait, and the store's thread itself retries a store that is known to be
            // away.
            Some(since) => self.well.then(|| since + HANGS_AFTER),
            None => self.gathered.give_at,
        }
    }

    /// The time since which the store has had a batch, if it has one.
    fn waits_since(&self) -> Option<Instant> {
        if self.is_open { self.given.as_ref().map(|given| given.since) } else { Some(self.begun) }
    }

    fn handle_message(&mut self, message: KeeperMessage) {
        match message {
            KeeperMessage::Batch { events, bytes } => self.take(events, &bytes),
            KeeperMessage::Store(report) => self.reported(report),
            KeeperMessage::Stop => {}
        }
    }

    fn take(&mut self, events: u32, bytes: &[u8]) {
        if !self.well || self.spool.waiting() > 0 {
            // Keeps the order: earlier events first.
            self.spool_gathered();
            self.gather(events, bytes);
            self.spool_gathered();
            return;
        }
        self.gather(events, bytes);
        if self.gathered.entries.len() >= GIVE_BYTES {
            if self.given.is_some() {
                self.spool_gathered();
            } else {
                self.gathered.give_at = Some(Instant::now());
            }
        }
    }

    fn gather(&mut self, events: u32, bytes: &[u8]) {
        self.gathered.entries.extend_from_slice(bytes);
        self.gathered.events = self.gathered.events.saturating_add(events);
        self.gathered.give_at.get_or_insert_with(|| Instant::now() + GIVE_AFTER);
    }

    fn work(&mut self) {
        let now = Instant::now();
        if self.well && self.waits_since().is_some_and(|since| since + HANGS_AFTER <= now) {
            self.unwell(&StoreNotice::Waiting(format!(
                "it has not answered for {} s",
                HANGS_AFTER.as_secs()
            )));
        }
        if self.given.is_some() || !self.is_open {
            return;
        }
        if self.spool.waiting() > 0 {
            self.give_spooled();
        } else if self.gathered.give_at.is_some_and(|at| at <= now) {
            self.give_gathered();
        }
    }

    fn reported(&mut self, report: StoreReport) {
        match report {
            StoreReport::Opened(latest) => {
                self.is_open = true;
                if let Some(latest) = latest {
                    self.spool.skip(latest);
                }
                self.settle();
            }
            StoreReport::Done => {
                if let Some(given) = self.given.take() {
                    self.counts.stored.fetch_add(given.events, Ordering::Relaxed);
                    if let Some(end) = given.spooled {
                        self.spool.done(end);
                    }
                }
                self.settle();
            }
            StoreReport::Trouble(error) => self.unwell(&StoreNotice::Waiting(error)),
            StoreReport::Notice(notice @ StoreNotice::UpkeepFailed(_)) => (self.notify)(&notice),
            StoreReport::Notice(notice @ StoreNotice::MovedAside(..)) => {
                // Reported whatever was reported before.
                self.well = true;
                self.unwell(&notice);
            }
            StoreReport::Notice(notice) => self.unwell(&notice),
            StoreReport::Ended => self.ended = true,
        }
    }

    /// Handles progress of the store. Once the spool is empty, the store counts as healthy.
    fn settle(&mut self) {
        self.counts.waiting.store(self.spool.waiting(), Ordering::Relaxed);
        if self.spool.waiting() > 0 {
            return;
        }
        let cleared = self.spool.clear();
        let events = std::mem::take(&mut self.waited);
        if !std::mem::replace(&mut self.well, true) || events > 0 {
            (self.notify)(&StoreNotice::CaughtUp { events });
        }
        self.counts.is_well.store(true, Ordering::Relaxed);
        if let Err(error) = cleared {
            (self.notify)(&StoreNotice::Dropping(Some(error)));
        }
    }

    /// Handles a store that does not accept events: spools the given batch and all later ones.
    fn unwell(&mut self, notice: &StoreNotice) {
        if !std::mem::replace(&mut self.well, false) {
            return;
        }
        self.counts.is_well.store(false, Ordering::Relaxed);
        (self.notify)(notice);
        self.spool_given();
        self.spool_gathered();
    }

    fn next_identity(&mut self) -> BatchId {
        self.identity.number += 1;
        self.identity
    }

    fn give_gathered(&mut self) {
        let UnsentBatch { entries, events, .. } = std::mem::take(&mut self.gathered);
        let (bytes, events) = (Arc::new(entries), u64::from(events));
        let identity = self.next_identity();
        self.give(PendingBatch { identity, events, bytes, since: Instant::now(), spooled: None });
    }

    fn give_spooled(&mut self) {
        match self.spool.peek(GIVE_BYTES) {
            Ok(Some(found)) => self.give(PendingBatch {
                identity: found.identity,
                events: found.events,
                bytes: Arc::new(found.bytes),
                since: Instant::now(),
                spooled: Some(found.end),
            }),
            Ok(None) => self.settle(),
            Err(error) => {
                (self.notify)(&StoreNotice::Dropping(Some(error)));
                self.spool.give_up();
                self.settle();
            }
        }
    }

    fn give(&mut self, given: PendingBatch) {
        let job = WriteJob { identity: given.identity, bytes: Arc::clone(&given.bytes) };
        // The channel has room for one, and one is given at a time. A panic of the thread was reported by the
        // hook.
        if self.jobs.try_send(job).is_ok() || given.spooled.is_none() {
            self.given = Some(given);
        }
    }

    /// Spools the given batch as well: its identity prevents a second storage.
    fn spool_given(&mut self) {
        let Some(given) = self.given.take_if(|given| given.spooled.is_none()) else { return };
        let events = u32::try_from(given.events).unwrap_or(u32::MAX);
        let spooled = match self.spool.push(given.identity, events, &given.bytes) {
            Ok(SpoolOutcome::Yes) => Some(self.spool.end()),
            // The store's thread still has the batch.
            Ok(SpoolOutcome::Full) | Err(_) => None,
        };
        self.waited += spooled.map_or(0, |_| given.events);
        self.given = Some(PendingBatch { spooled, ..given });
        self.counts.waiting.store(self.spool.waiting(), Ordering::Relaxed);
    }

    fn spool_gathered(&mut self) {
        if self.gathered.events == 0 {
            return;
        }
        let UnsentBatch { entries, events, .. } = std::mem::take(&mut self.gathered);
        let identity = self.next_identity();
        let notice = match self.spool.push(identity, events, &entries) {
            Ok(SpoolOutcome::Yes) => {
                self.dropping = false;
                self.waited += u64::from(events);
                self.counts.waiting.store(self.spool.waiting(), Ordering::Relaxed);
                return;
            }
            Ok(SpoolOutcome::Full) => StoreNotice::Dropping(None),
            Err(error) => StoreNotice::Dropping(Some(error)),
        };
        self.counts.dropped.fetch_add(u64::from(events), Ordering::Relaxed);
        if !std::mem::replace(&mut self.dropping, true) {
            (self.notify)(&notice);
        }
    }

    /// Shutdown: queued events are written by the store if it accepts them in time, else to the spool.
    fn finish(mut self, receiver: &Receiver<KeeperMessage>) {
        while let Ok(message) = receiver.try_recv() {
            self.handle_message(message);
        }
        let deadline = Instant::now() + LAST_BATCHES;
        while self.well && self.is_open && self.spool.waiting() == 0 {
            if self.given.is_none() {
                if self.gathered.events == 0 {
                    break;
                }
                self.give_gathered();
            }
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message) => self.handle_message(message),
                Err(_) => break,
            }
        }
        self.spool_given();
        self.spool_gathered();
        if let Some(given) = self.given.take_if(|given| given.spooled.is_none()) {
            self.counts.dropped.fetch_add(given.events, Ordering::Relaxed);
        }
        // Ends the store's thread, unless the store blocks it: then it ends with the process.
        self.stop.request();
        let Self { jobs, well, ended, .. } = self;
        drop(jobs);
        if !well || ended {
            return;
        }
        while let Ok(message) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if matches!(message, KeeperMessage::Store(StoreReport::Ended)) {
                break;
            }
        }
    }
}
