//! One request and its response: where it goes, what it takes along, what comes back.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use offramp_http::head::{self, Known, Response};
use offramp_http::semantics::hop_by_hop;
use offramp_net::clock::coarse_ms;
use offramp_observe::{Cause, Close};

use super::access::{self, Checking, Granted};
use super::answer::{self, Refusal};
use super::body::Reply;
use super::client_certificate::ClientCertificate;
use super::compress;
use super::early;
use super::files;
use super::forward::{Forward, Forwarded, is_websocket};
use super::forwarded_fields;
use super::h2::Hints;
use super::inbound::Inbound;
use super::intake::{GuardState, HeadFlags};
use super::line::ClientConnection;
use super::record::{Record, RecordGuard};
use super::session::{Session, View, decimal};
use super::spelling;
use super::trace;
use super::values::{self, AskedTarget, RequestValues};
use crate::late::Doing;
use crate::route::Parts;
use crate::snapshot::http::{Action, Files, Http, HttpRoute};
use crate::snapshot::pages::ErrorPages;

/// A request as it came.
pub(crate) struct Request {
    pub(crate) head: Box<head::Request>,
    pub(crate) body: Inbound,
    /// The protocol that an extended CONNECT asks for (RFC 8441 §4).
    pub(crate) protocol: Option<Box<[u8]>>,
    /// Why it is not served, if it is not.
    pub(crate) refused: Option<Box<Refusal>>,
}

/// What is known of a request that has arrived.
pub(crate) struct RequestContext {
    pub(crate) record: Rc<Record>,
    pub(crate) view: Rc<View>,
    /// What it asks for, as routes name it.
    pub(crate) host: Option<Arc<str>>,
    /// The client that trusted proxies name, if the peer is one.
    pub(crate) named: Option<IpAddr>,
    /// What the guard remembers of its head.
    pub(crate) head_flags: HeadFlags,
    /// How the response is compressed, where its route does that.
    compress: Cell<Option<Box<compress::Wanted>>>,
    /// A pointer, because each stream of HTTP/2 has the room for it.
    extras: OnceCell<Box<RequestExtras>>,
}

/// What few requests have.
#[derive(Default)]
pub(crate) struct RequestExtras {
    /// What it asked for as it came, where rules of its route have variables.
    pub(crate) asked: OnceCell<AskedTarget>,
    /// What follows from who the client has shown to be.
    pub(crate) granted: OnceCell<Granted>,
}

impl RequestContext {
    /// The place for what few requests have.
    pub(crate) fn extras(&self) -> &RequestExtras {
        self.extras.get_or_init(Box::default)
    }

    /// What the request asked for, if that was noted.
    pub(crate) fn asked(&self) -> Option<&AskedTarget> {
        self.extras.get()?.asked.get()
    }

    /// What follows from who the client has shown to be, if it was asked.
    pub(crate) fn granted(&self) -> Option<&Granted> {
        self.extras.get()?.granted.get()
    }

    /// The route of the request by the normal form of its path, and the listener's rules for all.
    fn find(&self, request: &mut head::Request) -> Option<(&Http, &HttpRoute)> {
        request.normalize();
        let http = self.view.http()?;
        Some((http, http.routes.find(self.host.as_deref(), request.normal_path())?))
    }
}

/// What a request comes by.
pub(crate) enum Client {
    /// Its connection, which is HTTP/1.
    Line(Rc<ClientConnection>),
    /// A stream of HTTP/2, with who sends interim responses on it.
    Stream(Arc<Hints>),
}

impl Client {
    /// The connection, where that is HTTP/1.
    pub(crate) fn line(&self) -> Option<&Rc<ClientConnection>> {
        match self {
            Self::Line(line) => Some(line),
            Self::Stream(_) => None,
        }
    }
}

