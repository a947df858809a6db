//! The spine: one connection from accept to close, as named steps.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use offramp_certs::Certificate;
use offramp_certs::describe::Description;
use offramp_certs::store::Pick;
use offramp_net::{Buffer, Peer, Socket};
use offramp_observe::facts::{Address, Handshake, Mismatch, Offer, TlsVersion};
use offramp_observe::{Cause, Close, ConnectionFacts};
use offramp_record::{Alert, Version};
use offramp_tls::{Configs, Established, HandshakeFault, Negotiated, handshake};
use offramp_wire::alert::{AlertDescription, AlertLevel, encode};
use offramp_wire::client_hello::{self, ClientHello};
use offramp_wire::{HelloFault, Step};
use rustls::SignatureScheme;
use tokio::time::timeout;

use crate::closing::farewell;
use crate::limit::{Admitted, ClientEntry, Refusal};
use crate::proxy_header::{self, TlsPart};
use crate::snapshot::{Listener, ListenerTls, Relay, Route, Snapshot, Target};
use crate::worker::Worker;
use crate::{failure, greeting, l4};

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
    let limit = snapshot.limits.handshake_timeout;
    let deadline = tokio::time::Instant::now() + limit;
    let mut buffer = Buffer::with_capacity(FIRST_ROOM);
    let client = match timeout(limit, identify(life, &listener, &socket, &mut buffer, peer)).await {
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
    let greeted =
        timeout(deadline - tokio::time::Instant::now(), greeting::client_hello(&socket, &mut buffer));
    let odd = match greeted.await {
        Ok(Ok(greeted)) => greeted.err(),
        Ok(Err(close)) => {
            if close.cause == Cause::PlainHttp {
                farewell(&socket, greeting::PLAIN_HTTP).await;
            }
            return Err(close);
        }
        Err(_) => return Err(Cause::HandshakeTimeout.into()),
    };
    let (hello, route) = match odd {
        Some(_) => (Hello::default(), None),
        None => match choose(life, &listener, tls, &buffer) {
            Ok((hello, route)) => (hello, Some(route)),
            Err((alert, cause)) => {
                farewell(&socket, &encode(AlertLevel::Fatal, alert)).await;
                return Err(failure::sent(cause.into(), alert as u8));
            }
        },
    };
    let relay = match route.map(|route| &route.target) {
        Some(Target::Passthrough { .. }) => {
            // Chosen two lines above, so it is there.
            let route = route.ok_or(Cause::Internal)?;
            return plain(life, &snapshot, route, socket, buffer).await;
        }
        Some(Target::Relay(relay)) => Some(relay),
        None => None,
    };
    let configs = relay.and_then(|relay| relay.tls.as_ref()).unwrap_or(&tls.fallback);
    let configured = relay.map(|relay| &relay.configured);
    let secure = Secure { configs, configured, hello: &hello, odd, snapshot: &snapshot };
    let shaken =
        timeout(deadline - tokio::time::Instant::now(), secure.handshake(life, &socket, &mut buffer));
    let established = match shaken.await {
        Ok(Ok(established)) => established,
        Ok(Err((close, told))) => {
            if told {
                // A reset must not overtake the alert; outside of the timeout, lest that be the cause.
                farewell(&socket, &[]).await;
            }
            return Err(close);
        }
        Err(_) => {
            life.worker.counters.handshake_failed();
            return Err(Cause::HandshakeTimeout.into());
        }
    };
    // rustls understood a hello that could not be looked at, so nobody knows where it should go.
    let Some(relay) = relay else {
        return Err(refuse(&socket, established, Alert(112), Cause::NoRoute.into()).await);
    };
    if !allowed(relay, &established.negotiated) {
        // access_denied: the certificate is good, its bearer is not wanted (RFC 8446 §6.2).
        let close = Cause::ClientCertificateNotAllowed.into();
        return Err(refuse(&socket, established, Alert(49), close).await);
    }
    let part = TlsPart { negotiated: &established.negotiated, certificate: hello.certificate.as_deref() };
    let server = match engage(life, &snapshot, relay, &socket, &part).await {
        Ok(server) => server,
        Err(close) => return Err(refuse(&socket, established, Alert::INTERNAL_ERROR, close).await),
    };
    Ok(Ready::Relay(l4::Ends { client: socket, server, session: established.session, early: buffer }))
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

/// What is kept of a ClientHello when it was looked at.
#[derive(Default)]
struct Hello {
    /// Whether garbage may follow in the place of 0-RTT data.
    early: bool,
    suites: Vec<u16>,
    schemes: Vec<SignatureScheme>,
    certificate: Option<Arc<Certificate>>,
    /// The bytes, to say what was offered where the handshake fails.
    bytes: Box<[u8]>,
}

/// Chooses the route, and makes sure that there is a certificate for the name.
fn choose<'l>(
    life: &mut Life,
    listener: &'l Listener,
    tls: &ListenerTls,
    buffer: &Buffer,
) -> Result<(Hello, &'l Route), (AlertDescription, Cause)> {
    let Step::Done { value: hello, .. } = client_hello::peek(buffer.filled()) else {
        return Err((AlertDescription::InternalError, Cause::Internal));
    };
    let host = hello.server_name().host();
    life.facts().tls.sni = host.map(Into::into);
    let unknown = || match host {
        // RFC 8446 §9.2: a server that needs the name says that it is missing.
        None if hello.offers_version(0x0304) => AlertDescription::MissingExtension,
        _ => AlertDescription::UnrecognizedName,
    };
    let Some(route) = listener.routes.find(host, |protocol| hello.offers_alpn(protocol)) else {
        return Err(no_protocol(life, listener, &hello).unwrap_or_else(|| (unknown(), Cause::NoRoute)));
    };
    life.facts().path.route = Some(Arc::clone(&route.name));
    if matches!(route.target, Target::Passthrough { .. }) {
        return Ok((Hello::default(), route));
    }
    let schemes = greeting::usable_schemes(&hello);
    let certificate = match tls.store.pick(host, &schemes) {
        Pick::Found { certificate, .. } => Arc::clone(certificate),
        Pick::NoneForName => return Err((unknown(), Cause::UnknownName)),
    };
    let kept = Hello {
        early: hello.has_early_data(),
        suites: hello.suites().collect(),
        schemes,
        certificate: Some(certificate),
        bytes: buffer.filled().into(),
    };
    Ok((kept, route))
}

