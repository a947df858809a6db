//! One thread with one event loop, which owns each connection that it accepted until the connection ends.
//!
//! Nothing on the data path is shared between workers. What a worker lends to its connections, for
//! the length of one poll, is its scratch: the memory that records are opened and sealed in.

mod accept;
mod handle;
#[cfg(test)]
pub(crate) mod rig;
#[cfg(test)]
mod swaps;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use offramp_net::clock::coarse_ms;
use offramp_net::listen::Reserve;
use offramp_net::splice::Pipes;
use offramp_net::turn;
use offramp_observe::{Cause, ConnectionFacts, EventSender, IdSource, Log, RequestFacts, WorkerCounters};
use offramp_record::Span;
use offramp_tls::HandshakeQueue;
use offramp_upstream::{PerWorker, Pools, Progress};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::challenges::Challenges;
use crate::credentials::jwt::KnownTokens;
use crate::credentials::{KnownPasswords, Logins};
use crate::demand::Demand;
use crate::l7::{ClientBody, Compressors, Date, Heads, Mirrors, Roots, Runners};
use crate::late::{Lateness, Pulse};
use crate::limit::{Admission, ClientTable, Held};
use crate::live::table::{Live, Place};
use crate::live::{Piece, Question};
use crate::pressure::Pressure;
use crate::refusals::Refusals;
use crate::slots::{self, SPANS};
use crate::snapshot::{Current, Limits, Snapshot};

pub use handle::{Commander, StartingWorker, WorkerHandle};

/// How long connections that are closed at the end of a drain have to say so to their clients.
const CUT: Duration = Duration::from_secs(1);
/// The time that a kept connection has for one more request when a drain begins: the request may be on its way, and a client
/// that loses it cannot know if it was served.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// How long the timer waits that stands before all others; see [`Worker::stand_by`].
const STAND_BY: Duration = Duration::from_secs(1);

/// How many threads of a worker wait for disks at a time; files that are in memory need none.
const DISK_THREADS: usize = 8;

/// What all workers have in common.
#[derive(Clone)]
pub struct Shared {
    /// The configuration in force.
    pub current: Current,
    /// The limit of connections.
    pub admission: Arc<Admission>,
    /// The limits per client.
    pub clients: Arc<ClientTable>,
    /// What workers hold for requests over HTTP/2.
    pub held: Arc<Held>,
    /// Whether the process holds as much memory as it may.
    pub pressure: Arc<Pressure>,
    /// Which workers are late.
    pub late: Arc<Lateness>,
    /// What is said of limits that refuse, and of pauses.
    pub refusals: Arc<Refusals>,
    /// What authorities are answered that look whether names lead here.
    pub challenges: Arc<Challenges>,
    /// Who checks passwords.
    pub logins: Arc<Logins>,
    /// Names that get a certificate when the first client asks for them.
    pub demand: Arc<Demand>,
    /// Where a worker in trouble says so.
    pub log: Log,
}

/// Names a listening socket towards its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcceptorId(pub u32);

/// An order to a worker.
#[derive(Debug)]
pub enum Command {
    /// Accept connections on this socket.
    Listen {
        /// The socket's name from now on.
        id: AcceptorId,
        /// The name of its listener, until [`Snapshot::sockets`] has another.
        listener: Arc<str>,
        /// A listening, non-blocking socket.
        fd: OwnedFd,
    },
    /// Serve who waits already, when there is a place for it, then close the socket.
    Unlisten {
        /// Which.
        id: AcceptorId,
        /// Where it is kept, if it may be needed again, and which of its acceptors this is: told when the worker has closed it.
        reserve: Option<(Arc<Reserve>, usize)>,
    },
    /// Close the socket and leave who waits in its queue to another process that has it, too.
    Leave {
        /// Which.
        id: AcceptorId,
    },
    /// Answer, as a worker does whose loop goes round.
    Beat {
        /// Dropped as soon as the worker has this order.
        alive: oneshot::Sender<()>,
    },
    /// Answer about open connections, or close some, as far as one turn goes.
    Connections {
        /// What is asked.
        question: Question,
        /// Gets the answer.
        told: oneshot::Sender<Piece>,
    },
    /// Accept nothing more, wait for the open connections up to `limit`, close the rest, and end. During a drain it
    /// sets a new limit, from now on.
    Drain {
        /// How long to wait.
        limit: Duration,
    },
}

