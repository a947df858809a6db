//! The event loop: it takes commands, has connections accepted, and waits for them when it drains.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::accept::AcceptorStop;
use super::stand_by::StandBy;
use crate::command::WorkerCommand;
use crate::conn::ConnectionResources;
use crate::l7::HttpResources;
use crate::live::{ConnectionQuery, QueryReply};
use crate::resources::Resources;
use crate::snapshot::AcceptorId;

/// The time that connections which are cut at the end of a drain have to say so to their clients.
const CUT: Duration = Duration::from_secs(1);

/// The event loop of one worker.
pub(crate) struct EventLoop {
    pub(crate) resources: Rc<Resources>,
    /// Goes to every connection.
    pub(crate) services: Rc<ConnectionResources>,
    pub(super) acceptors: RefCell<HashMap<AcceptorId, Rc<AcceptorStop>>>,
    /// Draining: reject queued clients instead of waiting for a slot.
    pub(super) draining: Cell<bool>,
    pub(super) stand_by: Rc<StandBy>,
}

impl EventLoop {
    pub(super) fn new(index: usize, resources: Rc<Resources>) -> Rc<Self> {
        let http = HttpResources::new(index, &resources.shared);
        Rc::new(Self {
            services: Rc::new(ConnectionResources { worker: Rc::clone(&resources), http }),
            resources,
            acceptors: RefCell::default(),
            draining: Cell::new(false),
            stand_by: Rc::default(),
        })
    }

    pub(super) async fn run(self: Rc<Self>, mut commands: UnboundedReceiver<WorkerCommand>) {
        let pulse = Arc::clone(&self.resources.pulse);
        spawn_local(async move { pulse.answer().await });
        // A loop that cannot be commanded any more ends, too.
        let limit = loop {
            match commands.recv().await {
                Some(WorkerCommand::Listen { id, listener, fd }) => self.listen(id, listener, fd),
                Some(WorkerCommand::Unlisten { id, reserve }) => self.unlisten(id, reserve),
                Some(WorkerCommand::Leave { id }) => self.leave(id),
                Some(WorkerCommand::Beat { alive }) => drop(alive.send(())),
                Some(WorkerCommand::Connections { query, reply }) => self.query(&query, reply).await,
                Some(WorkerCommand::Drain { limit }) => break limit,
                None => break Duration::ZERO,
            }
        };
        self.draining.set(true);
        let all: Vec<_> = self.acceptors.borrow().keys().copied().collect();
        all.into_iter().for_each(|id| self.unlisten(id, None));
        // Acceptors take the clients in their queues before connections are counted.
        tokio::task::yield_now().await;
        self.resources.begin_drain(limit);
        // Connections with nothing to finish end when woken, even where there is no time at all.
        tokio::task::yield_now().await;
        if !self.finish(limit, &mut commands).await {
            self.resources.cut_connections();
            let _ = timeout(CUT, self.all_ended()).await;
        }
    }

    /// Waits for all connections to end. Gives `false` at the limit, which another command may move.
    async fn finish(&self, mut limit: Duration, commands: &mut UnboundedReceiver<WorkerCommand>) -> bool {
        loop {
            tokio::select! {
                biased;
                () = self.all_ended() => return true,
                () = tokio::time::sleep(limit) => return false,
                command = commands.recv() => match command {
                    Some(WorkerCommand::Drain { limit: other }) => limit = other,
                    Some(WorkerCommand::Beat { alive }) => drop(alive.send(())),
                    Some(WorkerCommand::Connections { query, reply }) => self.query(&query, reply).await,
                    Some(_) => {}
                    None => return false,
                },
            }
        }
    }

    /// Answers a query about connections. The connections have their turn between two answers, however many come.
    async fn query(&self, query: &ConnectionQuery, reply: oneshot::Sender<QueryReply>) {
        // No connection is closed for a caller that has given up.
        if !reply.is_closed() {
            let _ = reply.send(self.resources.live.answer(query));
        }
        tokio::task::yield_now().await;
    }

    async fn all_ended(&self) {
        while self.resources.open.count() > 0 || !self.acceptors.borrow().is_empty() {
            self.resources.open.ended.notified().await;
        }
    }
}
