//! The table of a worker's connections.

use std::cell::{Cell, RefCell, RefMut};
use std::mem::size_of;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;
use std::time::SystemTime;

use offramp_observe::ConnectionFacts;
use offramp_observe::facts::{ByteCounts, PathFacts};

use super::filter::only_host;
use super::{ConnectionProtocol, Filter, LiveConnection};

/// Entries that a worker examines for one query: some 200 µs of its time, where all are listed.
const ENTRIES_PER_QUERY: usize = 1000;

/// A query to one worker about its connections.
#[derive(Clone, Debug)]
pub struct ConnectionQuery {
    /// Filter that selects connections.
    pub filter: Arc<Filter>,
    /// The first slot of the table that is examined.
    pub from: u32,
    /// The query ends after so many selected connections.
    pub most: usize,
    /// The action on each selected connection.
    pub action: QueryAction,
}

/// The action of a query on the connections that it selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryAction {
    /// The reply lists them.
    List,
    /// The reply has their number alone.
    Count,
    /// Close them after the reply.
    Close,
}

/// The reply for a part of the table.
#[derive(Debug, Default)]
pub struct QueryReply {
    /// The selected connections in the order of the table, if the action is [`QueryAction::List`].
    pub listed: Vec<LiveConnection>,
    /// The number of selected connections.
    pub count: u64,
    /// The slot at which the next query goes on; `None` at the end of the table.
    pub next: Option<u32>,
}

/// The requests of one HTTP connection, as far as the table shows them. HTTP has them in a session, above this module.
pub(crate) trait HttpActivity {
    /// The host of the latest request, unless the connection has been idle and has forgotten it.
    fn latest_host(&self) -> Option<Arc<str>>;
    /// Requests that have begun.
    fn requests(&self) -> u64;
    /// Requests that are under way.
    fn requests_open(&self) -> usize;
    /// Calls `visit` with the path and the traffic of each request that is under way, the latest last. A request
    /// has no path once its end was reported.
    fn each_open(&self, visit: &mut dyn FnMut(Option<PathFacts>, ByteCounts));
}

/// The connections of a worker, each in a slot of its own from accept to close.
#[derive(Default)]
pub(crate) struct Live {
    slots: RefCell<Vec<LiveSlot>>,
    /// The first free slot and one more, or 0.
    free: Cell<u32>,
    /// Connections that are to be closed, and have not ended.
    closing: Cell<usize>,
}

/// A slot: what is not part of the facts. Freed slots are used again, the last one first.
struct LiveSlot {
    /// `None` where the slot is free.
    facts: Option<Box<ConnectionFacts>>,
    /// Wakes the task of the connection.
    task: Option<Waker>,
    /// The requests of an HTTP connection.
    http: Option<Weak<dyn HttpActivity>>,
    /// The next free slot and one more, or 0.
    next_free: u32,
    protocol: ConnectionProtocol,
    closing: bool,
}

/// The cost of each connection beside its facts.
const _: () = assert!(size_of::<LiveSlot>() <= 48);

/// The slot of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveSlotId(u32);

impl Live {
    /// Adds a connection that begins, in this task.
    pub(crate) fn enter(&self, facts: Box<ConnectionFacts>, task: Waker) -> LiveSlotId {
        let mut slots = self.slots.borrow_mut();
        let slot = LiveSlot {
            facts: Some(facts),
            task: Some(task),
            http: None,
            next_free: 0,
            protocol: ConnectionProtocol::Opening,
            closing: false,
        };
        let Some(at) = self.free.get().checked_sub(1) else {
            slots.push(slot);
            // Descriptors run out long before.
            return LiveSlotId(u32::try_from(slots.len() - 1).unwrap_or(u32::MAX));
        };
        let free = &mut slots[at as usize];
        self.free.set(free.next_free);
        *free = slot;
        LiveSlotId(at)
    }

