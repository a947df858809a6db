//! The flusher: the thread that drains all rings, formats events, and writes them to the sink.
//!
//! It sleeps without any timer while nothing happens. Once woken it waits [`COLLECT`] for more events, so
//! that under load it wakes at most 200 times per second, writes large batches, and workers need no system
//! call to wake it. A blocking sink stalls this thread only; the rings then fill up and their workers count
//! what they drop. Losses are reported to the program's log: when writing first fails, when it works again,
//! and at the end. None of them is fatal.

mod unwritten;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::OutputError;
use crate::encoder::EventEncoder;
use crate::event::{Event, Tap};
use crate::format::EventStyle;
use crate::log::Log;
use crate::panics;
use crate::ring::{DrainExtent, EventMonitor, EventSender, EventTally, Rings, WakeSignal};
use crate::sink::{Batch, Output, Sink, WriteFailure};

use unwritten::UnwrittenCounts;

/// The parameters of a flusher.
pub struct FlusherSettings {
    /// The number of workers that send events.
    pub workers: usize,
    /// The capacity of each worker's ring in events; at least 1, usually [`DEFAULT_CAPACITY`].
    pub capacity: usize,
    /// The destination of the events.
    pub output: Output,
    /// Format and selection of fields.
    pub style: EventStyle,
    /// Further consumers of every event; see [`Tap`].
    pub taps: Vec<Box<dyn Tap>>,
    /// The log for reports of losses.
    pub log: Log,
    /// The thread name, of at most 15 bytes.
    pub thread_name: &'static str,
}

impl FlusherSettings {
    /// Settings for `workers` workers with default capacity and no taps.
    #[must_use]
    pub fn new(workers: usize, output: Output, style: impl Into<EventStyle>, log: Log) -> Self {
        let (capacity, style) = (DEFAULT_CAPACITY, style.into());
        Self { workers, capacity, output, style, taps: Vec::new(), log, thread_name: "offramp-events" }
    }
}

/// The handle of a running flusher. Dropping it lets the thread write what is queued and exit, without
/// waiting for it; [`stop`](Self::stop) waits.
#[derive(Debug)]
pub struct Flusher {
    thread: Option<JoinHandle<()>>,
    control: Arc<FlusherControl>,
    monitor: EventMonitor,
    /// Disconnected when the thread ends, even by a panic.
    ended: Receiver<()>,
    log: Log,
}

impl Flusher {
    /// Opens the output and starts the thread. Returns one sender per worker, in order.
    ///
    /// # Errors
    /// The output cannot be opened, or the thread cannot be started.
    pub fn start(settings: FlusherSettings) -> Result<(Self, Vec<EventSender>), OutputError> {
        let FlusherSettings { workers, capacity, output, style, taps, log, thread_name } = settings;
        let sink = Sink::open(output)?;
        let (rings, senders, monitor) = Rings::new(workers, capacity.max(1));
        let control = Arc::new(FlusherControl::default());
        let (ends, ended) = channel();
        let consumers = Consumers { sink: *sink.output() != Output::None, taps: !taps.is_empty() };
        control.set_consumers(&monitor, |both| *both = consumers);
        let writer = FlusherThread {
            rings,
            monitor: monitor.clone(),
            control: control.clone(),
            encoder: EventEncoder::new(style, sink.output()),
            sink,
            taps,
            batch: Batch::default(),
            losses: Losses::default(),
            unwritten: UnwrittenCounts::default(),
            log: log.clone(),
        };
        let thread = Builder::new().name(thread_name.into()).spawn(move || writer.run(ends));
        let thread = Some(thread.map_err(OutputError::StartThread)?);
        Ok((Self { thread, control, monitor, ended, log }, senders))
    }

    /// A monitor of event delivery.
    #[must_use]
    pub fn monitor(&self) -> EventMonitor {
        self.monitor.clone()
    }

    /// Schedules reopening of the output's file, after a rotation by another program. A failure is logged,
    /// and the old file stays in use.
    pub fn reopen(&self) {
        self.command(FlusherCommand::Reopen);
    }

    /// Switches to another output. Events sent earlier may go to either, and those sent later go to it.
    ///
    /// # Errors
    /// The output cannot be opened; the old one stays in use.
    pub fn redirect(&self, output: Output, style: impl Into<EventStyle>) -> Result<(), OutputError> {
        let sink = Sink::open(output)?;
        self.control
            .set_consumers(&self.monitor, |consumers| consumers.sink = *sink.output() != Output::None);
        let encoder = EventEncoder::new(style.into(), sink.output());
        self.command(FlusherCommand::Redirect(Box::new((sink, encoder))));
        Ok(())
    }

