//! Everything of a connection until bytes can be relayed, or requests be read.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offramp_net::{Buffer, PeerAddress, Socket};
use offramp_observe::facts::EndpointAddress;
use offramp_observe::{Cause, Close};
use offramp_record::Alert;
use offramp_tls::{Established, Sending};
use tokio::time::timeout_at;

use super::guard::ConnectionGuard;
use super::secure::{
    AfterTls, ClientHandshake, FreshConnection, Hello, HelloContext, HelloOutcome, Preface, TlsTerms, refuse,
};
use super::{AcceptedProtocol, Arrival, cancel, http, secure, server};
use crate::limit::{ClientBounds, LimitExceeded};
use crate::live::ConnectionProtocol;
use crate::networks::AddressRules;
use crate::proxy_header::TlsPart;
use crate::snapshot::{Listener, Relay, Route, Snapshot, Target};
use crate::{failure, greeting, l4};

/// Handshake time reserved after waiting for an on-demand certificate.
const LAST_SECOND: Duration = Duration::from_secs(1);

/// Room for the first bytes of a client; a ClientHello with post-quantum key shares fits.
const FIRST_ROOM: usize = 4096;

/// Establishes a connection: PROXY header, limits of the client, TLS, and the server of a relay.
pub(super) async fn establish(
    guard: &mut ConnectionGuard,
    snapshot: Arc<Snapshot>,
    Arrival { listener, socket, peer }: Arrival,
) -> Result<AcceptedProtocol, Close> {
    let deadline = tokio::time::Instant::now() + snapshot.limits.handshake_timeout;
    let mut buffer = Buffer::with_capacity(FIRST_ROOM);
    let client = match timeout_at(deadline, identify(guard, &listener, &socket, &mut buffer, peer)).await {
        Ok(identified) => identified?,
        Err(_) => return Err(Cause::ProxyTimeout.into()),
    };
    check_address(listener.addresses.as_deref(), client)?;
    if let Some(address) = client {
        admit(guard, &snapshot, &listener, address)?;
    }
    let fresh = FreshConnection { socket, buffer, deadline };
    if listener.tls.is_some() {
        return begin_tls(guard, snapshot, listener, fresh).await;
    }
    let route = listener.routes.find(None, |_| false).ok_or(Cause::NoRoute)?;
    check_address(route.addresses.as_deref(), client)?;
    guard.pace(&fresh.socket, &snapshot.limits, &listener);
    match &route.target {
        Target::Http(_) => http::plain(guard, snapshot, &listener, fresh),
        _ => relay_plain(guard, &snapshot, route, fresh).await,
    }
}

/// The client: the peer, or the source in a PROXY header. `None` if it has no IP address.
async fn identify(
    guard: &mut ConnectionGuard,
    listener: &Listener,
    socket: &Socket,
    buffer: &mut Buffer,
    peer: PeerAddress,
) -> Result<Option<IpAddr>, Close> {
    let address = peer.socket_address().map(|address| address.ip());
    let trusted =
        address.is_some_and(|address| listener.accept_proxy.iter().any(|network| network.contains(address)));
    if !trusted {
        return Ok(address);
    }
    match greeting::proxy_header(socket, buffer).await? {
        None => Ok(address),
        Some(claimed) => {
            let mut facts = guard.facts();
            let client = &mut facts.client;
            let address = match &claimed.client {
                EndpointAddress::Ip(address) => Some(address.ip()),
                EndpointAddress::Unix(_) => None,
            };
            client.peer = Some(std::mem::replace(&mut client.address, claimed.client));
            client.destination = Some(claimed.destination);
            Ok(address)
        }
    }
}

/// Refuses clients with an address that the rules deny.
pub(super) fn check_address(rules: Option<&AddressRules>, client: Option<IpAddr>) -> Result<(), Close> {
    match rules {
        Some(rules) if !rules.admits(client) => Err(Cause::AddressDenied.into()),
        _ => Ok(()),
    }
}

/// Applies the limits per client.
fn admit(
    guard: &mut ConnectionGuard,
    snapshot: &Snapshot,
    listener: &Listener,
    address: IpAddr,
) -> Result<(), Close> {
    let limits = &snapshot.limits;
    // A proxy stands for many clients, and loopback for this machine itself.
    let is_one_client = !address.to_canonical().is_loopback() && !listener.is_proxy(address);
    let bounds = ClientBounds {
        connections: is_one_client.then_some(limits.connections_per_client),
        handshakes: limits.handshakes_per_client,
    };
    match guard.services.worker.shared.clients.enter(address, bounds, Instant::now()) {
        Ok(entry) => {
            guard.client = Some(entry);
            Ok(())
        }
        Err(LimitExceeded::Connections) => Err(Cause::LimitConnectionsPerClient.into()),
        Err(LimitExceeded::Handshakes) => Err(Cause::LimitHandshakesPerClient.into()),
    }
}

