//! The thread that turns facts into lines: it drains all rings, formats, and writes to the sink.
//!
//! It sleeps without any timer while nothing happens. Once woken it waits [`COLLECT`] for company, so that
//! under load it wakes at most 200 times per second, writes large batches, and no worker pays for a
//! system call to wake it. A sink that blocks keeps only this thread; the rings then fill and their workers
//! count what they drop. What was lost is reported to the program's log: when writing fails for the first time,
//! when it works again, and at the end. Nothing here is fatal.

mod unwritten;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::Error;
use crate::encoder::Encoder;
use crate::event::{Event, Tap};
use crate::format::EventStyle;
use crate::log::Log;
use crate::panics;
use crate::ring::{Bell, Drained, EventMonitor, EventSender, EventTally, Rings};
use crate::sink::{Batch, Output, Sink, WriteFailure};

use unwritten::Unwritten;

/// How a flusher is started.
pub struct FlusherSettings {
    /// How many workers send events.
    pub workers: usize,
    /// How many events each worker's ring holds; at least 1, usually [`DEFAULT_CAPACITY`].
    pub capacity: usize,
    /// Where events go.
    pub output: Output,
    /// How they are written, and what of them.
    pub style: EventStyle,
    /// Who else looks at every event; see [`Tap`].
    pub taps: Vec<Box<dyn Tap>>,
    /// The log that reports losses.
    pub log: Log,
    /// The thread's name, of at most 15 bytes.
    pub thread_name: &'static str,
}

impl FlusherSettings {
    /// The usual settings for `workers` workers.
    #[must_use]
    pub fn new(workers: usize, output: Output, style: impl Into<EventStyle>, log: Log) -> Self {
        let (capacity, style) = (DEFAULT_CAPACITY, style.into());
        Self { workers, capacity, output, style, taps: Vec::new(), log, thread_name: "offramp-events" }
    }
}

/// The handle of a running flusher. Dropping it lets the thread write what is queued and end, without waiting
/// for it; [`stop`](Self::stop) waits.
#[derive(Debug)]
pub struct Flusher {
    thread: Option<JoinHandle<()>>,
    control: Arc<Control>,
    monitor: EventMonitor,
    /// Closed when the thread ends, in whatever way.
    ended: Receiver<()>,
    log: Log,
}

impl Flusher {
    /// Opens the output and starts the thread; the senders are for the workers, in their order.
    ///
    /// # Errors
    /// The output cannot be opened, or the thread cannot be started.
    pub fn start(settings: FlusherSettings) -> Result<(Self, Vec<EventSender>), Error> {
        let FlusherSettings { workers, capacity, output, style, taps, log, thread_name } = settings;
        let sink = Sink::open(output)?;
        let (rings, senders, monitor) = Rings::new(workers, capacity.max(1));
        let control = Arc::new(Control::default());
        let (ends, ended) = channel();
        let wants = Wants { sink: *sink.output() != Output::None, taps: !taps.is_empty() };
        control.want(&monitor, |both| *both = wants);
        let writer = Writer {
            rings,
            monitor: monitor.clone(),
            control: control.clone(),
            encoder: Encoder::new(style, sink.output()),
            sink,
            taps,
            batch: Batch::default(),
            losses: Losses::default(),
            unwritten: Unwritten::default(),
            log: log.clone(),
        };
        let thread = Builder::new().name(thread_name.into()).spawn(move || writer.run(ends));
        let thread = Some(thread.map_err(Error::StartThread)?);
        Ok((Self { thread, control, monitor, ended, log }, senders))
    }

    /// Reads what became of the events.
    #[must_use]
    pub fn monitor(&self) -> EventMonitor {
        self.monitor.clone()
    }

    /// Opens the output's file anew, soon, after somebody moved it away. A failure is reported to the log, and
    /// the old file stays in use.
    pub fn reopen(&self) {
        self.command(Command::Reopen);
    }

    /// Writes to another output from now on. What was sent before goes to either.
    ///
    /// # Errors
    /// The output cannot be opened; then everything stays as it was.
    pub fn redirect(&self, output: Output, style: impl Into<EventStyle>) -> Result<(), Error> {
        let sink = Sink::open(output)?;
        self.control.want(&self.monitor, |wants| wants.sink = *sink.output() != Output::None);
        let encoder = Encoder::new(style.into(), sink.output());
        self.command(Command::Redirect(Box::new((sink, encoder))));
        Ok(())
    }

