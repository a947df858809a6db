//! What the requests of one client connection share: who the client is, which configuration they follow,
//! and how many of them are under way.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_certs::Certificate;
use offramp_certs::store::{By, Pick};
use offramp_http::forwarded;
use offramp_http::head::{Fields, Known};
use offramp_http::host::{Authority, HostFault};
use offramp_net::clock::coarse_ms;
use offramp_observe::facts::{Address, Scheme, TlsFacts};
use offramp_observe::{Cause, Close, ConnectionBrief, Fault};
use offramp_upstream::PrivateConnections;

use super::body::ClientBody;
use super::client_certificate::ClientCertificate;
use super::forwarded_fields;
use super::record::Record;
use crate::live::table::Place;
use crate::proxy_header::{self, About};
use crate::snapshot::http::{AuthClass, Http};
use crate::snapshot::{Listener, SendProxy, Snapshot};
use crate::worker::{AcceptorId, GRACE, Worker};

/// For how many clients that trusted proxies name a connection keeps connections to servers, if these begin with a
/// PROXY header.
const MOST_PRIVATE: usize = 16;

/// The server connections of one client.
pub(crate) type Private = Rc<PrivateConnections<ClientBody>>;

/// What TLS has decided for all requests of a connection.
#[derive(Default)]
pub(crate) struct Terminated {
    /// The certificate that the client was shown.
    pub(crate) certificate: Option<Arc<Certificate>>,
    /// By which rule client certificates were asked for.
    pub(crate) client_auth: AuthClass,
    /// The certificate that the client has shown, verified.
    pub(crate) shown: Option<ClientCertificate>,
}

/// Why a connection serves no further requests, though its client has not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The worker drains.
    Drain,
    /// The certificate of the client has expired.
    CertificateExpired,
    /// No route asks for client certificates any more as the one did by which the connection was made: its authorities,
    /// revocation lists or rules are others.
    RulesChanged,
    /// The connection has its greatest age.
    Old,
}

impl Leave {
    /// The cause of the connection's end.
    pub(crate) fn cause(self) -> Cause {
        match self {
            Self::Drain | Self::RulesChanged => Cause::Drain,
            Self::CertificateExpired => Cause::ClientCertificateExpired,
            Self::Old => Cause::MaxAge,
        }
    }
}

/// One client connection, as its requests see it.
pub(crate) struct Session {
    pub(crate) worker: Rc<Worker>,
    /// The socket that accepted the connection.
    accepted_by: AcceptorId,
    /// Its place among the worker's connections.
    pub(crate) live: Place,
    pub(crate) brief: Arc<ConnectionBrief>,
    pub(crate) scheme: Scheme,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) forwarded: ForwardedClient,
    terminated: Terminated,
    /// Where the client connected to.
    local: Option<SocketAddr>,
    /// The PROXY header of each version that a route asked for when the connection began.
    prologues: Vec<(SendProxy, Vec<u8>)>,
    /// The server connections that begin with a header, by whom it names; the latest last.
    private: RefCell<Vec<(SendProxy, Option<IpAddr>, Private)>>,
    view: RefCell<Rc<View>>,
    /// Whether no route has the rule for client certificates by which the connection was made.
    outdated: Cell<bool>,
    /// When the connection has its greatest age ([`Worker::old_at`]).
    old_at: u64,
    /// Requests that have begun, ever.
    pub(crate) begun: Cell<u64>,
    /// Requests that are under way.
    requests: RefCell<Vec<Rc<Record>>>,
    /// When a request last began or ended, in milliseconds of the coarse clock.
    pub(crate) touched: Cell<u64>,
    /// Work that the client has given up, in control frames of HTTP/2, and that was not counted yet.
    pub(crate) owed: Cell<u32>,
    /// Whether something went wrong that no request tells of.
    pub(crate) unreported: Cell<bool>,
    /// Whether the connection ended before a drain cut it.
    pub(crate) left: Cell<bool>,
    /// What was asked for last, as it came and as routes name it.
    host: RefCell<Option<HostNames>>,
    /// The program that the client said it is, last.
    agent: RefCell<Option<Arc<[u8]>>>,
    /// The request that began last, until the task that polled it then has taken it.
    pub(crate) newborn: RefCell<Option<Rc<Record>>>,
}

/// What a request asked for, as it came and as routes name it.
type HostNames = (Box<[u8]>, Arc<str>);

/// What was asked for, or that nothing was, and the fields that say so.
type FieldsOfHost = (Option<Box<[u8]>>, Rc<Fields>);

/// What servers learn of a client, written once.
pub(crate) struct ForwardedClient {
    /// The client's address, for X-Forwarded-For.
    pub(crate) client: Box<str>,
    /// The port that the client came to.
    pub(crate) port: Option<Box<str>>,
    /// The connection's id.
    id: Box<str>,
    /// The fields that say all of it of a request for a host: clients ask for the same one again and again.
    fields: RefCell<Option<FieldsOfHost>>,
}

