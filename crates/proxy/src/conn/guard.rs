//! The guard of a connection: its facts, its places among the limits, and the event at its end.

use std::cell::RefMut;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use offramp_net::Socket;
use offramp_net::pace::ConnectionSide;
use offramp_observe::facts::Fault;
use offramp_observe::{Cause, ConnectionFacts};
use offramp_upstream::Permit;

use super::ConnectionResources;
use crate::limit::{Admitted, ClientEntry};
use crate::live::ConnectionProtocol;
use crate::live::table::LiveSlotId;
use crate::snapshot::{AcceptorId, ClientLimits, Listener, Route};

/// Counts a connection among the open ones. Dropped with the facts complete, it ends the connection and sends its event.
pub(super) struct ConnectionGuard {
    pub(super) services: Rc<ConnectionResources>,
    /// The socket that accepted it.
    pub(super) accepted_by: AcceptorId,
    /// The place of its facts in the table of connections.
    pub(super) live: LiveSlotId,
    pub(super) begun: Instant,
    _admitted: Option<Admitted>,
    pub(super) client: Option<ClientEntry>,
    /// The connection has its own event: an HTTP connection leaves events to its requests.
    pub(super) reported: bool,
    /// It ended because it had nothing to finish when a drain asked for that.
    pub(super) left: bool,
    /// One in this many successful connections has an event.
    pub(super) log_one_in: NonZeroU32,
    /// Its count on the server that it is relayed to.
    pub(super) permit: Option<Permit>,
}

impl ConnectionGuard {
    pub(super) fn new(
        services: &Rc<ConnectionResources>,
        accepted_by: AcceptorId,
        live: LiveSlotId,
        admitted: Option<Admitted>,
    ) -> Self {
        Self {
            services: Rc::clone(services),
            accepted_by,
            live,
            begun: Instant::now(),
            _admitted: admitted,
            client: None,
            reported: true,
            left: false,
            log_one_in: NonZeroU32::MIN,
            permit: None,
        }
    }

    /// The facts of the connection. Not to be kept over an await: the table is locked meanwhile.
    pub(super) fn facts(&mut self) -> RefMut<'_, ConnectionFacts> {
        self.services.worker.live.facts(self.live)
    }

    pub(super) fn set_protocol(&self, protocol: ConnectionProtocol) {
        self.services.worker.live.speaks(self.live, protocol);
    }

    /// Bounds what the client moves from now on: its handshake is not held up.
    pub(super) fn pace(&self, socket: &Socket, limits: &ClientLimits, listener: &Listener) {
        let address = self.services.worker.live.facts(self.live).client.ip();
        if let (Some(rate), Some(client), Some(address)) = (limits.bandwidth_per_client, &self.client, address)
            // A proxy stands for many clients.
            && !listener.is_proxy(address)
        {
            socket.set_pace(client.allowance(), rate, ConnectionSide::Client);
        }
    }

    /// Notes the route that was found.
    pub(super) fn follow(&mut self, route: &Route) {
        self.facts().path.route = Some(Arc::clone(&route.name));
        self.log_one_in = route.log_one_in;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if let Some(mut facts) = self.services.worker.live.leave(self.live) {
            facts.times.total = self.begun.elapsed();
            // An end without a cause: the worker is ending, or there is a fault of ours.
            if facts.close.cause == Cause::Internal && self.services.worker.drain.is_cut() {
                facts.close = Cause::Drain.into();
            }
            let reported = self.reported
                && is_chosen(facts.close.fault, self.log_one_in, || self.services.worker.random());
            self.services.worker.end_connection(facts, reported, self.left);
        }
    }
}

/// A connection that failed has an event, and one in so many of the others.
fn is_chosen(fault: Fault, one_in: NonZeroU32, random: impl FnOnce() -> u64) -> bool {
    fault != Fault::Nobody || one_in == NonZeroU32::MIN || random().is_multiple_of(one_in.get().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_always_and_the_rest_one_in_so_many() {
        let of = |fault, one_in, random| is_chosen(fault, NonZeroU32::new(one_in).unwrap(), || random);
        let reported = (0..100).filter(|random| of(Fault::Nobody, 10, *random)).count();
        assert_eq!(reported, 10);
        assert!((0..100).all(|random| of(Fault::Nobody, 1, random)));
        for fault in [Fault::Client, Fault::Server, Fault::Policy, Fault::Us] {
            assert!(of(fault, 10, 1), "{fault:?}");
        }
    }
}
