//! One request and its response: where it goes, what it takes along, what comes back.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use offramp_config::model::Size;
use offramp_http::head::{self, Known, Response};
use offramp_http::semantics::hop_by_hop;
use offramp_net::clock::coarse_ms;
use offramp_observe::{Cause, Close};

use super::access::{self, Checking, Granted};
use super::answer::{self, ErrorReply};
use super::body::{Reply, ReplyContent};
use super::client_certificate::VerifiedClient;
use super::compress;
use super::early;
use super::files;
use super::forward::{Forward, Forwarded, is_websocket};
use super::forwarded_fields;
use super::h2::Hints;
use super::inbound::Inbound;
use super::intake::{GuardState, HeadFlags};
use super::line::ClientConnection;
use super::record::{RecordGuard, RequestRecord};
use super::session::{Session, SessionView};
use super::spelling;
use super::trace;
use super::tunnel::Switch;
use super::values::{self, AskedTarget, RequestValues};
use crate::late::Doing;
use crate::route::TemplateValues;
use crate::snapshot::http::{Action, Files, Http, HttpRoute, Redirect};
use crate::snapshot::pages::ErrorPages;

/// A request as it came.
pub(crate) struct IncomingRequest {
    pub(crate) head: Box<head::Request>,
    pub(crate) body: Inbound,
    /// The protocol that an extended CONNECT asks for (RFC 8441 §4).
    pub(crate) protocol: Option<Box<[u8]>>,
    /// The refusal of a request that is not served.
    pub(crate) refused: Option<Box<ErrorReply>>,
}

/// The context of a request that has arrived.
pub(crate) struct RequestContext {
    pub(crate) record: Rc<RequestRecord>,
    pub(crate) view: Rc<SessionView>,
    /// The host, as routes name it.
    pub(crate) host: Option<Arc<str>>,
    /// The client that trusted proxies name, if the peer is one.
    pub(crate) named: Option<IpAddr>,
    /// Properties of its head that the guard has found.
    pub(crate) head_flags: HeadFlags,
    /// The compression of the response, where its route does that.
    compress: Cell<Option<Box<compress::Wanted>>>,
    /// A pointer, because each stream of HTTP/2 has the room for it.
    extras: OnceCell<Box<RequestExtras>>,
}

/// Parts of the context that few requests have.
#[derive(Default)]
pub(crate) struct RequestExtras {
    /// The target as it came, where rules of its route have variables.
    pub(crate) asked: OnceCell<AskedTarget>,
    /// The fields granted by the authentication of the client.
    pub(crate) granted: OnceCell<Granted>,
}

impl RequestContext {
    pub(crate) fn extras(&self) -> &RequestExtras {
        self.extras.get_or_init(Box::default)
    }

    pub(crate) fn asked(&self) -> Option<&AskedTarget> {
        self.extras.get()?.asked.get()
    }

    pub(crate) fn granted(&self) -> Option<&Granted> {
        self.extras.get()?.granted.get()
    }

    /// Finds the route of the request by the normal form of its path.
    fn find(&self, request: &mut head::Request) -> Option<FoundRoute<'_>> {
        request.normalize();
        let http = self.view.http()?;
        Some(FoundRoute { http, route: http.routes.find(self.host.as_deref(), request.normal_path())? })
    }
}

/// The route of a request, and the listener's rules for all requests.
#[derive(Clone, Copy)]
pub(crate) struct FoundRoute<'e> {
    pub(crate) http: &'e Http,
    pub(crate) route: &'e HttpRoute,
}

/// A request on its way to the action of its route.
struct RequestParts<'r> {
    head: &'r mut head::Request,
    body: Inbound,
    /// The protocol that an extended CONNECT asks for (RFC 8441 §4).
    protocol: Option<Box<[u8]>>,
}

/// One request, its connection and its client.
#[derive(Clone, Copy)]
struct Exchange<'e> {
    session: &'e Rc<Session>,
    context: &'e RequestContext,
    client: &'e RequestTransport,
}

/// The transport of a request.
pub(crate) enum RequestTransport {
    /// Its connection, which is HTTP/1.
    Line(Rc<ClientConnection>),
    /// A stream of HTTP/2, with the sender of interim responses on it.
    Stream(Arc<Hints>),
}

