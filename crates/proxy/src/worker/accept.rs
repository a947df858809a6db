//! Accepting: a connection is taken from the kernel only when there is a place for it, and the other tasks of the
//! worker have a turn after every few.
//!
//! What the kernel does not give for the moment (descriptors, memory, permission) makes a pause. Nothing in here
//! keeps the order to stop from arriving, and nothing but a broken socket ends a listener.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use offramp_net::PeerAddress;
use offramp_net::listen::{AcceptError, AcceptReadiness, Acceptor, BACKLOG, Reserve};
use offramp_observe::counters::PauseReason;
use tokio::sync::Notify;
use tokio::task::{spawn_local, yield_now};

use super::event_loop::EventLoop;
use crate::conn::{self, AcceptedConnection};
use crate::late::Doing;
use crate::limit::Admitted;
use crate::snapshot::AcceptorId;

/// Connections that are accepted before the other tasks of the worker have a turn: a queue may hold thousands, and
/// each costs some 50 µs up to its handshake.
const BURST: usize = 4;
/// So many connections in a row that are gone before they are accepted are an error that lasts.
const GONE: usize = 16;
/// The pause of accepting when the kernel gives nothing.
const PAUSE: Duration = Duration::from_millis(200);

impl EventLoop {
    pub(super) fn listen(self: &Rc<Self>, id: AcceptorId, listener: Arc<str>, fd: OwnedFd) {
        let acceptor = match Acceptor::new(fd) {
            Ok(acceptor) => acceptor,
            Err(error) => {
                let fields = [("listener", (&listener).into()), ("reason", (&error).into())];
                return self.resources.shared.log.error("a worker cannot watch a listening socket", &fields);
            }
        };
        let stop = Rc::new(AcceptorStop::default());
        self.acceptors.borrow_mut().insert(id, Rc::clone(&stop));
        let event_loop = Rc::clone(self);
        let socket = ListeningSocket { id, listener };
        spawn_local(async move {
            event_loop.accept(&acceptor, &socket, &stop).await;
            drop(acceptor);
            if let Some((reserve, number)) = stop.reserve.take() {
                reserve.stopped(number);
            }
            event_loop.acceptors.borrow_mut().remove(&id);
            event_loop.resources.open.ended.notify_one();
        });
    }

    pub(super) fn unlisten(&self, id: AcceptorId, reserve: Option<(Arc<Reserve>, usize)>) {
        if let Some(stop) = self.acceptors.borrow().get(&id) {
            stop.reserve.replace(reserve);
            stop.now.notify_one();
        } else if let Some((reserve, number)) = reserve {
            // Its socket has failed.
            reserve.stopped(number);
        }
    }

    /// Closes a socket that another process has, too: that one serves the clients in the queue.
    pub(super) fn leave(&self, id: AcceptorId) {
        if let Some(stop) = self.acceptors.borrow().get(&id) {
            stop.leaves.set(true);
            stop.now.notify_one();
        }
    }

    /// Accepts until the order to stop, and then the clients in the queue: closing the socket would
    /// reset them.
    async fn accept(self: &Rc<Self>, acceptor: &Acceptor, socket: &ListeningSocket, stop: &AcceptorStop) {
        tokio::select! {
            biased;
            () = stop.now.notified() => self.accept_rest(acceptor, socket, stop).await,
            // A connection is accepted and given a task between two awaits, so that none is lost here.
            () = self.accept_all(acceptor, socket) => {}
        }
    }

    /// Accepts until the socket breaks.
    async fn accept_all(self: &Rc<Self>, acceptor: &Acceptor, socket: &ListeningSocket) {
        let mut burst = Burst::default();
        loop {
            let outcome = match acceptor.ready().await {
                // Clients wait in the queue of the socket.
                Ok(ready) if self.resources.shared.pressure.is_high() => Ok(match ready.confirm() {
                    Some(_) => AcceptAttempt::LeftWaiting,
                    None => AcceptAttempt::QueueEmpty,
                }),
                Ok(ready) => self.accept_one(ready, socket).await,
                Err(error) => Err(AcceptError::Broken(error)),
            };
            let pause = match outcome {
                Ok(AcceptAttempt::Accepted) => burst.accepted(),
                // The event loop has its turn anyway.
                Ok(AcceptAttempt::QueueEmpty) => burst.ends(),
                Ok(AcceptAttempt::LeftWaiting) => Some(PauseReason::ProcessMemory),
                Err(AcceptError::Gone) => burst.gone(),
                Err(AcceptError::Descriptors) => Some(PauseReason::Descriptors),
                Err(AcceptError::Memory) => Some(PauseReason::Memory),
                Err(AcceptError::Denied(_)) => Some(PauseReason::Denied),
                Err(AcceptError::Broken(error)) => {
                    let listener = self.listener_of(socket);
                    let fields = [("listener", (&listener).into()), ("reason", (&error).into())];
                    return self.resources.shared.log.error("a listening socket failed", &fields);
                }
            };
            match pause {
                Some(reason) => {
                    self.note_pause(reason, socket);
                    tokio::time::sleep(PAUSE).await;
                }
                // Goes on when the event loop has looked at the other sockets.
                None if burst.is_over() => yield_now().await,
                None => {}
            }
        }
    }

