//! The spine: one connection from accept to close, as named steps.

mod secure;

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use offramp_net::{Buffer, Peer, Socket};
use offramp_observe::facts::Address;
use offramp_observe::{Cause, Close, ConnectionFacts};
use offramp_tls::Established;
use offramp_wire::alert::AlertDescription;
use tokio::time::{timeout, timeout_at};

use crate::closing::farewell;
use crate::limit::{Admitted, ClientEntry, Refusal};
use crate::proxy_header::{self, TlsPart};
use crate::snapshot::{Listener, Relay, Route, Snapshot, Target};
use crate::worker::Worker;
use crate::{failure, greeting, l4};
use secure::{Secure, refuse};

/// Room for what a client sends first; a hello with post-quantum key shares fits.
const FIRST_ROOM: usize = 4096;

/// A connection that counts, until it is dropped with its facts complete.
struct Life {
    worker: Rc<Worker>,
    facts: Option<Box<ConnectionFacts>>,
    begun: Instant,
    _place: Option<Admitted>,
    client: Option<ClientEntry>,
}

impl Life {
    fn facts(&mut self) -> &mut ConnectionFacts {
        // Taken only by `drop`.
        self.facts.as_mut().expect("facts last as long as the connection")
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(mut facts) = self.facts.take() {
            facts.times.total = self.begun.elapsed();
            // Nobody named an end: the worker is ending, or there is a fault of ours.
            if facts.close.cause == Cause::Internal && self.worker.cut.is_now() {
                facts.close = Cause::Drain.into();
            }
            self.worker.ended(facts);
        }
    }
}

/// What is left to do when a connection is ready to be relayed.
enum Ready {
    Relay(l4::Ends),
    Plain { client: Socket, server: Socket, early: Buffer },
}

/// Serves one accepted connection.
pub(crate) async fn serve(worker: Rc<Worker>, listener: Arc<str>, fd: OwnedFd, peer: Peer) {
    worker.stand_by();
    let snapshot = worker.shared.current.load_full();
    let limits = snapshot.limits;
    let address = match peer {
        Peer::Tcp(address) => Address::Ip(address),
        Peer::Unix => Address::Unix(None),
    };
    let place = worker.shared.admission.enter(worker.index, limits.connections);
    let full = place.is_none();
    let facts = Some(worker.facts(&listener, address));
    let mut life =
        Life { worker: Rc::clone(&worker), facts, begun: Instant::now(), _place: place, client: None };
    let Some(listener) = snapshot.listeners.get(&listener).cloned().filter(|_| !full) else {
        let cause = if full { Cause::LimitConnections } else { Cause::NoRoute };
        life.facts().close = cause.into();
        return;
    };
    let socket = match Socket::new(fd) {
        Ok(socket) => socket,
        Err(error) => {
            life.facts().close = failure::resources(&error, Cause::Internal);
            return;
        }
    };
    let terms = l4::Terms { idle_timeout: limits.idle_timeout, record_size: snapshot.record_size };
    // The handshake's state is large and short-lived: boxed, and gone before the relay begins.
    let ready = Box::pin(establish(&mut life, snapshot, listener, socket, peer)).await;
    match ready {
        Err(close) => life.facts().close = close,
        Ok(Ready::Plain { client, server, early }) => {
            let early = early.filled().to_vec();
            let (close, traffic, due) = l4::relay_plain(&worker, &client, &server, early, terms).await;
            let facts = life.facts();
            (facts.close, facts.traffic) = (close, traffic);
            match due {
                l4::Due::Nobody => {}
                l4::Due::Client(kept) => farewell(&client, &kept).await,
                l4::Due::Server(kept) => farewell(&server, &kept).await,
            }
        }
        Ok(Ready::Relay(ends)) => {
            let outcome = l4::relay(worker, ends, terms).await;
            let facts = life.facts();
            (facts.close, facts.traffic) = (outcome.close, outcome.traffic);
            if outcome.waits {
                farewell(&outcome.client, &outcome.pending).await;
            }
            if let Some(server) = &outcome.server {
                farewell(server, &[]).await;
            }
        }
    }
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
    if let Some(address) = client {
        admit(life, &snapshot, address)?;
    }
    let Some(tls) = &listener.tls else {
        let route = listener.routes.find(None, |_| false).ok_or(Cause::NoRoute)?;
        return plain(life, &snapshot, route, socket, buffer).await;
    };
    let (hello, route) = secure::greet(life, &listener, tls, &socket, &mut buffer, deadline).await?;
    let relay = match route {
        None => None,
        Some(Route { target: Target::Relay(relay), .. }) => Some(relay),
        Some(route) => return plain(life, &snapshot, route, socket, buffer).await,
    };
    let secure = Secure {
        configs: relay.and_then(|relay| relay.tls.as_ref()).unwrap_or(&tls.fallback),
        configured: relay.map(|relay| &relay.configured),
        hello: &hello,
        snapshot: &snapshot,
    };
    let established = secure.handshake(life, &socket, &mut buffer, deadline).await?;
    // rustls understood a hello that could not be looked at, so nobody knows where it should go.
    let Some(relay) = relay else {
        return Err(
            refuse(&socket, established, AlertDescription::UnrecognizedName, Cause::NoRoute.into()).await
        );
    };
    if !secure::allowed(relay, &established.negotiated) {
        let close = Cause::ClientCertificateNotAllowed.into();
        return Err(refuse(&socket, established, AlertDescription::AccessDenied, close).await);
    }
    let part = TlsPart { negotiated: &established.negotiated, certificate: hello.certificate() };
    let server = match engage(life, &snapshot, relay, &socket, &part).await {
        Ok(server) => server,
        Err(close) => return Err(refuse(&socket, established, AlertDescription::InternalError, close).await),
    };
    let Established { session, left, .. } = established;
    Ok(Ready::Relay(l4::Ends { client: socket, server, session, early: buffer, left }))
}

