//! The session of one client connection: its client, the configuration that its requests follow, and the requests that
//! are under way.

mod forwarded;
mod private;
mod requests;
mod view;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_certs::Certificate;
use offramp_certs::store::{MatchKind, Pick};
use offramp_http::host::{Authority, HostFault};
use offramp_net::clock::coarse_ms;
use offramp_observe::facts::{ByteCounts, ClientScheme, PathFacts};
use offramp_observe::{Cause, Close, ConnectionBrief, Fault};

use super::client_certificate::VerifiedClient;
use super::resources::HttpResources;
use crate::live::table::{HttpActivity, LiveSlotId};
use crate::resources::{GRACE, Resources};
use crate::snapshot::http::{AuthClass, Http};
use crate::snapshot::{AcceptorId, Listener, SendProxy, Snapshot};

pub(crate) use forwarded::ForwardedClient;
pub(crate) use private::Private;
use private::PrivateUpstreams;
pub(crate) use requests::RequestTracker;
pub(crate) use view::SessionView;

/// The outcome of TLS for all requests of a connection.
#[derive(Default)]
pub(crate) struct Terminated {
    /// The certificate that the client was shown.
    pub(crate) certificate: Option<Arc<Certificate>>,
    /// The rule by which client certificates were asked for.
    pub(crate) client_auth: AuthClass,
    /// The certificate that the client has shown, verified.
    pub(crate) shown: Option<VerifiedClient>,
}

/// The reason for which a connection serves no further requests, though its client has not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The worker is draining.
    Drain,
    /// The certificate of the client has expired.
    CertificateExpired,
    /// No route asks for client certificates any more by the rule of this connection: a reload has changed authorities,
    /// revocation lists or rules.
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
    pub(crate) worker: Rc<Resources>,
    pub(crate) http: Rc<HttpResources>,
    /// Its place in the table of connections.
    pub(crate) live: LiveSlotId,
    pub(crate) brief: Arc<ConnectionBrief>,
    pub(crate) scheme: ClientScheme,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) forwarded: ForwardedClient,
    terminated: Terminated,
    private: PrivateUpstreams,
    configuration: FollowedConfiguration,
    /// The time at which the connection has its greatest age; see [`Resources::old_at`].
    old_at: u64,
    pub(crate) requests: RequestTracker,
    /// The connection has failed in a way that no request reports.
    pub(crate) unreported: Cell<bool>,
    /// The connection ended before a drain cut it.
    pub(crate) left: Cell<bool>,
    latest: LatestRequest,
}

/// The parts of a session, gathered by its connection.
pub(crate) struct SessionParts {
    pub(crate) worker: Rc<Resources>,
    pub(crate) http: Rc<HttpResources>,
    /// The socket that accepted the connection.
    pub(crate) accepted_by: AcceptorId,
    pub(crate) live: LiveSlotId,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) brief: ConnectionBrief,
    pub(crate) terminated: Terminated,
    /// The address that the client connected to.
    pub(crate) local: Option<SocketAddr>,
    /// The PROXY header in each version that a route asks for.
    pub(crate) proxy_headers: Vec<(SendProxy, Vec<u8>)>,
}

/// The configuration that the requests of a connection follow, which a reload replaces.
struct FollowedConfiguration {
    /// The socket that accepted the connection.
    accepted_by: AcceptorId,
    view: RefCell<Rc<SessionView>>,
    /// Set when no route has the rule for client certificates any more by which the connection was made.
    outdated: Cell<bool>,
}

/// Texts of the latest request, which most clients repeat.
#[derive(Default)]
struct LatestRequest {
    host: RefCell<Option<HostNames>>,
    agent: RefCell<Option<Arc<[u8]>>>,
}

/// A host as it came, and as routes name it.
type HostNames = (Box<[u8]>, Arc<str>);