/// Begins TLS on a listener that has it: with the preamble of the listener's protocol, then by the ClientHello.
async fn begin_tls(
    guard: &mut ConnectionGuard,
    snapshot: Arc<Snapshot>,
    listener: Arc<Listener>,
    mut fresh: FreshConnection,
) -> Result<AcceptedProtocol, Close> {
    let tls = listener.tls.as_ref().ok_or(Cause::NoRoute)?;
    let direct = match secure::preface(guard, tls, &mut fresh).await? {
        Preface::Tls => false,
        Preface::Direct => true,
        Preface::Cancel => {
            return Err(Box::pin(cancel::forward(guard, &snapshot, &listener, &fresh)).await);
        }
    };
    let policy = HelloPolicy { direct, may_await_certificate: true };
    negotiate(guard, snapshot, listener, policy, fresh).await
}

/// The treatment of a ClientHello that does not follow from the listener.
#[derive(Clone, Copy)]
struct HelloPolicy {
    /// The client began with TLS where others ask for it.
    direct: bool,
    /// The handshake may wait for a certificate on demand, which it does once.
    may_await_certificate: bool,
}

/// Chooses the route by the ClientHello, and follows it.
async fn negotiate(
    guard: &mut ConnectionGuard,
    snapshot: Arc<Snapshot>,
    listener: Arc<Listener>,
    policy: HelloPolicy,
    mut fresh: FreshConnection,
) -> Result<AcceptedProtocol, Close> {
    let tls = listener.tls.as_ref().ok_or(Cause::NoRoute)?;
    let HelloPolicy { direct, may_await_certificate } = policy;
    let context = HelloContext { listener: &listener, tls, direct, may_await_certificate };
    let (hello, route) = match secure::read_hello(guard, &context, &mut fresh).await? {
        HelloOutcome::Route(hello, route) => (hello, route),
        HelloOutcome::AwaitCertificate(certificate) => {
            let deadline = fresh.deadline;
            // In time for a handshake with the certificates that there are.
            certificate.end(deadline.checked_sub(LAST_SECOND).unwrap_or(deadline)).await;
            let snapshot = guard.services.worker.shared.current.load_full();
            let listener =
                snapshot.listener(guard.accepted_by, &listener.name).cloned().ok_or(Cause::NoRoute)?;
            let policy = HelloPolicy { direct, may_await_certificate: false };
            return Box::pin(negotiate(guard, snapshot, listener, policy, fresh)).await;
        }
    };
    let terms = route.and_then(TlsTerms::of);
    if let (Some(route), None) = (route, &terms) {
        guard.pace(&fresh.socket, &snapshot.limits, &listener);
        return relay_plain(guard, &snapshot, route, fresh).await;
    }
    let (after, established) =
        terminate(guard, &snapshot, &context, Terminating { hello: &hello, terms }, &mut fresh).await?;
    guard.pace(&fresh.socket, &snapshot.limits, &listener);
    match after {
        AfterTls::Http(http) => {
            let tls = http::EndedTls { http, hello: &hello, established };
            http::terminated(guard, Arc::clone(&snapshot), &listener, fresh, tls)
        }
        AfterTls::Relay(relay) => {
            let route = RelayRoute { route, relay, hello: &hello };
            relay_terminated(guard, &snapshot, route, fresh, established).await
        }
    }
}

/// A ClientHello, and the terms of its route; `None`: it has no route.
struct Terminating<'a> {
    hello: &'a Hello,
    terms: Option<TlsTerms<'a>>,
}

