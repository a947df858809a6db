//! The way to a server and back: what is taken out of a request and put into it, and what its response
//! becomes.

use std::rc::Rc;
use std::sync::Arc;

use http::{Method, StatusCode, Version};
use offramp_http::head::{Fields, Known, Request, Response};
use offramp_http::semantics::{HeaderRules, hop_by_hop, protected};
use offramp_observe::facts::Scheme;
use offramp_observe::{Cause, Close};
use offramp_upstream::{
    Affinity, Answer, Backend, InterimListener, Progress, Protocol as Speaks, RequestBody as _, ServerBody,
    Timeouts, Tunnel,
};

use super::access;
use super::answer::Refusal;
use super::body::{Bounds, ClientBody, Reply};
use super::compress::media_type;
use super::exchange::{Client, Outcome, RequestContext, finish};
use super::forwarded_fields;
use super::inbound::Inbound;
use super::intercept;
use super::mirror;
use super::record::RecordGuard;
use super::session::{Private, Session};
use super::spelling;
use super::trace;
use super::tunnel::Switch;
use super::values::RequestValues;
use super::websocket;
use crate::failure;
use crate::snapshot::http::{Http, HttpRoute, Proxy, Rewrite};
use crate::split::Choice;

const SEC_WEBSOCKET_KEY: &[u8] = b"sec-websocket-key";
const SEC_WEBSOCKET_ACCEPT: &[u8] = b"sec-websocket-accept";

/// The longest target that HTTP/2 can have towards a server.
const LONGEST_TARGET: usize = u16::MAX as usize - 1;

/// The way of a request to a server, and everything that it goes by.
pub(crate) struct Forward<'e> {
    pub(crate) session: &'e Rc<Session>,
    pub(crate) context: &'e RequestContext,
    pub(crate) client: &'e Client,
    pub(crate) http: &'e Http,
    pub(crate) route: &'e HttpRoute,
    pub(crate) proxy: &'e Proxy,
    /// Which of its backends.
    pub(crate) choice: Choice,
}

/// How the client may go on with another protocol.
enum Turn {
    /// Not at all.
    None,
    /// By the answer 101 (RFC 9110 §7.8).
    Upgrade,
    /// On its HTTP/2 stream (RFC 8441).
    Stream,
}

/// What goes to a server with the head of a request.
pub(crate) struct Forwarded {
    body: ClientBody,
    turn: Turn,
    interim: Option<Arc<dyn InterimListener>>,
    private: Option<Private>,
}