impl Session {
    pub(crate) fn new(parts: SessionParts) -> Rc<Self> {
        let SessionParts { worker, http, accepted_by, live, snapshot, listener, brief, .. } = parts;
        let ip = brief.client.ip();
        let scheme = if brief.tls.is_some() { ClientScheme::Https } else { ClientScheme::Http };
        Rc::new(Self {
            old_at: worker.old_at(&snapshot.limits),
            configuration: FollowedConfiguration {
                accepted_by,
                view: RefCell::new(SessionView::new(snapshot, listener, ip)),
                outdated: Cell::new(false),
            },
            worker,
            http,
            live,
            forwarded: ForwardedClient::new(&brief, parts.local),
            brief: Arc::new(brief),
            scheme,
            ip,
            terminated: parts.terminated,
            private: PrivateUpstreams::new(parts.local, parts.proxy_headers),
            requests: RequestTracker::new(),
            unreported: Cell::new(false),
            left: Cell::new(false),
            latest: LatestRequest::default(),
        })
    }

    /// The configuration in force: of the listener that has the address now, else the one of the same name. Where the
    /// listener has left it, the one that it was in last.
    pub(crate) fn view(&self) -> Rc<SessionView> {
        let current = self.worker.shared.current.load();
        let FollowedConfiguration { accepted_by, view, outdated } = &self.configuration;
        let mut view = view.borrow_mut();
        if !Arc::ptr_eq(&current, &view.snapshot)
            && let Some(listener) = current.listener(*accepted_by, &view.listener.name)
        {
            *view = SessionView::new(Arc::clone(&current), Arc::clone(listener), self.ip);
            outdated.set(self.is_of_no_route(&view));
        }
        Rc::clone(&view)
    }

    /// The certificate that the client has shown, if any.
    pub(crate) fn client_certificate(&self) -> Option<&VerifiedClient> {
        self.terminated.shown.as_ref()
    }

    /// No route has the rule for client certificates by which the connection was made.
    fn is_of_no_route(&self, view: &SessionView) -> bool {
        let made_by = self.terminated.client_auth;
        let known = |http: &Http| http.routes.iter().any(|route| route.client_auth == made_by);
        made_by != AuthClass::default() && !view.http().is_some_and(known)
    }

    /// The certificate that the client has shown has expired since.
    pub(crate) fn certificate_has_expired(&self) -> bool {
        self.shown_until().is_some_and(|end| end < SystemTime::now())
    }

    /// The time for which the certificate of the client is still valid; `None` without one, and without an end.
    pub(crate) fn certificate_left(&self) -> Option<Duration> {
        Some(self.shown_until()?.duration_since(SystemTime::now()).unwrap_or_default())
    }

    fn shown_until(&self) -> Option<SystemTime> {
        self.terminated.shown.as_ref()?.until()
    }

    /// The reason for which the connection must end now, if there is one.
    pub(crate) fn end(&self) -> Option<Cause> {
        self.worker.end_of(self.live)
    }

    /// The reason for which no further requests are served, if there is one.
    pub(crate) fn leaves(&self) -> Option<Leave> {
        if self.worker.drain.is_draining() {
            return Some(Leave::Drain);
        }
        if self.certificate_has_expired() {
            return Some(Leave::CertificateExpired);
        }
        if self.configuration.outdated.get() {
            return Some(Leave::RulesChanged);
        }
        self.is_old().then_some(Leave::Old)
    }

    fn is_old(&self) -> bool {
        self.old_at != u64::MAX && coarse_ms() >= self.old_at
    }

    /// The time until the connection has its greatest age, if there is one.
    pub(crate) fn age_left(&self) -> Option<Duration> {
        (self.old_at != u64::MAX).then(|| Duration::from_millis(self.old_at.saturating_sub(coarse_ms())))
    }

