//! The spine: one connection from accept to close, as named steps.

mod cancel;
mod http;
mod life;
mod secure;

use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use offramp_net::{Buffer, Peer, Socket};
use offramp_observe::facts::Address;
use offramp_observe::{Cause, Close};
use offramp_record::Alert;
use offramp_tls::client::Secured;
use offramp_tls::{Established, Sending};
use offramp_upstream::Progress;
use tokio::time::{timeout, timeout_at};

use crate::l7::{self, Session, Transport};
use crate::limit::{Admitted, ClientBounds, Refusal};
use crate::live::Protocol;
use crate::live::table::Place;
use crate::networks::AddressRules;
use crate::proxy_header::{self, About, TlsPart};
use crate::snapshot::{Listener, Relay, Route, Snapshot, Target};
use crate::worker::{AcceptorId, Worker};
use crate::{failure, greeting, l4};
use life::Life;
use secure::{Door, Ends, Greeted, Prologue, Secure, Terms, refuse};

/// What is left of the time for a handshake that has waited for a certificate.
const LAST_SECOND: Duration = Duration::from_secs(1);

/// Room for what a client sends first; a hello with post-quantum key shares fits.
const FIRST_ROOM: usize = 4096;

/// What is left to do when a connection is ready to be relayed.
enum Ready {
    Relay(Box<l4::Relay>),
    /// The server speaks TLS.
    Secure(Box<l4::Secure>),
    Plain(Box<l4::Plain>),
    Http {
        session: Rc<Session>,
        transport: Box<Transport>,
    },
}

/// A connection that was accepted. Boxed, as it is only looked at once and its task lasts.
pub(crate) struct Arrived {
    /// The socket that accepted it.
    pub(crate) socket: AcceptorId,
    /// What the socket's listener was called when it was opened.
    pub(crate) listener: Arc<str>,
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
    /// Its place among `limits.connections`, if there was one.
    pub(crate) place: Option<Admitted>,
}

/// Serves one accepted connection. One without a place is turned away.
pub(crate) async fn serve(worker: Rc<Worker>, arrived: Box<Arrived>) {
    // First of all: what is there at an await stays in the memory of the connection.
    let task = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    worker.stand_by();
    let snapshot = worker.shared.current.load_full();
    let Arrived { socket: id, listener, fd, peer, place } = *arrived;
    let full = place.is_none();
    let (mut life, listener) = begin(&worker, &snapshot, (id, listener), (peer, place), task);
    let live = life.live;
    let Some(listener) = listener.filter(|_| !full) else {
        let cause = if full { Cause::LimitConnections } else { Cause::NoRoute };
        life.facts().close = cause.into();
        return;
    };
    let socket = match peer {
        Peer::Tcp(_) => Socket::tcp(fd),
        Peer::Unix => Socket::unix(fd),
    };
    let socket = match socket {
        Ok(socket) => socket,
        Err(error) => {
            life.facts().close = failure::resources(&error, Cause::Internal);
            return;
        }
    };
    let bounds = l4::RelayBounds::new(&snapshot.limits, worker.old_at(&snapshot.limits));
    // The handshake's state is large and short-lived: boxed, and gone before the relay begins. So is what comes after.
    let establish = establish(&mut life, snapshot, listener, socket, peer);
    let ready = Box::pin(until_closed(&worker, live, establish)).await;
    // What a relay leaves has gone from here before anybody waits for a farewell.
    let farewells = {
        let outcome = match ready {
            Err(close) => {
                life.facts().close = close;
                return;
            }
            Ok(Ready::Http { session, transport }) => {
                let close = Box::pin(l7::serve(Rc::clone(&session), *transport)).await;
                life.reported = session.is_to_be_reported(&close);
                life.left = session.left.get();
                life.facts().close = close;
                return;
            }
            Ok(Ready::Relay(mut relay)) => {
                let close = relay.run(bounds).await;
                relay.finish(close)
            }
            Ok(Ready::Secure(mut secure)) => {
                let close = secure.run(bounds).await;
                secure.finish(close)
            }
            Ok(Ready::Plain(mut plain)) => {
                let close = plain.run(bounds).await;
                plain.finish(close)
            }
        };
        let mut facts = life.facts();
        (facts.close, facts.traffic) = (outcome.close, outcome.traffic);
        outcome.farewells
    };
    if let Some(farewells) = farewells {
        Box::pin(farewells.say(&worker)).await;
    }
}

