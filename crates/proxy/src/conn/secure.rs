//! The TLS of a connection: the ClientHello, the choice that it makes, the handshake, and what a
//! client is told that gets no further.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::net::Ipv6Addr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use offramp_certs::Certificate;
use offramp_certs::client_auth::{Allow, identity};
use offramp_certs::describe::Description;
use offramp_certs::store::{By, Pick};
use offramp_net::{Buffer, Socket};
use offramp_observe::facts::{Handshake, Mismatch, Offer, TlsVersion};
use offramp_observe::{Cause, Close, ConnectionFacts};
use offramp_record::{Alert, Version};
use offramp_tls::{Caller, Configs, Established, HandshakeFault, Negotiated, handshake};
use offramp_wire::client_hello::{self, ClientHello, Ja4};
use offramp_wire::{HelloFault, Step};
use rustls::SignatureScheme;
use tokio::time::timeout_at;

use super::Life;
use crate::closing::farewell;
use crate::demand::Waiting;
use crate::greeting::{Greeting, PostgresPreamble};
use crate::late::Doing;
use crate::limit::client_key;
use crate::snapshot::http::HttpTls;
use crate::snapshot::{Listener, ListenerTls, Preamble, Relay, Route, Snapshot, Strangers, Target};
use crate::worker::Worker;
use crate::{failure, greeting};

/// The versions of TLS that there can be in common.
const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;

/// What is kept of a ClientHello when it was looked at.
#[derive(Default)]
pub(super) struct Hello {
    /// What is odd about it, where it could not be looked at.
    pub(super) odd: Option<HelloFault>,
    /// Whether garbage may follow in the place of 0-RTT data.
    early: bool,
    suites: Vec<u16>,
    schemes: Vec<SignatureScheme>,
    certificate: Option<Arc<Certificate>>,
    /// How it is answered, if it is the challenge of an authority.
    challenge: Option<Configs>,
    /// The bytes, to say what was offered where the handshake fails.
    bytes: Box<[u8]>,
}

impl Hello {
    /// How it is answered, if it is the challenge of an authority.
    pub(super) fn challenge(&self) -> Option<&Configs> {
        self.challenge.as_ref()
    }

    /// The certificate that the client is shown.
    pub(super) fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.certificate.as_ref()
    }
}

/// What a client comes by.
pub(super) struct Door<'l> {
    pub(super) listener: &'l Listener,
    pub(super) tls: &'l ListenerTls,
    /// Whether it began with TLS where others ask for it.
    pub(super) direct: bool,
    /// Whether a name without a certificate may be waited for.
    pub(super) may_wait: bool,
}

/// What a ClientHello comes to.
pub(super) enum Greeted<'l> {
    /// The handshake can go on. There is no route for what cannot be looked at: rustls refuses that, or knows better.
    Chosen(Hello, Option<&'l Route>),
    /// There is no certificate for the name, and there may be one in a moment.
    Lacking(Waiting),
}

/// The beginning of a connection to a listener with TLS.
pub(super) enum Prologue {
    /// TLS begins, as it does for every client of the listener.
    Tls,
    /// TLS begins though other clients ask for it first.
    Direct,
    /// A client of PostgreSQL asks for the end of a query; the request is in the buffer.
    Cancel,
}

/// Answers a client that asks for TLS in the protocol of the listener's preamble.
pub(super) async fn begin(
    life: &mut Life,
    tls: &ListenerTls,
    socket: &Socket,
    buffer: &mut Buffer,
    deadline: tokio::time::Instant,
) -> Result<Prologue, Close> {
    let Some(Preamble::Postgres { clear_cancel }) = tls.preamble else { return Ok(Prologue::Tls) };
    match timeout_at(deadline, greeting::postgres_preamble(socket, buffer, clear_cancel)).await {
        Ok(PostgresPreamble::Asked) => Ok(Prologue::Tls),
        Ok(PostgresPreamble::Direct) => Ok(Prologue::Direct),
        Ok(PostgresPreamble::Cancel) => Ok(Prologue::Cancel),
        Ok(PostgresPreamble::Refused(close, last)) => {
            farewell(&life.worker, socket, &last).await;
            Err(close)
        }
        Err(_) => Err(Cause::HandshakeTimeout.into()),
    }
}

