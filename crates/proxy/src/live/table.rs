//! The table of a worker's connections.

use std::cell::{Cell, RefCell, RefMut};
use std::mem::size_of;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;
use std::time::SystemTime;

use offramp_observe::ConnectionFacts;
use offramp_observe::facts::{PathFacts, Traffic};

use super::filter::only_host;
use super::{Filter, LiveConnection, Protocol};
use crate::l7::Session;

/// How many entries a worker looks at for one question: some 200 µs of its time, where all are told.
const PIECE: usize = 1000;

/// What is asked of a worker.
#[derive(Clone, Debug)]
pub struct Question {
    /// Which connections are meant.
    pub filter: Arc<Filter>,
    /// The place in the table from which on it looks.
    pub from: u32,
    /// It stops after so many that are meant.
    pub most: usize,
    /// What is to become of them.
    pub wish: Wish,
}

/// What is to become of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// They tell of themselves.
    Tell,
    /// They are counted.
    Count,
    /// They are closed.
    Close,
}

/// The answer for a part of the table.
#[derive(Debug, Default)]
pub struct Piece {
    /// What those told that were meant, in the order of the table.
    pub told: Vec<LiveConnection>,
    /// How many were meant.
    pub count: u64,
    /// The place from which on to go on; `None` at the end.
    pub next: Option<u32>,
}

/// The connections of a worker, each in a slot of its own from accept to close.
#[derive(Default)]
pub(crate) struct Live {
    slots: RefCell<Vec<Slot>>,
    /// The first free slot and one more, or 0.
    free: Cell<u32>,
    /// Connections that are to be closed, and have not ended.
    closing: Cell<usize>,
}

/// A slot: what is not part of the facts. Freed slots are used again, the last one first.
struct Slot {
    /// `None` where the slot is free.
    facts: Option<Box<ConnectionFacts>>,
    /// Wakes the task of the connection.
    task: Option<Waker>,
    /// Of HTTP.
    session: Weak<Session>,
    /// The next free slot and one more, or 0.
    next_free: u32,
    protocol: Protocol,
    closing: bool,
}

/// What each connection costs beside its facts.
const _: () = assert!(size_of::<Slot>() <= 40);

/// The slot of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Live {
    /// A connection begins, in this task.
    pub(crate) fn enter(&self, facts: Box<ConnectionFacts>, task: Waker) -> Place {
        let mut slots = self.slots.borrow_mut();
        let slot = Slot {
            facts: Some(facts),
            task: Some(task),
            session: Weak::new(),
            next_free: 0,
            protocol: Protocol::Opening,
            closing: false,
        };
        let Some(at) = self.free.get().checked_sub(1) else {
            slots.push(slot);
            // Descriptors run out long before.
            return Place(u32::try_from(slots.len() - 1).unwrap_or(u32::MAX));
        };
        let free = &mut slots[at as usize];
        self.free.set(free.next_free);
        *free = slot;
        Place(at)
    }

    /// It has ended. What an HTTP connection has shown of its requests is theirs, and not part of its facts.
    pub(crate) fn leave(&self, Place(at): Place) -> Option<Box<ConnectionFacts>> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(at as usize)?;
        let mut facts = slot.facts.take()?;
        (slot.task, slot.session) = (None, Weak::new());
        if slot.protocol.is_http() {
            (facts.path, facts.traffic) = (PathFacts::default(), Traffic::default());
        }
        if std::mem::take(&mut slot.closing) {
            self.closing.set(self.closing.get() - 1);
        }
        slot.next_free = self.free.replace(at + 1);
        Some(facts)
    }

    /// The facts of a connection. Not to be kept over an await: the table is locked meanwhile.
    pub(crate) fn facts(&self, Place(at): Place) -> RefMut<'_, ConnectionFacts> {
        RefMut::map(self.slots.borrow_mut(), |slots| {
            // Taken only by `leave`, after which nobody has the place.
            &mut **slots[at as usize].facts.as_mut().expect("facts last as long as the connection")
        })
    }

    /// What is spoken is known.
    pub(crate) fn speaks(&self, Place(at): Place, protocol: Protocol) {
        self.slots.borrow_mut()[at as usize].protocol = protocol;
    }

    /// HTTP is spoken.
    pub(crate) fn serves(&self, Place(at): Place, session: &Rc<Session>, protocol: Protocol) {
        let slot = &mut self.slots.borrow_mut()[at as usize];
        (slot.session, slot.protocol) = (Rc::downgrade(session), protocol);
    }

    /// A relay has moved so much until now.
    pub(crate) fn moved(&self, place: Place, traffic: Traffic) {
        let mut facts = self.facts(place);
        // Most turns of a quiet connection move nothing.
        if facts.traffic != traffic {
            facts.traffic = traffic;
        }
    }

    /// A request of an HTTP connection has ended, that went this way and moved so much.
    pub(crate) fn requested(&self, place: Place, path: &PathFacts, traffic: Traffic) {
        let facts = &mut *self.facts(place);
        facts.traffic.from_client += traffic.from_client;
        facts.traffic.to_client += traffic.to_client;
        // Counts of references are shared with other workers, and most requests go the way of the one before.
        let known = &mut facts.path;
        for (known, latest) in [
            (&mut known.route, &path.route),
            (&mut known.backend, &path.backend),
            (&mut known.server, &path.server),
        ] {
            let is_same = match (&*known, latest) {
                (Some(known), Some(latest)) => Arc::ptr_eq(known, latest),
                (known, latest) => known.is_none() && latest.is_none(),
            };
            if !is_same {
                known.clone_from(latest);
            }
        }
    }

    /// Whether a connection is to be closed.
    pub(crate) fn is_closing(&self, Place(at): Place) -> bool {
        self.closing.get() > 0 && self.slots.borrow()[at as usize].closing
    }

    /// Answers a question, as far as one turn goes. Those that are being closed are not there any more.
    pub(crate) fn answer(&self, question: &Question) -> Piece {
        let Question { filter, from, most, wish } = question;
        let (now, mut piece) = (SystemTime::now(), Piece::default());
        let mut slots = self.slots.borrow_mut();
        let length = slots.len();
        let from = (*from as usize).min(length);
        let end = from.saturating_add(PIECE).min(length);
        let mut at = from;
        while at < end && piece.count < *most as u64 {
            let slot = &mut slots[at];
            at += 1;
            if slot.closing || !slot.is_meant(filter, now) {
                continue;
            }
            piece.count += 1;
            match wish {
                Wish::Tell => piece.told.extend(slot.tell(now)),
                Wish::Count => {}
                Wish::Close => {
                    slot.closing = true;
                    self.closing.set(self.closing.get() + 1);
                    if let Some(task) = &slot.task {
                        task.wake_by_ref();
                    }
                }
            }
        }
        // There are fewer than this type can tell.
        piece.next = (at < length).then(|| u32::try_from(at).unwrap_or(u32::MAX));
        piece
    }
}

