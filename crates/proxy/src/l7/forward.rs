//! The way to a server and back: the request as the server gets it, and the response as the client gets it.

mod rewrite;

use std::rc::Rc;
use std::sync::Arc;

use http::{Method, StatusCode, Version};
use offramp_config::model::Size;
use offramp_http::head::{Fields, Known, Request, Response};
use offramp_http::semantics::{HeaderRules, hop_by_hop, protected};
use offramp_observe::facts::ClientScheme;
use offramp_observe::{Cause, Close};
use offramp_upstream::{
    Affinity, Backend, ConnectEvent, InterimListener, RequestBody as _, ServerBody, ServerProtocol, Timeouts,
    Tunnel, UpstreamResponse,
};

use super::access;
use super::answer::ErrorReply;
use super::body::{ClientBody, ReplyContent, UploadLimits};
use super::compress::media_type;
use super::exchange::{RequestContext, RequestOutcome, RequestTransport, finish};
use super::forwarded_fields;
use super::inbound::Inbound;
use super::intercept;
use super::mirror;
use super::session::{Private, Session};
use super::spelling;
use super::trace;
use super::upstream_failure;
use super::values::RequestValues;
use super::websocket;
use crate::snapshot::http::{Http, HttpRoute, Proxy, Rewrite};
use crate::split::ShareChoice;
use rewrite::rewrite;

const SEC_WEBSOCKET_KEY: &[u8] = b"sec-websocket-key";
const SEC_WEBSOCKET_ACCEPT: &[u8] = b"sec-websocket-accept";

/// The detail of a refused WebSocket: RFC 8441 is served to clients, and not asked of servers.
const NO_TUNNEL_OVER_HTTP2: &str = "WebSocket to servers with `protocol = \"h2\"` is not supported";

/// The longest target that HTTP/2 can have towards a server.
const LONGEST_TARGET: usize = u16::MAX as usize - 1;

/// The way of a request to a server, and everything that it goes by.
pub(crate) struct Forward<'e> {
    pub(crate) session: &'e Rc<Session>,
    pub(crate) context: &'e RequestContext,
    pub(crate) client: &'e RequestTransport,
    pub(crate) http: &'e Http,
    pub(crate) route: &'e HttpRoute,
    pub(crate) proxy: &'e Proxy,
    /// The backend among those of the route.
    pub(crate) choice: ShareChoice,
}

/// The way in which a client may go on with another protocol.
#[derive(Clone, Copy)]
enum SwitchMode {
    None,
    /// By the response 101 (RFC 9110 §7.8).
    Upgrade,
    /// On its HTTP/2 stream (RFC 8441).
    Stream,
}

/// The parts that go to a server with the head of a request.
pub(crate) struct Forwarded {
    body: ClientBody,
    mode: SwitchMode,
    interim: Option<Arc<dyn InterimListener>>,
    private: Option<Private>,
}

/// A request as its server got it.
#[derive(Clone, Copy)]
pub(super) struct ForwardedRequest<'r> {
    pub(super) head: &'r Request,
    /// It had no body.
    pub(super) bodiless: bool,
}