/// Waits for the ClientHello and chooses the route by it.
pub(super) async fn greet<'l>(
    life: &mut Life,
    door: &Door<'l>,
    socket: &Socket,
    buffer: &mut Buffer,
    deadline: tokio::time::Instant,
) -> Result<Greeted<'l>, Close> {
    let greeted = timeout_at(deadline, greeting::client_hello(socket, buffer)).await;
    match greeted.unwrap_or_else(|_| Greeting::Refused(Cause::HandshakeTimeout.into())) {
        Greeting::Hello => {}
        // rustls would bear with it, but only after all the work of a handshake for nobody.
        Greeting::Odd(odd @ HelloFault::TooManyRecords) => {
            let close = Close::from(failure::hello_cause(odd)).with_detail(&odd.to_string());
            return Err(turn_away(&life.worker, socket, Alert::DECODE_ERROR, close).await);
        }
        Greeting::Odd(odd) => {
            return Ok(Greeted::Chosen(Hello { odd: Some(odd), ..Hello::default() }, None));
        }
        Greeting::Refused(close) => {
            if close.cause == Cause::PlainHttp {
                farewell(&life.worker, socket, greeting::PLAIN_HTTP).await;
            }
            return Err(close);
        }
    }
    match look(life, door, buffer) {
        Ok(seen) => Ok(seen),
        Err((alert, cause)) => Err(turn_away(&life.worker, socket, alert, cause.into()).await),
    }
}

/// The one look at a ClientHello that has come whole.
fn look<'l>(life: &mut Life, door: &Door<'l>, buffer: &Buffer) -> Result<Greeted<'l>, (Alert, Cause)> {
    let hello = match client_hello::peek(buffer.filled()) {
        Step::Done { value, .. } => value,
        Step::Reject(odd) => {
            return Ok(Greeted::Chosen(Hello { odd: Some(odd), ..Hello::default() }, None));
        }
        Step::Need(_) => return Err((Alert::INTERNAL_ERROR, Cause::Internal)),
    };
    if let Some(hello) = challenge(life, &hello, buffer) {
        return Ok(Greeted::Chosen(hello, None));
    }
    choose(life, door, &hello, buffer)
}

/// The hello of an authority that looks whether the name leads here (RFC 8737), before any route.
fn challenge(life: &mut Life, hello: &ClientHello<'_>, buffer: &Buffer) -> Option<Hello> {
    let challenge = life.worker.shared.challenges.handshake(hello)?;
    life.facts().tls.sni = hello.server_name().host().map(Into::into);
    let (suites, bytes) = (hello.suites().collect(), buffer.filled().into());
    Some(Hello { suites, bytes, challenge: Some(challenge), ..Hello::default() })
}

/// Ends a connection before its handshake with an alert.
async fn turn_away(worker: &Worker, socket: &Socket, alert: Alert, close: Close) -> Close {
    farewell(worker, socket, &alert.plaintext_record()).await;
    failure::sent(close, alert)
}

/// Chooses the route, and makes sure that there is a certificate for the name.
fn choose<'l>(
    life: &mut Life,
    &Door { listener, tls, direct, may_wait }: &Door<'l>,
    hello: &ClientHello<'_>,
    buffer: &Buffer,
) -> Result<Greeted<'l>, (Alert, Cause)> {
    let host = hello.server_name().host();
    life.facts().tls.sni = host.map(Into::into);
    let fingerprint = tls.ja4.then(|| hello.ja4());
    life.facts().tls.ja4 = fingerprint.map(Ja4::to_bytes);
    if direct && !hello.offers_alpn(offramp_wire::postgres::ALPN) {
        // As PostgreSQL: without it, a client of another protocol could be led here (ALPACA).
        return Err((Alert::NO_APPLICATION_PROTOCOL, Cause::NoCommonAlpn));
    }
    let unknown = || match host {
        // RFC 8446 §9.2: a server that needs the name says that it is missing.
        None if hello.offers_version(TLS13) => Alert::MISSING_EXTENSION,
        _ => Alert::UNRECOGNIZED_NAME,
    };
    let Some(route) = listener.routes.find(host, |protocol| hello.offers_alpn(protocol)) else {
        return Err(no_protocol(life, listener, hello).unwrap_or_else(|| (unknown(), Cause::NoRoute)));
    };
    life.follow(route);
    if !route.deny_ja4.is_empty() {
        let ja4 = fingerprint.unwrap_or_else(|| hello.ja4());
        life.facts().tls.ja4 = Some(ja4.to_bytes());
        if route.deny_ja4.has(ja4.as_str()) {
            // As BoringSSL does for Envoy where a ClientHello is refused.
            return Err((Alert::HANDSHAKE_FAILURE, Cause::Ja4Denied));
        }
    }
    if let Some(rules) = &route.addresses
        && !rules.admits(life.facts().client.ip())
    {
        return Err((Alert::ACCESS_DENIED, Cause::AddressDenied));
    }
    if matches!(route.target, Target::Passthrough { .. }) {
        return Ok(Greeted::Chosen(Hello::default(), Some(route)));
    }
    if let Some(terms) = Terms::of(route)
        && let Some(configs) = terms.configs
        && ![TLS13, TLS12].into_iter().any(|version| configs.speaks(version) && hello.offers_version(version))
    {
        // Before anything else is looked for: the suites and schemes of an old client say nothing.
        let configured = Arc::clone(terms.configured);
        life.facts().mismatch = Some(Box::new(Mismatch { offered: greeting::offer(hello), configured }));
        return Err((Alert::PROTOCOL_VERSION, Cause::NoCommonVersion));
    }
    let schemes = greeting::usable_schemes(hello);
    let pick = tls.store.pick(host, &schemes);
    if may_wait
        && let Some(host) = host
        && !matches!(pick, Pick::Found { by: By::Exact | By::Wildcard, .. })
        && let Some(waiting) = life.worker.shared.demand.ask(host, Instant::now())
    {
        return Ok(Greeted::Lacking(waiting));
    }
    let certificate = match pick {
        Pick::Found { by: By::Default, .. } if refuses(tls.strangers, host) => {
            return Err((unknown(), Cause::UnknownName));
        }
        Pick::Found { certificate, .. } => Arc::clone(certificate),
        Pick::NoneForName => return Err((unknown(), Cause::UnknownName)),
    };
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
    Ok(Greeted::Chosen(kept, Some(route)))
}