/// Serves one request of `session`.
///
/// This is moved about as a whole with everything that it waits for, so that it is a block, which keeps what it
/// takes in once, and whatever does not wait is a function of its own.
#[allow(clippy::manual_async_fn)]
pub(crate) fn serve(
    session: Rc<Session>,
    client: Client,
    request: Request,
) -> impl Future<Output = Response<Reply>> {
    async move {
        let Request { mut head, body, protocol, refused } = request;
        let (context, understood) = arrive(&session, &head, &client, refused);
        let record_guard = RecordGuard(Rc::clone(&context.record));
        if protocol.as_deref().is_some_and(is_websocket) {
            // As servers get it, and as it is noted over HTTP/1.1 (RFC 8441 §5).
            context.record.note(|facts| facts.request.method = "GET".into());
        }
        let found = context.find(&mut head);
        let entry = match understood {
            Ok(()) => route(&session, &context, &client, (&mut head, body, protocol), (found, record_guard)),
            Err(refusal) => {
                drop(body);
                Entry::Open(RouteStep::Answered(Err((refusal, record_guard))))
            }
        };
        let step = match entry {
            Entry::Open(step) => step,
            // Rare, and as large as all the rest.
            Entry::Checked(checking) => {
                Box::pin(enter(&session, &context, &client, (&mut head, checking))).await
            }
        };
        let outcome = match step {
            RouteStep::Answered(outcome) => outcome,
            RouteStep::Forward(forward, forwarded, record_guard) => {
                forward.forward(&head, forwarded, record_guard).await
            }
            RouteStep::Files(route, files, waiting) => {
                // Boxed, as it is rare: the futures of all requests would be larger.
                let outcome = Box::pin(waiting.answer(&session, files, &head)).await;
                finished(&session, &context, route, outcome)
            }
        };
        let pages = match found {
            Some((_, route)) => route.error_pages.as_deref(),
            None => context.view.http().and_then(|http| http.error_pages.as_deref()),
        };
        let mut response = answered(&client, (context.head_flags, pages), &head, outcome);
        if let Some(wanted) = context.compress.take() {
            let most = context.view.http().map_or(0, |http| http.limits.compression_memory);
            response = compress::response(&session.worker, &wanted, &head, most, response);
        }
        if let Some(bandwidth) = found.and_then(|(_, route)| route.bandwidth.as_ref()) {
            response = response.map(|body| body.paced(bandwidth));
        }
        access::tell_client(&context, &mut response.fields);
        session.worker.heads.put(head);
        response
    }
}

/// The response to a request, whatever became of it.
fn answered(
    client: &Client,
    (head_flags, pages): (HeadFlags, Option<&ErrorPages>),
    request: &head::Request,
    outcome: Outcome,
) -> Response<Reply> {
    let line = client.line();
    let response = outcome.unwrap_or_else(|(refusal, record_guard)| {
        let mut response = refuse(&refusal, record_guard, request, pages);
        // What is left of the body is not awaited, and the client is to know (RFC 9110 §15.5.9, §15.5.14).
        let unread = matches!(refusal.status, StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE);
        if unread && line.is_some() {
            response.fields.set_known(Known::Connection, b"close");
        }
        response
    });
    if let Some(line) = line
        && head_flags.switches
        && response.status != StatusCode::SWITCHING_PROTOCOLS
    {
        line.guard_state.stayed();
    }
    response
}