    /// Hands every event to these taps from now on; the old ones are flushed, then dropped, soon and on the
    /// flusher's thread.
    pub fn set_taps(&self, taps: Vec<Box<dyn Tap>>) {
        self.control.want(&self.monitor, |wants| wants.taps = !taps.is_empty());
        self.command(Command::Taps(taps));
    }

    /// Writes everything that was sent so far, and ends; senders find their events unwanted from here on.
    /// A sink that blocks is given up after `limit`: the tally then has pending events, which are lost.
    #[must_use = "it tells whether events were lost"]
    pub fn stop(mut self, limit: Duration) -> EventTally {
        self.end();
        if self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let pending = self.monitor.tally().pending();
            self.log
                .error("events are lost: the output blocked until the end", &[("events", pending.into())]);
        } else if let Some(thread) = self.thread.take() {
            // It has ended; a panic of the thread was reported by the panic hook already.
            let _ = thread.join();
        }
        self.monitor.tally()
    }

    fn command(&self, command: Command) {
        self.control.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.monitor.shared().bell.wake();
    }

    fn end(&self) {
        self.monitor.shared().wanted.store(false, Ordering::Relaxed);
        self.control.stopping.store(true, Ordering::Release);
        self.monitor.shared().bell.wake();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the handle tells the thread.
#[derive(Debug, Default)]
struct Control {
    commands: Mutex<Vec<Command>>,
    wants: Mutex<Wants>,
    stopping: AtomicBool,
}

/// Who wants events.
#[derive(Clone, Copy, Debug, Default)]
struct Wants {
    sink: bool,
    taps: bool,
}

impl Control {
    /// Changes the consumers of events and informs the workers. After the flusher stops there are none.
    fn want(&self, monitor: &EventMonitor, change: impl FnOnce(&mut Wants)) {
        let mut wants = self.wants.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut wants);
        let anybody = wants.sink || wants.taps;
        monitor.shared().wanted.store(anybody, Ordering::Relaxed);
    }

    fn has_work(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
            || !self.commands.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

enum Command {
    Reopen,
    Redirect(Box<(Sink, Encoder)>),
    Taps(Vec<Box<dyn Tap>>),
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reopen => "Reopen",
            Self::Redirect(_) => "Redirect",
            Self::Taps(_) => "Taps",
        })
    }
}

/// The thread's own state.
struct Writer {
    rings: Rings,
    monitor: EventMonitor,
    control: Arc<Control>,
    sink: Sink,
    encoder: Encoder,
    taps: Vec<Box<dyn Tap>>,
    batch: Batch,
    losses: Losses,
    unwritten: Unwritten,
    log: Log,
}

impl Writer {
    /// `_ends` is dropped when the thread ends, which is what [`Flusher::stop`] waits for.
    fn run(mut self, _ends: Sender<()>) {
        self.monitor.shared().bell.adopt_current_thread();
        let log = self.log.clone();
        // An event whose encoding panics has left its ring: the next run begins behind it.
        panics::resume("event log", &log, || self.write_all());
    }

    /// Writes events until the order to stop.
    fn write_all(&mut self) {
        loop {
            // Read before draining: what was sent before the stop is written before the end.
            let stopping = self.control.stopping.load(Ordering::Acquire);
            self.obey();
            let drained = self.write_batch();
            let now = Instant::now();
            if stopping && drained == Drained::Whole {
                self.losses.tell_all(&self.log, &self.monitor.tally());
                self.unwritten.tell_all(&self.log);
                return;
            }
            self.losses.tell(&self.log, &self.monitor.tally(), now);
            self.unwritten.tell(&self.log, now);
            if drained == Drained::Whole {
                self.rest(now);
            }
        }
    }

    /// Sleeps until there is work, then lets it gather.
    fn rest(&self, now: Instant) {
        let losses = self.losses.due(&self.monitor.tally(), now);
        let limit = losses.into_iter().chain(self.unwritten.due(now)).min();
        let is_work = || !self.rings.are_empty() || self.control.has_work();
        self.monitor.shared().bell.sleep(limit, is_work);
        if !self.control.has_work() && !self.rings.are_pressing() {
            Bell::pause(COLLECT);
        }
    }

    fn obey(&mut self) {
        let commands =
            std::mem::take(&mut *self.control.commands.lock().unwrap_or_else(PoisonError::into_inner));
        for command in commands {
            match command {
                Command::Reopen => {
                    if let Err(error) = self.sink.reopen() {
                        self.log.error(
                            "cannot open the event log; the old one stays in use",
                            &[("error", (&error).into())],
                        );
                    }
                }
                Command::Redirect(next) => (self.sink, self.encoder) = *next,
                Command::Taps(taps) => {
                    self.taps.iter_mut().for_each(|tap| tap.flush());
                    self.taps = taps;
                }
            }
        }
    }