impl RequestTransport {
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
    client: RequestTransport,
    request: IncomingRequest,
) -> impl Future<Output = Response<Reply>> {
    async move {
        let IncomingRequest { mut head, body, protocol, refused } = request;
        let (context, understood) = arrive(&session, &head, &client, refused);
        let record_guard = RecordGuard(Rc::clone(&context.record));
        if protocol.as_deref().is_some_and(is_websocket) {
            // As servers get it, and as it is noted over HTTP/1.1 (RFC 8441 §5).
            context.record.note(|facts| facts.request.method = "GET".into());
        }
        let found = context.find(&mut head);
        let entry = match understood {
            Ok(()) => Exchange { session: &session, context: &context, client: &client }
                .route(RequestParts { head: &mut head, body, protocol }, found),
            Err(refusal) => {
                drop(body);
                RouteEntry::Open(RouteStep::Answered(Err(refusal)))
            }
        };
        let step = match entry {
            RouteEntry::Open(step) => step,
            // Rare, and as large as all the rest.
            RouteEntry::Checked(checking) => {
                let exchange = Exchange { session: &session, context: &context, client: &client };
                Box::pin(exchange.enter(&mut head, checking)).await
            }
        };
        let outcome = match step {
            RouteStep::Answered(outcome) => outcome,
            RouteStep::Forward(forward, forwarded) => forward.forward(&head, forwarded).await,
            RouteStep::Files(route, files, waiting) => {
                // Boxed, as it is rare: the futures of all requests would be larger.
                let outcome = Box::pin(waiting.answer(&session, &context.record, files, &head)).await;
                finished(&session, &context, route, outcome)
            }
        };
        let exchange = Exchange { session: &session, context: &context, client: &client };
        let response = exchange.respond(&head, found, outcome, record_guard);
        session.http.heads.put(head);
        response
    }
}

/// The access of a request to its route. Large, and moved once.
#[allow(clippy::large_enum_variant)]
enum RouteEntry<'e> {
    /// It enters at once, or is refused.
    Open(RouteStep<'e>),
    /// The client has to authenticate.
    Checked(Box<Checking<'e>>),
}

/// The action of a route on a request. Large, and moved once.
#[allow(clippy::large_enum_variant)]
enum RouteStep<'e> {
    /// It has a response, or is refused.
    Answered(RequestOutcome),
    /// It goes to a server.
    Forward(Forward<'e>, Forwarded),
    /// A file is looked for on a disk.
    Files(&'e HttpRoute, &'e Arc<Files>, Box<files::WaitingFile>),
}

/// The response, or the refusal to turn into one.
pub(crate) type RequestOutcome = Result<Response<ReplyContent>, ErrorReply>;

/// Begins the facts of a request, and says whether it can be understood.
fn arrive(
    session: &Rc<Session>,
    request: &head::Request,
    client: &RequestTransport,
    refused: Option<Box<ErrorReply>>,
) -> (RequestContext, Result<(), ErrorReply>) {
    let line = client.line();
    let head_flags = line.map(|line| line.guard_state.last.get()).unwrap_or_default();
    let late = line.map_or(Duration::ZERO, |line| line.guard_state.lateness());
    let view = session.view();
    let (host, mut understood) = match request.host().map(|asked| session.host(asked)) {
        None => (None, Ok(())),
        Some(Ok(host)) => (Some(host), Ok(())),
        Some(Err(fault)) => {
            let close = Close::from(Cause::BadRequest).with_detail(&fault.to_string());
            (None, Err(ErrorReply::new(StatusCode::BAD_REQUEST, close)))
        }
    };
    let given = view.trusted.then(|| forwarded_fields::given_id(&request.fields)).flatten();
    let id = given.map_or_else(|| session.next_id(), Into::into);
    let line = super::record::line(session, request, host.clone().unwrap_or_default());
    let record = RequestRecord::new(session, line, id, late);
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
) -> Result<(), ErrorReply> {
    let limits = &http.limits;
    if request.version == Version::HTTP_2 {
        // A reload may have lowered it.
        session.http.runners.memory.limit(limits.memory);
        if request.fields.len() > limits.request_headers as usize {
            return Err(ErrorReply::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Cause::HeadersTooLarge));
        }
        if request.target().len() > limits.request_target_size as usize {
            return Err(ErrorReply::new(StatusCode::URI_TOO_LONG, Cause::TargetTooLong));
        }
    }
    if let (Some(rate), Some(ip)) = (limits.requests_per_client, client)
        && let Err(wait) = session.worker.shared.clients.request(ip, rate, Instant::now())
    {
        // Rounded up, so that a client that waits as long finds room.
        let seconds = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let refusal = ErrorReply::new(StatusCode::TOO_MANY_REQUESTS, Cause::TooManyRequests);
        return Err(ErrorReply { retry_after: Some(seconds), ..refusal });
    }
    Ok(())
}

