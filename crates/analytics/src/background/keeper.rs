//! The thread between taps and the store: it gathers events into batches, gives them to the store's thread, and puts
//! into the spool what that does not take. It never touches the store, so that no store can hold it up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use offramp_observe::panics;

use crate::background::notice::Notice;
use crate::background::storing::{Job, Report};
use crate::background::{BackgroundSettings, Counts};
use crate::ingest::Stop;
use crate::sink::Identity;
use crate::spool::{Kept, Spool};

/// A message to the thread.
pub(crate) enum Message {
    /// Packed entries.
    Batch { events: u32, bytes: Vec<u8> },
    /// From the store's thread.
    Store(Report),
    /// Look at the flag that says stop.
    Stop,
}

/// Entries that are not given to the store for so long are.
const GIVE_AFTER: Duration = Duration::from_millis(900);

/// So many bytes of entries are given without waiting; more than that goes to the spool.
const GIVE_BYTES: usize = 2 << 20;

/// A store that has not taken a batch for so long is no store to wait for: events go to the spool.
const HANGS_AFTER: Duration = Duration::from_secs(5);

/// At the end a store that takes events may take so long for the last ones.
const LAST_BATCHES: Duration = Duration::from_secs(4);

/// The pause after a panic, which the hook has logged.
const AFTER_PANIC: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    counts: Arc<Counts>,
    notify: Box<dyn FnMut(&Notice) + Send>,
    spool: Spool,
    jobs: SyncSender<Job>,
    /// Ends the waiting of the store's thread.
    stop: Stop,
    /// What the store's thread has, and has not reported on.
    given: Option<Given>,
    /// The next batch, and its deadline.
    gathered: Vec<u8>,
    gathered_events: u32,
    give_at: Option<Instant>,
    /// The identity of the last batch.
    identity: Identity,
    /// Whether the store takes events, as far as is known.
    well: bool,
    /// Whether the store has said what it has already: nothing is given before.
    is_open: bool,
    begun: Instant,
    ended: bool,
    /// Events that went to the spool since the store did not take them.
    waited: u64,
    dropping: bool,
}

struct Given {
    identity: Identity,
    events: u64,
    bytes: Arc<Vec<u8>>,
    since: Instant,
    /// Where it ends in the spool, if it is there.
    spooled: Option<u64>,
}

impl Keeper {
    pub(crate) fn new(
        settings: BackgroundSettings,
        counts: Arc<Counts>,
        spool: Spool,
        jobs: SyncSender<Job>,
        stop: Stop,
    ) -> Self {
        counts.waiting.store(spool.waiting(), Ordering::Relaxed);
        Self {
            counts,
            notify: settings.notify,
            identity: Identity { generation: spool.generation(), number: 0 },
            spool,
            jobs,
            stop,
            given: None,
            gathered: Vec::new(),
            gathered_events: 0,
            give_at: None,
            well: true,
            is_open: false,
            begun: Instant::now(),
            ended: false,
            waited: 0,
            dropping: false,
        }
    }