    /// Writes one batch.
    fn write_batch(&mut self) -> Drained {
        let Self { rings, batch, encoder, taps, unwritten, .. } = self;
        batch.clear();
        let mut events = 0;
        let drained = rings.drain(|event| {
            taps.iter_mut().for_each(|tap| tap.take(event));
            if let Event::Connection(facts) = event
                && !encoder.has_place(event)
            {
                unwritten.add(&facts.close);
            }
            encoder.add(event, batch);
            events += 1;
            let full = batch.bytes.len() >= BATCH_BYTES || events == BATCH_EVENTS;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if events > 0 {
            taps.iter_mut().for_each(|tap| tap.flush());
            self.account(events);
        }
        drained
    }

    /// Writes the batch, and counts what became of its events. One that has no line in the format is not lost.
    fn account(&mut self, events: u64) {
        let outcome = self.sink.write(&self.batch);
        let shared = self.monitor.shared();
        match outcome {
            Ok(()) => {
                shared.written.add(events);
                self.losses.failing = false;
            }
            Err(WriteFailure { written, error }) => {
                let lost = (self.batch.len() - written) as u64;
                shared.written.add(events - lost);
                shared.output_failed.add(lost);
                if !std::mem::replace(&mut self.losses.failing, true) {
                    self.tell("events cannot be written; they are counted and dropped", &error);
                }
            }
        }
        if let Some(error) = self.sink.take_trouble() {
            self.tell("the event log cannot be rotated; it grows on", &error);
        }
    }

    fn tell(&mut self, what: &str, error: &std::io::Error) {
        if self.losses.may_tell(Instant::now()) {
            let output = self.sink.output();
            self.log.error(what, &[("output", output.into()), ("error", error.into())]);
        }
    }
}

/// What the log said of losses. It does so at most once per [`TELL_EVERY`], so that an output that comes
/// and goes, or an overload that lasts, does not fill the log.
#[derive(Default)]
struct Losses {
    failing: bool,
    reported: EventTally,
    last: Option<Instant>,
}

impl Losses {
    /// Tells what was lost since the last time, once the output works and it is time.
    fn tell(&mut self, log: &Log, tally: &EventTally, now: Instant) {
        if !self.failing && tally.lost() > self.reported.lost() && self.may_tell(now) {
            self.tell_all(log, tally);
        }
    }

    /// Tells what was lost since the last time, if anything was.
    fn tell_all(&mut self, log: &Log, tally: &EventTally) {
        if tally.lost() == self.reported.lost() {
            return;
        }
        let queue_full = tally.queue_full - self.reported.queue_full;
        let output_failed = tally.output_failed - self.reported.output_failed;
        let fields = [("queue_full", queue_full.into()), ("output_failed", output_failed.into())];
        log.warn("events were lost", &fields);
        self.reported = *tally;
    }

    /// The time until the next log line is due; `None` if there is nothing to log.
    fn due(&self, tally: &EventTally, now: Instant) -> Option<Duration> {
        let waits = !self.failing && tally.lost() > self.reported.lost();
        let last = self.last.filter(|_| waits)?;
        Some(TELL_EVERY.saturating_sub(now.duration_since(last)))
    }

    fn may_tell(&mut self, now: Instant) -> bool {
        let may = self.last.is_none_or(|last| now.duration_since(last) >= TELL_EVERY);
        if may {
            self.last = Some(now);
        }
        may
    }
}

/// The events that a worker's ring holds: at a burst of 20,000 connections per second, the tenth of a second
/// for which a disk may stall. Full of failed handshakes with their offers, that is some 10 MB per worker.
pub const DEFAULT_CAPACITY: usize = 2048;

/// How long events gather before they are written: unnoticeable to a reader, 200 wake-ups per second at most,
/// and short enough that a flood of 200,000 refused connections per second fits into half a ring meanwhile.
pub const COLLECT: Duration = Duration::from_millis(5);

/// A batch is written once it is this large: a few hundred events, and the default size of a pipe.
const BATCH_BYTES: usize = 64 * 1024;

/// A batch for taps alone, which has no bytes, ends after this many.
const BATCH_EVENTS: u64 = 1024;

const TELL_EVERY: Duration = Duration::from_secs(10);