    /// Replaces the taps. The old ones are flushed and dropped soon, on the thread of the flusher.
    pub fn set_taps(&self, taps: Vec<Box<dyn Tap>>) {
        self.control.set_consumers(&self.monitor, |consumers| consumers.taps = !taps.is_empty());
        self.command(FlusherCommand::Taps(taps));
    }

    /// Writes all events sent so far, and ends the thread; senders report
    /// [`SendOutcome::Unwanted`](crate::ring::SendOutcome) from then on. A blocking sink is abandoned after
    /// `limit`: the returned tally then has pending events, which are lost.
    #[must_use = "it tells whether events were lost"]
    pub fn stop(mut self, limit: Duration) -> EventTally {
        self.end();
        if self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let pending = self.monitor.tally().pending();
            self.log
                .error("events are lost: the output blocked until the end", &[("events", pending.into())]);
        } else if let Some(thread) = self.thread.take() {
            // The thread has ended; the panic hook has reported any panic.
            let _ = thread.join();
        }
        self.monitor.tally()
    }

    fn command(&self, command: FlusherCommand) {
        self.control.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.monitor.shared().wakeup.wake();
    }

    fn end(&self) {
        self.monitor.shared().wanted.store(false, Ordering::Relaxed);
        self.control.stopping.store(true, Ordering::Release);
        self.monitor.shared().wakeup.wake();
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.end();
    }
}

/// Commands from the handle to the thread.
#[derive(Debug, Default)]
struct FlusherControl {
    commands: Mutex<Vec<FlusherCommand>>,
    consumers: Mutex<Consumers>,
    stopping: AtomicBool,
}

/// The present consumers of events.
#[derive(Clone, Copy, Debug, Default)]
struct Consumers {
    sink: bool,
    taps: bool,
}

impl FlusherControl {
    /// Updates the consumers and the workers' flag. After a stop there are none.
    fn set_consumers(&self, monitor: &EventMonitor, change: impl FnOnce(&mut Consumers)) {
        let mut consumers = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut consumers);
        let any = consumers.sink || consumers.taps;
        monitor.shared().wanted.store(any, Ordering::Relaxed);
    }

    fn has_work(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
            || !self.commands.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

enum FlusherCommand {
    Reopen,
    Redirect(Box<(Sink, EventEncoder)>),
    Taps(Vec<Box<dyn Tap>>),
}

impl fmt::Debug for FlusherCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reopen => "Reopen",
            Self::Redirect(_) => "Redirect",
            Self::Taps(_) => "Taps",
        })
    }
}

/// The state of the flusher's thread.
struct FlusherThread {
    rings: Rings,
    monitor: EventMonitor,
    control: Arc<FlusherControl>,
    sink: Sink,
    encoder: EventEncoder,
    taps: Vec<Box<dyn Tap>>,
    batch: Batch,
    losses: Losses,
    unwritten: UnwrittenCounts,
    log: Log,
}

impl FlusherThread {
    /// `_ends` is dropped when the thread ends, which is what [`Flusher::stop`] waits for.
    fn run(mut self, _ends: Sender<()>) {
        self.monitor.shared().wakeup.adopt_current_thread();
        let log = self.log.clone();
        // An event that made its encoder panic has left its ring, so the next run resumes behind it.
        panics::resume("event log", &log, || self.write_all());
    }

    /// Writes events until the handle asks to stop.
    fn write_all(&mut self) {
        loop {
            // Read before draining: events sent before the stop are written before the end.
            let stopping = self.control.stopping.load(Ordering::Acquire);
            // Marked before commands are read: an event that was sent after a command, such as another form of the
            // client's address, has the new form.
            self.rings.mark();
            self.run_commands();
            let drained = self.write_batch();
            let now = Instant::now();
            if stopping && drained == DrainExtent::Whole {
                self.losses.report_all(&self.log, &self.monitor.tally());
                self.unwritten.report_all(&self.log);
                return;
            }
            self.losses.report_if_due(&self.log, &self.monitor.tally(), now);
            self.unwritten.report_if_due(&self.log, now);
            if drained == DrainExtent::Whole {
                self.wait_for_work(now);
            }
        }
    }