impl<'e> Exchange<'e> {
    /// Applies the rules of the route that was found, and begins its action.
    fn route(self, request: RequestParts<'_>, found: Option<FoundRoute<'e>>) -> RouteEntry<'e> {
        let Self { session, context, .. } = self;
        let answered = |outcome| RouteEntry::Open(RouteStep::Answered(outcome));
        let head = &*request.head;
        if let Some(answer) = challenge(session, head) {
            return answered(Ok(own(Response::new(StatusCode::OK, answer), is_head(head))));
        }
        let Some(found) = found else {
            return answered(Err(ErrorReply::new(StatusCode::NOT_FOUND, Cause::NoRoute)));
        };
        let FoundRoute { http, route } = found;
        if let Err(refusal) = spelling::check(&http.routes, context.host.as_deref(), route, head) {
            return answered(Err(refusal));
        }
        session.worker.pulse.begins_for(Doing::Request(route.name.id()), session.ip);
        context.record.note(|facts| facts.path.route = Some(Arc::clone(&route.name)));
        values::note(context, route, head);
        context.record.log_one_in.set(route.log_one_in.get());
        context.record.idle.set(route.plain.limits.idle_timeout);
        if let Some(policy) = &route.compress {
            let identified = session.client_certificate().is_some();
            context.compress.set(Some(compress::wanted(policy, head, identified)));
        }
        if let Err(refusal) = admitted(session, context, route, request.body.length()) {
            return answered(Err(refusal));
        }
        if access::asks(&route.access, context.named.or(session.ip)) {
            let RequestParts { body, protocol, .. } = request;
            return RouteEntry::Checked(Box::new(Checking { found, body, protocol }));
        }
        RouteEntry::Open(self.act(request, found))
    }

    /// Authenticates the client, and begins the action of the route where that succeeds.
    async fn enter(self, head: &mut head::Request, checking: Box<Checking<'e>>) -> RouteStep<'e> {
        let outcome = checking.check(self.session, self.context, head).await;
        let Checking { found, body, protocol } = *checking;
        match outcome {
            Ok(()) => self.act(RequestParts { head, body, protocol }, found),
            Err(denied) => self.answered(found.route, denied.outcome(head)),
        }
    }

    /// Begins the action of a route on a request that may enter.
    fn act(self, request: RequestParts<'_>, found: FoundRoute<'e>) -> RouteStep<'e> {
        let FoundRoute { http, route } = found;
        let RequestParts { head, body, protocol } = request;
        let host = self.context.host.as_deref();
        match early::elsewhere(http, route, head) {
            Ok(None) if route.detours.rewrites.is_some() => {
                let made = spelling::MadePath { cut: "", sent: head.path() };
                if let Err(refusal) = spelling::check_made(&http.routes, host, route, made) {
                    return RouteStep::Answered(Err(refusal));
                }
            }
            Ok(None) => {}
            Ok(Some(response)) => return self.answered(route, Ok(own(response, is_head(head)))),
            Err(refusal) => return RouteStep::Answered(Err(refusal)),
        }
        let outcome = match &route.action {
            Action::Redirect(redirect) => redirected(redirect, host, head),
            Action::ToTls { port } => {
                early::to_tls(head, host, *port).map(|response| own(response, is_head(head)))
            }
            Action::Respond(respond) => Ok(own(answer::fixed(respond), is_head(head))),
            Action::Files(files) => return self.begin_file(files, head, found),
            // It may go no farther: this proxy is the one that was asked (RFC 9110 §7.6.2).
            Action::Proxy(_) if hop_by_hop::forwards_left(&head.method, &head.fields) == Some(0) => {
                Ok(own(answer::last_hop(&head.method), false))
            }
            Action::Proxy(proxy) => {
                let Self { session, context, client } = self;
                let ip = context.named.or(session.ip);
                let choice = proxy.to.choose(&head.fields, ip, || session.worker.random());
                let forward = Forward { session, context, client, http, route, proxy, choice };
                return match forward.prepare(head, body, protocol) {
                    Ok(forwarded) => RouteStep::Forward(forward, forwarded),
                    Err(refusal) => RouteStep::Answered(Err(refusal)),
                };
            }
        };
        self.answered(route, outcome)
    }

    /// Answers from a file, at once where it is in memory.
    fn begin_file(self, files: &'e Arc<Files>, head: &head::Request, found: FoundRoute<'e>) -> RouteStep<'e> {
        let Self { session, context, .. } = self;
        let high = session.worker.shared.pressure.is_high();
        let most = if high { 0 } else { found.http.limits.file_cache };
        let (client, host) = (context.named.or(session.ip), context.host.as_deref());
        match files::begin(session, files, &files::FileRequest { request: head, client, host, most }) {
            files::FileStep::Answered(outcome) => self.answered(found.route, outcome),
            files::FileStep::Waiting(waiting) => RouteStep::Files(found.route, files, waiting),
        }
    }

    /// An outcome of the route itself.
    fn answered(self, route: &HttpRoute, outcome: RequestOutcome) -> RouteStep<'e> {
        RouteStep::Answered(finished(self.session, self.context, route, outcome))
    }

    /// Makes the response of the outcome. From here on the record follows its body.
    fn respond(
        self,
        head: &head::Request,
        found: Option<FoundRoute<'e>>,
        outcome: RequestOutcome,
        record_guard: RecordGuard,
    ) -> Response<Reply> {
        let Self { session, context, .. } = self;
        let pages = match found {
            Some(FoundRoute { route, .. }) => route.error_pages.as_deref(),
            None => context.view.http().and_then(|http| http.error_pages.as_deref()),
        };
        let mut response = self.reply(head, pages, outcome, record_guard);
        if let Some(wanted) = context.compress.take() {
            let most = context.view.http().map_or(0, |http| http.limits.compression_memory);
            response = compress::response(session, &wanted, head, most, response);
        }
        if let Some(bandwidth) = found.and_then(|found| found.route.bandwidth.as_ref()) {
            response = response.map(|body| body.paced(bandwidth));
        }
        access::tell_client(context, &mut response.fields);
        response
    }

    /// Makes a reply of the content of a response or refusal, which ends the record with its last byte.
    fn reply(
        self,
        head: &head::Request,
        pages: Option<&ErrorPages>,
        outcome: RequestOutcome,
        record_guard: RecordGuard,
    ) -> Response<Reply> {
        let line = self.client.line();
        let (response, close) = match outcome {
            Ok(response) => (response, Cause::Completed.into()),
            Err(refusal) => {
                let form = answer::form(head.fields.all(Known::Accept));
                let error = answer::error(&refusal, form, &record_guard.0.id(), pages);
                let mut response = own(error, is_head(head));
                // The rest of the body is not awaited, and the client is to know (RFC 9110 §15.5.9, §15.5.14).
                let unread =
                    matches!(refusal.status, StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE);
                if unread && line.is_some() {
                    response.fields.set_known(Known::Connection, b"close");
                }
                (response, refusal.close)
            }
        };
        let status = response.status;
        if let Some(line) = line
            && self.context.head_flags.switches
            && status != StatusCode::SWITCHING_PROTOCOLS
        {
            line.guard_state.stayed();
        }
        response.map(|content| match (content, line) {
            (ReplyContent::Tunnel(server), line) => {
                record_guard.0.opened();
                let switch = Switch { server, record_guard };
                match line {
                    Some(line) => {
                        *line.switch.borrow_mut() = Some(switch);
                        Reply::nothing()
                    }
                    None => Reply::tunnel(switch),
                }
            }
            (content, _) => {
                record_guard.0.answered(status.as_u16());
                Reply::new(content, record_guard, close)
            }
        })
    }
}