/// A connection begins to count; what it was accepted by serves this listener.
fn begin(
    worker: &Rc<Worker>,
    snapshot: &Snapshot,
    (id, name): (AcceptorId, Arc<str>),
    (peer, place): (Peer, Option<Admitted>),
    task: Waker,
) -> (Life, Option<Arc<Listener>>) {
    let address = match peer {
        Peer::Tcp(address) => Address::Ip(address),
        Peer::Unix => Address::Unix(None),
    };
    let listener = snapshot.listener(id, &name).cloned();
    let name = listener.as_ref().map_or(&name, |listener| &listener.name);
    let live = worker.live.enter(worker.facts(name, address), task);
    (Life::begin(worker, id, live, place), listener)
}

/// Waits for what comes before a relay, unless the operator closes the connection meanwhile.
async fn until_closed(
    worker: &Worker,
    live: Place,
    establish: impl Future<Output = Result<Ready, Close>>,
) -> Result<Ready, Close> {
    let mut establish = pin!(establish);
    poll_fn(|cx| {
        if worker.live.is_closing(live) {
            return Poll::Ready(Err(Cause::ClosedByOperator.into()));
        }
        establish.as_mut().poll(cx)
    })
    .await
}

/// Everything until bytes can be relayed.
async fn establish(
    life: &mut Life,
    snapshot: Arc<Snapshot>,
    listener: Arc<Listener>,
    socket: Socket,
    peer: Peer,
) -> Result<Ready, Close> {
    let deadline = tokio::time::Instant::now() + snapshot.limits.handshake_timeout;
    let mut buffer = Buffer::with_capacity(FIRST_ROOM);
    let client = match timeout_at(deadline, identify(life, &listener, &socket, &mut buffer, peer)).await {
        Ok(identified) => identified?,
        Err(_) => return Err(Cause::ProxyTimeout.into()),
    };
    may_enter(listener.addresses.as_deref(), client)?;
    if let Some(address) = client {
        admit(life, &snapshot, &listener, address)?;
    }
    let fresh = Fresh { socket, buffer, deadline };
    if listener.tls.is_some() {
        return secured(life, snapshot, listener, fresh).await;
    }
    let route = listener.routes.find(None, |_| false).ok_or(Cause::NoRoute)?;
    may_enter(route.addresses.as_deref(), client)?;
    life.pace(&fresh.socket, &snapshot.limits, &listener);
    match &route.target {
        Target::Http(_) => http::plain(life, snapshot, &listener, fresh.socket, fresh.buffer),
        _ => plain(life, &snapshot, route, fresh.socket, fresh.buffer).await,
    }
}

/// A connection of which nothing was used yet but a PROXY header.
struct Fresh {
    socket: Socket,
    buffer: Buffer,
    deadline: tokio::time::Instant,
}

/// The way of a connection to a listener with TLS.
async fn secured(
    life: &mut Life,
    snapshot: Arc<Snapshot>,
    listener: Arc<Listener>,
    Fresh { socket, mut buffer, deadline }: Fresh,
) -> Result<Ready, Close> {
    let tls = listener.tls.as_ref().ok_or(Cause::NoRoute)?;
    let direct = match secure::begin(life, tls, &socket, &mut buffer, deadline).await? {
        Prologue::Tls => false,
        Prologue::Direct => true,
        Prologue::Cancel => {
            return Err(Box::pin(cancel::pass_on(life, &snapshot, &listener, &socket, &buffer)).await);
        }
    };
    greeted(life, snapshot, listener, (direct, May::Wait), Fresh { socket, buffer, deadline }).await
}