/// Whether a request enters at once. Large, and moved once.
#[allow(clippy::large_enum_variant)]
enum Entry<'e> {
    /// It does, or it is refused.
    Open(RouteStep<'e>),
    /// The client has to show who it is.
    Checked(Box<Checking<'e>>),
}

/// What a route does with a request. Large, and moved once.
#[allow(clippy::large_enum_variant)]
enum RouteStep<'e> {
    /// It has a response, or is refused.
    Answered(Outcome),
    /// It goes to a server.
    Forward(Forward<'e>, Forwarded, RecordGuard),
    /// A file is looked for on a disk.
    Files(&'e HttpRoute, &'e Arc<Files>, Box<files::Waiting>),
}

/// What becomes of a request: a response, or why there is none.
pub(crate) type Outcome = Result<Response<Reply>, (Refusal, RecordGuard)>;

/// Begins the facts of a request, and says whether it can be understood.
fn arrive(
    session: &Rc<Session>,
    request: &head::Request,
    client: &Client,
    refused: Option<Box<Refusal>>,
) -> (RequestContext, Result<(), Refusal>) {
    let line = client.line();
    let head_flags = line.map(|line| line.guard_state.last.get()).unwrap_or_default();
    let late = line.map_or(Duration::ZERO, |line| line.guard_state.lateness());
    let view = session.view();
    let (host, mut understood) = match request.host().map(|asked| session.host(asked)) {
        None => (None, Ok(())),
        Some(Ok(host)) => (Some(host), Ok(())),
        Some(Err(fault)) => {
            let close = Close::from(Cause::BadRequest).with_detail(&fault.to_string());
            (None, Err(Refusal::new(StatusCode::BAD_REQUEST, close)))
        }
    };
    let given = view.trusted.then(|| forwarded_fields::given_id(&request.fields)).flatten();
    let id = given.map_or_else(|| session.next_id(), Into::into);
    let line = super::record::line(session, request, host.clone().unwrap_or_default());
    let record = Record::new(session, line, id, late);
    let named = view.named(session.ip, &request.fields);
    if named.is_some() {
        record.note(|facts| facts.named = named);
    }
    if let Some(tracing) = view.snapshot.tracing {
        let place = trace::place(&request.fields, tracing, || session.worker.random());
        record.note(|facts| facts.trace = place);
    }
    if let Some(refusal) = refused {
        understood = understood.and(Err(*refusal));
    }
    if understood.is_ok()
        && let Some(http) = view.http()
    {
        understood = within_limits(session, http, request, named.or(session.ip));
    }
    let (compress, extras) = Default::default();
    (RequestContext { record, view, host, named, head_flags, compress, extras }, understood)
}

/// The bounds that hold for every request, whatever its version.
fn within_limits(
    session: &Session,
    http: &Http,
    request: &head::Request,
    client: Option<IpAddr>,
) -> Result<(), Refusal> {
    let limits = &http.limits;
    if request.version == Version::HTTP_2 {
        // A reload may have lowered it.
        session.worker.runners.memory.limit(limits.memory);
        if request.fields.len() > limits.request_headers as usize {
            return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Cause::HeadersTooLarge));
        }
        if request.target().len() > limits.request_target_size as usize {
            return Err(Refusal::new(StatusCode::URI_TOO_LONG, Cause::TargetTooLong));
        }
    }
    if let (Some(rate), Some(ip)) = (limits.requests_per_client, client)
        && let Err(wait) = session.worker.shared.clients.request(ip, rate, Instant::now())
    {
        // Rounded up, so that who waits as long finds room.
        let seconds = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, Cause::TooManyRequests);
        return Err(Refusal { retry_after: Some(seconds), ..refusal });
    }
    Ok(())
}

/// Finds the route, and does what it says.
fn route<'e>(
    session: &'e Rc<Session>,
    context: &'e RequestContext,
    client: &'e Client,
    (request, body, protocol): (&mut head::Request, Inbound, Option<Box<[u8]>>),
    (found, record_guard): (Option<(&'e Http, &'e HttpRoute)>, RecordGuard),
) -> Entry<'e> {
    let refused = |refusal, record_guard| Entry::Open(RouteStep::Answered(Err((refusal, record_guard))));
    if let Some(answer) = challenge(session, request) {
        let response = own(
            Response::new(StatusCode::OK, answer),
            record_guard,
            Cause::Completed.into(),
            is_head(request),
        );
        return Entry::Open(RouteStep::Answered(Ok(response)));
    }
    let Some((http, route)) = found else {
        return refused(Refusal::new(StatusCode::NOT_FOUND, Cause::NoRoute), record_guard);
    };
    if let Err(refusal) = spelling::check(&http.routes, context.host.as_deref(), route, request) {
        return refused(refusal, record_guard);
    }
    session.worker.pulse.begins_for(Doing::Request(route.name.id()), session.ip);
    record_guard.0.note(|facts| facts.path.route = Some(Arc::clone(&route.name)));
    values::note(context, route, request);
    record_guard.0.log_one_in.set(route.log_one_in.get());
    record_guard.0.idle.set(route.limits.idle_timeout);
    if let Some(policy) = &route.compress {
        let identified = session.client_certificate().is_some();
        context.compress.set(Some(compress::wanted(policy, request, identified)));
    }
    if let Err(refusal) = admitted(session, context, route, body.length()) {
        return refused(refusal, record_guard);
    }
    if access::asks(&route.access, context.named.or(session.ip)) {
        return Entry::Checked(Box::new(Checking { http, route, body, protocol, record_guard }));
    }
    Entry::Open(act(session, context, client, (request, body, protocol), (http, route, record_guard)))
}