impl Forward<'_> {
    /// Makes a request one for a server.
    pub(crate) fn prepare(
        &self,
        request: &mut Request,
        body: Inbound,
        protocol: Option<Box<[u8]>>,
        record_guard: &RecordGuard,
    ) -> Result<Forwarded, Refusal> {
        let backend = self.backend();
        record_guard.0.note(|facts| facts.path.backend = Some(Arc::clone(&backend.name)));
        if was_reset(&body) {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, Cause::ClientAborted));
        }
        hop_by_hop::count_forward(&request.method, &mut request.fields);
        let turn = self.turn(request, protocol, backend.protocol)?;
        let mut body = self.body(body, &request.fields, record_guard);
        self.fields(request, record_guard);
        // A body of unknown length is left out with these methods, unless the header says that there is one.
        if matches!(request.method, Method::GET | Method::HEAD)
            && backend.protocol == Speaks::Http1
            && !matches!(turn, Turn::Stream)
            && !body.is_end_stream()
            && !request.fields.contains(Known::ContentLength)
        {
            request.fields.set_known(Known::TransferEncoding, b"chunked");
        }
        self.target(request, backend.protocol)?;
        if let (Some(mirror), Turn::None) = (&self.route.mirror, &turn) {
            mirror::begin(self, mirror, request, &mut body);
        }
        if let Some(bandwidth) = &self.route.bandwidth {
            body = body.paced(bandwidth);
        }
        Ok(Forwarded { body, turn, interim: self.interim(), private: self.private() })
    }

    /// Sends a request to a server, and makes its response one for the client. A block, for the reason of
    /// [`serve`](super::exchange::serve).
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn forward(
        &self,
        request: &Request,
        forwarded: Forwarded,
        record_guard: RecordGuard,
    ) -> impl Future<Output = Outcome> {
        async move {
            let backend = self.backend();
            let record = &record_guard.0;
            let progress = |progress: Progress<'_>| match progress {
                Progress::Picked(server) => {
                    record.note(|facts| facts.path.server = Some(Arc::clone(server)));
                }
                Progress::Attempted { .. } => self.session.worker.note_attempt(progress),
            };
            let Forwarded { body, turn, interim, private } = forwarded;
            let bodiless = body.is_end_stream();
            let about = Affinity {
                client: self.context.named.or(self.session.ip),
                tls: self.session.scheme == Scheme::Https,
                private: private.as_deref(),
                progress: &progress,
                interim,
                timeouts: self.timeouts(),
            };
            match self.session.worker.pools.send(backend, (request, body), &about).await {
                Ok(answer) => self.answered(answer, turn, (request, bodiless), record_guard),
                Err(failed) => {
                    let refusal = failure::request(&failed, &record_guard.0, backend.servers.len());
                    Err((refusal, record_guard))
                }
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

    /// Who gets interim responses; nobody where the client knows none.
    fn interim(&self) -> Option<Arc<dyn InterimListener>> {
        match self.client {
            Client::Line(_) if self.context.head_flags.http10 => None,
            Client::Line(line) => {
                let interim = Arc::clone(&*line.interim.borrow());
                self.interim_rules().into_iter().for_each(|rules| interim.follow(rules));
                Some(interim)
            }
            Client::Stream(hints) => {
                self.interim_rules().into_iter().for_each(|rules| hints.follow(rules));
                Some(Arc::clone(hints) as Arc<dyn InterimListener>)
            }
        }
    }

    /// What the route does to interim responses. Whoever listens for them knows nothing of the request, so that
    /// variables are filled in before.
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
    fn turn(
        &self,
        request: &mut Request,
        protocol: Option<Box<[u8]>>,
        speaks: Speaks,
    ) -> Result<Turn, Refusal> {
        let passed = if self.context.head_flags.switches { &self.route.upgrade[..] } else { &[] };
        let upgrade = hop_by_hop::clean_request(&mut request.fields, passed);
        let may = speaks != Speaks::Http2;
        if request.method == Method::CONNECT {
            let refused = |detail: &str| {
                let close = Close::from(Cause::BadRequest).with_detail(detail);
                Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, close))
            };
            let (Some(protocol), true) = (protocol, may) else {
                return refused("CONNECT is not served here");
            };
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
            return Ok(Turn::Stream);
        }
        match upgrade {
            Some(protocol) if may => {
                switching(&mut request.fields, &protocol);
                Ok(Turn::Upgrade)
            }
            _ => Ok(Turn::None),
        }
    }

    /// The times of the route instead of those of the backend.
    pub(super) fn timeouts(&self) -> Timeouts {
        let limits = &self.route.limits;
        Timeouts { response: limits.response_timeout, body: limits.idle_timeout }
    }

    fn body(&self, incoming: Inbound, fields: &Fields, record_guard: &RecordGuard) -> ClientBody {
        let (limits, own) = (&self.http.limits, &self.route.limits);
        let bounds = Bounds {
            timeout: own.request_body_timeout.unwrap_or(limits.request_body_timeout),
            rate: own.min_body_rate.unwrap_or(limits.min_body_rate),
            most: self.route.max_body,
        };
        let body = ClientBody::new(incoming, Rc::clone(&record_guard.0), bounds);
        let body = body.without_trailers(self.route.headers.trailers.as_ref());
        let Some(line) = self.client.line() else { return body };
        let unasked = self.context.head_flags.expects && fields.contains(Known::Expect);
        body.behind(&line.guard_state, unasked.then_some(&line.interim.borrow()))
    }

    /// Makes the fields those that the server gets.
    fn fields(&self, request: &mut Request, record_guard: &RecordGuard) {
        let received = request.version;
        request.settle_host();
        let rules = &self.route.headers.request;
        if self.context.view.trusted {
            protected::drop_lookalikes(&mut request.fields, rules);
            self.extend_forwarded(request);
        } else {
            protected::drop_claims(&mut request.fields, self.route.headers.keep_original_url);
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
        record_guard.0.tell_id(fields);
        if let Some(trace) = record_guard.0.trace() {
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

    /// What the server is asked for.
    fn target(&self, request: &mut Request, speaks: Speaks) -> Result<(), Refusal> {
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
                let made = (cut, sent.unwrap_or_default());
                spelling::check_made(&self.http.routes, host, self.route, made)?;
            }
            request.set_target(target.as_bytes());
        }
        // A URI of HTTP/2 has an authority.
        let bad = || {
            request.fields.get(Known::Host).is_none_or(<[u8]>::is_empty)
                || request.target().len() > LONGEST_TARGET
        };
        if speaks != Speaks::Http1 && bad() {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, Cause::BadRequest));
        }
        Ok(())
    }

    /// The response of a server becomes one for the client.
    fn answered(
        &self,
        answer: Answer<ClientBody>,
        turn: Turn,
        request: (&Request, bool),
        record_guard: RecordGuard,
    ) -> Outcome {
        let record = Rc::clone(&record_guard.0);
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
            return self.switched(response, answer.tunnel, (turn, request.0), record_guard);
        }
        // To the client 200 would mean that its WebSocket is open (RFC 8441 §5).
        if matches!(turn, Turn::Stream) && response.status.is_success() {
            let close =
                Close::from(Cause::BadResponse).with_detail("a WebSocket was answered without the switch");
            return Err((Refusal::new(StatusCode::BAD_GATEWAY, close), record_guard));
        }
        let fields = &mut response.fields;
        hop_by_hop::clean_response(fields);
        if let Some(cookie) = set_cookie {
            fields.append(b"set-cookie", cookie.as_bytes());
        }
        let tls = self.session.scheme == Scheme::Https;
        if let Some(cookie) = self.proxy.to.cookie(self.choice, tls) {
            fields.append(b"set-cookie", cookie.as_bytes());
        }
        if self.http.via {
            forwarded_fields::via(fields, response.version);
        }
        let pages = self.route.error_pages.as_deref();
        let mut response = if let Some(pages) = pages.filter(|pages| pages.intercepts(response.status)) {
            intercept::replaced(response, pages, request, record_guard)
        } else {
            record.answered(response.status.as_u16());
            response.map(|body| Reply::server(body, record_guard))
        };
        finish(self.session, self.context, self.route, &mut response);
        Ok(response)
    }

    /// The server agreed to another protocol.
    fn switched(
        &self,
        mut response: Response<ServerBody<ClientBody>>,
        server: Option<Tunnel>,
        (turn, request): (Turn, &Request),
        record_guard: RecordGuard,
    ) -> Outcome {
        if let Err(detail) = agreed(&response.fields, &turn, &request.fields) {
            let close = Close::from(Cause::BadResponse).with_detail(detail);
            return Err((Refusal::new(StatusCode::BAD_GATEWAY, close), record_guard));
        }
        let protocol = response.fields.all(Known::Upgrade).collect::<Vec<_>>().join(&b", "[..]);
        if let (Some(bandwidth), Some(server)) = (&self.route.bandwidth, &server) {
            bandwidth.bound(server.link.socket());
        }
        hop_by_hop::clean_response(&mut response.fields);
        response.fields.remove(Known::ContentLength);
        match (turn, self.client.line(), server) {
            (Turn::Upgrade, Some(line), Some(server)) => {
                record_guard.0.opened();
                switching(&mut response.fields, &protocol);
                *line.switch.borrow_mut() = Some(Switch { server, record_guard });
                response.set_status(StatusCode::SWITCHING_PROTOCOLS);
                let mut response = response.map(|_| Reply::nothing());
                finish(self.session, self.context, self.route, &mut response);
                Ok(response)
            }
            (Turn::Stream, _, Some(server)) => {
                record_guard.0.opened();
                response.set_status(StatusCode::OK);
                response.fields.remove_named(SEC_WEBSOCKET_ACCEPT);
                let mut response = response.map(|_| Reply::tunnel(Switch { server, record_guard }));
                finish(self.session, self.context, self.route, &mut response);
                Ok(response)
            }
            _ => {
                let close = Close::from(Cause::BadResponse).with_detail("101 was not asked for");
                Err((Refusal::new(StatusCode::BAD_GATEWAY, close), record_guard))
            }
        }
    }
}

