//! Accepting: a connection is taken from the kernel only when there is a place for it, and the other tasks of the
//! worker have a turn after every few.
//!
//! What the kernel does not give for the moment (descriptors, memory, permission) makes a pause. Nothing in here
//! keeps the order to stop from being heard, and nothing but a broken socket ends a listener.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use offramp_net::Peer;
use offramp_net::listen::{AcceptError, Acceptor, BACKLOG, Ready, Reserve};
use offramp_observe::counters::PauseReason;
use tokio::sync::Notify;
use tokio::task::{spawn_local, yield_now};

use super::{AcceptorId, Worker};
use crate::conn;
use crate::late::Doing;
use crate::limit::Admitted;

/// How many connections are accepted before the other tasks of the worker have a turn: a queue may hold thousands, and
/// each costs some 50 µs up to its handshake.
const BURST: usize = 4;
/// So many connections in a row that are gone before they are accepted are an error that lasts.
const GONE: usize = 16;
/// How long accepting pauses when the kernel gives nothing.
const PAUSE: Duration = Duration::from_millis(200);

impl Worker {
    pub(super) fn listen(self: &Rc<Self>, id: AcceptorId, listener: Arc<str>, fd: OwnedFd) {
        let acceptor = match Acceptor::new(fd) {
            Ok(acceptor) => acceptor,
            Err(error) => {
                let fields = [("listener", (&listener).into()), ("reason", (&error).into())];
                return self.shared.log.error("a worker cannot watch a listening socket", &fields);
            }
        };
        let stop = Rc::new(Stop::default());
        self.acceptors.borrow_mut().insert(id, Rc::clone(&stop));
        let worker = Rc::clone(self);
        let door = Door { id, listener };
        spawn_local(async move {
            worker.accept(&acceptor, &door, &stop).await;
            drop(acceptor);
            if let Some((reserve, number)) = stop.reserve.take() {
                reserve.stopped(number);
            }
            worker.acceptors.borrow_mut().remove(&id);
            worker.ended.notify_one();
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

    /// Closes a socket that another process has, too: it serves who is in the queue.
    pub(super) fn leave(&self, id: AcceptorId) {
        if let Some(stop) = self.acceptors.borrow().get(&id) {
            stop.leaves.set(true);
            stop.now.notify_one();
        }
    }

    /// Accepts until told to stop, and then whoever is in the queue already: closing the socket
    /// would reset them.
    async fn accept(self: &Rc<Self>, acceptor: &Acceptor, door: &Door, stop: &Stop) {
        tokio::select! {
            biased;
            () = stop.now.notified() => self.accept_rest(acceptor, door, stop).await,
            // A connection is accepted and given a task between two awaits, so that none is lost here.
            () = self.accept_all(acceptor, door) => {}
        }
    }

    /// Accepts until the socket breaks.
    async fn accept_all(self: &Rc<Self>, acceptor: &Acceptor, door: &Door) {
        let mut turn = Turn::default();
        loop {
            let outcome = match acceptor.ready().await {
                // Clients wait in the queue of the socket.
                Ok(ready) if self.shared.pressure.is_high() => Ok(match ready.confirm() {
                    Some(_) => Taken::LeftWaiting,
                    None => Taken::Nobody,
                }),
                Ok(ready) => self.accept_one(ready, door).await,
                Err(error) => Err(AcceptError::Broken(error)),
            };
            let pause = match outcome {
                Ok(Taken::Accepted) => turn.accepted(),
                // The event loop has its turn anyway.
                Ok(Taken::Nobody) => turn.waits(),
                Ok(Taken::LeftWaiting) => Some(PauseReason::ProcessMemory),
                Err(AcceptError::Gone) => turn.gone(),
                Err(AcceptError::Descriptors) => Some(PauseReason::Descriptors),
                Err(AcceptError::Memory) => Some(PauseReason::Memory),
                Err(AcceptError::Denied(_)) => Some(PauseReason::Denied),
                Err(AcceptError::Broken(error)) => {
                    let listener = self.listener_of(door);
                    let fields = [("listener", (&listener).into()), ("reason", (&error).into())];
                    return self.shared.log.error("a listening socket failed", &fields);
                }
            };
            match pause {
                Some(reason) => {
                    self.say_pause(reason, door);
                    tokio::time::sleep(PAUSE).await;
                }
                // Goes on when the event loop has looked at the other sockets.
                None if turn.is_over() => yield_now().await,
                None => {}
            }
        }
    }

    /// Accepts the connection that seems to wait, once there is a place for it: until then it waits in the queue.
    async fn accept_one(self: &Rc<Self>, mut ready: Ready<'_>, door: &Door) -> Result<Taken, AcceptError> {
        let place = match self.shared.admission.enter(self.most_connections()) {
            Some(place) => place,
            None => {
                let Some(waits) = ready.confirm() else { return Ok(Taken::Nobody) };
                ready = waits;
                self.say_pause(PauseReason::Connections, door);
                self.shared.admission.wait(|| self.most_connections()).await
            }
        };
        let Some((fd, peer)) = ready.accept()? else { return Ok(Taken::Nobody) };
        self.serve(door, fd, peer, Some(place));
        Ok(Taken::Accepted)
    }

    /// Accepts the connections in the queue, each when there is a place for it. When the worker ends, those without a
    /// place are refused.
    async fn accept_rest(self: &Rc<Self>, acceptor: &Acceptor, door: &Door, stop: &Stop) {
        let mut turn = Turn::default();
        // Others may come while we look; they do not keep the socket open.
        for _ in 0..BACKLOG {
            if stop.leaves.get() {
                return;
            }
            let place = self.shared.admission.enter(self.most_connections());
            match acceptor.try_accept() {
                Ok(Some((fd, peer))) => {
                    let place = match place {
                        Some(place) => Some(place),
                        None => self.last_place(stop).await,
                    };
                    self.serve(door, fd, peer, place);
                }
                Err(AcceptError::Gone) => {}
                Ok(None) | Err(_) => break,
            }
            turn.accepted();
            if turn.is_over() {
                yield_now().await;
            }
        }
    }

    /// Waits for a place for one that was accepted already, until the worker ends.
    async fn last_place(&self, stop: &Stop) -> Option<Admitted> {
        while !self.turns_away.get() {
            tokio::select! {
                place = self.shared.admission.wait(|| self.most_connections()) => return Some(place),
                // Said again when the worker ends.
                () = stop.now.notified() => {}
            }
        }
        None
    }

    /// Serves a connection from its task on; it is open from now on, so that a drain waits for it.
    fn serve(self: &Rc<Self>, door: &Door, fd: OwnedFd, peer: Peer, place: Option<Admitted>) {
        self.open.set(self.open.get() + 1);
        self.pulse.begins(Doing::Accept(door.id));
        let (socket, listener) = (door.id, Arc::clone(&door.listener));
        let arrived = Box::new(conn::Arrived { socket, listener, fd, peer, place });
        spawn_local(conn::serve(Rc::clone(self), arrived));
    }

    fn most_connections(&self) -> u32 {
        self.shared.current.load().limits.connections
    }

    fn say_pause(&self, reason: PauseReason, door: &Door) {
        self.counters.accept_paused(reason);
        self.shared.refusals.paused(reason, &self.listener_of(door), self.open.get());
    }

    /// The name of the listener that a socket serves now.
    fn listener_of(&self, door: &Door) -> Arc<str> {
        let snapshot = self.shared.current.load();
        let listener = snapshot.listener(door.id, &door.listener);
        Arc::clone(listener.map_or(&door.listener, |listener| &listener.name))
    }
}

/// A socket that is accepted on.
struct Door {
    id: AcceptorId,
    /// What its listener was called when it was opened.
    listener: Arc<str>,
}

/// The order to an acceptor to stop.
#[derive(Default)]
pub(super) struct Stop {
    now: Notify,
    /// Whether who is in the queue is left there.
    leaves: Cell<bool>,
    /// Where the socket is kept, and which of its acceptors this is.
    reserve: RefCell<Option<(Arc<Reserve>, usize)>>,
}

/// What became of a socket on which somebody seemed to wait.
enum Taken {
    Accepted,
    /// Nobody waits.
    Nobody,
    /// Somebody does, and the process holds too much memory.
    LeftWaiting,
}

/// What an acceptor has done since others had a turn.
#[derive(Default)]
struct Turn {
    attempts: usize,
    /// Connections in a row that were gone before they could be accepted.
    gone: usize,
}

impl Turn {
    fn accepted(&mut self) -> Option<PauseReason> {
        self.attempts += 1;
        self.gone = 0;
        None
    }

    /// So many in a row are no connections but an error that lasts.
    fn gone(&mut self) -> Option<PauseReason> {
        self.attempts += 1;
        self.gone += 1;
        (self.gone.is_multiple_of(GONE)).then_some(PauseReason::Denied)
    }

    /// There is no connection.
    fn waits(&mut self) -> Option<PauseReason> {
        *self = Self::default();
        None
    }

    /// Whether other tasks must have a turn; then the next turn begins.
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