/// The inside of a worker.
pub struct Worker {
    pub(crate) index: usize,
    pub(crate) counters: WorkerCounters,
    pub(crate) shared: Shared,
    /// What is shown of the loop.
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) scratch: RefCell<Scratch>,
    /// The memory for heads of requests.
    pub(crate) heads: Rc<Heads>,
    /// What bytes are spliced by.
    pub(crate) pipes: Pipes,
    pub(crate) cut: Cut,
    /// The connections that are open.
    pub(crate) live: Live,
    events: RefCell<EventSender>,
    ids: RefCell<IdSource>,
    turns: RefCell<Turns>,
    acceptors: RefCell<HashMap<AcceptorId, Rc<accept::Stop>>>,
    open: Cell<usize>,
    ended: Notify,
    standing_by: Cell<bool>,
    /// HTTP/1 connections that have more than their stream; see `l7::h1`.
    pub(crate) warm: Cell<usize>,
    /// The handshakes that want CPU time.
    pub(crate) handshakes: HandshakeQueue,
    /// What serves streams of HTTP/2.
    pub(crate) runners: Rc<Runners>,
    /// What responses say of the time.
    pub(crate) date: Date,
    /// The passwords that were right.
    pub(crate) remembered: Rc<KnownPasswords>,
    /// The tokens that were right.
    pub(crate) tokens: KnownTokens,
    /// The roots of files that are open.
    pub(crate) roots: Roots,
    /// What compresses responses.
    pub(crate) compressors: Compressors,
    /// The copies of requests that are under way.
    pub(crate) mirrors: Mirrors,
    begun: Cell<u64>,
    /// Connections that were closed though they had not finished. Not the worker's own: it outlives the tasks.
    cut_off: Rc<Cell<u64>>,
    /// Refused clients that are waited for; see `closing`.
    pub(crate) lingering: Cell<usize>,
    /// Connections to servers, for HTTP.
    pub(crate) pools: Pools<ClientBody>,
    /// While the worker drains: how long a kept connection of HTTP/1 may stay without a request.
    draining: Cell<Option<Duration>>,
    /// Whether who waits for a place is turned away: no place becomes free in time.
    turns_away: Cell<bool>,
    dice: Cell<u64>,
}

/// The memory that records are opened and sealed in, lent to a connection while it is polled.
pub(crate) struct Scratch {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) spans: [Span; SPANS],
}

/// Whose turn it is in each backend of the newest snapshot.
struct Turns {
    generation: u64,
    /// Made for the first connection of each.
    backends: Vec<Option<Rc<PerWorker>>>,
}

/// Ends every relay at once: a flag, and the tasks to wake.
#[derive(Default)]
pub(crate) struct Cut {
    now: Cell<bool>,
    wakers: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
}

impl Cut {
    /// Whether relays must end.
    pub(crate) fn is_now(&self) -> bool {
        self.now.get()
    }

    /// Has `waker` woken when relays must end; the number gives it back to [`Cut::forget`].
    pub(crate) fn remember(&self, waker: &Waker) -> usize {
        let mut wakers = self.wakers.borrow_mut();
        if let Some(place) = self.free.borrow_mut().pop() {
            wakers[place] = Some(waker.clone());
            return place;
        }
        wakers.push(Some(waker.clone()));
        wakers.len() - 1
    }

    pub(crate) fn forget(&self, place: usize) {
        self.wakers.borrow_mut()[place] = None;
        self.free.borrow_mut().push(place);
    }

    /// Waits until relays must end.
    pub(crate) async fn wait(&self) {
        let mut remembered = Remembered { cut: self, place: None };
        poll_fn(|cx| {
            if self.is_now() {
                return Poll::Ready(());
            }
            remembered.place.get_or_insert_with(|| self.remember(cx.waker()));
            Poll::Pending
        })
        .await;
    }