/// Why a response with 101 is not the one that `request` asked for, if so. Over HTTP/1 the client has made the key, and checks
/// the answer to it by itself; for a stream it was made here.
fn agreed(response: &Fields, turn: &Turn, request: &Fields) -> Result<(), &'static str> {
    let offered = request.get(Known::Upgrade).unwrap_or_default();
    if matches!(turn, Turn::None) || !hop_by_hop::agrees(response, offered) {
        return Err("101 was not asked for");
    }
    if matches!(turn, Turn::Stream) {
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

/// Whether the stream of a body is reset already: it looks like an empty one, which is another request.
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

/// Whether a protocol to change to is WebSocket (RFC 6455 §11.2).
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

/// The new path and query, where they change. `normalize`: from the normal form, whatever the rule.
fn rewrite(rule: &Rewrite, normalize: bool, request: &Request) -> Option<String> {
    let (path, normal) = (request.path(), request.normal_path());
    let (rest, with) = match rule {
        Rewrite::Keep if normalize && path != normal => (normal, ""),
        Rewrite::Keep => return None,
        Rewrite::Strip(cut) => (behind(*cut, normalize, path, normal)?, ""),
        Rewrite::Replace(cut, with) => (behind(*cut, normalize, path, normal)?, &**with),
    };
    let mut path = String::with_capacity(with.len() + rest.len() + 1);
    path.push_str(with.strip_suffix('/').filter(|_| rest.starts_with('/')).unwrap_or(with));
    if !path.ends_with('/') && !rest.starts_with('/') && (path.is_empty() || !rest.is_empty()) {
        path.push('/');
    }
    path.push_str(rest);
    if let Some(query) = request.query() {
        path.push('?');
        path.push_str(query);
    }
    Some(path)
}

/// The part of a path behind the first `cut` bytes of its normal form: as it came, if it came with these bytes and what
/// is left has the same meaning by itself.
fn behind<'r>(cut: usize, normalize: bool, path: &'r str, normal: &'r str) -> Option<&'r str> {
    let (prefix, of_normal) = normal.split_at_checked(cut)?;
    let as_it_came = path.strip_prefix(prefix).filter(|rest| {
        !normalize && !rest.starts_with("//") && offramp_http::path::normalize(rest).text == of_normal
    });
    Some(as_it_came.unwrap_or(of_normal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_rewritten() {
        let asked = |target: &str| {
            let mut request = Request::new();
            request.set_target(target.as_bytes());
            request.normalize();
            request
        };
        let of = |rule: &Rewrite, target: &str| rewrite(rule, false, &asked(target));
        let (strip, replace) = (Rewrite::Strip("/app".len()), Rewrite::Replace("/app".len(), "/new".into()));
        for (target, stripped, replaced) in [
            ("/app/x?q=1", "/x?q=1", "/new/x?q=1"),
            ("/app", "/", "/new"),
            ("/app?q", "/?q", "/new?q"),
            ("/app/", "/", "/new/"),
            ("/app/a%7Eb//c", "/a%7Eb//c", "/new/a%7Eb//c"),
            ("/app//admin", "/admin", "/new/admin"),
            ("/app///admin", "/admin", "/new/admin"),
            ("/app/%2e/admin", "/%2e/admin", "/new/%2e/admin"),
            ("/%61pp/x%7E", "/x~", "/new/x~"),
            ("//app/x", "/x", "/new/x"),
            ("/y/../app/x", "/x", "/new/x"),
            ("/app/../app/x", "/x", "/new/x"),
            ("/app/x/../..//app/y", "/y", "/new/y"),
            ("/./app", "/", "/new"),
            ("/app/a%2fb", "/a%2fb", "/new/a%2fb"),
            ("/%61pp/a%2fb", "/a%2Fb", "/new/a%2Fb"),
        ] {
            assert_eq!(of(&strip, target).as_deref(), Some(stripped), "{target}");
            assert_eq!(of(&replace, target).as_deref(), Some(replaced), "{target}");
        }
        let root = Rewrite::Replace("/app".len(), "/".into());
        assert_eq!(of(&root, "/app/x").as_deref(), Some("/x"));
        assert_eq!(of(&root, "/app").as_deref(), Some("/"));
        let slash = Rewrite::Strip("/app/".len());
        assert_eq!(of(&slash, "/app/x").as_deref(), Some("/x"));
        assert_eq!(of(&Rewrite::Keep, "//app"), None);
        assert_eq!(of(&strip, "*"), None);
        assert_eq!(of(&Rewrite::Replace(0, "/v2".into()), "/x").as_deref(), Some("/v2/x"));
        let normal = |rule: &Rewrite, target: &str| rewrite(rule, true, &asked(target));
        assert_eq!(normal(&Rewrite::Keep, "/a/b?q"), None);
        assert_eq!(normal(&Rewrite::Keep, "//%61/./b?q=%61").as_deref(), Some("/a/b?q=%61"));
        assert_eq!(normal(&strip, "/app/a%7Eb//c").as_deref(), Some("/a~b/c"));
        assert_eq!(normal(&Rewrite::Keep, "*"), None);
    }

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