/// Checks who the client is, and does what the route says where that is right.
async fn enter<'e>(
    session: &'e Rc<Session>,
    context: &'e RequestContext,
    client: &'e Client,
    (request, checking): (&mut head::Request, Box<Checking<'e>>),
) -> RouteStep<'e> {
    let outcome = checking.check(session, context, request).await;
    let Checking { http, route, body, protocol, record_guard } = *checking;
    match outcome {
        Ok(()) => act(session, context, client, (request, body, protocol), (http, route, record_guard)),
        Err(denied) => {
            RouteStep::Answered(finished(session, context, route, denied.outcome(request, record_guard)))
        }
    }
}

/// Does what a route says with a request that may enter.
fn act<'e>(
    session: &'e Rc<Session>,
    context: &'e RequestContext,
    client: &'e Client,
    (request, body, protocol): (&mut head::Request, Inbound, Option<Box<[u8]>>),
    (http, route, record_guard): (&'e Http, &'e HttpRoute, RecordGuard),
) -> RouteStep<'e> {
    match early::elsewhere(http, route, request) {
        Ok(None) => {
            let host = context.host.as_deref();
            if route.rewrites.is_some()
                && let Err(refusal) = spelling::check_made(&http.routes, host, route, ("", request.path()))
            {
                return RouteStep::Answered(Err((refusal, record_guard)));
            }
        }
        Ok(Some(response)) => {
            let response = own(response, record_guard, Cause::Completed.into(), is_head(request));
            return RouteStep::Answered(finished(session, context, route, Ok(response)));
        }
        Err(refusal) => {
            return RouteStep::Answered(Err((refusal, record_guard)));
        }
    }
    let host = context.host.as_deref();
    let mut response = match &route.action {
        Action::Redirect(redirect) => {
            // Two slashes would name a host where the URL begins with the path.
            let path = if request.path().starts_with("//") { request.normal_path() } else { request.path() };
            let parts = Parts { host: host.unwrap_or_default(), path, query: request.query() };
            let Some(response) = answer::redirect(redirect.status, redirect.to.fill(parts)) else {
                let refusal = Refusal::new(StatusCode::BAD_REQUEST, Cause::BadRequest);
                return RouteStep::Answered(Err((refusal, record_guard)));
            };
            own(response, record_guard, Cause::Completed.into(), is_head(request))
        }
        Action::ToTls { port } => match early::to_tls(request, host, *port) {
            Ok(response) => own(response, record_guard, Cause::Completed.into(), is_head(request)),
            Err(refusal) => return RouteStep::Answered(Err((refusal, record_guard))),
        },
        Action::Respond(respond) => {
            own(answer::fixed(respond), record_guard, Cause::Completed.into(), is_head(request))
        }
        Action::Files(files) => {
            let high = session.worker.shared.pressure.is_high();
            let most = if high { 0 } else { http.limits.file_cache };
            let of = files::FileRequest { request, client: context.named.or(session.ip), host, most };
            return match files::begin(session, files, &of, record_guard) {
                files::Step::Answered(outcome) => {
                    RouteStep::Answered(finished(session, context, route, outcome))
                }
                files::Step::Waiting(waiting) => RouteStep::Files(route, files, waiting),
            };
        }
        // It may go no farther: who is asked is this proxy (RFC 9110 §7.6.2).
        Action::Proxy(_) if hop_by_hop::forwards_left(&request.method, &request.fields) == Some(0) => {
            own(answer::last_hop(&request.method), record_guard, Cause::Completed.into(), false)
        }
        Action::Proxy(proxy) => {
            let client_ip = context.named.or(session.ip);
            let choice = proxy.to.choose(&request.fields, client_ip, || session.worker.random());
            let forward = Forward { session, context, client, http, route, proxy, choice };
            return match forward.prepare(request, body, protocol, &record_guard) {
                Ok(forwarded) => RouteStep::Forward(forward, forwarded, record_guard),
                Err(refusal) => RouteStep::Answered(Err((refusal, record_guard))),
            };
        }
    };
    finish(session, context, route, &mut response);
    RouteStep::Answered(Ok(response))
}