    /// Time until requests and tunnels are ended by the connection's age; `None` without `max_age`.
    pub(crate) fn overdue_in(&self) -> Option<Duration> {
        let grace = self.configuration.view.borrow().snapshot.limits.max_age_grace;
        let end = self.old_at.saturating_add(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
        (self.old_at != u64::MAX).then(|| Duration::from_millis(end.saturating_sub(coarse_ms())))
    }

    /// Returns true if the connection has its greatest age, and its grace to finish is over.
    pub(crate) fn is_overdue(&self) -> bool {
        self.is_old() && self.overdue_in().is_some_and(|left| left.is_zero())
    }

    /// While the next request is the last: why, and how long a quiet client has to begin with it. An expired certificate
    /// leaves no time.
    pub(crate) fn grace(&self) -> Option<(Cause, Duration)> {
        let drain = self.worker.drain.grace().map(|grace| (Cause::Drain, grace));
        drain.or_else(|| self.is_old().then_some((Cause::MaxAge, GRACE)))
    }

    /// A request for `host` on a route with `client_auth` may come by this connection
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

    /// The client would be shown the same certificate for `host`.
    fn covers(&self, host: &str) -> bool {
        let Some(shown) = &self.terminated.certificate else { return true };
        let view = self.configuration.view.borrow();
        let Some(tls) = &view.listener.tls else { return true };
        if let Pick::Found { certificate, by: MatchKind::Exact | MatchKind::Wildcard } =
            tls.store.pick(Some(host), &[])
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
    /// that trusted proxies name in a request, else the peer.
    pub(crate) fn private(&self, version: SendProxy, named: Option<IpAddr>) -> Private {
        self.private.of(&self.brief, version, named)
    }

    /// The end of the connection has an event of its own: no request reports it.
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
        let unreported = self.requests.begun.get() == 0
            || self.unreported.get()
            // The operator that has closed it wants to see that.
            || close.cause == Cause::ClosedByOperator;
        unreported || !(of_a_request || matches!(close.fault, Fault::Nobody | Fault::Policy))
    }

    /// The host of a request as routes name it. Most clients ask for one alone, which is remembered.
    pub(crate) fn host(&self, asked: &[u8]) -> Result<Arc<str>, HostFault> {
        let mut known = self.latest.host.borrow_mut();
        if let Some((_, host)) = known.as_ref().filter(|(known, _)| **known == *asked) {
            return Ok(Arc::clone(host));
        }
        let host: Arc<str> = Authority::parse(asked)?.normal().into();
        *known = Some((asked.into(), Arc::clone(&host)));
        Ok(host)
    }

    /// The program that the client says it is: it says the same again and again.
    pub(crate) fn agent(&self, said: &[u8]) -> Arc<[u8]> {
        let mut known = self.latest.agent.borrow_mut();
        match &*known {
            Some(agent) if **agent == *said => Arc::clone(agent),
            _ => Arc::clone(known.insert(said.into())),
        }
    }

    /// Forgets what would only be made again, while nothing is asked for.
    pub(crate) fn rest(&self) {
        self.forwarded.fields.take();
        self.latest.host.take();
        self.latest.agent.take();
    }

    /// An id for the next request: that of the connection, and a number behind it.
    pub(crate) fn next_id(&self) -> Box<str> {
        let mut digits = itoa::Buffer::new();
        let number = digits.format(self.requests.begun.get() + 1);
        // Exactly as much as it takes, so that it need not be moved.
        let mut id = String::with_capacity(self.forwarded.id.len() + 1 + number.len());
        id.push_str(&self.forwarded.id);
        id.push('-');
        id.push_str(number);
        id.into()
    }
}

impl HttpActivity for Session {
    fn latest_host(&self) -> Option<Arc<str>> {
        self.latest.host.borrow().as_ref().map(|(_, host)| Arc::clone(host))
    }

    fn requests(&self) -> u64 {
        self.requests.begun.get()
    }

    fn requests_open(&self) -> usize {
        self.requests.in_flight()
    }

    fn each_open(&self, visit: &mut dyn FnMut(Option<PathFacts>, ByteCounts)) {
        for record in self.requests.open.borrow().iter() {
            let traffic = ByteCounts { from_client: record.up.get(), to_client: record.down.get() };
            visit(record.path(), traffic);
        }
    }
}
