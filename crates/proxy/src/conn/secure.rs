//! The TLS of a connection: the ClientHello, the route that it chooses, the handshake, and the alerts of those that are
//! refused.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::net::Ipv6Addr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use offramp_certs::Certificate;
use offramp_certs::client_auth::{AllowList, identity};
use offramp_certs::describe::Description;
use offramp_certs::store::{MatchKind, Pick};
use offramp_net::{Buffer, Socket};
use offramp_observe::facts::{Handshake, Mismatch, TlsOffer, TlsVersion};
use offramp_observe::{Cause, Close, ConnectionFacts};
use offramp_record::{Alert, Version};
use offramp_tls::{
    Configs, Established, HandshakeError, HandshakeFault, HandshakeRequest, Negotiated, handshake,
};
use offramp_wire::client_hello::{self, ClientHello, Ja4};
use offramp_wire::{HelloFault, ParseStep};
use rustls::SignatureScheme;
use tokio::time::timeout_at;

use super::guard::ConnectionGuard;
use crate::closing::farewell;
use crate::demand::DemandWaiter;
use crate::greeting::{Greeting, PostgresGreeting};
use crate::hello::{self, Refused};
use crate::late::Doing;
use crate::limit::client_key;
use crate::resources::Resources;
use crate::snapshot::http::HttpTls;
use crate::snapshot::{Listener, ListenerTls, Preamble, Relay, Route, Snapshot, Target};
use crate::{failure, greeting};

/// The parts of a ClientHello that the handshake and its events use.
#[derive(Default)]
pub(super) struct Hello {
    /// The fault of a hello that cannot be parsed here.
    pub(super) odd: Option<HelloFault>,
    /// 0-RTT data may follow, which is skipped.
    early: bool,
    suites: Vec<u16>,
    schemes: Vec<SignatureScheme>,
    certificate: Option<Arc<Certificate>>,
    /// The answer to the challenge of a certificate authority, if this is one.
    challenge: Option<Configs>,
    /// The bytes, for the event of a handshake that finds nothing in common.
    bytes: Box<[u8]>,
}

impl Hello {
    /// The answer to the challenge of a certificate authority, if this is one.
    pub(super) fn challenge(&self) -> Option<&Configs> {
        self.challenge.as_ref()
    }

    /// The certificate that the client is shown.
    pub(super) fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.certificate.as_ref()
    }
}

/// The listener and TLS settings that one ClientHello meets.
pub(super) struct HelloContext<'l> {
    pub(super) listener: &'l Listener,
    pub(super) tls: &'l ListenerTls,
    /// The client began with TLS where others ask for it.
    pub(super) direct: bool,
    /// The handshake may wait until there is a certificate for the name.
    pub(super) may_await_certificate: bool,
}

/// The outcome of a ClientHello.
pub(super) enum HelloOutcome<'l> {
    /// The handshake can go on. There is no route for a hello that cannot be parsed: rustls refuses that, or knows better.
    Route(Hello, Option<&'l Route>),
    /// There is no certificate for the name, and there may be one in a moment.
    AwaitCertificate(DemandWaiter),
}

/// The beginning of a connection to a listener with TLS.
pub(super) enum Preface {
    /// TLS begins, as it does for every client of the listener.
    Tls,
    /// TLS begins though other clients ask for it first.
    Direct,
    /// A client of PostgreSQL asks for the end of a query; the request is in the buffer.
    Cancel,
}

/// A connection before TLS: nothing of it was used yet but a PROXY header.
pub(super) struct FreshConnection {
    pub(super) socket: Socket,
    pub(super) buffer: Buffer,
    /// The end of the time for the handshake.
    pub(super) deadline: tokio::time::Instant,
}

/// Answers a client that asks for TLS in the protocol of the listener's preamble.
pub(super) async fn preface(
    guard: &mut ConnectionGuard,
    tls: &ListenerTls,
    fresh: &mut FreshConnection,
) -> Result<Preface, Close> {
    let Some(Preamble::Postgres { clear_cancel }) = tls.preamble else { return Ok(Preface::Tls) };
    let FreshConnection { socket, buffer, deadline } = fresh;
    match timeout_at(*deadline, greeting::postgres_preamble(socket, buffer, clear_cancel)).await {
        Ok(PostgresGreeting::Asked) => Ok(Preface::Tls),
        Ok(PostgresGreeting::Direct) => Ok(Preface::Direct),
        Ok(PostgresGreeting::Cancel) => Ok(Preface::Cancel),
        Ok(PostgresGreeting::Refused(close, last)) => {
            farewell(&guard.services.worker, socket, &last).await;
            Err(close)
        }
        Err(_) => Err(Cause::HandshakeTimeout.into()),
    }
}