/// Whether a route serves a request with a body of this length, whatever its target.
fn admitted(
    session: &Session,
    context: &RequestContext,
    route: &HttpRoute,
    length: Option<u64>,
) -> Result<(), Refusal> {
    if !session.may_ask(context.host.as_deref(), route.client_auth) {
        return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, Cause::Misdirected));
    }
    if !access::admits_address(&route.access, context.named.or(session.ip)) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, Cause::AddressDenied));
    }
    if session.certificate_has_expired() {
        return Err(certificate_expired(session));
    }
    if let Some(refusal) = early::closed(route, context.named.or(session.ip)) {
        return Err(refusal);
    }
    match route.max_body {
        Some(most) if length.is_some_and(|length| length > most) => {
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, Cause::BodyTooLarge))
        }
        _ => Ok(()),
    }
}

/// A connection is not authenticated any more: the client may ask again by another one (RFC 9110 §15.5.20).
fn certificate_expired(session: &Session) -> Refusal {
    let whose = session.client_certificate().map(ClientCertificate::identity).unwrap_or_default();
    let close = Close::from(Cause::ClientCertificateExpired).with_detail(&whose);
    Refusal::new(StatusCode::MISDIRECTED_REQUEST, close)
}

fn is_head(request: &head::Request) -> bool {
    request.method == Method::HEAD
}

/// What an authority gets that looks over plain HTTP whether a name leads here (RFC 8555 section 8.3), before any route.
fn challenge(session: &Session, request: &head::Request) -> Option<Bytes> {
    let is_asked = session.brief.tls.is_none() && matches!(request.method, Method::GET | Method::HEAD);
    if is_asked { session.worker.shared.challenges.response(request.normal_path()) } else { None }
}

/// An outcome with what a route adds to responses.
fn finished(session: &Session, context: &RequestContext, route: &HttpRoute, mut outcome: Outcome) -> Outcome {
    if let Ok(response) = &mut outcome {
        finish(session, context, route, response);
    }
    outcome
}

/// What a route adds to every response of its own or its servers'.
pub(crate) fn finish(
    session: &Session,
    context: &RequestContext,
    route: &HttpRoute,
    response: &mut Response<Reply>,
) {
    if let Some(hsts) = &route.hsts
        && session.brief.tls.is_some()
    {
        response.fields.set(b"strict-transport-security", hsts.as_bytes());
    }
    route.headers.response.apply(&mut response.fields, &RequestValues { session, context, route });
}

/// A response of our own on its way.
pub(crate) fn own(
    mut response: Response<Bytes>,
    record_guard: RecordGuard,
    close: Close,
    head: bool,
) -> Response<Reply> {
    let status = response.status;
    record_guard.0.answered(status.as_u16());
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !bodiless {
        let length = response.body.len() as u64;
        response.fields.set_known(Known::ContentLength, decimal(length, &mut [0; 20]).as_bytes());
    }
    response.map(|body| {
        let body = if head || bodiless { Bytes::new() } else { body };
        Reply::own(body, record_guard, close)
    })
}

/// The answer to a request that is refused.
pub(crate) fn refuse(
    refusal: &Refusal,
    record_guard: RecordGuard,
    request: &head::Request,
    pages: Option<&ErrorPages>,
) -> Response<Reply> {
    let form = answer::form(request.fields.all(Known::Accept));
    let response = answer::error(refusal, form, &record_guard.0.id(), pages);
    own(response, record_guard, refusal.close.clone(), is_head(request))
}

impl GuardState {
    /// How long the head of the request that passed last took to come.
    fn lateness(&self) -> Duration {
        Duration::from_millis(match self.began.replace(0) {
            0 => 0,
            began => coarse_ms().saturating_sub(began),
        })
    }
}