fn refuses(strangers: Strangers, host: Option<&str>) -> bool {
    if host.is_some() { strangers.unknown_name } else { strangers.without_name }
}

/// The refusal of a client for whose name there are routes, but none with a protocol that it offers
/// (RFC 7301 §3.2).
fn no_protocol(life: &mut Life, listener: &Listener, hello: &ClientHello<'_>) -> Option<(Alert, Cause)> {
    let mut configured: Option<Offer> = None;
    for route in listener.routes.for_host(hello.server_name().host()) {
        let offer = match &route.target {
            Target::Relay(relay) => &relay.configured,
            Target::Http(http) => &http.configured,
            Target::Passthrough { .. } => &Arc::default(),
        };
        match &mut configured {
            Some(configured) => offer.alpn.iter().for_each(|protocol| configured.alpn.push(protocol)),
            None => configured = Some(Offer::clone(offer)),
        }
    }
    let mismatch = Mismatch { offered: greeting::offer(hello), configured: Arc::new(configured?) };
    life.facts().mismatch = Some(Box::new(mismatch));
    Some((Alert::NO_APPLICATION_PROTOCOL, Cause::NoCommonAlpn))
}

/// What a handshake needs to know.
pub(super) struct Secure<'a> {
    pub(super) configs: &'a Configs,
    pub(super) configured: Option<&'a Arc<Offer>>,
    pub(super) hello: &'a Hello,
    pub(super) snapshot: &'a Snapshot,
}