/// Waits for the ClientHello and chooses the route by it.
pub(super) async fn read_hello<'l>(
    guard: &mut ConnectionGuard,
    context: &HelloContext<'l>,
    fresh: &mut FreshConnection,
) -> Result<HelloOutcome<'l>, Close> {
    let FreshConnection { socket, buffer, deadline } = fresh;
    let greeted = timeout_at(*deadline, greeting::client_hello(socket, buffer)).await;
    match greeted.unwrap_or_else(|_| Greeting::Refused(Cause::HandshakeTimeout.into())) {
        Greeting::Hello => {}
        // rustls would bear with it, but only after all the work of a handshake that comes to nothing.
        Greeting::Odd(odd @ HelloFault::TooManyRecords) => {
            let close = Close::from(failure::hello_cause(odd)).with_detail(&odd.to_string());
            return Err(reject(&guard.services.worker, socket, Alert::DECODE_ERROR, close).await);
        }
        Greeting::Odd(odd) => {
            return Ok(HelloOutcome::Route(Hello { odd: Some(odd), ..Hello::default() }, None));
        }
        Greeting::Refused(close) => {
            if close.cause == Cause::PlainHttp {
                farewell(&guard.services.worker, socket, greeting::PLAIN_HTTP).await;
            }
            return Err(close);
        }
    }
    match inspect(guard, context, buffer) {
        Ok(outcome) => Ok(outcome),
        Err((alert, cause)) => Err(reject(&guard.services.worker, socket, alert, cause.into()).await),
    }
}

/// Parses a ClientHello that has come whole, once.
fn inspect<'l>(
    guard: &mut ConnectionGuard,
    context: &HelloContext<'l>,
    buffer: &Buffer,
) -> Result<HelloOutcome<'l>, Refused> {
    let hello = match client_hello::peek(buffer.filled()) {
        ParseStep::Done { value, .. } => value,
        ParseStep::Reject(odd) => {
            return Ok(HelloOutcome::Route(Hello { odd: Some(odd), ..Hello::default() }, None));
        }
        ParseStep::Need(_) => return Err((Alert::INTERNAL_ERROR, Cause::Internal)),
    };
    if let Some(hello) = challenge(guard, &hello, buffer) {
        return Ok(HelloOutcome::Route(hello, None));
    }
    choose(guard, context, &hello, buffer)
}

/// Recognizes the hello of a certificate authority that validates a name (RFC 8737), before any route.
fn challenge(guard: &mut ConnectionGuard, hello: &ClientHello<'_>, buffer: &Buffer) -> Option<Hello> {
    let challenge = guard.services.worker.shared.challenges.handshake(hello)?;
    guard.facts().tls.sni = hello.server_name().host().map(Into::into);
    let (suites, bytes) = (hello.suites().collect(), buffer.filled().into());
    Some(Hello { suites, bytes, challenge: Some(challenge), ..Hello::default() })
}

/// Ends a connection before its handshake with an alert.
async fn reject(worker: &Resources, socket: &Socket, alert: Alert, close: Close) -> Close {
    farewell(worker, socket, &alert.plaintext_record()).await;
    failure::sent(close, alert)
}

/// Chooses the route, and makes sure that there is a certificate for the name.
fn choose<'l>(
    guard: &mut ConnectionGuard,
    context: &HelloContext<'l>,
    hello: &ClientHello<'_>,
    buffer: &Buffer,
) -> Result<HelloOutcome<'l>, Refused> {
    let &HelloContext { listener, tls, direct, may_await_certificate } = context;
    let host = hello.server_name().host();
    guard.facts().tls.sni = host.map(Into::into);
    let fingerprint = tls.ja4.then(|| hello.ja4());
    guard.facts().tls.ja4 = fingerprint.map(Ja4::to_bytes);
    hello::protocol(direct, hello)?;
    let route = hello::route(listener, hello).inspect_err(|(_, cause)| {
        if *cause == Cause::NoCommonAlpn {
            note_protocols(guard, listener, hello);
        }
    })?;
    guard.follow(route);
    let ja4 = (!route.deny_ja4.is_empty()).then(|| fingerprint.unwrap_or_else(|| hello.ja4()));
    if let Some(ja4) = ja4 {
        guard.facts().tls.ja4 = Some(ja4.to_bytes());
    }
    let address = guard.facts().client.ip();
    hello::client(route, ja4, address)?;
    if matches!(route.target, Target::Passthrough(_)) {
        return Ok(HelloOutcome::Route(Hello::default(), Some(route)));
    }
    hello::version(route, hello).inspect_err(|_| note_offers(guard, route, hello))?;
    let schemes = greeting::usable_schemes(hello);
    let pick = tls.store.pick(host, &schemes);
    if may_await_certificate
        && let Some(host) = host
        && !matches!(pick, Pick::Found { by: MatchKind::Exact | MatchKind::Wildcard, .. })
        && let Some(waiting) = guard.services.worker.shared.demand.ask(host, Instant::now())
    {
        return Ok(HelloOutcome::AwaitCertificate(waiting));
    }
    let certificate = Arc::clone(hello::certificate(tls.strangers, hello, pick)?);
    hello::signature(route, hello, &certificate, &schemes)
        .inspect_err(|_| note_offers(guard, route, hello))?;
    if let Some(used) = &certificate.used {
        used.set();
    }
    let kept = Hello {
        odd: None,
        early: hello.has_early_data(),
        suites: hello.suites().collect(),
        schemes,
        certificate: Some(certificate),
        challenge: None,
        bytes: buffer.filled().into(),
    };
    Ok(HelloOutcome::Route(kept, Some(route)))
}