impl ForwardedClient {
    /// The fields that say all of it of a request for `host`, made by `make` where that is not known yet.
    pub(crate) fn fields(&self, host: Option<&[u8]>, make: impl FnOnce() -> Fields) -> Rc<Fields> {
        let mut known = self.fields.borrow_mut();
        match &*known {
            Some((of, fields)) if of.as_deref() == host => Rc::clone(fields),
            _ => Rc::clone(&known.insert((host.map(Into::into), Rc::new(make()))).1),
        }
    }
}

/// The port that a client came to: as a believed PROXY header says, else that of our end.
fn port(claimed: Option<&Address>, local: Option<SocketAddr>) -> Option<u16> {
    match claimed {
        Some(Address::Ip(destination)) => Some(destination.port()),
        Some(Address::Unix(_)) => None,
        None => local.map(|local| local.port()),
    }
}

/// A number in decimal, without the machinery of formatting.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        // The remainder is a digit.
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            // Digits are ASCII.
            return std::str::from_utf8(&digits[at..]).unwrap_or_default();
        }
    }
}

/// The configuration that requests follow now.
pub(crate) struct View {
    /// Goes before its snapshot, lest it be the last of it.
    listener: Arc<Listener>,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Whether the peer is a proxy whose word is believed.
    pub(crate) trusted: bool,
}

impl View {
    /// What the listener says of requests; `None` where it changed its mode while the connection was open.
    pub(crate) fn http(&self) -> Option<&Http> {
        self.listener.http.as_ref()
    }

    fn new(snapshot: Arc<Snapshot>, listener: Arc<Listener>, ip: Option<IpAddr>) -> Rc<Self> {
        let mut view = Self { snapshot, listener, trusted: false };
        view.trusted = ip.is_some_and(|ip| view.trusts(ip));
        Rc::new(view)
    }

    /// Whether an address is that of a trusted proxy.
    fn trusts(&self, ip: IpAddr) -> bool {
        self.http().is_some_and(|http| http.trusted_proxies.iter().any(|network| network.contains(ip)))
    }

    /// Whom trusted proxies name as the client of a request that came from `peer`; `None` where that is the peer
    /// itself. `X-Forwarded-For` decides where it is, since nearly every proxy extends it, and many let `Forwarded`
    /// pass as a client sent it.
    pub(crate) fn named(&self, peer: Option<IpAddr>, fields: &Fields) -> Option<IpAddr> {
        let peer = peer.filter(|_| self.trusted)?;
        let trusts = |ip| self.trusts(ip);
        let client = if fields.contains(Known::XForwardedFor) {
            forwarded::x_forwarded_for(fields.all(Known::XForwardedFor), peer, trusts)
        } else {
            forwarded::client(fields.all(Known::Forwarded), peer, trusts)
        };
        (client.hops > 0).then_some(client.address)
    }

    /// Whether `Forwarded` names another client than `X-Forwarded-For`, which decides: a client sent it, and its proxy
    /// let it pass.
    pub(crate) fn is_contradicted(
        &self,
        peer: Option<IpAddr>,
        fields: &Fields,
        named: Option<IpAddr>,
    ) -> bool {
        let (Some(peer), true) = (peer, fields.contains(Known::XForwardedFor)) else { return false };
        if !fields.contains(Known::Forwarded) {
            return false;
        }
        let client = forwarded::client(fields.all(Known::Forwarded), peer, |ip| self.trusts(ip));
        (client.hops > 0).then_some(client.address) != named
    }
}

impl Session {
    pub(crate) fn new(
        (worker, accepted_by, live): (Rc<Worker>, AcceptorId, Place),
        brief: ConnectionBrief,
        (snapshot, listener): (Arc<Snapshot>, Arc<Listener>),
        terminated: Terminated,
        local: Option<SocketAddr>,
        prologues: Vec<(SendProxy, Vec<u8>)>,
    ) -> Rc<Self> {
        let ip = brief.client.ip();
        let forwarded = ForwardedClient {
            client: forwarded_fields::address(ip).into(),
            port: port(brief.client.destination.as_ref(), local).map(|port| port.to_string().into()),
            id: brief.id.to_string().into(),
            fields: RefCell::default(),
        };
        let scheme = if brief.tls.is_some() { Scheme::Https } else { Scheme::Http };
        Rc::new(Self {
            old_at: worker.old_at(&snapshot.limits),
            view: RefCell::new(View::new(snapshot, listener, ip)),
            worker,
            accepted_by,
            live,
            brief: Arc::new(brief),
            scheme,
            ip,
            forwarded,
            terminated,
            local,
            prologues,
            private: RefCell::default(),
            outdated: Cell::new(false),
            begun: Cell::new(0),
            requests: RefCell::default(),
            touched: Cell::new(coarse_ms()),
            owed: Cell::new(0),
            unreported: Cell::new(false),
            left: Cell::new(false),
            host: RefCell::default(),
            agent: RefCell::default(),
            newborn: RefCell::default(),
        })
    }