impl Forward<'_> {
    /// Makes a request one for a server.
    pub(crate) fn prepare(
        &self,
        request: &mut Request,
        body: Inbound,
        protocol: Option<Box<[u8]>>,
    ) -> Result<Forwarded, ErrorReply> {
        let backend = self.backend();
        self.context.record.note(|facts| facts.path.backend = Some(Arc::clone(&backend.name)));
        if was_reset(&body) {
            return Err(ErrorReply::new(StatusCode::BAD_REQUEST, Cause::ClientAborted));
        }
        hop_by_hop::count_forward(&request.method, &mut request.fields);
        let mode = self.switch_mode(request, protocol, backend.protocol)?;
        let record = &self.context.record;
        if record.token_end().is_some() {
            record.set_endless(is_grpc(&request.fields));
        }
        let mut body = self.body(body, &request.fields);
        self.fields(request);
        // A body of unknown length is left out with these methods, unless the header says that there is one.
        if matches!(request.method, Method::GET | Method::HEAD)
            && backend.protocol == ServerProtocol::Http1
            && !matches!(mode, SwitchMode::Stream)
            && !body.is_end_stream()
            && !request.fields.contains(Known::ContentLength)
        {
            request.fields.set_known(Known::TransferEncoding, b"chunked");
        }
        self.target(request, backend.protocol)?;
        if let (Some(mirror), SwitchMode::None) = (&self.route.mirror, mode) {
            mirror::begin(self, mirror, request, &mut body);
        }
        if let Some(bandwidth) = &self.route.bandwidth {
            body = body.paced(bandwidth);
        }
        Ok(Forwarded { body, mode, interim: self.interim(), private: self.private() })
    }

    /// Sends a request to a server, and makes its response one for the client. A block, for the reason of
    /// [`serve`](super::exchange::serve).
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn forward(
        &self,
        request: &Request,
        forwarded: Forwarded,
    ) -> impl Future<Output = RequestOutcome> {
        async move {
            let backend = self.backend();
            let record = &self.context.record;
            let progress = |progress: ConnectEvent<'_>| match progress {
                ConnectEvent::Picked(server) => {
                    record.note(|facts| facts.path.server = Some(Arc::clone(server)));
                }
                ConnectEvent::Attempted { .. } => self.session.worker.count_attempt(progress),
            };
            let Forwarded { body, mode, interim, private } = forwarded;
            let bodiless = body.is_end_stream();
            let about = Affinity {
                client: self.context.named.or(self.session.ip),
                tls: self.session.scheme == ClientScheme::Https,
                private: private.as_deref(),
                progress: &progress,
                interim,
                timeouts: self.timeouts(),
            };
            match self.session.http.pools.send(backend, (request, body), &about).await {
                Ok(answer) => self.answered(answer, mode, ForwardedRequest { head: request, bodiless }),
                Err(failed) => Err(upstream_failure::refusal(&failed, record, backend.servers.len())),
            }
        }
    }

    /// The connections to use where servers get a PROXY header.
    fn private(&self) -> Option<Private> {
        let version = self.proxy.send_proxy?;
        Some(self.session.private(version, self.context.named))
    }

    fn backend(&self) -> &Arc<Backend> {
        &self.context.view.snapshot.backends[self.choice.backend]
    }

    /// The listener for interim responses; `None` where the client knows none.
    fn interim(&self) -> Option<Arc<dyn InterimListener>> {
        match self.client {
            RequestTransport::Line(_) if self.context.head_flags.http10 => None,
            RequestTransport::Line(line) => {
                let interim = Arc::clone(&*line.interim.borrow());
                self.interim_rules().into_iter().for_each(|rules| interim.follow(rules));
                Some(interim)
            }
            RequestTransport::Stream(hints) => {
                self.interim_rules().into_iter().for_each(|rules| hints.follow(rules));
                Some(Arc::clone(hints) as Arc<dyn InterimListener>)
            }
        }
    }

    /// The rules of the route for interim responses. Their listener knows nothing of the request, so that variables
    /// are filled in before.
    fn interim_rules(&self) -> Option<Arc<HeaderRules>> {
        let rules = &self.route.headers.response;
        if rules.is_empty() {
            None
        } else if rules.uses_variables() {
            Some(Arc::new(rules.filled(&self.values())))
        } else {
            Some(Arc::clone(rules))
        }
    }

    fn values(&self) -> RequestValues<'_> {
        RequestValues { session: self.session, context: self.context, route: self.route }
    }

    /// Takes out what is for one connection only, and finds out whether the client wants another protocol.
    fn switch_mode(
        &self,
        request: &mut Request,
        protocol: Option<Box<[u8]>>,
        speaks: ServerProtocol,
    ) -> Result<SwitchMode, ErrorReply> {
        let passed = if self.context.head_flags.switches { &self.route.upgrade[..] } else { &[] };
        let upgrade = hop_by_hop::clean_request(&mut request.fields, passed);
        let may = speaks != ServerProtocol::Http2;
        if request.method == Method::CONNECT {
            let refused = |detail: &str| {
                let close = Close::from(Cause::BadRequest).with_detail(detail);
                Err(ErrorReply::new(StatusCode::NOT_IMPLEMENTED, close))
            };
            let Some(protocol) = protocol else {
                return refused("CONNECT is not served here");
            };
            if !may {
                return refused(NO_TUNNEL_OVER_HTTP2);
            }
            // Of another, such as h2c, no route or log would see what follows.
            if !is_websocket(&protocol) {
                return refused("CONNECT for another protocol than websocket");
            }
            if !self.route.upgrade.iter().any(|passed| is_websocket(passed.as_bytes())) {
                return refused("`upgrade` of the route passes no websocket");
            }
            request.set_method(Method::GET);
            request.fields.set(SEC_WEBSOCKET_KEY, websocket::key(&self.session.worker).as_bytes());
            switching(&mut request.fields, b"websocket");
            return Ok(SwitchMode::Stream);
        }
        match upgrade {
            Some(protocol) if may => {
                switching(&mut request.fields, &protocol);
                Ok(SwitchMode::Upgrade)
            }
            // Without the fields of the handshake the server would take it for a plain GET.
            Some(protocol) if is_websocket(&protocol) => {
                let close = Close::from(Cause::BadRequest).with_detail(NO_TUNNEL_OVER_HTTP2);
                Err(ErrorReply::new(StatusCode::NOT_IMPLEMENTED, close))
            }
            _ => Ok(SwitchMode::None),
        }
    }

    /// The times of the route instead of those of the backend.
    pub(super) fn timeouts(&self) -> Timeouts {
        let limits = &self.route.plain.limits;
        Timeouts {
            connect: self.route.connect_timeout,
            response: limits.response_timeout,
            body: limits.idle_timeout,
        }
    }

    fn body(&self, incoming: Inbound, fields: &Fields) -> ClientBody {
        let (limits, own) = (&self.http.limits, &self.route.plain.limits);
        let mut bounds = UploadLimits {
            timeout: own.request_body_timeout.unwrap_or(limits.request_body_timeout),
            rate: own.min_body_rate.map_or(limits.min_body_rate, Size::bytes),
            most: self.route.plain.max_body.map(Size::bytes),
        };
        if self.may_be_quiet(&incoming) && is_grpc(fields) {
            let idle = own.idle_timeout.unwrap_or_else(|| self.session.view().snapshot.limits.idle_timeout);
            (bounds.timeout, bounds.rate) = (idle, 0);
        }
        let body = ClientBody::new(incoming, Rc::clone(&self.context.record), bounds);
        let body = body.without_trailers(self.route.headers.trailers.as_ref());
        let Some(line) = self.client.line() else { return body };
        let unasked = self.context.head_flags.expects && fields.contains(Known::Expect);
        body.behind(&line.guard_state, unasked.then_some(&line.interim.borrow()))
    }

    /// Returns true for bodies on a way that can carry gRPC: its client sends messages when it has some, and its server may
    /// answer the last one. Others would gain patience for slow uploads by claiming to be gRPC.
    fn may_be_quiet(&self, incoming: &Inbound) -> bool {
        matches!(incoming, Inbound::Stream(_))
            && self.backend().protocol != ServerProtocol::Http1
            && !incoming.is_end_stream()
    }

    /// Makes the fields those that the server gets.
    fn fields(&self, request: &mut Request) {
        let received = request.version;
        request.settle_host();
        let rules = &self.route.headers.request;
        if self.context.view.trusted {
            protected::drop_lookalikes(&mut request.fields, rules);
            self.extend_forwarded(request);
        } else {
            protected::drop_claims(&mut request.fields, self.route.plain.keep_original_url);
            if !rules.is_empty() {
                protected::drop_lookalikes(&mut request.fields, rules);
            }
            self.tell(request);
            if let Some(shown) = self.session.client_certificate() {
                shown.tell(&mut request.fields, self.route.xfcc);
            }
        }
        let fields = &mut request.fields;
        protected::clean_trailer_names(fields, self.route.headers.trailers.as_deref());
        self.context.record.tell_id(fields);
        if let Some(trace) = self.context.record.trace() {
            trace::tell(fields, &trace);
        }
        if received == Version::HTTP_2 {
            join_cookies(fields);
            if self.context.head_flags.expects {
                fields.remove(Known::Expect);
            }
        }
        if self.http.via {
            forwarded_fields::via(fields, received);
        }
        access::settle(&self.route.access, self.context, fields);
        rules.apply(fields, &self.values());
    }

    /// Tells the server of the client.
    fn tell(&self, request: &mut Request) {
        // These fields name the host, which lies among what is changed.
        let own = forwarded_fields::own(self.session, asked(request));
        request.fields.append_all(&own);
    }

    /// Extends what a trusted proxy tells the server of the client.
    fn extend_forwarded(&self, request: &mut Request) {
        let (view, named) = (&self.context.view, self.context.named);
        if view.is_contradicted(self.session.ip, &request.fields, named) {
            request.fields.remove(Known::Forwarded);
        }
        let own = forwarded_fields::own(self.session, asked(request));
        forwarded_fields::extend(&mut request.fields, &own, named);
    }

    /// Sets the target for the server.
    fn target(&self, request: &mut Request, speaks: ServerProtocol) -> Result<(), ErrorReply> {
        let Proxy { rewrite: rule, paths, .. } = self.proxy;
        // Finding the path costs as much as finding a route.
        if (paths.normalize || !matches!(rule, Rewrite::Keep))
            && let Some(target) = rewrite(rule, paths.normalize, request)
        {
            // Of a path with one reading, every part has one.
            if !request.spelling().is_single() {
                let cut = match rule {
                    Rewrite::Strip(cut) => request.normal_path().get(..*cut).unwrap_or_default(),
                    _ => "",
                };
                let (host, sent) = (self.context.host.as_deref(), target.split('?').next());
                let made = spelling::MadePath { cut, sent: sent.unwrap_or_default() };
                spelling::check_made(&self.http.routes, host, self.route, made)?;
            }
            request.set_target(target.as_bytes());
        }
        // A URI of HTTP/2 has an authority.
        let bad = || {
            request.fields.get(Known::Host).is_none_or(<[u8]>::is_empty)
                || request.target().len() > LONGEST_TARGET
        };
        if speaks != ServerProtocol::Http1 && bad() {
            return Err(ErrorReply::new(StatusCode::BAD_REQUEST, Cause::BadRequest));
        }
        Ok(())
    }

    /// The response of a server becomes one for the client.
    fn answered(
        &self,
        answer: UpstreamResponse<ClientBody>,
        mode: SwitchMode,
        request: ForwardedRequest<'_>,
    ) -> RequestOutcome {
        let record = &self.context.record;
        record.note(|facts| {
            facts.path.tries = answer.tries;
            facts.times.queue = (!answer.queue.is_zero()).then_some(answer.queue);
            facts.times.connect = answer.connect;
            facts.times.first_byte = Some(record.elapsed());
            facts.is_open_ended = is_event_stream(&answer.response.fields);
        });
        let set_cookie = answer.set_cookie;
        let mut response = answer.response;
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.switched(response, answer.tunnel, mode, request.head);
        }
        // To the client 200 would mean that its WebSocket is open (RFC 8441 §5).
        if matches!(mode, SwitchMode::Stream) && response.status.is_success() {
            let close =
                Close::from(Cause::BadResponse).with_detail("a WebSocket was answered without the switch");
            return Err(ErrorReply::new(StatusCode::BAD_GATEWAY, close));
        }
        record.set_endless(response.body.length().is_none());
        let fields = &mut response.fields;
        hop_by_hop::clean_response(fields);
        if let Some(cookie) = set_cookie {
            fields.append(b"set-cookie", cookie.as_bytes());
        }
        let tls = self.session.scheme == ClientScheme::Https;
        if let Some(cookie) = self.proxy.to.cookie(self.choice, tls) {
            fields.append(b"set-cookie", cookie.as_bytes());
        }
        if self.http.via {
            forwarded_fields::via(fields, response.version);
        }
        let pages = self.route.error_pages.as_deref();
        let mut response = if let Some(pages) = pages.filter(|pages| pages.intercepts(response.status)) {
            intercept::replaced(response, pages, request, record)
        } else {
            response.map(ReplyContent::server)
        };
        finish(self.session, self.context, self.route, &mut response);
        Ok(response)
    }

    /// The server agreed to another protocol.
    fn switched(
        &self,
        mut response: Response<ServerBody<ClientBody>>,
        server: Option<Tunnel>,
        mode: SwitchMode,
        request: &Request,
    ) -> RequestOutcome {
        if let Err(detail) = agreed(&response.fields, mode, &request.fields) {
            let close = Close::from(Cause::BadResponse).with_detail(detail);
            return Err(ErrorReply::new(StatusCode::BAD_GATEWAY, close));
        }
        let protocol = response.fields.all(Known::Upgrade).collect::<Vec<_>>().join(&b", "[..]);
        if let (Some(bandwidth), Some(server)) = (&self.route.bandwidth, &server) {
            bandwidth.bound(server.link.socket());
        }
        hop_by_hop::clean_response(&mut response.fields);
        response.fields.remove(Known::ContentLength);
        let server = match (mode, self.client.line(), server) {
            (SwitchMode::Upgrade, Some(_), Some(server)) => {
                switching(&mut response.fields, &protocol);
                response.set_status(StatusCode::SWITCHING_PROTOCOLS);
                server
            }
            (SwitchMode::Stream, _, Some(server)) => {
                response.set_status(StatusCode::OK);
                response.fields.remove_named(SEC_WEBSOCKET_ACCEPT);
                server
            }
            _ => {
                let close = Close::from(Cause::BadResponse).with_detail("101 was not asked for");
                return Err(ErrorReply::new(StatusCode::BAD_GATEWAY, close));
            }
        };
        let mut response = response.map(|_| ReplyContent::Tunnel(server));
        finish(self.session, self.context, self.route, &mut response);
        Ok(response)
    }
}

