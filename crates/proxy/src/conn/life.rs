//! What lasts as long as a connection: its facts, its places among the limits, and the event at its end.

use std::cell::RefMut;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use offramp_net::Socket;
use offramp_net::pace::Side;
use offramp_observe::facts::Fault;
use offramp_observe::{Cause, ConnectionFacts};
use offramp_upstream::Permit;

use crate::limit::{Admitted, ClientEntry};
use crate::live::Protocol;
use crate::live::table::Place;
use crate::snapshot::{Limits, Listener, Route};
use crate::worker::{AcceptorId, Worker};

/// A connection that counts, until it is dropped with its facts complete.
pub(super) struct Life {
    pub(super) worker: Rc<Worker>,
    /// The socket that accepted it.
    pub(super) accepted_by: AcceptorId,
    /// Where its facts are.
    pub(super) live: Place,
    pub(super) begun: Instant,
    _place: Option<Admitted>,
    pub(super) client: Option<ClientEntry>,
    /// Whether the connection has its own event: an HTTP connection leaves events to its requests.
    pub(super) reported: bool,
    /// Whether it ended because it had nothing to finish when it was asked to.
    pub(super) left: bool,
    /// One in this many successful connections has an event.
    pub(super) log_one_in: NonZeroU32,
    /// Its count on the server that it is relayed to.
    pub(super) permit: Option<Permit>,
}

impl Life {
    pub(super) fn begin(
        worker: &Rc<Worker>,
        accepted_by: AcceptorId,
        live: Place,
        place: Option<Admitted>,
    ) -> Self {
        Life {
            worker: Rc::clone(worker),
            accepted_by,
            live,
            begun: Instant::now(),
            _place: place,
            client: None,
            reported: true,
            left: false,
            log_one_in: NonZeroU32::MIN,
            permit: None,
        }
    }

    /// What is known of the connection. Not to be kept over an await.
    pub(super) fn facts(&mut self) -> RefMut<'_, ConnectionFacts> {
        self.worker.live.facts(self.live)
    }

    /// Notes what is spoken.
    pub(super) fn speaks(&self, protocol: Protocol) {
        self.worker.live.speaks(self.live, protocol);
    }

    /// Bounds what the client moves from now on: its handshake is not held up.
    pub(super) fn pace(&self, socket: &Socket, limits: &Limits, listener: &Listener) {
        let address = self.worker.live.facts(self.live).client.ip();
        if let (Some(rate), Some(client), Some(address)) = (limits.bandwidth_per_client, &self.client, address)
            // Behind these addresses are many clients.
            && !listener.is_proxy(address)
        {
            socket.set_pace(client.allowance(), rate, Side::Client);
        }
    }

    /// Notes the route that was found.
    pub(super) fn follow(&mut self, route: &Route) {
        self.facts().path.route = Some(Arc::clone(&route.name));
        self.log_one_in = route.log_one_in;
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(mut facts) = self.worker.live.leave(self.live) {
            facts.times.total = self.begun.elapsed();
            // Nobody named an end: the worker is ending, or there is a fault of ours.
            if facts.close.cause == Cause::Internal && self.worker.cut.is_now() {
                facts.close = Cause::Drain.into();
            }
            let reported =
                self.reported && is_chosen(facts.close.fault, self.log_one_in, || self.worker.random());
            self.worker.ended(facts, reported, self.left);
        }
    }
}

/// Whether a connection has an event: all that failed do, and one in so many of the others.
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