/// Notes the offers of both sides, which have nothing in common.
fn note_offers(guard: &mut ConnectionGuard, route: &Route, hello: &ClientHello<'_>) {
    if let Some(terms) = TlsTerms::of(route) {
        let configured = Arc::clone(terms.configured);
        guard.facts().mismatch = Some(Box::new(Mismatch { offered: greeting::offer(hello), configured }));
    }
}

/// Notes the protocols of a client that offers none of the routes for its name (RFC 7301 §3.2).
fn note_protocols(guard: &mut ConnectionGuard, listener: &Listener, hello: &ClientHello<'_>) {
    let mut configured: Option<TlsOffer> = None;
    for route in listener.routes.for_host(hello.server_name().host()) {
        let offer = match &route.target {
            Target::Relay(relay) => &relay.configured,
            Target::Http(http) => &http.configured,
            Target::Passthrough(_) => &Arc::default(),
        };
        match &mut configured {
            Some(configured) => offer.alpn.iter().for_each(|protocol| configured.alpn.push(protocol)),
            None => configured = Some(TlsOffer::clone(offer)),
        }
    }
    let mismatch = configured
        .map(|configured| Mismatch { offered: greeting::offer(hello), configured: Arc::new(configured) });
    guard.facts().mismatch = mismatch.map(Box::new);
}

/// The handshake with a client.
pub(super) struct ClientHandshake<'a> {
    pub(super) configs: &'a Configs,
    pub(super) configured: Option<&'a Arc<TlsOffer>>,
    pub(super) hello: &'a Hello,
    pub(super) snapshot: &'a Snapshot,
}

impl ClientHandshake<'_> {
    /// Does the handshake until the deadline, and notes its outcome.
    pub(super) async fn run(
        &self,
        guard: &mut ConnectionGuard,
        FreshConnection { socket, buffer, deadline }: &mut FreshConnection,
    ) -> Result<Established, Close> {
        let begun = Instant::now();
        let config = Arc::clone(self.configs.for_client(&self.hello.suites));
        let worker = Rc::clone(&guard.services.worker);
        let choice = &self.snapshot.choice;
        let resumes = || self.resumes();
        // All clients of a Unix socket count as one.
        let client = guard.facts().client.ip().unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        let until = Some(deadline.into_std());
        let caller = HandshakeRequest::new(&worker.handshakes, client_key(client), until, &resumes);
        let shaken = handshake(socket, buffer, config, self.hello.early, choice, &caller);
        let mut shaken = pin!(timeout_at(*deadline, shaken));
        let doing = Doing::Handshake(guard.accepted_by);
        let outcome = poll_fn(|cx| {
            worker.pulse.begins_for(doing, Some(client));
            shaken.as_mut().poll(cx)
        })
        .await;
        let took = begun.elapsed();
        let error = match outcome {
            Ok(Ok(established)) => {
                guard.facts().times.handshake = Some(took);
                let (version, kind) = self.note(&mut guard.facts(), &established.negotiated);
                worker.counters.handshake_done(version, kind, took);
                return Ok(established);
            }
            Ok(Err(error)) => error,
            Err(_) => {
                worker.counters.handshake_failed();
                // The client waited for us if its handshake was in the queue.
                let cause = if caller.waits() { Cause::HandshakeShed } else { Cause::HandshakeTimeout };
                return Err(cause.into());
            }
        };
        worker.counters.handshake_failed();
        guard.facts().times.handshake = Some(took);
        if matches!(error.fault, HandshakeFault::Tls(_) | HandshakeFault::TooLarge) {
            // A reset must not overtake the alert; outside of the timeout, lest that be the cause.
            farewell(&worker, socket, &[]).await;
        }
        Err(self.failed(guard, &error))
    }

    /// The end of a connection after a failed handshake.
    fn failed(&self, guard: &mut ConnectionGuard, error: &HandshakeError) -> Close {
        if let (Some(configured), ParseStep::Done { value, .. }) =
            (self.configured, client_hello::peek(&self.hello.bytes))
        {
            let offered = greeting::offer(&value);
            let mismatch = Mismatch { offered, configured: Arc::clone(configured) };
            guard.facts().mismatch = Some(Box::new(mismatch));
        }
        let mut close = failure::handshake(error, self.hello.odd);
        if let ParseStep::Done { value, .. } = client_hello::peek(&self.hello.bytes) {
            close = hello::explain(close, self.configs, &value);
        }
        if let Some(certificate) = &error.refused {
            refused_certificate(guard, close.cause, certificate);
        }
        close
    }

    /// The client brings a ticket that a key of ours has sealed.
    fn resumes(&self) -> bool {
        let ParseStep::Done { value, .. } = client_hello::peek(&self.hello.bytes) else { return false };
        value.ticket().is_some_and(|ticket| self.configs.has_key_of(ticket))
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
        tls.client_cn = agreed.client_certificate.as_deref().and_then(common_name);
        (version, kind)
    }

    /// The scheme of the server's signature: rustls does not report it, but chooses in the same way.
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