    fn all(&self) {
        self.now.set(true);
        self.wake();
    }

    /// Has everybody look at what has changed.
    fn wake(&self) {
        for waker in self.wakers.borrow().iter().flatten() {
            waker.wake_by_ref();
        }
    }
}

/// A waker that is forgotten when this is dropped.
struct Remembered<'a> {
    cut: &'a Cut,
    place: Option<usize>,
}

impl Drop for Remembered<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.cut.forget(place);
        }
    }
}

impl Worker {
    /// Starts worker `index`, and waits until it runs; see [`Worker::spawn`].
    ///
    /// # Errors
    /// Where the thread or its event loop cannot be made.
    pub fn start(
        index: usize,
        core: Option<usize>,
        counters: WorkerCounters,
        events: EventSender,
        shared: Shared,
        seed: u64,
    ) -> io::Result<WorkerHandle> {
        Self::spawn(index, core, counters, events, shared, seed)?.started()
    }

    /// Begins to start worker `index` on a thread of its own, tied to `core` if one is given. `seed` is drawn
    /// at random once per process and makes connection ids unique.
    ///
    /// # Errors
    /// Where the thread cannot be made.
    pub fn spawn(
        index: usize,
        core: Option<usize>,
        counters: WorkerCounters,
        events: EventSender,
        shared: Shared,
        seed: u64,
    ) -> io::Result<StartingWorker> {
        let (commands, receiver) = unbounded_channel();
        // Made here, so that the caller learns of a failure; the loop itself is bound to its thread.
        let mut builder = Builder::new_current_thread();
        builder.enable_io().enable_time().max_blocking_threads(DISK_THREADS).thread_name("offramp-disk");
        let beating = shared.late.add();
        let (sleeps, wakes) = (Arc::clone(&beating), Arc::clone(&beating));
        builder.on_thread_park(move || sleeps.sleeps()).on_thread_unpark(move || {
            turn::woke();
            wakes.wakes();
        });
        let (started, outcome) = std::sync::mpsc::channel();
        let (living, alive) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(format!("offramp-{index}")).spawn(move || {
            let _living = living;
            if let Some(core) = core {
                // A core that went away is no reason not to work on another.
                let _ = offramp_net::cores::pin(core);
            }
            let runtime = match builder.build_local(LocalOptions::default()) {
                Ok(runtime) => runtime,
                Err(error) => {
                    drop(started.send(Err(error)));
                    return 0;
                }
            };
            let _ = started.send(Ok(()));
            let pulse = Arc::clone(&beating);
            let worker = Self::new(index, counters, events, (shared, pulse), seed);
            let cut_off = Rc::clone(&worker.cut_off);
            runtime.block_on(worker.run(receiver));
            beating.ends();
            // What is still open ends here. A disk that does not answer is not waited for.
            runtime.shutdown_background();
            cut_off.get()
        })?;
        Ok(StartingWorker { handle: WorkerHandle { thread, alive, commands }, outcome })
    }

    /// The inside alone, to be run on the calling thread.
    fn new(
        index: usize,
        counters: WorkerCounters,
        events: EventSender,
        (shared, pulse): (Shared, Arc<Pulse>),
        seed: u64,
    ) -> Rc<Self> {
        let runners: Rc<Runners> = Rc::default();
        shared.held.add(runners.memory.shown());
        runners.memory.heed(&shared.pressure);
        Rc::new(Self {
            index,
            counters,
            ids: RefCell::new(IdSource::new(u16::try_from(index).unwrap_or(u16::MAX), seed)),
            events: RefCell::new(events),
            pulse,
            shared,
            heads: Rc::default(),
            scratch: RefCell::new(Scratch {
                bytes: vec![0; slots::room()].into(),
                spans: [Span::default(); SPANS],
            }),
            pipes: Pipes::default(),
            cut: Cut::default(),
            live: Live::default(),
            turns: RefCell::new(Turns { generation: u64::MAX, backends: Vec::new() }),
            acceptors: RefCell::default(),
            open: Cell::new(0),
            ended: Notify::new(),
            standing_by: Cell::new(false),
            warm: Cell::new(0),
            handshakes: HandshakeQueue::default(),
            runners,
            date: Date::default(),
            remembered: Rc::default(),
            tokens: KnownTokens::default(),
            roots: Roots::default(),
            compressors: Compressors::default(),
            mirrors: Mirrors::default(),
            begun: Cell::new(0),
            cut_off: Rc::default(),
            lingering: Cell::new(0),
            pools: Pools::new(index),
            draining: Cell::new(None),
            turns_away: Cell::new(false),
            // Never 0, which the generator does not leave.
            dice: Cell::new((seed ^ (index as u64) << 48) | 1),
        })
    }