/// Who the client is: the peer, or whom a PROXY header names. `None` where it has no IP address.
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
            let client = &mut life.facts().client;
            let address = match &claimed {
                Address::Ip(address) => Some(address.ip()),
                Address::Unix(_) => None,
            };
            client.peer = Some(std::mem::replace(&mut client.address, claimed));
            Ok(address)
        }
    }
}

/// The limits per client.
fn admit(life: &mut Life, snapshot: &Snapshot, address: std::net::IpAddr) -> Result<(), Close> {
    let limits = &snapshot.limits;
    let entered = life.worker.shared.clients.enter(
        address,
        limits.connections_per_client,
        limits.handshakes_per_client,
        Instant::now(),
    );
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
) -> Result<Socket, Close> {
    let server = reach(life, snapshot, relay.backend).await?;
    if let Some(version) = relay.send_proxy {
        let header = proxy_header::build(version, life.facts(), client, Some(part));
        introduce(&server, &header, snapshot).await?;
    }
    Ok(server)
}

/// Connects to a server of the backend.
async fn reach(life: &mut Life, snapshot: &Snapshot, backend: usize) -> Result<Socket, Close> {
    let turns = life.worker.turns(snapshot, backend);
    let backend = &snapshot.backends[backend];
    life.facts().path.backend = Some(Arc::clone(&backend.name));
    let worker = Rc::clone(&life.worker);
    let begun = Instant::now();
    let attempted = |succeeded: bool| {
        worker.counters.connect_attempted();
        if !succeeded {
            worker.counters.connect_failed();
        }
    };
    let outcome =
        offramp_upstream::connect(backend, &turns, snapshot.limits.connect_timeout, attempted).await;
    let facts = life.facts();
    facts.times.connect = Some(begun.elapsed());
    match outcome {
        Ok(connected) => {
            facts.path.server = Some(Arc::clone(&backend.servers[connected.server].name));
            facts.path.tries = connected.tries;
            Ok(connected.socket)
        }
        Err(error) => {
            facts.path.server = error.server.map(|server| Arc::clone(&backend.servers[server].name));
            facts.path.tries = error.tries;
            Err(failure::unreachable(&error, backend.servers.len()))
        }
    }
}

/// Sends the PROXY header to the server.
async fn introduce(server: &Socket, header: &[u8], snapshot: &Snapshot) -> Result<(), Close> {
    match timeout(snapshot.limits.connect_timeout, server.write_all(header)).await {
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
    life.facts().path.route = Some(Arc::clone(&route.name));
    let (backend, send_proxy) = match &route.target {
        Target::Passthrough { backend } => (*backend, None),
        Target::Relay(relay) => (relay.backend, relay.send_proxy),
    };
    let server = reach(life, snapshot, backend).await?;
    if let Some(version) = send_proxy {
        let header = proxy_header::build(version, life.facts(), &client, None);
        introduce(&server, &header, snapshot).await?;
    }
    Ok(Ready::Plain { client, server, early })
}