    /// The configuration in force: of the listener that has the address now, else the one of the same name. Where the
    /// listener has left it, the one that it was in last.
    pub(crate) fn view(&self) -> Rc<View> {
        let current = self.worker.shared.current.load();
        let mut view = self.view.borrow_mut();
        if !Arc::ptr_eq(&current, &view.snapshot)
            && let Some(listener) = current.listener(self.accepted_by, &view.listener.name)
        {
            *view = View::new(Arc::clone(&current), Arc::clone(listener), self.ip);
            self.outdated.set(self.is_of_no_route(&view));
        }
        Rc::clone(&view)
    }

    /// The certificate that the client has shown, if any.
    pub(crate) fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.terminated.shown.as_ref()
    }

    /// Whether the connection was made by a rule for client certificates that no route has.
    fn is_of_no_route(&self, view: &View) -> bool {
        let made_by = self.terminated.client_auth;
        let known = |http: &Http| http.routes.iter().any(|route| route.client_auth == made_by);
        made_by != AuthClass::default() && !view.http().is_some_and(known)
    }

    /// Whether the certificate that the client has shown has expired since.
    pub(crate) fn certificate_has_expired(&self) -> bool {
        self.shown_until().is_some_and(|end| end < SystemTime::now())
    }

    /// How long the certificate that the client has shown is still valid; `None` without one, and without an end.
    pub(crate) fn certificate_left(&self) -> Option<Duration> {
        Some(self.shown_until()?.duration_since(SystemTime::now()).unwrap_or_default())
    }

    fn shown_until(&self) -> Option<SystemTime> {
        self.terminated.shown.as_ref()?.until()
    }

    /// Why the connection must end now, if it must.
    pub(crate) fn end(&self) -> Option<Cause> {
        self.worker.end_of(self.live)
    }

    /// Why no further requests are served on the connection, if so.
    pub(crate) fn leaves(&self) -> Option<Leave> {
        if self.worker.is_draining() {
            return Some(Leave::Drain);
        }
        if self.certificate_has_expired() {
            return Some(Leave::CertificateExpired);
        }
        if self.outdated.get() {
            return Some(Leave::RulesChanged);
        }
        self.is_old().then_some(Leave::Old)
    }

    /// Whether the connection has its greatest age.
    fn is_old(&self) -> bool {
        self.old_at != u64::MAX && coarse_ms() >= self.old_at
    }

    /// How long until the connection has its greatest age, if there is one.
    pub(crate) fn age_left(&self) -> Option<Duration> {
        (self.old_at != u64::MAX).then(|| Duration::from_millis(self.old_at.saturating_sub(coarse_ms())))
    }

    /// While the next request is the last: why, and how long a quiet client has to begin with it. An expired certificate
    /// leaves no time.
    pub(crate) fn grace(&self) -> Option<(Cause, Duration)> {
        let drain = self.worker.grace().map(|grace| (Cause::Drain, grace));
        drain.or_else(|| self.is_old().then_some((Cause::MaxAge, GRACE)))
    }

    /// Whether a request for `host` on a route with `client_auth` may come by this connection
    /// (RFC 9110 §15.5.20).
    pub(crate) fn may_ask(&self, host: Option<&str>, client_auth: AuthClass) -> bool {
        let Some(tls) = &self.brief.tls else { return true };
        if client_auth != self.terminated.client_auth {
            return false;
        }
        // A client that names no host in its hello cannot know better.
        let (Some(sni), Some(host)) = (tls.sni.as_deref(), host) else { return true };
        sni.eq_ignore_ascii_case(host) || self.covers(host)
    }

    /// Whether the client would be shown the same certificate for `host`.
    fn covers(&self, host: &str) -> bool {
        let Some(shown) = &self.terminated.certificate else { return true };
        let view = self.view.borrow();
        let Some(tls) = &view.listener.tls else { return true };
        if let Pick::Found { certificate, by: By::Exact | By::Wildcard } = tls.store.pick(Some(host), &[])
            && certificate.names == shown.names
        {
            return true;
        }
        shown.names.iter().any(|name| match name.is_wildcard() {
            true => host.split_once('.').is_some_and(|(_, rest)| rest == name.host()),
            false => host == name.host(),
        })
    }

    /// The server connections that begin with a PROXY header of one client, and belong to that client alone: the one
    /// that trusted proxies name in a request, else who is connected here.
    pub(crate) fn private(&self, version: SendProxy, named: Option<IpAddr>) -> Private {
        let mut private = self.private.borrow_mut();
        if let Some(at) = private.iter().position(|(made, of, _)| (*made, *of) == (version, named)) {
            private[at..].rotate_left(1);
        } else {
            if private.len() >= MOST_PRIVATE {
                // Requests that are under way there are finished.
                private.remove(0);
            }
            let fresh = Rc::new(PrivateConnections::new(self.prologue(version, named)));
            private.push((version, named, fresh));
        }
        // It is there by now.
        let (_, _, found) = &private[private.len() - 1];
        Rc::clone(found)
    }

    /// The PROXY header for a client.
    fn prologue(&self, version: SendProxy, named: Option<IpAddr>) -> Vec<u8> {
        let none = TlsFacts::default();
        let tls = self.brief.tls.as_ref().unwrap_or(&none);
        let about = About { id: self.brief.id, client: &self.brief.client, local: self.local, tls };
        if let Some(named) = named {
            return proxy_header::build_named(version, &about, named);
        }
        let made = self.prologues.iter().find(|(made, _)| *made == version);
        // A route that came with a reload: TLS has forgotten the rest by now.
        made.map_or_else(|| proxy_header::build(version, &about, None), |(_, prologue)| prologue.clone())
    }

    /// Whether the end of the connection has an event of its own: where no request tells of it.
    pub(crate) fn is_to_be_reported(&self, close: &Close) -> bool {
        let of_a_request = matches!(
            close.cause,
            Cause::BadRequest
                | Cause::TargetTooLong
                | Cause::HeadersTooLarge
                | Cause::RequestHeaderTimeout
                | Cause::ClientAborted
                | Cause::ServerAborted
                | Cause::ClientHung
                | Cause::ClientReset
                | Cause::ClientVanished
                | Cause::ClientTruncated
        );
        let unreported = self.begun.get() == 0
            || self.unreported.get()
            // Whoever has closed it wants to see that.
            || close.cause == Cause::ClosedByOperator;
        unreported || !(of_a_request || matches!(close.fault, Fault::Nobody | Fault::Policy))
    }

    /// What routes call the host that a request asks for: clients ask for the same one again and again.
    pub(crate) fn host(&self, asked: &[u8]) -> Result<Arc<str>, HostFault> {
        let mut known = self.host.borrow_mut();
        if let Some((_, host)) = known.as_ref().filter(|(known, _)| **known == *asked) {
            return Ok(Arc::clone(host));
        }
        let host: Arc<str> = Authority::parse(asked)?.normal().into();
        *known = Some((asked.into(), Arc::clone(&host)));
        Ok(host)
    }

    /// What was asked for last, if that is not forgotten.
    pub(crate) fn latest_host(&self) -> Option<Arc<str>> {
        self.host.borrow().as_ref().map(|(_, host)| Arc::clone(host))
    }

    /// The program that the client says it is: it says the same again and again.
    pub(crate) fn agent(&self, said: &[u8]) -> Arc<[u8]> {
        let mut known = self.agent.borrow_mut();
        match &*known {
            Some(agent) if **agent == *said => Arc::clone(agent),
            _ => Arc::clone(known.insert(said.into())),
        }
    }

    /// Forgets what would only be made again, while nothing is asked for.
    pub(crate) fn rest(&self) {
        self.forwarded.fields.take();
        self.host.take();
        self.agent.take();
    }

    /// An id for the next request: that of the connection, and a number behind it.
    pub(crate) fn next_id(&self) -> Box<str> {
        let mut digits = [0; 20];
        let number = decimal(self.begun.get() + 1, &mut digits);
        // Exactly as much as it takes, so that it need not be moved.
        let mut id = String::with_capacity(self.forwarded.id.len() + 1 + number.len());
        id.push_str(&self.forwarded.id);
        id.push('-');
        id.push_str(number);
        id.into()
    }

    /// A request begins.
    pub(crate) fn enter(&self, record: &Rc<Record>) {
        self.begun.set(self.begun.get() + 1);
        self.touched.set(coarse_ms());
        self.requests.borrow_mut().push(Rc::clone(record));
        *self.newborn.borrow_mut() = Some(Rc::clone(record));
    }

    /// A request has ended.
    pub(crate) fn leave(&self, record: &Record) {
        self.touched.set(coarse_ms());
        self.requests.borrow_mut().retain(|one| !std::ptr::eq(&raw const **one, record));
    }

    /// How many requests are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.borrow().len()
    }

    /// Those that are under way.
    pub(crate) fn live(&self) -> Vec<Rc<Record>> {
        self.requests.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn numbers() {
        for number in [0, 9, 10, 1234, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string());
        }
    }
}
