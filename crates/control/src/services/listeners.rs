//! The listening sockets of the configuration.

use std::io;
use std::os::fd::AsFd as _;

use offramp_config::At;
use offramp_config::model::ListenerConfig;
use offramp_net::Address;
use offramp_process::Finding;
use offramp_process::inherited::WantedSocket;
use offramp_process::inherited::{Inherited, Offer, Set, Unwanted};
use offramp_proxy::Snapshot;

use crate::data_plane::DataPlane;
use crate::listeners::{self, Fresh, Listening, Opening, wanted};
use crate::service::{Service, Way};
use crate::socket_plan::SocketPlan;

/// The listeners that a change wants.
pub(crate) struct ListenersWanted<'a> {
    pub(crate) listeners: &'a [ListenerConfig],
    /// The sockets of another process, from which they may be taken.
    pub(crate) inherited: &'a mut Inherited,
}

/// The sockets that a change keeps, opens and closes.
pub(crate) struct ListenersStep {
    plan: SocketPlan,
    wanted: Vec<WantedSocket>,
    fresh: Vec<Fresh>,
}

impl ListenersStep {
    /// The names and addresses of what was opened.
    pub(crate) fn opened(&self) -> Vec<(String, Address)> {
        self.fresh.iter().map(Fresh::address).collect()
    }

    /// The addresses that are opened, as configured.
    pub(crate) fn opens(&self) -> Vec<String> {
        self.plan.open.iter().map(|at| self.wanted[*at].address.to_string()).collect()
    }
}

impl Listening {
    /// The addresses that a step closes.
    pub(crate) fn closes(&self, step: &ListenersStep) -> Vec<String> {
        self.closing(&step.plan).map(ToString::to_string).collect()
    }

    /// Has the new sockets listen that do not yet: before others are closed that take the same connections.
    pub(crate) fn begin(&self, step: &ListenersStep) {
        step.fresh.iter().for_each(|fresh| fresh.begin(&self.log));
    }

    /// Has workers serve the clients that wait on sockets that the step gives up, and close these; with `keep` they stay
    /// reserved for the way back. False if there are none.
    pub(crate) fn retire(&mut self, step: &ListenersStep, plane: &DataPlane, keep: bool) -> bool {
        if step.plan.close.is_empty() {
            return false;
        }
        self.close(&step.plan, &plane.workers, keep);
        true
    }

    /// Writes into a snapshot the listener of each socket.
    pub(crate) fn assign(&self, step: &ListenersStep, snapshot: &mut Snapshot) {
        self.assign_sockets(&step.plan, &step.wanted, &step.fresh, snapshot);
    }

    /// Opens a socket beside those of the process, or takes one of another process.
    fn open_wanted(
        &self,
        plan: &SocketPlan,
        wanted: &WantedSocket,
        at: &At,
        set: Option<Set>,
        inherited: &Inherited,
    ) -> Result<Fresh, Finding> {
        let own = self.closing(plan).chain(self.reserved_addresses());
        let gives_way = own.into_iter().any(|own| overlap(own, &wanted.address));
        let opening = match (set, self.reserved(wanted)) {
            (Some(set), _) => Opening::Inherited(set),
            (None, Some(reserved)) => Opening::Reserved(reserved),
            (None, None) if gives_way || inherited.overlaps(&wanted.address) => Opening::BesideOwn,
            (None, None) => Opening::Alone,
        };
        listeners::open(wanted, at, self.workers, opening)
    }
}

impl Service for Listening {
    type Wanted<'a> = ListenersWanted<'a>;
    type Step = ListenersStep;

    fn prepare(&self, want: ListenersWanted<'_>, _: Way) -> Result<ListenersStep, Vec<Finding>> {
        let ListenersWanted { listeners, inherited } = want;
        let (wanted, places) = wanted(listeners);
        let plan = self.plan(&wanted);
        let (mut fresh, mut findings) = (Vec::new(), Vec::new());
        let mut sets = inherited.for_listeners(&wanted);
        for &at in &plan.open {
            let set = sets[at].take();
            match self.open_wanted(&plan, &wanted[at], &places[at], set, inherited) {
                Ok(opened) => fresh.push(opened),
                Err(finding) => findings.push(finding),
            }
        }
        if findings.is_empty() {
            return Ok(ListenersStep { plan, wanted, fresh });
        }
        fresh.iter().for_each(Fresh::abandon);
        Err(findings)
    }

    /// The snapshot in force must be that of [`Listening::assign`].
    fn commit(&mut self, step: ListenersStep, plane: &DataPlane) {
        let before = self.addresses();
        self.serve(&step.plan, &step.wanted, step.fresh, &plane.workers);
        // The kernel may have picked a port.
        for (listener, address) in self.addresses() {
            if !before.iter().any(|(_, known)| *known == address) {
                let fields = [("listener", (&listener).into()), ("address", (&address).into())];
                self.log.info("listening", &fields);
            }
        }
    }

    fn abandon(&self, step: &ListenersStep) {
        step.fresh.iter().for_each(Fresh::abandon);
    }

    fn offer(&self, offer: &mut Offer) -> io::Result<()> {
        for (label, own) in self.sockets() {
            offer.add(label, own.iter().map(|socket| socket.as_fd()))?;
        }
        Ok(())
    }

    async fn hand_over(&mut self, unwanted: &mut Unwanted, plane: &DataPlane) {
        self.leave(unwanted, &plane.workers);
    }

    /// A successor that replaces the files of Unix sockets must not lose its own: they go before the sockets close.
    fn stop(&mut self) {
        self.unlink_all();
    }
}

/// Two addresses that take some of the same connections: the second can only be opened beside the first.
fn overlap(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) => one.port() == other.port(),
        _ => one == other,
    }
}
