//! Workers whose event loop is late, and what they ran.
//!
//! A thread of its own asks each worker that does not sleep, every `LOOK` (50 ms), to answer as soon as its loop comes round. An
//! answer that takes longer than `LATE` (100 ms) is counted and reported. A worker pays two stores when it goes to sleep and
//! wakes, one when it begins something that may take long, and a wake-up of its loop for each question; a worker that sleeps
//! is not asked. When all have slept for a second the thread sleeps too, until one wakes.
//!
//! A process that was stopped, or a machine that stood still, is not a late loop: the thread was late too, and it takes
//! that off.

mod look;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use look::LagProbe;
use offramp_net::clock::thread_cpu;
use offramp_observe::{Log, panics};
use tokio::sync::Notify;

use crate::refusals::Refusals;
use crate::snapshot::{AcceptorId, Current, RouteId, Snapshot};

/// The interval at which workers are asked.
const LOOK: Duration = Duration::from_millis(50);
/// The time by which an answer may be late.
const LATE: Duration = Duration::from_millis(100);
/// So many looks that find all workers asleep let the thread sleep.
const QUIET: u32 = 20;
/// For how long at most. Workers wake it; this is for the case that one does in the moment in which it goes to sleep.
const SLEEP: Duration = Duration::from_secs(10);

/// A step of a worker that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing of this yet.
    Nothing,
    /// Accepting connections, on this socket.
    Accept(AcceptorId),
    /// A TLS handshake of a client that came by this socket.
    Handshake(AcceptorId),
    /// A request of a client, on this route.
    Request(RouteId),
    /// Relaying bytes, on this route.
    Relay(RouteId),
}

impl Doing {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Accept(_) => "accept",
            Self::Handshake(_) => "handshake",
            Self::Request(_) => "request",
            Self::Relay(_) => "relay",
        }
    }

    /// Step and time as two numbers.
    const fn parts(self) -> (u8, u64) {
        match self {
            Self::Nothing => (0, 0),
            Self::Accept(AcceptorId(socket)) => (1, socket as u64),
            Self::Handshake(AcceptorId(socket)) => (2, socket as u64),
            Self::Request(RouteId(route)) => (3, route),
            Self::Relay(RouteId(route)) => (4, route),
        }
    }

    /// From two numbers, which may come from two steps that follow each other.
    fn of(step: u8, at: u64) -> Self {
        // No socket has the highest number.
        let socket = AcceptorId(u32::try_from(at).unwrap_or(u32::MAX));
        match step {
            1 => Self::Accept(socket),
            2 => Self::Handshake(socket),
            3 => Self::Request(RouteId(at)),
            4 => Self::Relay(RouteId(at)),
            _ => Self::Nothing,
        }
    }

    /// The place of the step, as a field of the log: the listener or the route, where `snapshot` has it.
    fn place(self, snapshot: &Snapshot) -> Option<Place> {
        match self {
            Self::Nothing => None,
            Self::Accept(socket) | Self::Handshake(socket) => {
                snapshot.sockets.get(&socket).map(|listener| ("listener", Arc::clone(&listener.name)))
            }
            Self::Request(route) | Self::Relay(route) => snapshot.route(route).map(|name| ("route", name)),
        }
    }
}