    /// Works until an order to stop, or until all senders are gone.
    pub(crate) fn run(mut self, receiver: &Receiver<Message>) {
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
                message.into_iter().for_each(|message| self.hear(message));
                self.work();
            });
            if worked.is_err() {
                std::thread::sleep(AFTER_PANIC);
            }
        }
        self.finish(receiver);
    }

    /// When there is work to do without a message.
    fn due(&self) -> Option<Instant> {
        match self.waits_since() {
            // What is gathered has to wait, and a store that is known to be away is waited for by its thread.
            Some(since) => self.well.then(|| since + HANGS_AFTER),
            None => self.give_at,
        }
    }

    /// Since when the store has had something to do, if it has.
    fn waits_since(&self) -> Option<Instant> {
        if self.is_open { self.given.as_ref().map(|given| given.since) } else { Some(self.begun) }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Batch { events, bytes } => self.take(events, &bytes),
            Message::Store(report) => self.reported(report),
            Message::Stop => {}
        }
    }

    fn take(&mut self, events: u32, bytes: &[u8]) {
        if !self.well || self.spool.waiting() > 0 {
            // What came before goes first.
            self.spool_gathered();
            self.gather(events, bytes);
            self.spool_gathered();
            return;
        }
        self.gather(events, bytes);
        if self.gathered.len() >= GIVE_BYTES {
            if self.given.is_some() {
                self.spool_gathered();
            } else {
                self.give_at = Some(Instant::now());
            }
        }
    }

    fn gather(&mut self, events: u32, bytes: &[u8]) {
        self.gathered.extend_from_slice(bytes);
        self.gathered_events = self.gathered_events.saturating_add(events);
        self.give_at.get_or_insert_with(|| Instant::now() + GIVE_AFTER);
    }

    fn work(&mut self) {
        let now = Instant::now();
        if self.well && self.waits_since().is_some_and(|since| since + HANGS_AFTER <= now) {
            self.unwell(&Notice::Waiting(format!("it has not answered for {} s", HANGS_AFTER.as_secs())));
        }
        if self.given.is_some() || !self.is_open {
            return;
        }
        if self.spool.waiting() > 0 {
            self.give_spooled();
        } else if self.give_at.is_some_and(|at| at <= now) {
            self.give_gathered();
        }
    }

    fn reported(&mut self, report: Report) {
        match report {
            Report::Opened(latest) => {
                self.is_open = true;
                if let Some(latest) = latest {
                    self.spool.skip(latest);
                }
                self.settle();
            }
            Report::Done => {
                if let Some(given) = self.given.take() {
                    self.counts.stored.fetch_add(given.events, Ordering::Relaxed);
                    if let Some(end) = given.spooled {
                        self.spool.done(end);
                    }
                }
                self.settle();
            }
            Report::Trouble(error) => self.unwell(&Notice::Waiting(error)),
            Report::Notice(notice @ Notice::UpkeepFailed(_)) => (self.notify)(&notice),
            Report::Notice(notice @ Notice::MovedAside(..)) => {
                // It is told whatever was told before.
                self.well = true;
                self.unwell(&notice);
            }
            Report::Notice(notice) => self.unwell(&notice),
            Report::Ended => self.ended = true,
        }
    }

    /// The store took something. Once nothing waits any more, everything is as it should be.
    fn settle(&mut self) {
        self.counts.waiting.store(self.spool.waiting(), Ordering::Relaxed);
        if self.spool.waiting() > 0 {
            return;
        }
        let cleared = self.spool.clear();
        let events = std::mem::take(&mut self.waited);
        if !std::mem::replace(&mut self.well, true) || events > 0 {
            (self.notify)(&Notice::CaughtUp { events });
        }
        self.counts.is_well.store(true, Ordering::Relaxed);
        if let Err(error) = cleared {
            (self.notify)(&Notice::Dropping(Some(error)));
        }
    }

    /// The store does not take events: what it was given waits in the spool, too, and so does what comes.
    fn unwell(&mut self, notice: &Notice) {
        if !std::mem::replace(&mut self.well, false) {
            return;
        }
        self.counts.is_well.store(false, Ordering::Relaxed);
        (self.notify)(notice);
        self.spool_given();
        self.spool_gathered();
    }

    fn next_identity(&mut self) -> Identity {
        self.identity.number += 1;
        self.identity
    }

    fn give_gathered(&mut self) {
        let bytes = Arc::new(std::mem::take(&mut self.gathered));
        let events = u64::from(std::mem::take(&mut self.gathered_events));
        self.give_at = None;
        let identity = self.next_identity();
        self.give(Given { identity, events, bytes, since: Instant::now(), spooled: None });
    }

    fn give_spooled(&mut self) {
        match self.spool.peek(GIVE_BYTES) {
            Ok(Some(found)) => self.give(Given {
                identity: found.identity,
                events: found.events,
                bytes: Arc::new(found.bytes),
                since: Instant::now(),
                spooled: Some(found.end),
            }),
            Ok(None) => self.settle(),
            Err(error) => {
                (self.notify)(&Notice::Dropping(Some(error)));
                self.spool.give_up();
                self.settle();
            }
        }
    }

    fn give(&mut self, given: Given) {
        let job = Job { identity: given.identity, bytes: Arc::clone(&given.bytes) };
        // There is room for one, and one is given at a time. A thread that panicked has said so itself.
        if self.jobs.try_send(job).is_ok() || given.spooled.is_none() {
            self.given = Some(given);
        }
    }

    /// Has what was given wait in the spool as well: its identity keeps it from being stored twice.
    fn spool_given(&mut self) {
        let Some(given) = self.given.take_if(|given| given.spooled.is_none()) else { return };
        let events = u32::try_from(given.events).unwrap_or(u32::MAX);
        let spooled = match self.spool.push(given.identity, events, &given.bytes) {
            Ok(Kept::Yes) => Some(self.spool.end()),
            // The store's thread still has it.
            Ok(Kept::Full) | Err(_) => None,
        };
        self.waited += spooled.map_or(0, |_| given.events);
        self.given = Some(Given { spooled, ..given });
        self.counts.waiting.store(self.spool.waiting(), Ordering::Relaxed);
    }

    fn spool_gathered(&mut self) {
        if self.gathered_events == 0 {
            return;
        }
        let events = std::mem::take(&mut self.gathered_events);
        let bytes = std::mem::take(&mut self.gathered);
        self.give_at = None;
        let identity = self.next_identity();
        let notice = match self.spool.push(identity, events, &bytes) {
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
            (self.notify)(&notice);
        }
    }

    /// The end: what was handed over is written, by the store if it takes it in time, else by the spool.
    fn finish(mut self, receiver: &Receiver<Message>) {
        while let Ok(message) = receiver.try_recv() {
            self.hear(message);
        }
        let deadline = Instant::now() + LAST_BATCHES;
        while self.well && self.is_open && self.spool.waiting() == 0 {
            if self.given.is_none() {
                if self.gathered_events == 0 {
                    break;
                }
                self.give_gathered();
            }
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message) => self.hear(message),
                Err(_) => break,
            }
        }
        self.spool_given();
        self.spool_gathered();
        if let Some(given) = self.given.take_if(|given| given.spooled.is_none()) {
            self.counts.dropped.fetch_add(given.events, Ordering::Relaxed);
        }
        // The store's thread ends now, unless the store holds it: then it ends with the process.
        self.stop.request();
        let Self { jobs, well, ended, .. } = self;
        drop(jobs);
        if !well || ended {
            return;
        }
        while let Ok(message) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if matches!(message, Message::Store(Report::Ended)) {
                break;
            }
        }
    }
}