/// The redirect of a route.
fn redirected(redirect: &Redirect, host: Option<&str>, head: &head::Request) -> RequestOutcome {
    // Two slashes would name a host where the URL begins with the path.
    let path = if head.path().starts_with("//") { head.normal_path() } else { head.path() };
    let parts = TemplateValues { host: host.unwrap_or_default(), path, query: head.query() };
    match answer::redirect(redirect.status, redirect.to.fill(parts)) {
        Some(response) => Ok(own(response, is_head(head))),
        None => Err(ErrorReply::new(StatusCode::BAD_REQUEST, Cause::BadRequest)),
    }
}

/// Checks that a route serves a request with a body of this length, whatever its target.
fn admitted(
    session: &Session,
    context: &RequestContext,
    route: &HttpRoute,
    length: Option<u64>,
) -> Result<(), ErrorReply> {
    if !session.may_ask(context.host.as_deref(), route.client_auth) {
        return Err(ErrorReply::new(StatusCode::MISDIRECTED_REQUEST, Cause::Misdirected));
    }
    if !access::admits_address(&route.access, context.named.or(session.ip)) {
        return Err(ErrorReply::new(StatusCode::FORBIDDEN, Cause::AddressDenied));
    }
    if session.certificate_has_expired() {
        return Err(certificate_expired(session));
    }
    if let Some(refusal) = early::closed(route, context.named.or(session.ip)) {
        return Err(refusal);
    }
    match route.plain.max_body.map(Size::bytes) {
        Some(most) if length.is_some_and(|length| length > most) => {
            Err(ErrorReply::new(StatusCode::PAYLOAD_TOO_LARGE, Cause::BodyTooLarge))
        }
        _ => Ok(()),
    }
}