/// The refusal of a client for whose name there are routes, but none with a protocol that it offers
/// (RFC 7301 §3.2).
fn no_protocol(
    life: &mut Life,
    listener: &Listener,
    hello: &ClientHello<'_>,
) -> Option<(AlertDescription, Cause)> {
    let mut configured: Option<Offer> = None;
    for route in listener.routes.for_host(hello.server_name().host()) {
        let offer = match &route.target {
            Target::Relay(relay) => &relay.configured,
            Target::Passthrough { .. } => &Arc::default(),
        };
        match &mut configured {
            Some(configured) => offer.alpn.iter().for_each(|protocol| configured.alpn.push(protocol)),
            None => configured = Some(Offer::clone(offer)),
        }
    }
    let mismatch = Mismatch { offered: greeting::offer(hello), configured: Arc::new(configured?) };
    life.facts().mismatch = Some(Box::new(mismatch));
    Some((AlertDescription::NoApplicationProtocol, Cause::NoCommonAlpn))
}

/// What a handshake needs to know.
struct Secure<'a> {
    configs: &'a Configs,
    configured: Option<&'a Arc<Offer>>,
    hello: &'a Hello,
    odd: Option<HelloFault>,
    snapshot: &'a Snapshot,
}

impl Secure<'_> {
    /// Does the handshake. An error comes with whether the client may have been told of it.
    async fn handshake(
        &self,
        life: &mut Life,
        socket: &Socket,
        buffer: &mut Buffer,
    ) -> Result<Established, (Close, bool)> {
        let begun = Instant::now();
        let config = Arc::clone(self.configs.for_client(&self.hello.suites));
        let outcome = handshake(socket, buffer, config, self.hello.early, &self.snapshot.choice).await;
        let took = begun.elapsed();
        life.facts().times.handshake = Some(took);
        match outcome {
            Ok(established) => {
                let (version, kind) = self.note(life.facts(), &established.negotiated);
                life.worker.counters.handshake_done(version, kind, took);
                Ok(established)
            }
            Err(error) => {
                life.worker.counters.handshake_failed();
                if let (Some(configured), Step::Done { value, .. }) =
                    (self.configured, client_hello::peek(&self.hello.bytes))
                {
                    life.facts().mismatch = Some(Box::new(self.mismatch(&value, configured)));
                }
                let told = matches!(error.fault, HandshakeFault::Tls(_));
                Err((failure::handshake(&error, self.odd), told))
            }
        }
    }

    fn mismatch(&self, hello: &ClientHello<'_>, configured: &Arc<Offer>) -> Mismatch {
        Mismatch { offered: greeting::offer(hello), configured: Arc::clone(configured) }
    }

    fn note(&self, facts: &mut ConnectionFacts, agreed: &Negotiated) -> (TlsVersion, Handshake) {
        let version = match agreed.version {
            Version::Tls12 => TlsVersion::Tls12,
            Version::Tls13 => TlsVersion::Tls13,
        };
        let kind = if agreed.resumed { Handshake::Resumed } else { Handshake::Full };
        let tls = &mut facts.tls;
        tls.version = Some(version);
        tls.handshake = Some(kind);
        tls.suite = client_hello::suite_name(agreed.suite.into()).known();
        tls.group = agreed.group.and_then(|group| client_hello::group_name(group.into()).known());
        tls.alpn.clone_from(&agreed.alpn);
        tls.scheme = self.scheme(agreed);
        tls.client_cn = agreed
            .client_certificate
            .as_deref()
            .and_then(Description::of)
            .and_then(|description| description.common_name)
            .map(|name| name.into_bytes().into());
        (version, kind)
    }

    /// The scheme of the server's signature: rustls does not tell, but chooses in the same way.
    fn scheme(&self, agreed: &Negotiated) -> Option<&'static str> {
        let certificate = self.hello.certificate.as_ref().filter(|_| !agreed.resumed)?;
        let tls13 = agreed.version == Version::Tls13;
        // RFC 8446 §4.2.3: PKCS#1 signatures are not for TLS 1.3's CertificateVerify.
        let pkcs1 = |scheme: SignatureScheme| matches!(u16::from(scheme), 0x0401 | 0x0501 | 0x0601);
        let usable: Vec<_> =
            self.hello.schemes.iter().copied().filter(|scheme| !(tls13 && pkcs1(*scheme))).collect();
        let signer = certificate.certified_key.key.choose_scheme(&usable)?;
        client_hello::scheme_name(signer.scheme().into()).known()
    }
}

/// Whether the route lets this client certificate in. Where none was shown, rustls has decided.
fn allowed(relay: &Relay, agreed: &Negotiated) -> bool {
    match (&relay.allow, &agreed.client_certificate) {
        (Some(allow), Some(certificate)) => allow.matches(certificate),
        _ => true,
    }
}

/// Ends a connection after its handshake with an alert.
async fn refuse(socket: &Socket, mut established: Established, alert: Alert, close: Close) -> Close {
    let mut last = Vec::new();
    established.session.alert(alert, &mut last);
    farewell(socket, &last).await;
    failure::sent(close, alert.0)
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