impl Secure<'_> {
    /// Does the handshake until `deadline`, and notes what came of it.
    pub(super) async fn handshake(
        &self,
        life: &mut Life,
        socket: &Socket,
        buffer: &mut Buffer,
        deadline: tokio::time::Instant,
    ) -> Result<Established, Close> {
        let begun = Instant::now();
        let config = Arc::clone(self.configs.for_client(&self.hello.suites));
        let worker = Rc::clone(&life.worker);
        let choice = &self.snapshot.choice;
        let resumes = || self.resumes();
        // Who comes over a Unix socket is one client.
        let client = life.facts().client.ip().unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        let until = Some(deadline.into_std());
        let caller = Caller::new(&worker.handshakes, client_key(client), until, &resumes);
        let shaken = handshake(socket, buffer, config, self.hello.early, choice, &caller);
        let mut shaken = pin!(timeout_at(deadline, shaken));
        let doing = Doing::Handshake(life.accepted_by);
        let outcome = poll_fn(|cx| {
            worker.pulse.begins_for(doing, Some(client));
            shaken.as_mut().poll(cx)
        })
        .await;
        let took = begun.elapsed();
        let error = match outcome {
            Ok(Ok(established)) => {
                life.facts().times.handshake = Some(took);
                let (version, kind) = self.note(&mut life.facts(), &established.negotiated);
                life.worker.counters.handshake_done(version, kind, took);
                return Ok(established);
            }
            Ok(Err(error)) => error,
            Err(_) => {
                life.worker.counters.handshake_failed();
                // It was ours to go on.
                let cause = if caller.waits() { Cause::HandshakeShed } else { Cause::HandshakeTimeout };
                return Err(cause.into());
            }
        };
        life.worker.counters.handshake_failed();
        life.facts().times.handshake = Some(took);
        if let (Some(configured), Step::Done { value, .. }) =
            (self.configured, client_hello::peek(&self.hello.bytes))
        {
            let offered = greeting::offer(&value);
            let mismatch = Mismatch { offered, configured: Arc::clone(configured) };
            life.facts().mismatch = Some(Box::new(mismatch));
        }
        if matches!(error.fault, HandshakeFault::Tls(_) | HandshakeFault::TooLarge) {
            // A reset must not overtake the alert; outside of the timeout, lest that be the cause.
            farewell(&life.worker, socket, &[]).await;
        }
        let mut close = failure::handshake(&error, self.hello.odd);
        if matches!(close.cause, Cause::NoCommonGroup | Cause::NoCommonScheme) && !self.shares_suite() {
            // rustls looks at the groups and schemes first, which a client of old suites has no use for.
            close = Close { cause: Cause::NoCommonSuite, ..close }.with_detail("no cipher suite in common");
        }
        if let Some(certificate) = &error.refused {
            refused_certificate(life, close.cause, certificate);
        }
        Err(close)
    }

    fn shares_suite(&self) -> bool {
        let Step::Done { value, .. } = client_hello::peek(&self.hello.bytes) else { return true };
        let suites: Vec<u16> = value.suites().collect();
        self.configs.shares_suite(&suites, |version| value.offers_version(version))
    }

    /// Whether the client brings a ticket of ours.
    fn resumes(&self) -> bool {
        let Step::Done { value, .. } = client_hello::peek(&self.hello.bytes) else { return false };
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

fn common_name(certificate: &[u8]) -> Option<Box<[u8]>> {
    Some(Description::of(certificate)?.common_name?.into_bytes().into())
}

/// Notes whose certificate was refused, and tells the log, at most once a minute for each cause.
fn refused_certificate(life: &mut Life, cause: Cause, certificate: &[u8]) {
    life.facts().tls.client_cn = common_name(certificate);
    let client = life.facts().client.address.clone();
    life.worker.shared.refusals.certificate(cause, &identity(certificate), &client);
}

/// The end of a connection whose certificate is genuine, and which is not let in all the same.
pub(super) fn refused(life: &mut Life, cause: Cause, agreed: &Negotiated) -> Close {
    match agreed.client_certificate.as_deref() {
        Some(certificate) => {
            refused_certificate(life, cause, certificate);
            Close::from(cause).with_detail(&identity(certificate))
        }
        None => cause.into(),
    }
}

/// How a route ends TLS.
pub(super) struct Terms<'a> {
    pub(super) configs: Option<&'a Configs>,
    pub(super) configured: &'a Arc<Offer>,
    allow: Option<&'a Allow>,
    /// What comes after.
    pub(super) to: Ends<'a>,
}

/// What comes after TLS.
#[derive(Clone, Copy)]
pub(super) enum Ends<'a> {
    Relay(&'a Relay),
    Http(&'a HttpTls),
}

impl<'a> Terms<'a> {
    /// `None` for a passthrough, which does not.
    pub(super) fn of(route: &'a Route) -> Option<Self> {
        let (configs, configured, allow, to) = match &route.target {
            Target::Relay(relay) => (&relay.tls, &relay.configured, &relay.allow, Ends::Relay(relay)),
            Target::Http(http) => (&http.tls, &http.configured, &http.allow, Ends::Http(http)),
            Target::Passthrough { .. } => return None,
        };
        Some(Self { configs: configs.as_ref(), configured, allow: allow.as_ref(), to })
    }

    /// Why this client certificate is not let in, if it is not. Where none was shown, rustls has decided. Dates and
    /// issuers were verified too: in this handshake, or before the ticket of the session was opened.
    pub(super) fn refusal(&self, agreed: &Negotiated) -> Option<(Alert, Cause)> {
        let certificate = agreed.client_certificate.as_deref()?;
        let denied = self.allow.is_some_and(|allow| !allow.matches(certificate));
        denied.then_some((Alert::ACCESS_DENIED, Cause::ClientCertificateNotAllowed))
    }
}

/// Ends a connection after its handshake with an alert.
pub(super) async fn refuse(
    worker: &Worker,
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