/// A connection is not authenticated any more: the client may ask again by another one (RFC 9110 §15.5.20).
fn certificate_expired(session: &Session) -> ErrorReply {
    let whose = session.client_certificate().map(VerifiedClient::identity).unwrap_or_default();
    let close = Close::from(Cause::ClientCertificateExpired).with_detail(&whose);
    ErrorReply::new(StatusCode::MISDIRECTED_REQUEST, close)
}

fn is_head(request: &head::Request) -> bool {
    request.method == Method::HEAD
}

/// The answer to a certificate authority that validates a name over plain HTTP (RFC 8555 section 8.3), before any route.
fn challenge(session: &Session, request: &head::Request) -> Option<Bytes> {
    let is_asked = session.brief.tls.is_none() && matches!(request.method, Method::GET | Method::HEAD);
    if is_asked { session.worker.shared.challenges.response(request.normal_path()) } else { None }
}

/// Adds the fields of a route to the response, if there is one.
fn finished(
    session: &Session,
    context: &RequestContext,
    route: &HttpRoute,
    mut outcome: RequestOutcome,
) -> RequestOutcome {
    if let Ok(response) = &mut outcome {
        finish(session, context, route, response);
    }
    outcome
}

/// Adds the fields of a route to a response of its own or its servers'.
pub(crate) fn finish(
    session: &Session,
    context: &RequestContext,
    route: &HttpRoute,
    response: &mut Response<ReplyContent>,
) {
    if let Some(hsts) = &route.headers.hsts
        && session.brief.tls.is_some()
    {
        response.fields.set(b"strict-transport-security", hsts.as_bytes());
    }
    route.headers.response.apply(&mut response.fields, &RequestValues { session, context, route });
}

/// A response of our own, with the length of its body, which HEAD leaves out.
pub(crate) fn own(mut response: Response<Bytes>, head: bool) -> Response<ReplyContent> {
    let bodiless = matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !bodiless {
        let length = response.body.len() as u64;
        response.fields.set_known(Known::ContentLength, itoa::Buffer::new().format(length).as_bytes());
    }
    response.map(|body| if head || bodiless { ReplyContent::Empty } else { ReplyContent::own(body) })
}

impl GuardState {
    /// The time that the head of the latest request took to come.
    fn lateness(&self) -> Duration {
        Duration::from_millis(match self.began.replace(0) {
            0 => 0,
            began => coarse_ms().saturating_sub(began),
        })
    }
}