fn common_name(certificate: &[u8]) -> Option<Box<[u8]>> {
    Some(Description::of(certificate)?.common_name?.into_bytes().into())
}

/// Notes the name in a refused certificate, and logs it, at most once a minute for each cause.
fn refused_certificate(guard: &mut ConnectionGuard, cause: Cause, certificate: &[u8]) {
    guard.facts().tls.client_cn = common_name(certificate);
    let client = guard.facts().client.address.clone();
    guard.services.worker.shared.refusals.certificate(cause, &identity(certificate), &client);
}

/// The end of a connection with a certificate that is genuine, but not allowed.
pub(super) fn refused(guard: &mut ConnectionGuard, cause: Cause, agreed: &Negotiated) -> Close {
    match agreed.client_certificate.as_deref() {
        Some(certificate) => {
            refused_certificate(guard, cause, certificate);
            Close::from(cause).with_detail(&identity(certificate))
        }
        None => cause.into(),
    }
}

/// The terms on which a route ends TLS.
pub(super) struct TlsTerms<'a> {
    pub(super) configs: Option<&'a Configs>,
    pub(super) configured: &'a Arc<TlsOffer>,
    allow: Option<&'a AllowList>,
    pub(super) after: AfterTls<'a>,
}

/// The protocol behind TLS.
#[derive(Clone, Copy)]
pub(super) enum AfterTls<'a> {
    Relay(&'a Relay),
    Http(&'a HttpTls),
}

impl<'a> TlsTerms<'a> {
    /// `None` for a passthrough, which does not end TLS.
    pub(super) fn of(route: &'a Route) -> Option<Self> {
        let (configs, configured, allow, after) = match &route.target {
            Target::Relay(relay) => (&relay.tls, &relay.configured, &relay.allow, AfterTls::Relay(relay)),
            Target::Http(http) => (&http.tls, &http.configured, &http.allow, AfterTls::Http(http)),
            Target::Passthrough(_) => return None,
        };
        Some(Self { configs: configs.as_ref(), configured, allow: allow.as_ref(), after })
    }

    /// The refusal of a client certificate that the route does not allow. Where none was shown, rustls has decided. Dates
    /// and issuers were verified too: in this handshake, or before the ticket of the session was opened.
    pub(super) fn refusal(&self, agreed: &Negotiated) -> Option<(Alert, Cause)> {
        let certificate = agreed.client_certificate.as_deref()?;
        let denied = self.allow.is_some_and(|allow| !allow.matches(certificate));
        denied.then_some((Alert::ACCESS_DENIED, Cause::ClientCertificateNotAllowed))
    }
}

/// Ends a connection after its handshake with an alert.
pub(super) async fn refuse(
    worker: &Resources,
    socket: &Socket,
    mut established: Established,
    alert: Alert,
    close: Close,
) -> Close {
    let mut last = established.tickets;
    established.session.alert(alert, &mut last);
    farewell(worker, socket, &last).await;
    failure::sent(close, alert)
}