    /// Removes a connection that has ended. An HTTP connection has shown path and traffic of its requests, which are not
    /// part of its facts.
    pub(crate) fn leave(&self, LiveSlotId(at): LiveSlotId) -> Option<Box<ConnectionFacts>> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(at as usize)?;
        let mut facts = slot.facts.take()?;
        (slot.task, slot.http) = (None, None);
        if slot.protocol.is_http() {
            (facts.path, facts.traffic) = (PathFacts::default(), ByteCounts::default());
        }
        if std::mem::take(&mut slot.closing) {
            self.closing.set(self.closing.get() - 1);
        }
        slot.next_free = self.free.replace(at + 1);
        Some(facts)
    }

    /// The facts of a connection. Not to be kept over an await: the table is locked meanwhile.
    pub(crate) fn facts(&self, LiveSlotId(at): LiveSlotId) -> RefMut<'_, ConnectionFacts> {
        RefMut::map(self.slots.borrow_mut(), |slots| {
            // Taken only by `leave`, which ends the place.
            &mut **slots[at as usize].facts.as_mut().expect("facts last as long as the connection")
        })
    }

    pub(crate) fn speaks(&self, LiveSlotId(at): LiveSlotId, protocol: ConnectionProtocol) {
        self.slots.borrow_mut()[at as usize].protocol = protocol;
    }

    /// Records that HTTP is spoken.
    pub(crate) fn serves(
        &self,
        LiveSlotId(at): LiveSlotId,
        http: Weak<dyn HttpActivity>,
        protocol: ConnectionProtocol,
    ) {
        let slot = &mut self.slots.borrow_mut()[at as usize];
        (slot.http, slot.protocol) = (Some(http), protocol);
    }

    /// A relay has moved so much until now.
    pub(crate) fn moved(&self, place: LiveSlotId, traffic: ByteCounts) {
        let mut facts = self.facts(place);
        // Most turns of a quiet connection move nothing.
        if facts.traffic != traffic {
            facts.traffic = traffic;
        }
    }

    /// A request of an HTTP connection has ended, that went this way and moved so much.
    pub(crate) fn requested(&self, place: LiveSlotId, path: &PathFacts, traffic: ByteCounts) {
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

    /// A connection is to be closed.
    pub(crate) fn is_closing(&self, LiveSlotId(at): LiveSlotId) -> bool {
        self.closing.get() > 0 && self.slots.borrow()[at as usize].closing
    }

    /// Wakes the task of every connection.
    pub(crate) fn wake_all(&self) {
        for task in self.slots.borrow().iter().filter_map(|slot| slot.task.as_ref()) {
            task.wake_by_ref();
        }
    }

    /// Answers a query, as far as one turn goes. Connections that are being closed are left out.
    pub(crate) fn answer(&self, query: &ConnectionQuery) -> QueryReply {
        let ConnectionQuery { filter, from, most, action } = query;
        let (now, mut reply) = (SystemTime::now(), QueryReply::default());
        let mut slots = self.slots.borrow_mut();
        let length = slots.len();
        let from = (*from as usize).min(length);
        let end = from.saturating_add(ENTRIES_PER_QUERY).min(length);
        let mut at = from;
        while at < end && reply.count < *most as u64 {
            let slot = &mut slots[at];
            at += 1;
            if slot.closing || !slot.is_meant(filter, now) {
                continue;
            }
            reply.count += 1;
            match action {
                QueryAction::List => reply.listed.extend(slot.describe(now)),
                QueryAction::Count => {}
                QueryAction::Close => {
                    slot.closing = true;
                    self.closing.set(self.closing.get() + 1);
                    if let Some(task) = &slot.task {
                        task.wake_by_ref();
                    }
                }
            }
        }
        // There are fewer than this type can tell.
        reply.next = (at < length).then(|| u32::try_from(at).unwrap_or(u32::MAX));
        reply
    }
}

impl LiveSlot {
    fn is_meant(&self, filter: &Filter, now: SystemTime) -> bool {
        let Some(facts) = &self.facts else { return false };
        if !filter.admits(facts, now) {
            return false;
        }
        if !filter.looks_further() {
            return true;
        }
        match self.activity() {
            None => {
                let name = facts.tls.sni.as_deref();
                filter.admits_now(&facts.listener, name, &facts.path, facts.traffic)
            }
            Some(http) => {
                let (path, traffic) = with_requests(facts, &*http);
                let name = name(facts, Some(&*http), &path);
                filter.admits_now(&facts.listener, name.as_deref(), &path, traffic)
            }
        }
    }

    fn activity(&self) -> Option<Rc<dyn HttpActivity>> {
        self.http.as_ref()?.upgrade()
    }

    fn describe(&self, now: SystemTime) -> Option<LiveConnection> {
        let facts = self.facts.as_ref()?;
        let http = self.activity();
        let (path, traffic) = match &http {
            Some(http) => with_requests(facts, &**http),
            None => (facts.path.clone(), facts.traffic),
        };
        Some(LiveConnection {
            id: facts.id,
            worker: facts.worker,
            listener: Arc::clone(&facts.listener),
            client: facts.client.address.clone(),
            peer: facts.client.peer.clone(),
            name: name(facts, http.as_deref(), &path),
            protocol: self.protocol,
            tls: facts.tls.version,
            path,
            accepted: facts.accepted,
            age: now.duration_since(facts.accepted).unwrap_or_default(),
            traffic,
            requests: http.as_ref().map_or(0, |http| http.requests()),
            requests_open: http.as_ref().map_or(0, |http| http.requests_open()),
        })
    }
}

/// The name that a client asked for: in its handshake, else over HTTP in its latest request. An idle connection has
/// forgotten that host, and its route may still have it.
fn name(facts: &ConnectionFacts, http: Option<&dyn HttpActivity>, path: &PathFacts) -> Option<Box<str>> {
    let in_request = |http: &dyn HttpActivity| match http.latest_host() {
        Some(host) => Some((&*host).into()),
        None => path.route.as_deref().and_then(only_host).map(Into::into),
    };
    facts.tls.sni.clone().or_else(|| http.and_then(in_request))
}

/// The path and the traffic of an HTTP connection, with the requests that are under way.
fn with_requests(facts: &ConnectionFacts, http: &dyn HttpActivity) -> (PathFacts, ByteCounts) {
    let (mut path, mut traffic) = (facts.path.clone(), facts.traffic);
    http.each_open(&mut |request, moved| {
        traffic.from_client += moved.from_client;
        traffic.to_client += moved.to_client;
        // The latest that has found its route.
        if let Some(latest) = request.filter(|path| path.route.is_some()) {
            path = latest;
        }
    });
    (path, traffic)
}

#[cfg(test)]
mod tests;