/// Describes why a response with 101 is not the one that `request` asked for, if so. Over HTTP/1 the client has
/// made the key, and checks the answer to it by itself; for a stream it was made here.
fn agreed(response: &Fields, mode: SwitchMode, request: &Fields) -> Result<(), &'static str> {
    let offered = request.get(Known::Upgrade).unwrap_or_default();
    if matches!(mode, SwitchMode::None) || !hop_by_hop::agrees(response, offered) {
        return Err("101 was not asked for");
    }
    if matches!(mode, SwitchMode::Stream) {
        let key = request.named(SEC_WEBSOCKET_KEY).next().unwrap_or_default();
        let mut accepts = response.named(SEC_WEBSOCKET_ACCEPT);
        if accepts.next() != Some(websocket::accept(key).as_bytes()) || accepts.next().is_some() {
            return Err("101 has another Sec-WebSocket-Accept than its request asks for");
        }
    }
    Ok(())
}

/// The host that a request asked for, if it named one.
fn asked(request: &Request) -> Option<&[u8]> {
    request.host().filter(|host| !host.is_empty())
}

/// The stream of a body is reset already: it looks like an empty one, which is another request.
fn was_reset(body: &Inbound) -> bool {
    match body {
        Inbound::Stream(content) => content.was_reset(),
        _ => false,
    }
}