    /// Accepts the connection that seems to wait, once there is a place for it: until then it waits in the queue.
    async fn accept_one(
        self: &Rc<Self>,
        mut ready: AcceptReadiness<'_>,
        socket: &ListeningSocket,
    ) -> Result<AcceptAttempt, AcceptError> {
        let place = match self.resources.shared.admission.enter(self.most_connections()) {
            Some(place) => place,
            None => {
                let Some(waits) = ready.confirm() else { return Ok(AcceptAttempt::QueueEmpty) };
                ready = waits;
                self.note_pause(PauseReason::Connections, socket);
                self.resources.shared.admission.wait(|| self.most_connections()).await
            }
        };
        let Some((fd, peer)) = ready.accept()? else { return Ok(AcceptAttempt::QueueEmpty) };
        self.serve(socket, fd, peer, Some(place));
        Ok(AcceptAttempt::Accepted)
    }

    /// Accepts the connections in the queue, each when there is a place for it. When the worker ends, those without a
    /// place are refused.
    async fn accept_rest(
        self: &Rc<Self>,
        acceptor: &Acceptor,
        socket: &ListeningSocket,
        stop: &AcceptorStop,
    ) {
        let mut burst = Burst::default();
        // Others may come while we look; they do not keep the socket open.
        for _ in 0..BACKLOG {
            if stop.leaves.get() {
                return;
            }
            let place = self.resources.shared.admission.enter(self.most_connections());
            match acceptor.try_accept() {
                Ok(Some((fd, peer))) => {
                    let place = match place {
                        Some(place) => Some(place),
                        None => self.last_place(stop).await,
                    };
                    self.serve(socket, fd, peer, place);
                }
                Err(AcceptError::Gone) => {}
                Ok(None) | Err(_) => break,
            }
            burst.accepted();
            if burst.is_over() {
                yield_now().await;
            }
        }
    }

    /// Waits for a place for one that was accepted already, until the worker ends.
    async fn last_place(&self, stop: &AcceptorStop) -> Option<Admitted> {
        while !self.draining.get() {
            tokio::select! {
                place = self.resources.shared.admission.wait(|| self.most_connections()) => return Some(place),
                // Said again when the worker ends.
                () = stop.now.notified() => {}
            }
        }
        None
    }

    /// Serves a connection from its task on; it is open from now on, so that a drain waits for it.
    fn serve(
        self: &Rc<Self>,
        socket: &ListeningSocket,
        fd: OwnedFd,
        peer: PeerAddress,
        admitted: Option<Admitted>,
    ) {
        self.resources.open.begin();
        self.stand_by.connection_begins();
        self.resources.pulse.begins(Doing::Accept(socket.id));
        let (acceptor, listener) = (socket.id, Arc::clone(&socket.listener));
        let accepted = Box::new(AcceptedConnection { acceptor, listener, fd, peer, admitted });
        spawn_local(conn::serve(Rc::clone(&self.services), accepted));
    }

    fn most_connections(&self) -> u32 {
        self.resources.shared.current.load().limits.connections
    }

    fn note_pause(&self, reason: PauseReason, socket: &ListeningSocket) {
        self.resources.counters.accept_paused(reason);
        self.resources.shared.refusals.paused(reason, &self.listener_of(socket), self.resources.open.count());
    }

    /// The name of the listener that a socket serves now.
    fn listener_of(&self, socket: &ListeningSocket) -> Arc<str> {
        let snapshot = self.resources.shared.current.load();
        let listener = snapshot.listener(socket.id, &socket.listener);
        Arc::clone(listener.map_or(&socket.listener, |listener| &listener.name))
    }
}

/// A socket that accepts connections.
struct ListeningSocket {
    id: AcceptorId,
    /// The name of its listener when it was opened.
    listener: Arc<str>,
}

/// The order to an acceptor to stop.
#[derive(Default)]
pub(super) struct AcceptorStop {
    now: Notify,
    /// The clients in the queue are left to another process.
    leaves: Cell<bool>,
    /// The reserve that keeps the socket, and the number of this acceptor there.
    reserve: RefCell<Option<(Arc<Reserve>, usize)>>,
}

/// The outcome of one attempt to accept.
enum AcceptAttempt {
    Accepted,
    /// The kernel has no client.
    QueueEmpty,
    /// A client waits, and the process holds too much memory.
    LeftWaiting,
}

/// The attempts of an acceptor since other tasks had a turn.
#[derive(Default)]
struct Burst {
    attempts: usize,
    /// Connections in a row that were gone before they could be accepted.
    gone: usize,
}

impl Burst {
    fn accepted(&mut self) -> Option<PauseReason> {
        self.attempts += 1;
        self.gone = 0;
        None
    }

    /// Counts a connection that was gone. Many in a row are no connections but an error that lasts.
    fn gone(&mut self) -> Option<PauseReason> {
        self.attempts += 1;
        self.gone += 1;
        (self.gone.is_multiple_of(GONE)).then_some(PauseReason::Denied)
    }

    /// The queue is empty.
    fn ends(&mut self) -> Option<PauseReason> {
        *self = Self::default();
        None
    }

    /// Other tasks must have a turn; then the next burst begins.
    fn is_over(&mut self) -> bool {
        let over = self.attempts >= BURST;
        if over {
            self.attempts = 0;
        }
        over
    }
}

#[cfg(test)]
mod tests;
