//! One thread with one event loop, which owns the connections that it accepted, for their life.
//!
//! Nothing on the data path is shared between workers. What a worker lends to its connections, for
//! the length of one poll, is its scratch: the memory that records are opened and sealed in.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use offramp_net::Peer;
use offramp_net::listen::{AcceptError, Acceptor};
use offramp_observe::counters::PauseReason;
use offramp_observe::{ConnectionFacts, EventSender, IdSource, Log, RequestFacts, WorkerCounters};
use offramp_record::Span;
use offramp_upstream::{Chooser, Pools};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::conn;
use crate::l7::{ClientBody, Date, Runners};
use crate::limit::{Admission, ClientTable};
use crate::slots::{self, SPANS};
use crate::snapshot::{Current, Snapshot};

/// How long accepting pauses when descriptors or memory have run out.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a pause is told to the log at the most.
const PAUSE_LOG: Duration = Duration::from_secs(60);
/// How long connections that are closed at the end of a drain have to say so to their clients.
const CUT: Duration = Duration::from_secs(1);
/// How long the timer waits that stands before all others; see [`Worker::stand_by`].
const STAND_BY: Duration = Duration::from_secs(1);

/// What all workers have in common.
#[derive(Clone)]
pub struct Shared {
    /// The configuration in force.
    pub current: Current,
    /// The limit of connections.
    pub admission: Arc<Admission>,
    /// The limits per client.
    pub clients: Arc<ClientTable>,
    /// Where a worker in trouble says so.
    pub log: Log,
}

/// Names a listening socket towards its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcceptorId(pub u64);

/// What a worker is told.
#[derive(Debug)]
pub enum Command {
    /// Accept connections on this socket for this listener.
    Listen {
        /// The socket's name from now on.
        id: AcceptorId,
        /// The listener's name in the snapshot.
        listener: Arc<str>,
        /// A listening, non-blocking socket.
        fd: OwnedFd,
    },
    /// Serve who waits already, then close the socket.
    Unlisten {
        /// Which.
        id: AcceptorId,
    },
    /// Accept nothing more, wait for the open connections up to `limit`, close the rest, and end.
    Drain {
        /// How long to wait.
        limit: Duration,
    },
}

/// The outside of a running worker.
pub struct WorkerHandle {
    thread: JoinHandle<()>,
    /// Its other end is dropped with the thread, however that ends.
    alive: oneshot::Receiver<()>,
    commands: UnboundedSender<Command>,
}

impl WorkerHandle {
    /// Tells the worker something. One that has ended hears nothing.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Waits until the thread has ended: after a drain, or because of a fault of ours.
    pub async fn ended(&mut self) {
        let _ = (&mut self.alive).await;
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread to end; `false` if it panicked.
    #[must_use]
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }
}

/// The inside of a worker.
pub struct Worker {
    pub(crate) index: usize,
    pub(crate) counters: WorkerCounters,
    pub(crate) shared: Shared,
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) cut: Cut,
    events: RefCell<EventSender>,
    ids: RefCell<IdSource>,
    turns: RefCell<Turns>,
    acceptors: RefCell<HashMap<AcceptorId, Rc<Notify>>>,
    open: Cell<usize>,
    ended: Notify,
    standing_by: Cell<bool>,
    /// HTTP/1 connections that have more than their stream; see `l7::h1`.
    pub(crate) warm: Cell<usize>,
    /// What serves streams of HTTP/2.
    pub(crate) runners: Rc<Runners>,
    /// What responses say of the time.
    pub(crate) date: Date,
    begun: Cell<u64>,
    paused: Cell<Option<Instant>>,
    /// Connections to servers, for HTTP.
    pub(crate) pools: Pools<ClientBody>,
    draining: Cell<bool>,
    dice: Cell<u64>,
}

/// The memory that records are opened and sealed in, lent to a connection while it is polled.
pub(crate) struct Scratch {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) spans: [Span; SPANS],
}