impl Slot {
    fn is_meant(&self, filter: &Filter, now: SystemTime) -> bool {
        let Some(facts) = &self.facts else { return false };
        if !filter.admits(facts, now) {
            return false;
        }
        if !filter.looks_further() {
            return true;
        }
        match self.session.upgrade() {
            None => {
                let name = facts.tls.sni.as_deref();
                filter.admits_now((&facts.listener, name), &facts.path, facts.traffic)
            }
            Some(session) => {
                let (path, traffic) = with_requests(facts, &session);
                let name = name(facts, Some(&session), &path);
                filter.admits_now((&facts.listener, name.as_deref()), &path, traffic)
            }
        }
    }

    fn tell(&self, now: SystemTime) -> Option<LiveConnection> {
        let facts = self.facts.as_ref()?;
        let session = self.session.upgrade();
        let (path, traffic) = match &session {
            Some(session) => with_requests(facts, session),
            None => (facts.path.clone(), facts.traffic),
        };
        Some(LiveConnection {
            id: facts.id,
            worker: facts.worker,
            listener: Arc::clone(&facts.listener),
            client: facts.client.address.clone(),
            peer: facts.client.peer.clone(),
            name: name(facts, session.as_deref(), &path),
            protocol: self.protocol,
            tls: facts.tls.version,
            route: path.route,
            backend: path.backend,
            server: path.server,
            accepted: facts.accepted,
            age: now.duration_since(facts.accepted).unwrap_or_default(),
            traffic,
            requests: session.as_ref().map_or(0, |session| session.begun.get()),
            requests_open: session.as_ref().map_or(0, |session| session.in_flight()),
        })
    }
}

/// The name that a client asked for: in its handshake, else over HTTP in its latest request. A connection that rests has
/// forgotten that host, and its route may still tell it.
fn name(facts: &ConnectionFacts, session: Option<&Session>, path: &PathFacts) -> Option<Box<str>> {
    let in_request = |session: &Session| match session.latest_host() {
        Some(host) => Some((&*host).into()),
        None => path.route.as_deref().and_then(only_host).map(Into::into),
    };
    facts.tls.sni.clone().or_else(|| session.and_then(in_request))
}

/// Where an HTTP connection goes and what it has moved, with the requests that are under way.
fn with_requests(facts: &ConnectionFacts, session: &Session) -> (PathFacts, Traffic) {
    let (mut path, mut traffic) = (facts.path.clone(), facts.traffic);
    for record in session.live() {
        traffic.from_client += record.up.get();
        traffic.to_client += record.down.get();
        // The latest that has found its route.
        if let Some(latest) = record.path().filter(|path| path.route.is_some()) {
            path = latest;
        }
    }
    (path, traffic)
}

#[cfg(test)]
mod tests;