/// Whether a handshake may wait for a certificate on demand: once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    Wait,
    GoOn,
}

/// The same, from the ClientHello on. `direct`: it began with TLS where others ask for it.
async fn greeted(
    life: &mut Life,
    snapshot: Arc<Snapshot>,
    listener: Arc<Listener>,
    (direct, may): (bool, May),
    Fresh { socket, mut buffer, deadline }: Fresh,
) -> Result<Ready, Close> {
    let listener = &listener;
    let tls = listener.tls.as_ref().ok_or(Cause::NoRoute)?;
    let door = Door { listener, tls, direct, may_wait: may == May::Wait };
    let (hello, route) = match secure::greet(life, &door, &socket, &mut buffer, deadline).await? {
        Greeted::Chosen(hello, route) => (hello, route),
        Greeted::Lacking(waiting) => {
            // In time for a handshake with what there is.
            waiting.end(deadline.checked_sub(LAST_SECOND).unwrap_or(deadline)).await;
            let snapshot = life.worker.shared.current.load_full();
            let listener =
                snapshot.listener(life.accepted_by, &listener.name).cloned().ok_or(Cause::NoRoute)?;
            let fresh = Fresh { socket, buffer, deadline };
            return Box::pin(greeted(life, snapshot, listener, (direct, May::GoOn), fresh)).await;
        }
    };
    let terms = route.and_then(Terms::of);
    if let (Some(route), None) = (route, &terms) {
        life.pace(&socket, &snapshot.limits, listener);
        return plain(life, &snapshot, route, socket, buffer).await;
    }
    let secure = Secure {
        configs: match (hello.challenge(), &terms) {
            (Some(configs), _) => configs,
            (None, terms) => terms.as_ref().and_then(|terms| terms.configs).unwrap_or(&tls.fallback),
        },
        configured: terms.as_ref().map(|terms| terms.configured),
        hello: &hello,
        snapshot: &snapshot,
    };
    let mut established = secure.handshake(life, &socket, &mut buffer, deadline).await?;
    if hello.challenge().is_some() {
        // The authority has seen what it came for (RFC 8737 section 3).
        let close = Cause::AcmeChallenge.into();
        return Err(refuse(&life.worker, &socket, established, Alert::CLOSE_NOTIFY, close).await);
    }
    // rustls understood a hello that could not be looked at, so nobody knows where it should go.
    let Some(terms) = terms else {
        let cause = hello.odd.map_or(Cause::NoRoute, failure::hello_cause);
        return Err(refuse(&life.worker, &socket, established, Alert::UNEXPECTED_MESSAGE, cause.into()).await);
    };
    if let Some((alert, cause)) = terms.refusal(&established.negotiated) {
        let close = secure::refused(life, cause, &established.negotiated);
        return Err(refuse(&life.worker, &socket, established, alert, close).await);
    }
    life.pace(&socket, &snapshot.limits, listener);
    let relay = match terms.to {
        Ends::Relay(relay) => relay,
        Ends::Http(http) => {
            let (arrived, chosen) = ((socket, buffer), (http, &hello));
            return http::terminated(life, Arc::clone(&snapshot), listener, arrived, chosen, established);
        }
    };
    let certificate = hello.certificate().map(|certificate| &**certificate);
    let part = TlsPart { negotiated: &established.negotiated, certificate };
    let mut sending = Sending::new(snapshot.record_size, std::mem::take(&mut established.tickets));
    let (engaged, refused) = sending.beside(&socket, engage(life, &snapshot, relay, &socket, &part)).await;
    let server = match engaged {
        Ok(server) => server,
        Err(close) => {
            established.tickets = sending.into_waiting();
            return Err(refuse(&life.worker, &socket, established, Alert::INTERNAL_ERROR, close).await);
        }
    };
    let Established { session, left, .. } = established;
    let left = left.or(refused);
    let (server, secured) = server;
    if let Some(bandwidth) = route.and_then(|route| route.bandwidth.as_ref()) {
        bandwidth.bound(&server);
    }
    let worker = Rc::clone(&life.worker);
    life.speaks(Protocol::Tcp);
    let Some(secured) = secured else {
        let ends = l4::Ends { client: socket, server, session, sending, early: buffer, left };
        return Ok(Ready::Relay(l4::Relay::new(worker, life.live, ends)));
    };
    let session = Some((session, sending));
    let ends = l4::SecureEnds { client: socket, session, early: buffer, left, server, secured };
    Ok(Ready::Secure(l4::Secure::new(worker, life.live, ends)))
}