/// Round robin over each backend of the newest snapshot.
struct Turns {
    generation: u64,
    backends: Vec<Rc<RefCell<Chooser>>>,
}

/// The way to end every relay at once: a flag, and whom to wake for it.
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

impl Worker {
    /// Starts worker `index` on a thread of its own, tied to `core` if one is given. `seed` is drawn
    /// at random once per process and makes connection ids unique.
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
        let (commands, receiver) = unbounded_channel();
        // Made here, so that a failure is told to the caller; the loop itself is bound to its thread.
        let mut builder = Builder::new_current_thread();
        builder.enable_io().enable_time();
        let (told, outcome) = std::sync::mpsc::channel();
        let (living, alive) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(format!("offramp-{index}")).spawn(move || {
            let _living = living;
            if let Some(core) = core {
                // A core that went away is no reason not to work on another.
                let _ = offramp_net::cores::pin(core);
            }
            let runtime = match builder.build_local(LocalOptions::default()) {
                Ok(runtime) => runtime,
                Err(error) => return drop(told.send(Err(error))),
            };
            let _ = told.send(Ok(()));
            let worker = Rc::new(Self {
                index,
                counters,
                ids: RefCell::new(IdSource::new(u16::try_from(index).unwrap_or(u16::MAX), seed)),
                events: RefCell::new(events),
                shared,
                scratch: RefCell::new(Scratch {
                    bytes: vec![0; slots::room()].into(),
                    spans: [Span::default(); SPANS],
                }),
                cut: Cut::default(),
                turns: RefCell::new(Turns { generation: u64::MAX, backends: Vec::new() }),
                acceptors: RefCell::default(),
                open: Cell::new(0),
                ended: Notify::new(),
                standing_by: Cell::new(false),
                warm: Cell::new(0),
                runners: Rc::default(),
                date: Date::default(),
                begun: Cell::new(0),
                paused: Cell::new(None),
                pools: Pools::new(index),
                draining: Cell::new(false),
                // Never 0, which the generator does not leave.
                dice: Cell::new((seed ^ (index as u64) << 48) | 1),
            });
            runtime.block_on(worker.run(receiver));
        })?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(WorkerHandle { thread, alive, commands }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the worker's thread ended at once")),
        }
    }

    async fn run(self: Rc<Self>, mut commands: UnboundedReceiver<Command>) {
        // That nobody can command any more is an order to end, too.
        let limit = loop {
            match commands.recv().await {
                Some(Command::Listen { id, listener, fd }) => self.listen(id, listener, fd),
                Some(Command::Unlisten { id }) => self.unlisten(id),
                Some(Command::Drain { limit }) => break limit,
                None => break Duration::ZERO,
            }
        };
        let all: Vec<_> = self.acceptors.borrow().keys().copied().collect();
        all.into_iter().for_each(|id| self.unlisten(id));
        // Acceptors take whoever waits already before connections are counted.
        tokio::task::yield_now().await;
        self.draining.set(true);
        self.cut.wake();
        if timeout(limit, self.all_ended()).await.is_err() {
            self.cut.all();
            let _ = timeout(CUT, self.all_ended()).await;
        }
    }

    async fn all_ended(&self) {
        while self.open.get() > 0 || !self.acceptors.borrow().is_empty() {
            self.ended.notified().await;
        }
    }

    fn listen(self: &Rc<Self>, id: AcceptorId, listener: Arc<str>, fd: OwnedFd) {
        let acceptor = match Acceptor::new(fd) {
            Ok(acceptor) => acceptor,
            Err(error) => {
                let fields = [("listener", (&listener).into()), ("reason", (&error).into())];
                return self.shared.log.error("a worker cannot watch a listening socket", &fields);
            }
        };
        let stop = Rc::new(Notify::new());
        self.acceptors.borrow_mut().insert(id, Rc::clone(&stop));
        let worker = Rc::clone(self);
        spawn_local(async move {
            worker.accept(&acceptor, &listener, &stop).await;
            drop(acceptor);
            worker.acceptors.borrow_mut().remove(&id);
            worker.ended.notify_one();
        });
    }

    fn unlisten(&self, id: AcceptorId) {
        if let Some(stop) = self.acceptors.borrow().get(&id) {
            stop.notify_one();
        }
    }

    /// Accepts until told to stop, and then whoever is in the queue already: closing the socket
    /// would reset them.
    async fn accept(self: &Rc<Self>, acceptor: &Acceptor, listener: &Arc<str>, stop: &Notify) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.notified() => break,
                accepted = acceptor.accept() => accepted,
            };
            let reason = match accepted {
                Ok((fd, peer)) => {
                    self.serve(listener, fd, peer);
                    continue;
                }
                Err(AcceptError::Gone) => continue,
                Err(AcceptError::Descriptors) => PauseReason::Descriptors,
                Err(AcceptError::Memory) => PauseReason::Memory,
                Err(AcceptError::Broken(error)) => {
                    let fields = [("listener", listener.into()), ("reason", (&error).into())];
                    return self.shared.log.error("a listening socket broke", &fields);
                }
            };
            self.pause(reason, listener);
            tokio::select! {
                () = stop.notified() => break,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        while let Ok(Some((fd, peer))) = acceptor.try_accept() {
            self.serve(listener, fd, peer);
        }
    }

    /// Serves a connection from its task on; it is open from now on, so that a drain waits for it.
    fn serve(self: &Rc<Self>, listener: &Arc<str>, fd: OwnedFd, peer: Peer) {
        self.open.set(self.open.get() + 1);
        spawn_local(conn::serve(Rc::clone(self), Arc::clone(listener), fd, peer));
    }

    fn pause(&self, reason: PauseReason, listener: &Arc<str>) {
        self.counters.accept_paused(reason);
        let now = Instant::now();
        if self.paused.get().is_none_or(|last| now.duration_since(last) >= PAUSE_LOG) {
            self.paused.set(Some(now));
            let advice = match reason {
                PauseReason::Memory => "the kernel has no memory for another socket",
                _ => "raise the limit of open files (systemd: LimitNOFILE=), or lower `limits.connections`",
            };
            let fields = [
                ("listener", listener.into()),
                ("reason", reason.name().into()),
                ("open", self.open.get().into()),
                ("advice", advice.into()),
            ];
            self.shared.log.warn("accepting pauses", &fields);
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
    pub(crate) fn turns(&self, snapshot: &Snapshot, backend: usize) -> Rc<RefCell<Chooser>> {
        let mut turns = self.turns.borrow_mut();
        let fresh = || {
            let now = Instant::now();
            let new = |backend: &Arc<offramp_upstream::Backend>| {
                Rc::new(RefCell::new(Chooser::new(Arc::clone(&backend.picker), self.index, now)))
            };
            snapshot.backends.iter().map(new).collect()
        };
        if turns.generation != snapshot.generation {
            *turns = Turns { generation: snapshot.generation, backends: fresh() };
        }
        Rc::clone(&turns.backends[backend])
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

    /// Whether connections are to end as soon as they can.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// A number that nobody needs to be unable to guess (xorshift64*).
    pub(crate) fn random(&self) -> u64 {
        let mut state = self.dice.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.dice.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Sends the facts of a request on their way.
    pub(crate) fn tell(&self, facts: Box<RequestFacts>) {
        self.events.borrow_mut().send(facts);
    }

    /// Facts are finished: counted, and sent on their way if they are `told`.
    pub(crate) fn ended(&self, facts: Box<ConnectionFacts>, told: bool) {
        self.counters.connection_ended(&facts);
        if told {
            self.events.borrow_mut().send(facts);
        }
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.ended.notify_one();
        }
    }
}