/// Does the handshake, and refuses clients that may not go on behind it.
async fn terminate<'a>(
    guard: &mut ConnectionGuard,
    snapshot: &Snapshot,
    context: &HelloContext<'_>,
    Terminating { hello, terms }: Terminating<'a>,
    fresh: &mut FreshConnection,
) -> Result<(AfterTls<'a>, Established), Close> {
    let handshake = ClientHandshake {
        configs: match (hello.challenge(), &terms) {
            (Some(configs), _) => configs,
            (None, terms) => terms.as_ref().and_then(|terms| terms.configs).unwrap_or(&context.tls.fallback),
        },
        configured: terms.as_ref().map(|terms| terms.configured),
        hello,
        snapshot,
    };
    let established = handshake.run(guard, fresh).await?;
    let (socket, worker) = (&fresh.socket, Rc::clone(&guard.services.worker));
    if hello.challenge().is_some() {
        // The authority has seen what it came for (RFC 8737 section 3).
        let close = Cause::AcmeChallenge.into();
        return Err(refuse(&worker, socket, established, Alert::CLOSE_NOTIFY, close).await);
    }
    // rustls understood a hello that could not be parsed here, so there is no route for it.
    let Some(terms) = terms else {
        let cause = hello.odd.map_or(Cause::NoRoute, failure::hello_cause);
        return Err(refuse(&worker, socket, established, Alert::UNEXPECTED_MESSAGE, cause.into()).await);
    };
    if let Some((alert, cause)) = terms.refusal(&established.negotiated) {
        let close = secure::refused(guard, cause, &established.negotiated);
        return Err(refuse(&worker, socket, established, alert, close).await);
    }
    Ok((terms.after, established))
}

/// A relay behind TLS that ended here.
struct RelayRoute<'a> {
    route: Option<&'a Route>,
    relay: &'a Relay,
    hello: &'a Hello,
}

/// Connects to a server after the handshake of the client.
async fn relay_terminated(
    guard: &mut ConnectionGuard,
    snapshot: &Snapshot,
    RelayRoute { route, relay, hello }: RelayRoute<'_>,
    fresh: FreshConnection,
    mut established: Established,
) -> Result<AcceptedProtocol, Close> {
    let FreshConnection { socket: client, buffer: early, .. } = fresh;
    let certificate = hello.certificate().map(|certificate| &**certificate);
    let part = TlsPart { negotiated: &established.negotiated, certificate };
    let mut sending = Sending::new(snapshot.record_size, std::mem::take(&mut established.tickets));
    let connect = server::connect(guard, snapshot, &relay.to, &client, Some(&part));
    let (connected, refused) = sending.beside(&client, connect).await;
    let server = match connected {
        Ok(server) => server,
        Err(close) => {
            established.tickets = sending.into_waiting();
            let worker = &guard.services.worker;
            return Err(refuse(worker, &client, established, Alert::INTERNAL_ERROR, close).await);
        }
    };
    let Established { session, left, .. } = established;
    let left = left.or(refused);
    if let Some(bandwidth) = route.and_then(|route| route.bandwidth.as_ref()) {
        bandwidth.bound(&server.socket);
    }
    let worker = Rc::clone(&guard.services.worker);
    guard.set_protocol(ConnectionProtocol::Tcp);
    Ok(match server.secured {
        None => {
            let ends = l4::RelayParts { client, server: server.socket, session, sending, early, left };
            AcceptedProtocol::Relay(l4::TlsRelay::new(worker, guard.live, ends))
        }
        Some(secured) => {
            let session = Some((session, sending));
            let ends = l4::SecureEnds { client, session, early, left, server: server.socket, secured };
            AcceptedProtocol::Secure(l4::Secure::new(worker, guard.live, ends))
        }
    })
}

/// Relays on a route without TLS of Offramp's own: passthrough, or a listener without TLS.
async fn relay_plain(
    guard: &mut ConnectionGuard,
    snapshot: &Snapshot,
    route: &Route,
    fresh: FreshConnection,
) -> Result<AcceptedProtocol, Close> {
    let FreshConnection { socket: client, buffer: early, .. } = fresh;
    guard.follow(route);
    let (destination, protocol) = match &route.target {
        Target::Passthrough(to) => (to, ConnectionProtocol::Passthrough),
        Target::Relay(relay) => (&relay.to, ConnectionProtocol::Tcp),
        Target::Http(_) => return Err(Cause::NoRoute.into()),
    };
    let server = server::connect(guard, snapshot, destination, &client, None).await?;
    if let Some(bandwidth) = &route.bandwidth {
        bandwidth.bound(&server.socket);
    }
    guard.set_protocol(protocol);
    let worker = Rc::clone(&guard.services.worker);
    Ok(match server.secured {
        None => {
            let ends = l4::PlainEnds { client, server: server.socket };
            AcceptedProtocol::Plain(l4::PlainRelay::new(worker, guard.live, ends, early.filled().to_vec()))
        }
        Some(secured) => {
            let ends =
                l4::SecureEnds { client, session: None, early, left: None, server: server.socket, secured };
            AcceptedProtocol::Secure(l4::Secure::new(worker, guard.live, ends))
        }
    })
}