    /// Sleeps until there is work, then lets a batch gather.
    fn wait_for_work(&self, now: Instant) {
        let losses = self.losses.due(&self.monitor.tally(), now);
        let limit = losses.into_iter().chain(self.unwritten.due(now)).min();
        let is_work = || !self.rings.are_empty() || self.control.has_work();
        self.monitor.shared().wakeup.sleep(limit, is_work);
        if !self.control.has_work() && !self.rings.are_pressing() {
            WakeSignal::pause(COLLECT);
        }
    }

    fn run_commands(&mut self) {
        let commands =
            std::mem::take(&mut *self.control.commands.lock().unwrap_or_else(PoisonError::into_inner));
        for command in commands {
            match command {
                FlusherCommand::Reopen => {
                    if let Err(error) = self.sink.reopen() {
                        self.log.error(
                            "cannot open the event log; the old one stays in use",
                            &[("error", (&error).into())],
                        );
                    }
                }
                FlusherCommand::Redirect(next) => (self.sink, self.encoder) = *next,
                FlusherCommand::Taps(taps) => {
                    self.taps.iter_mut().for_each(|tap| tap.flush());
                    self.taps = taps;
                }
            }
        }
    }

    /// Drains the marked events of the rings into one batch and writes it.
    fn write_batch(&mut self) -> DrainExtent {
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

    /// Writes the batch and counts the outcome of its events. Events without a line in the format count as
    /// written.
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
                    self.log_failure("events cannot be written; they are counted and dropped", &error);
                }
            }
        }
        if let Some(error) = self.sink.take_trouble() {
            self.log_failure("the event log cannot be rotated; it grows on", &error);
        }
    }

    fn log_failure(&mut self, what: &str, error: &std::io::Error) {
        if self.losses.take_turn(Instant::now()) {
            let output = self.sink.output();
            self.log.error(what, &[("output", output.into()), ("error", error.into())]);
        }
    }
}

/// Rate-limited reports of losses: at most one per [`REPORT_INTERVAL`], so that a flapping output or a
/// lasting overload does not flood the log.
#[derive(Default)]
struct Losses {
    failing: bool,
    reported: EventTally,
    last: Option<Instant>,
}

impl Losses {
    /// Reports losses since the last report, once the output works and a report is due.
    fn report_if_due(&mut self, log: &Log, tally: &EventTally, now: Instant) {
        if !self.failing && tally.lost() > self.reported.lost() && self.take_turn(now) {
            self.report_all(log, tally);
        }
    }

    /// Reports losses since the last report, if any.
    fn report_all(&mut self, log: &Log, tally: &EventTally) {
        if tally.lost() == self.reported.lost() {
            return;
        }
        let queue_full = tally.queue_full - self.reported.queue_full;
        let output_failed = tally.output_failed - self.reported.output_failed;
        let fields = [("queue_full", queue_full.into()), ("output_failed", output_failed.into())];
        log.warn("events were lost", &fields);
        self.reported = *tally;
    }

    /// The time until the next report is due; `None` if there is nothing to report.
    fn due(&self, tally: &EventTally, now: Instant) -> Option<Duration> {
        let waits = !self.failing && tally.lost() > self.reported.lost();
        let last = self.last.filter(|_| waits)?;
        Some(REPORT_INTERVAL.saturating_sub(now.duration_since(last)))
    }

    fn take_turn(&mut self, now: Instant) -> bool {
        let may = self.last.is_none_or(|last| now.duration_since(last) >= REPORT_INTERVAL);
        if may {
            self.last = Some(now);
        }
        may
    }
}

/// Events per ring: at a burst of 20,000 connections per second, enough for a disk that stalls for 100 ms.
/// Full of failed handshakes with their offers, a ring takes some 10 MB.
pub const DEFAULT_CAPACITY: usize = 2048;

/// The time for which events gather before they are written: unnoticeable to a reader, at most 200 wake-ups
/// per second, and short enough that 200,000 refused connections per second fill less than half a ring
/// meanwhile.
pub const COLLECT: Duration = Duration::from_millis(5);

/// The size at which a batch is written: a few hundred events, and the default size of a pipe.
const BATCH_BYTES: usize = 64 * 1024;

/// The number of events after which a batch ends; the only limit where just taps consume, since bytes stay 0.
const BATCH_EVENTS: u64 = 1024;

const REPORT_INTERVAL: Duration = Duration::from_secs(10);
