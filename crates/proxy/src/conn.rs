//! The spine: one connection from accept to close, as named steps.

mod cancel;
mod establish;
mod guard;
mod http;
mod secure;
mod server;

use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use offramp_net::{PeerAddress, Socket};
use offramp_observe::facts::EndpointAddress;
use offramp_observe::{Cause, Close};

use crate::l7::{self, HttpResources, Session, Transport};
use crate::limit::Admitted;
use crate::live::table::LiveSlotId;
use crate::resources::Resources;
use crate::snapshot::{AcceptorId, Listener, Snapshot};
use crate::{failure, l4};
use guard::ConnectionGuard;

/// The resources that connections of a worker use.
pub(crate) struct ConnectionResources {
    pub(crate) worker: Rc<Resources>,
    pub(crate) http: Rc<HttpResources>,
}

/// A connection that was accepted. Boxed, as it is only looked at once and its task lasts.
pub(crate) struct AcceptedConnection {
    /// The socket that accepted it.
    pub(crate) acceptor: AcceptorId,
    /// The listener's name when that socket was opened.
    pub(crate) listener: Arc<str>,
    pub(crate) fd: OwnedFd,
    pub(crate) peer: PeerAddress,
    /// Its place among `limits.connections`; `None`: there was none, and it is refused.
    pub(crate) admitted: Option<Admitted>,
}

/// A connection that can be relayed, or can serve requests.
enum AcceptedProtocol {
    Relay(Box<l4::TlsRelay>),
    /// The server speaks TLS.
    Secure(Box<l4::Secure>),
    Plain(Box<l4::PlainRelay>),
    Http {
        session: Rc<Session>,
        transport: Box<Transport>,
    },
}

/// A connection to a listener of the snapshot, before its first byte.
struct Arrival {
    listener: Arc<Listener>,
    socket: Socket,
    peer: PeerAddress,
}

/// Serves one accepted connection. One without a place is refused.
pub(crate) async fn serve(services: Rc<ConnectionResources>, accepted: Box<AcceptedConnection>) {
    // First of all: what is there at an await stays in the memory of the connection.
    let task = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let snapshot = services.worker.shared.current.load_full();
    let (mut guard, arrival) = begin(&services, &snapshot, *accepted, task);
    let live = guard.live;
    let arrival = match arrival {
        Ok(arrival) => arrival,
        Err(close) => {
            guard.facts().close = close;
            return;
        }
    };
    let bounds = l4::RelayBounds::new(&snapshot.limits, services.worker.old_at(&snapshot.limits));
    // The handshake's state is large and short-lived: boxed, and gone before the relay begins. So is what comes after.
    let establish = establish::establish(&mut guard, snapshot, arrival);
    let ready = Box::pin(until_closed(&services.worker, live, establish)).await;
    // What a relay leaves has gone from here before a farewell is awaited.
    let farewells = {
        let outcome = match ready {
            Err(close) => {
                guard.facts().close = close;
                return;
            }
            Ok(AcceptedProtocol::Http { session, transport }) => {
                let close = Box::pin(l7::serve(Rc::clone(&session), *transport)).await;
                guard.reported = session.is_to_be_reported(&close);
                guard.left = session.left.get();
                guard.facts().close = close;
                return;
            }
            Ok(AcceptedProtocol::Relay(mut relay)) => {
                let close = relay.run(bounds).await;
                relay.finish(close)
            }
            Ok(AcceptedProtocol::Secure(mut secure)) => {
                let close = secure.run(bounds).await;
                secure.finish(close)
            }
            Ok(AcceptedProtocol::Plain(mut plain)) => {
                let close = plain.run(bounds).await;
                plain.finish(close)
            }
        };
        let mut facts = guard.facts();
        (facts.close, facts.traffic) = (outcome.close, outcome.traffic);
        outcome.farewells
    };
    if let Some(farewells) = farewells {
        Box::pin(farewells.say(&services.worker)).await;
    }
}

/// Begins to count a connection, and finds the listener that its acceptor serves now.
fn begin(
    services: &Rc<ConnectionResources>,
    snapshot: &Snapshot,
    accepted: AcceptedConnection,
    task: Waker,
) -> (ConnectionGuard, Result<Arrival, Close>) {
    let AcceptedConnection { acceptor, listener: name, fd, peer, admitted } = accepted;
    let address = match peer {
        PeerAddress::Tcp(address) => EndpointAddress::Ip(address),
        PeerAddress::Unix => EndpointAddress::Unix(None),
    };
    let listener = snapshot.listener(acceptor, &name).cloned();
    let name = listener.as_ref().map_or(&name, |listener| &listener.name);
    let worker = &services.worker;
    let live = worker.live.enter(worker.new_facts(name, address), task);
    let full = admitted.is_none();
    let guard = ConnectionGuard::new(services, acceptor, live, admitted);
    let Some(listener) = listener.filter(|_| !full) else {
        let cause = if full { Cause::LimitConnections } else { Cause::NoRoute };
        return (guard, Err(cause.into()));
    };
    let socket = match peer {
        PeerAddress::Tcp(_) => Socket::tcp(fd),
        PeerAddress::Unix => Socket::unix(fd),
    };
    let arrival = match socket {
        Ok(socket) => Ok(Arrival { listener, socket, peer }),
        Err(error) => Err(failure::resources(&error, Cause::Internal)),
    };
    (guard, arrival)
}

/// Waits for what comes before a relay, unless the operator closes the connection meanwhile.
async fn until_closed(
    worker: &Resources,
    live: LiveSlotId,
    establish: impl Future<Output = Result<AcceptedProtocol, Close>>,
) -> Result<AcceptedProtocol, Close> {
    let mut establish = pin!(establish);
    poll_fn(|cx| {
        if worker.live.is_closing(live) {
            return Poll::Ready(Err(Cause::ClosedByOperator.into()));
        }
        establish.as_mut().poll(cx)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use offramp_observe::ConnectionFacts;

    use super::*;
    use crate::worker::rig;

    #[test]
    fn a_quiet_connection_has_little_memory_of_its_own() {
        rig::block_on(|event_loop| async move {
            let (socket, _peer) = UnixStream::pair().unwrap();
            let accepted = AcceptedConnection {
                acceptor: AcceptorId(1),
                listener: rig::PROXIED.into(),
                fd: socket.into(),
                peer: PeerAddress::Unix,
                admitted: None,
            };
            let task = serve(Rc::clone(&event_loop.services), Box::new(accepted));
            let sizes = [
                ("task", size_of_val(&task), 616),
                ("relay", size_of::<l4::TlsRelay>(), 544),
                ("plain relay", size_of::<l4::PlainRelay>(), 296),
                ("relay to TLS", size_of::<l4::Secure>(), 1016),
                ("facts", size_of::<ConnectionFacts>(), 448),
                ("guard", size_of::<ConnectionGuard>(), 104),
            ];
            println!("{sizes:?}");
            for (what, size, most) in sizes {
                assert!(size <= most, "{what}: {size} bytes, and not {most}");
            }
        });
    }
}