/// The client: the peer, or the source in a PROXY header. `None` if it has no IP address.
async fn identify(
    life: &mut Life,
    listener: &Listener,
    socket: &Socket,
    buffer: &mut Buffer,
    peer: Peer,
) -> Result<Option<std::net::IpAddr>, Close> {
    let address = peer.socket_address().map(|address| address.ip());
    let trusted =
        address.is_some_and(|address| listener.accept_proxy.iter().any(|network| network.contains(address)));
    if !trusted {
        return Ok(address);
    }
    match greeting::proxy_header(socket, buffer).await? {
        None => Ok(address),
        Some(claimed) => {
            let mut facts = life.facts();
            let client = &mut facts.client;
            let address = match &claimed.client {
                Address::Ip(address) => Some(address.ip()),
                Address::Unix(_) => None,
            };
            client.peer = Some(std::mem::replace(&mut client.address, claimed.client));
            client.destination = Some(claimed.destination);
            Ok(address)
        }
    }
}

/// Whether clients with this address may enter.
fn may_enter(rules: Option<&AddressRules>, client: Option<std::net::IpAddr>) -> Result<(), Close> {
    match rules {
        Some(rules) if !rules.admits(client) => Err(Cause::AddressDenied.into()),
        _ => Ok(()),
    }
}

/// The limits per client.
fn admit(
    life: &mut Life,
    snapshot: &Snapshot,
    listener: &Listener,
    address: std::net::IpAddr,
) -> Result<(), Close> {
    let limits = &snapshot.limits;
    let bounds = ClientBounds {
        // Behind these addresses are many clients, or this machine itself.
        connections: (!address.to_canonical().is_loopback() && !listener.is_proxy(address))
            .then_some(limits.connections_per_client),
        handshakes: limits.handshakes_per_client,
    };
    let entered = life.worker.shared.clients.enter(address, bounds, Instant::now());
    match entered {
        Ok(entry) => {
            life.client = Some(entry);
            Ok(())
        }
        Err(Refusal::Connections) => Err(Cause::LimitConnectionsPerClient.into()),
        Err(Refusal::Handshakes) => Err(Cause::LimitHandshakesPerClient.into()),
    }
}

/// Finds a server for a client whose handshake is done, and says who the client is.
async fn engage(
    life: &mut Life,
    snapshot: &Snapshot,
    relay: &Relay,
    client: &Socket,
    part: &TlsPart<'_>,
) -> Result<Server, Close> {
    let header = relay.send_proxy.map(|version| {
        let facts = life.facts();
        let about = About::connection(&facts, client);
        proxy_header::build(version, &about, Some(part))
    });
    reach(life, snapshot, relay.backend, header).await
}

/// A connection to a server, and the TLS on it where it speaks TLS.
type Server = (Socket, Option<Box<Secured>>);