/// A field of the log.
type Place = (&'static str, Arc<str>);

/// The progress of a worker's loop. Nothing is ordered by it: a figure that is a moment old is as good.
#[derive(Debug)]
pub struct Pulse {
    /// The number of the last question, and of the last that was answered.
    asked: AtomicU64,
    answered: AtomicU64,
    /// The time of the answer, in nanoseconds since `begun`.
    answered_at: AtomicU64,
    /// The CPU time of the worker's thread by then, in nanoseconds.
    cpu: AtomicU64,
    /// The worker sleeps until something happens, or has ended.
    asleep: AtomicBool,
    step: AtomicU8,
    /// The socket or the route of the step.
    at: AtomicU64,
    /// The client of the step, as an IPv6 address.
    client: [AtomicU64; 2],
    bell: Notify,
    begun: Instant,
    watch: Arc<Watch>,
}

/// The thread that asks.
#[derive(Debug, Default)]
struct Watch {
    sleeps: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Watch {
    fn wake(&self) {
        // Nothing in here panics with the lock held.
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }
}

impl Pulse {
    fn new(begun: Instant, watch: &Arc<Watch>) -> Self {
        let (asked, answered, answered_at, cpu) = Default::default();
        let (asleep, step, at, client, bell) = Default::default();
        Self {
            asked,
            answered,
            answered_at,
            cpu,
            asleep,
            step,
            at,
            client,
            bell,
            begun,
            watch: Arc::clone(watch),
        }
    }

    /// The worker begins a step.
    #[inline]
    pub(crate) fn begins(&self, doing: Doing) {
        let (step, at) = doing.parts();
        self.at.store(at, Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
    }

    /// The worker begins a step of this client.
    #[inline]
    pub(crate) fn begins_for(&self, doing: Doing, client: Option<IpAddr>) {
        let bits = match client {
            Some(IpAddr::V6(address)) => address.to_bits(),
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
            None => 0,
        };
        self.client[0].store((bits >> 64) as u64, Ordering::Relaxed);
        self.client[1].store(bits as u64, Ordering::Relaxed);
        self.begins(doing);
    }

    /// The worker goes to sleep.
    pub(crate) fn sleeps(&self) {
        self.asleep.store(true, Ordering::Relaxed);
    }

    /// The worker has something to do.
    pub(crate) fn wakes(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        if self.watch.sleeps.load(Ordering::Relaxed) {
            self.watch.wake();
        }
    }

    /// The worker's loop has ended, and answers nothing any more.
    pub(crate) fn ends(&self) {
        self.sleeps();
        self.answered_at.store(self.since_begin(Instant::now()), Ordering::Relaxed);
        self.answered.store(u64::MAX, Ordering::Release);
    }

    /// Answers questions, for as long as the worker's loop runs.
    pub(crate) async fn answer(&self) {
        loop {
            self.bell.notified().await;
            let cpu = u64::try_from(thread_cpu().as_nanos()).unwrap_or(u64::MAX);
            self.cpu.store(cpu, Ordering::Relaxed);
            self.answered_at.store(self.since_begin(Instant::now()), Ordering::Relaxed);
            // The others are there when this one is seen.
            self.answered.store(self.asked.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    fn since_begin(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The step that the worker began last, and its client.
    fn doing(&self) -> (Doing, Option<IpAddr>) {
        let doing = Doing::of(self.step.load(Ordering::Relaxed), self.at.load(Ordering::Relaxed));
        let [high, low] = [0, 1].map(|half: usize| u128::from(self.client[half].load(Ordering::Relaxed)));
        let has_client = !matches!(doing, Doing::Nothing | Doing::Accept(_)) && (high, low) != (0, 0);
        (doing, has_client.then(|| IpAddr::V6(Ipv6Addr::from_bits(high << 64 | low)).to_canonical()))
    }
}

/// The workers of the process, and how often their loops were late.
#[derive(Debug)]
pub struct Lateness {
    begun: Instant,
    workers: Mutex<Vec<Arc<Pulse>>>,
    watch: Arc<Watch>,
    count: AtomicU64,
    /// Total time in nanoseconds.
    total: AtomicU64,
}

impl Lateness {
    /// No worker has begun.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (workers, watch, count, total) = Default::default();
        Arc::new(Self { begun: Instant::now(), workers, watch, count, total })
    }

    /// The number of late loops, and their time in all.
    #[must_use]
    pub fn totals(&self) -> (u64, Duration) {
        (self.count.load(Ordering::Relaxed), Duration::from_nanos(self.total.load(Ordering::Relaxed)))
    }

    /// Starts the thread that asks, and that frees snapshots without followers. It ends when this is dropped.
    ///
    /// # Errors
    /// Where there can be no thread.
    pub fn watch(
        self: &Arc<Self>,
        current: Current,
        log: Log,
        refusals: Arc<Refusals>,
    ) -> std::io::Result<()> {
        let all = Arc::downgrade(self);
        let thread = thread::Builder::new().name("offramp-watch".to_owned()).spawn(move || {
            panics::resume("watch over workers", &log, || Self::run(&all, &current, &log, &refusals));
        })?;
        let handle = Some(thread.thread().clone());
        *self.watch.thread.lock().unwrap_or_else(PoisonError::into_inner) = handle;
        Ok(())
    }

    /// Adds a worker that begins.
    pub(crate) fn add(&self) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse::new(self.begun, &self.watch));
        self.workers().push(Arc::clone(&pulse));
        pulse
    }

    fn run(all: &Weak<Self>, current: &Current, log: &Log, refusals: &Refusals) {
        let mut look = LagProbe::default();
        let mut quiet = 0;
        loop {
            let Some(lateness) = all.upgrade() else { return };
            let place = |doing: Doing| current.find(|snapshot| doing.place(snapshot));
            let reports = look.look(Instant::now(), &lateness.workers(), place);
            for report in reports {
                lateness.count.fetch_add(u64::from(report.is_new), Ordering::Relaxed);
                lateness.total.fetch_add(report.more, Ordering::Relaxed);
                look.say(&report, log, refusals.notices(), |client| refusals.shown(client));
            }
            quiet = if look.all_slept() { quiet + 1 } else { 0 };
            let watch = Arc::clone(&lateness.watch);
            drop(lateness);
            current.sweep();
            if quiet > QUIET {
                watch.sleeps.store(true, Ordering::Relaxed);
                thread::park_timeout(SLEEP);
                watch.sleeps.store(false, Ordering::Relaxed);
                (look, quiet) = (look.rested(), 0);
            } else {
                thread::sleep(LOOK);
            }
        }
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Pulse>>> {
        // Nothing in here panics with the lock held.
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.watch.wake();
    }
}