    async fn run(self: Rc<Self>, mut commands: UnboundedReceiver<Command>) {
        let pulse = Arc::clone(&self.pulse);
        spawn_local(async move { pulse.answer().await });
        // That nobody can command any more is an order to end, too.
        let limit = loop {
            match commands.recv().await {
                Some(Command::Listen { id, listener, fd }) => self.listen(id, listener, fd),
                Some(Command::Unlisten { id, reserve }) => self.unlisten(id, reserve),
                Some(Command::Leave { id }) => self.leave(id),
                Some(Command::Beat { alive }) => drop(alive.send(())),
                Some(Command::Connections { question, told }) => self.tell_of(&question, told).await,
                Some(Command::Drain { limit }) => break limit,
                None => break Duration::ZERO,
            }
        };
        self.turns_away.set(true);
        let all: Vec<_> = self.acceptors.borrow().keys().copied().collect();
        all.into_iter().for_each(|id| self.unlisten(id, None));
        // Acceptors take whoever waits already before connections are counted.
        tokio::task::yield_now().await;
        self.draining.set(Some(GRACE.min(limit / 2)));
        self.cut.wake();
        // Who has nothing to finish ends when woken, even where there is no time at all.
        tokio::task::yield_now().await;
        if !self.finish(limit, &mut commands).await {
            self.cut.all();
            let _ = timeout(CUT, self.all_ended()).await;
        }
    }

    /// Waits for all connections to end; whether they did within the limit, or another one that is commanded.
    async fn finish(&self, mut limit: Duration, commands: &mut UnboundedReceiver<Command>) -> bool {
        loop {
            tokio::select! {
                biased;
                () = self.all_ended() => return true,
                () = tokio::time::sleep(limit) => return false,
                command = commands.recv() => match command {
                    Some(Command::Drain { limit: other }) => limit = other,
                    Some(Command::Beat { alive }) => drop(alive.send(())),
                    Some(Command::Connections { question, told }) => self.tell_of(&question, told).await,
                    Some(_) => {}
                    None => return false,
                },
            }
        }
    }

    /// Answers about connections. However many ask, the connections have their turn between two answers.
    async fn tell_of(&self, question: &Question, told: oneshot::Sender<Piece>) {
        // Whoever asked may be gone, and then nobody is closed for it.
        if !told.is_closed() {
            let _ = told.send(self.live.answer(question));
        }
        tokio::task::yield_now().await;
    }

    /// Why a connection must end now, if it must.
    pub(crate) fn end_of(&self, place: Place) -> Option<Cause> {
        if self.cut.is_now() {
            return Some(Cause::Drain);
        }
        self.live.is_closing(place).then_some(Cause::ClosedByOperator)
    }

    async fn all_ended(&self) {
        while self.open.get() > 0 || !self.acceptors.borrow().is_empty() {
            self.ended.notified().await;
        }
    }

    /// Notes that a connection begins, whose timers would each wake the loop that sets them.
    ///
    /// The runtime wakes itself, by a system call, for every timer that is due before all others that
    /// it knows of; with connections that come and go that is nearly every one. So while connections
    /// begin, one timer is kept that is due before theirs. It costs a wake-up a second, and none in a
    /// second in which no connection began.
    pub(crate) fn stand_by(self: &Rc<Self>) {
        self.begun.set(self.begun.get() + 1);
        if self.standing_by.replace(true) {
            return;
        }
        let worker = Rc::clone(self);
        spawn_local(async move {
            loop {
                let before = worker.begun.get();
                tokio::time::sleep(STAND_BY).await;
                if worker.begun.get() == before {
                    break;
                }
            }
            worker.standing_by.set(false);
        });
    }