/// Connects to a server of the backend, which gets `header` before anything else.
async fn reach(
    life: &mut Life,
    snapshot: &Snapshot,
    backend: usize,
    header: Option<Vec<u8>>,
) -> Result<Server, Close> {
    let turns = life.worker.turns(snapshot, backend);
    let backend = &snapshot.backends[backend];
    life.facts().path.backend = Some(Arc::clone(&backend.name));
    let worker = Rc::clone(&life.worker);
    let (begun, live) = (Instant::now(), life.live);
    let on = |progress: Progress<'_>| match progress {
        Progress::Picked(server) => worker.live.facts(live).path.server = Some(Arc::clone(server)),
        Progress::Attempted { .. } => worker.note_attempt(progress),
    };
    let client = match &life.facts().client.address {
        Address::Ip(address) => Some(address.ip()),
        Address::Unix(_) => None,
    };
    let limit = backend.limits.connect_timeout;
    let header = header.unwrap_or_default();
    // It goes before the handshake where there is one.
    let prologue = if backend.tls.is_some() { &header[..] } else { &[] };
    let outcome = offramp_upstream::connect(backend, &turns, client, limit, prologue, on).await;
    life.facts().times.connect = Some(begun.elapsed());
    match outcome {
        Ok(connected) => {
            life.facts().path.tries = connected.tries;
            life.permit = Some(connected.permit);
            if connected.secured.is_none() && !header.is_empty() {
                introduce(&connected.socket, &header, limit).await?;
            }
            Ok((connected.socket, connected.secured))
        }
        Err(error) => {
            let mut facts = life.facts();
            facts.path.server = error.server.map(|server| Arc::clone(&backend.servers[server].name));
            facts.path.tries = error.tries;
            Err(failure::unreachable(&error, backend.servers.len()))
        }
    }
}

/// Sends the PROXY header to the server.
async fn introduce(server: &Socket, header: &[u8], limit: Duration) -> Result<(), Close> {
    match timeout(limit, server.write_all(header)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failure::server(&error)),
        Err(_) => Err(Cause::ServerHung.into()),
    }
}

/// A route without TLS of ours: passthrough, or a listener without TLS.
async fn plain(
    life: &mut Life,
    snapshot: &Snapshot,
    route: &Route,
    client: Socket,
    early: Buffer,
) -> Result<Ready, Close> {
    life.follow(route);
    let (backend, send_proxy, protocol) = match &route.target {
        Target::Passthrough { backend, send_proxy } => (*backend, *send_proxy, Protocol::Passthrough),
        Target::Relay(relay) => (relay.backend, relay.send_proxy, Protocol::Tcp),
        Target::Http(_) => return Err(Cause::NoRoute.into()),
    };
    let header = send_proxy.map(|version| {
        let facts = life.facts();
        let about = About::connection(&facts, &client);
        proxy_header::build(version, &about, None)
    });
    let (server, secured) = reach(life, snapshot, backend, header).await?;
    if let Some(bandwidth) = &route.bandwidth {
        bandwidth.bound(&server);
    }
    life.speaks(protocol);
    let worker = Rc::clone(&life.worker);
    let Some(secured) = secured else {
        return Ok(Ready::Plain(l4::Plain::new(
            worker,
            life.live,
            (client, server),
            early.filled().to_vec(),
        )));
    };
    let ends = l4::SecureEnds { client, session: None, early, left: None, server, secured };
    Ok(Ready::Secure(l4::Secure::new(worker, life.live, ends)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use offramp_observe::ConnectionFacts;

    use super::*;
    use crate::worker::rig;

    #[test]
    fn a_quiet_connection_has_little_memory_of_its_own() {
        rig::block_on(|worker| async move {
            let (socket, _peer) = UnixStream::pair().unwrap();
            let (id, listener) = (AcceptorId(1), rig::DOOR.into());
            let arrived = Arrived { socket: id, listener, fd: socket.into(), peer: Peer::Unix, place: None };
            let task = serve(worker, Box::new(arrived));
            let sizes = [
                ("task", size_of_val(&task), 616),
                ("relay", size_of::<l4::Relay>(), 544),
                ("plain relay", size_of::<l4::Plain>(), 296),
                ("relay to TLS", size_of::<l4::Secure>(), 1016),
                ("facts", size_of::<ConnectionFacts>(), 448),
                ("life", size_of::<Life>(), 104),
            ];
            println!("{sizes:?}");
            for (what, size, most) in sizes {
                assert!(size <= most, "{what}: {size} bytes, and not {most}");
            }
        });
    }
}