/// Set for server-sent events, and for pictures that replace each other. They have no length, so that no other response is
/// searched for its type.
fn is_event_stream(fields: &Fields) -> bool {
    if fields.contains(Known::ContentLength) {
        return false;
    }
    let kind = media_type(fields);
    kind.eq_ignore_ascii_case(b"text/event-stream") || kind.eq_ignore_ascii_case(b"multipart/x-mixed-replace")
}

/// Set for calls of gRPC and gRPC-Web, each of which may be a stream in both directions.
fn is_grpc(fields: &Fields) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    media_type(fields).get(..GRPC.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC))
}

/// A protocol to change to is WebSocket (RFC 6455 §11.2).
pub(super) fn is_websocket(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"websocket")
}

/// Has a message say that the protocol changes (RFC 9110 §7.8).
fn switching(fields: &mut Fields, protocol: &[u8]) {
    fields.set_known(Known::Connection, b"upgrade");
    fields.set_known(Known::Upgrade, protocol);
}

/// HTTP/2 may send cookies one by one, HTTP/1.1 wants them in one field (RFC 9113 §8.2.3).
pub(super) fn join_cookies(fields: &mut Fields) {
    let mut crumbs = fields.all(Known::Cookie);
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else { return };
    let mut all = first.to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        all.extend_from_slice(b"; ");
        all.extend_from_slice(crumb);
    }
    fields.set_known(Known::Cookie, &all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crumbs_are_joined() {
        let mut fields: Fields = [("cookie", "a=1")].into_iter().collect();
        join_cookies(&mut fields);
        assert_eq!(fields.get(Known::Cookie), Some(&b"a=1"[..]));
        fields.append_known(Known::Cookie, b"b=2");
        fields.append_known(Known::Cookie, b"c=3");
        join_cookies(&mut fields);
        assert_eq!(fields.get(Known::Cookie), Some(&b"a=1; b=2; c=3"[..]));
        assert_eq!(fields.len(), 1);
    }
}