    /// The turns of a backend of `snapshot`, in which failures of its servers are remembered.
    pub(crate) fn turns(&self, snapshot: &Snapshot, backend: usize) -> Rc<PerWorker> {
        let mut turns = self.turns.borrow_mut();
        if turns.generation != snapshot.generation {
            let backends = vec![None; snapshot.backends.len()];
            *turns = Turns { generation: snapshot.generation, backends };
        }
        let new = || Rc::new(PerWorker::new(&snapshot.backends[backend], self.index, Instant::now()));
        Rc::clone(turns.backends[backend].get_or_insert_with(new))
    }

    /// Counts an attempt to connect to a server.
    pub(crate) fn note_attempt(&self, progress: Progress<'_>) {
        if let Progress::Attempted { succeeded } = progress {
            self.counters.connect_attempted();
            if !succeeded {
                self.counters.connect_failed();
            }
        }
    }

    /// Facts begin.
    pub(crate) fn facts(
        &self,
        listener: &Arc<str>,
        client: offramp_observe::facts::Address,
    ) -> Box<ConnectionFacts> {
        let now = SystemTime::now();
        let id = self.ids.borrow_mut().next(now);
        self.counters.connection_accepted();
        let index = u16::try_from(self.index).unwrap_or(u16::MAX);
        Box::new(ConnectionFacts::new(id, index, Arc::clone(listener), now, client))
    }

    /// Whether connections must end as soon as they can.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get().is_some()
    }

    /// While the worker drains: how long a client has to begin with its last request.
    pub(crate) fn grace(&self) -> Option<Duration> {
        self.draining.get()
    }

    /// A random number that need not be secret (xorshift64*).
    pub(crate) fn random(&self) -> u64 {
        let mut state = self.dice.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.dice.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// When a connection that begins now has its greatest age, in milliseconds of the coarse clock; the largest number is
    /// never.
    pub(crate) fn old_at(&self, limits: &Limits) -> u64 {
        let Some(age) = limits.max_age else { return u64::MAX };
        coarse_ms().saturating_add(spread(u64::try_from(age.as_millis()).unwrap_or(u64::MAX), self.random()))
    }

    /// Sends the facts of a request on their way.
    pub(crate) fn tell(&self, facts: Box<RequestFacts>) {
        self.events.borrow_mut().send(facts);
    }

    /// A request has ended: it is counted.
    pub(crate) fn request_ended(&self, facts: &RequestFacts) {
        self.counters.request_ended(facts);
        self.shared.refusals.ended(facts.close.cause, &facts.client());
    }

    /// Counts finished facts, and sends them if they are `reported`. A connection that `left` had nothing to finish.
    pub(crate) fn ended(&self, facts: Box<ConnectionFacts>, reported: bool, left: bool) {
        self.counters.connection_ended(&facts);
        // These are causes of a request, which was counted already.
        if !matches!(facts.close.cause, Cause::HeadersTooLarge | Cause::TargetTooLong) {
            self.shared.refusals.ended(facts.close.cause, &facts.client.address);
        }
        if facts.close.cause == Cause::Drain && self.cut.is_now() && !left {
            self.cut_off.set(self.cut_off.get() + 1);
        }
        if reported {
            self.events.borrow_mut().send(facts);
        }
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.ended.notify_one();
        }
    }
}

/// An age of 90 % to 110 %: connections that began together are not to come again together.
fn spread(age: u64, random: u64) -> u64 {
    let tenth = age / 10;
    age - tenth + random % (2 * tenth + 1)
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn ages_are_spread_over_a_fifth() {
        for age in [1, 9, 1000, 30 * 24 * 3_600_000] {
            let tenth = age / 10;
            let reached = [0, tenth, 2 * tenth].map(|random| spread(age, random));
            assert_eq!(reached, [age - tenth, age, age + tenth]);
            assert!((age - tenth..=age + tenth).contains(&spread(age, u64::MAX)));
        }
    }
}
