//! The way to a server and back: what is taken out of a request and put into it, and what its response
//! becomes.

use std::rc::Rc;
use std::sync::Arc;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    SET_COOKIE, TRANSFER_ENCODING, UPGRADE,
};
use http::request;
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Body as _;
use offramp_http::semantics::{hop_by_hop, protected};
use offramp_observe::facts::Scheme;
use offramp_observe::{Cause, Close};
use offramp_upstream::{
    Affinity, Answer, Aside, Backend, HashKey, InterimListener, Policy, Protocol as Speaks, ServerBody,
    Tunnel,
};

use super::answer::Refusal;
use super::body::{Bounds, ClientBody, Reply};
use super::exchange::{Arrival, Client, Outcome, finish};
use super::h2::Protocol;
use super::inbound::Inbound;
use super::record::Carrier;
use super::session::{Private, Session};
use super::told::{self, X_REQUEST_ID};
use super::trace;
use super::tunnel::{self, Switch};
use crate::failure;
use crate::snapshot::http::{Http, HttpRoute, Proxy, Rewrite};

const SEC_WEBSOCKET_KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const SEC_WEBSOCKET_ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");

/// The host of a request that names none.
static NO_HOST: HeaderValue = HeaderValue::from_static("");

/// A request that is to go to a server, and everything that it goes by.
pub(crate) struct Errand<'e> {
    pub(crate) session: &'e Rc<Session>,
    pub(crate) arrival: &'e Arrival,
    pub(crate) client: &'e Client,
    pub(crate) http: &'e Http,
    pub(crate) route: &'e HttpRoute,
    pub(crate) proxy: &'e Proxy,
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

/// A request as its server is to get it.
pub(crate) struct Bound {
    request: Request<ClientBody>,
    turn: Turn,
    interim: Option<Arc<dyn InterimListener>>,
    private: Option<Private>,
    /// What the server is told of the client, where that is not in the header.
    told: Option<Rc<[u8]>>,
}

impl Errand<'_> {
    /// Makes a request one for a server.
    pub(crate) fn bind(&self, request: Request<Inbound>, carrier: &Carrier) -> Result<Bound, Refusal> {
        let backend = self.backend();
        carrier.0.note(|facts| facts.path.backend = Some(Arc::clone(&backend.name)));
        let received = request.version();
        let (mut parts, body) = request.into_parts();
        if was_reset(&body) {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, Cause::ClientAborted));
        }
        hop_by_hop::count_forward(&parts.method, &mut parts.headers);
        let turn = self.turn(&mut parts, backend.protocol)?;
        let body = self.body(body, &parts.headers, carrier);
        let told = self.header(&mut parts.headers, received, carrier);
        // A body of unknown length is left out with these methods, unless the header says that there is one.
        if matches!(parts.method, Method::GET | Method::HEAD)
            && backend.protocol == Speaks::Http1
            && !matches!(turn, Turn::Stream)
            && !body.is_end_stream()
            && !parts.headers.contains_key(CONTENT_LENGTH)
        {
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        self.target(&mut parts, backend.protocol)?;
        parts.version = Version::HTTP_11;
        Ok(Bound {
            request: Request::from_parts(parts, body),
            turn,
            interim: self.interim(),
            private: self.private(),
            told,
        })
    }

    /// Sends a request to a server, and makes its response one for the client. A block, for the reason of
    /// [`serve`](super::exchange::serve).
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn forward(&self, bound: Bound, carrier: Carrier) -> impl Future<Output = Outcome> {
        async move {
            let backend = self.backend();
            let counters = &self.session.worker.counters;
            let attempted = |succeeded: bool| {
                counters.connect_attempted();
                if !succeeded {
                    counters.connect_failed();
                }
            };
            let record = Rc::clone(&carrier.0);
            let authority = self.arrival.authority.as_ref();
            let host = self.arrival.names_host().then_some(authority.unwrap_or(&NO_HOST));
            let fields = |out: &mut Vec<u8>| {
                out.extend_from_slice(bound.told.as_deref().unwrap_or_default());
                record.write_id(out);
            };
            let about = Affinity {
                client: self.arrival.named.or(self.session.ip),
                tls: self.session.scheme == Scheme::Https,
                private: bound.private.as_deref(),
                attempted: &attempted,
                interim: bound.interim,
                aside: bound.told.is_some().then_some(Aside { host, fields: &fields }),
            };
            match self.session.worker.pools.send(backend, bound.request, &about).await {
                Ok(answer) => self.answered(answer, bound.turn, carrier),
                Err(failed) => {
                    let refusal = failure::request(&failed, &carrier.0, backend.servers.len());
                    Err((refusal, carrier))
                }
            }
        }
    }

    /// The connections to use where servers get a PROXY header.
    fn private(&self) -> Option<Private> {
        let version = self.proxy.send_proxy?;
        Some(self.session.private(version, self.arrival.named))
    }

    fn backend(&self) -> &Arc<Backend> {
        &self.arrival.view.snapshot.backends[self.proxy.backend]
    }

    /// Who is told of interim responses; nobody where the client knows none.
    fn interim(&self) -> Option<Arc<dyn InterimListener>> {
        match self.client {
            Client::Line(_) if self.arrival.passed.http10 => None,
            Client::Line(line) => {
                line.interim.begin(self.arrival.passed.expects);
                Some(Arc::clone(&line.interim) as Arc<dyn InterimListener>)
            }
            Client::Stream(listener) => Some(Arc::clone(listener)),
        }
    }

    /// Takes out what is for one connection only, and finds out whether the client wants another protocol.
    fn turn(&self, parts: &mut request::Parts, speaks: Speaks) -> Result<Turn, Refusal> {
        let upgrade = hop_by_hop::clean_request(&mut parts.headers, self.arrival.passed.switches);
        let mut extensions = std::mem::take(&mut parts.extensions);
        let may = speaks != Speaks::Http2;
        if parts.method == Method::CONNECT {
            let refused = |detail: &str| {
                let close = Close::from(Cause::BadRequest).with_detail(detail);
                Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, close))
            };
            let (Some(Protocol(protocol)), true) = (extensions.remove(), may) else {
                return refused("CONNECT is not served here");
            };
            // Of another, such as h2c, no route or log would see what follows.
            if !is_websocket(&protocol) {
                return refused("CONNECT for another protocol than websocket");
            }
            parts.method = Method::GET;
            parts.headers.insert(SEC_WEBSOCKET_KEY, tunnel::websocket_key(&self.session.worker));
            switching(&mut parts.headers, HeaderValue::from_static("websocket"));
            return Ok(Turn::Stream);
        }
        match upgrade {
            Some(protocol) if may => {
                switching(&mut parts.headers, protocol);
                Ok(Turn::Upgrade)
            }
            _ => Ok(Turn::None),
        }
    }

    fn body(&self, incoming: Inbound, headers: &HeaderMap, carrier: &Carrier) -> ClientBody {
        let limits = &self.http.limits;
        let bounds = Bounds {
            timeout: limits.request_body_timeout,
            rate: limits.min_body_rate,
            most: self.route.max_body,
        };
        let body = ClientBody::new(incoming, Rc::clone(&carrier.0), bounds);
        let Some(line) = self.client.line() else { return body };
        let unasked = self.arrival.passed.expects && headers.contains_key(EXPECT);
        body.behind(&line.gate, unasked.then_some(&line.interim))
    }

    /// Whether what the server is told of the client need not be in the header, where rules may change it, balancing
    /// may look at it, and what a trusted proxy has said is extended: written at once it costs much less.
    fn tells_in_writing(&self) -> bool {
        let backend = self.backend();
        backend.protocol == Speaks::Http1
            && !self.arrival.view.trusted
            && self.route.request_headers.is_empty()
            && !matches!(backend.policy, Policy::Hash(HashKey::Header(_)))
    }

    /// What the server sees. Gives what is not put into the header: that it is told of the client.
    fn header(&self, headers: &mut HeaderMap, received: Version, carrier: &Carrier) -> Option<Rc<[u8]>> {
        let host = self.arrival.authority.as_ref();
        let written = self.tells_in_writing().then(|| told::written(self.session, host));
        protected::drop_lookalikes(headers, &self.route.request_headers);
        if self.arrival.view.trusted {
            if self.arrival.view.is_contradicted(self.session.ip, headers, self.arrival.named) {
                headers.remove(FORWARDED);
            }
            told::extend_told(headers, self.session, host, self.arrival.named);
        } else {
            protected::drop_claims(headers);
            if written.is_none() {
                told::tell(headers, self.session, host);
            }
            if let Some(shown) = self.session.client_certificate() {
                shown.tell(headers, self.route.xfcc);
            }
        }
        if written.is_none()
            && let Some(id) = carrier.0.id_value()
        {
            headers.insert(X_REQUEST_ID, id);
        }
        if let Some(trace) = carrier.0.trace() {
            trace::tell(headers, &trace);
        }
        match (self.arrival.names_host(), &written) {
            (true, Some(_)) => drop(headers.remove(HOST)),
            (true, None) => {
                headers.insert(HOST, host.unwrap_or(&NO_HOST).clone());
            }
            (false, _) => {}
        }
        if received == Version::HTTP_2 {
            join_cookies(headers);
            if self.arrival.passed.expects {
                headers.remove(EXPECT);
            }
        }
        if self.http.via {
            told::via(headers, received);
        }
        self.route.request_headers.apply(headers);
        written
    }

    /// What the server is asked for: a path, or for HTTP/2 a whole URI.
    fn target(&self, parts: &mut request::Parts, speaks: Speaks) -> Result<(), Refusal> {
        let bad = || Refusal::new(StatusCode::BAD_REQUEST, Cause::BadRequest);
        let rewritten = rewrite(&self.proxy.rewrite, &parts.uri);
        let origin = parts.uri.authority().is_none() && rewritten.is_none();
        if origin && speaks == Speaks::Http1 {
            return Ok(());
        }
        let path = match rewritten {
            Some(text) => PathAndQuery::try_from(text).map_err(|_| bad())?,
            None => parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
        };
        let mut uri = http::uri::Parts::default();
        uri.path_and_query = Some(path);
        if speaks != Speaks::Http1 {
            let tls = self.backend().tls.is_some();
            uri.scheme = Some(if tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
            let host = parts.headers.remove(HOST).filter(|host| !host.is_empty()).ok_or_else(bad)?;
            uri.authority = Some(host.as_bytes().try_into().map_err(|_| bad())?);
        }
        parts.uri = Uri::from_parts(uri).map_err(|_| bad())?;
        Ok(())
    }

    /// The response of a server becomes one for the client.
    fn answered(&self, answer: Answer<ClientBody>, turn: Turn, carrier: Carrier) -> Outcome {
        let record = Rc::clone(&carrier.0);
        record.note(|facts| {
            facts.path.server = Some(Arc::clone(&answer.server));
            facts.path.tries = answer.tries;
            facts.times.queue = (!answer.queue.is_zero()).then_some(answer.queue);
            facts.times.connect = answer.connect;
            facts.times.first_byte = Some(record.elapsed());
        });
        let set_cookie = answer.set_cookie;
        let mut response = answer.response;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switched(response, answer.tunnel, turn, carrier);
        }
        // To the client 200 would mean that its WebSocket is open (RFC 8441 §5).
        if matches!(turn, Turn::Stream) && response.status().is_success() {
            let close =
                Close::from(Cause::BadResponse).with_detail("a WebSocket was answered without the switch");
            return Err((Refusal::new(StatusCode::BAD_GATEWAY, close), carrier));
        }
        let version = std::mem::replace(response.version_mut(), Version::HTTP_11);
        let headers = response.headers_mut();
        hop_by_hop::clean_response(headers);
        if let Some(cookie) = set_cookie {
            headers.append(SET_COOKIE, cookie);
        }
        if self.http.via {
            told::via(headers, version);
        }
        record.answered(response.status().as_u16());
        let mut response = response.map(|body| Reply::server(body, carrier));
        finish(self.session, self.route, &mut response);
        Ok(response)
    }

    /// The server agreed to another protocol.
    fn switched(
        &self,
        response: Response<ServerBody<ClientBody>>,
        server: Option<Tunnel>,
        turn: Turn,
        carrier: Carrier,
    ) -> Outcome {
        let (mut parts, _) = response.into_parts();
        let protocol = parts.headers.get(UPGRADE).cloned();
        hop_by_hop::clean_response(&mut parts.headers);
        parts.headers.remove(CONTENT_LENGTH);
        parts.extensions.clear();
        match (turn, self.client.line(), server) {
            (Turn::Upgrade, Some(line), Some(server)) => {
                carrier.0.answered(101);
                if let Some(protocol) = protocol {
                    switching(&mut parts.headers, protocol);
                }
                *line.switch.borrow_mut() = Some(Switch { server, carrier });
                let mut response = Response::from_parts(parts, Reply::nothing());
                finish(self.session, self.route, &mut response);
                Ok(response)
            }
            (Turn::Stream, _, Some(server)) if protocol.as_ref().is_some_and(is_websocket) => {
                carrier.0.answered(200);
                parts.status = StatusCode::OK;
                parts.headers.remove(SEC_WEBSOCKET_ACCEPT);
                let mut response = Response::from_parts(parts, Reply::tunnel(Switch { server, carrier }));
                finish(self.session, self.route, &mut response);
                Ok(response)
            }
            _ => {
                let close = Close::from(Cause::BadResponse).with_detail("101 was not asked for");
                Err((Refusal::new(StatusCode::BAD_GATEWAY, close), carrier))
            }
        }
    }
}

/// Whether the stream of a body is reset already: it looks like an empty one, which is another request.
fn was_reset(body: &Inbound) -> bool {
    match body {
        Inbound::Stream(content) => content.was_reset(),
        _ => false,
    }
}

/// Whether a protocol to change to is WebSocket (RFC 6455 §11.2).
fn is_websocket(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
}

/// Has a message say that the protocol changes (RFC 9110 §7.8).
fn switching(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// HTTP/2 may send cookies one by one, HTTP/1.1 wants them in one field (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    let (Some(first), Some(_)) = (crumbs.next(), crumbs.next()) else { return };
    let mut all = first.as_bytes().to_vec();
    for crumb in headers.get_all(COOKIE).iter().skip(1) {
        all.extend_from_slice(b"; ");
        all.extend_from_slice(crumb.as_bytes());
    }
    if let Ok(all) = HeaderValue::try_from(all) {
        headers.insert(COOKIE, all);
    }
}

/// The new path and query, where they change.
fn rewrite(rewrite: &Rewrite, uri: &Uri) -> Option<String> {
    let (cut, with) = match rewrite {
        Rewrite::Keep => return None,
        Rewrite::Strip(cut) => (*cut, ""),
        Rewrite::Replace(cut, with) => (*cut, &**with),
    };
    let rest = uri.path().get(cut..)?;
    let mut path = String::with_capacity(with.len() + rest.len() + 1);
    path.push_str(with.strip_suffix('/').filter(|_| rest.starts_with('/')).unwrap_or(with));
    if !path.ends_with('/') && !rest.starts_with('/') && (path.is_empty() || !rest.is_empty()) {
        path.push('/');
    }
    path.push_str(rest);
    if let Some(query) = uri.query() {
        path.push('?');
        path.push_str(query);
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_rewritten() {
        let of = |rule: &Rewrite, uri: &str| rewrite(rule, &uri.parse().unwrap());
        let strip = Rewrite::Strip("/app".len());
        assert_eq!(of(&strip, "/app/x?q=1").as_deref(), Some("/x?q=1"));
        assert_eq!(of(&strip, "/app").as_deref(), Some("/"));
        assert_eq!(of(&strip, "/app?q").as_deref(), Some("/?q"));
        let replace = Rewrite::Replace("/app".len(), "/new".into());
        assert_eq!(of(&replace, "/app/x").as_deref(), Some("/new/x"));
        assert_eq!(of(&replace, "/app").as_deref(), Some("/new"));
        let root = Rewrite::Replace("/app".len(), "/".into());
        assert_eq!(of(&root, "/app/x").as_deref(), Some("/x"));
        assert_eq!(of(&root, "/app").as_deref(), Some("/"));
        let slash = Rewrite::Strip("/app/".len());
        assert_eq!(of(&slash, "/app/x").as_deref(), Some("/x"));
        assert_eq!(of(&Rewrite::Keep, "/app"), None);
        assert_eq!(of(&Rewrite::Replace(0, "/v2".into()), "/x").as_deref(), Some("/v2/x"));
    }

    #[test]
    fn crumbs_are_joined() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1"));
        join_cookies(&mut headers);
        assert_eq!(headers[COOKIE], "a=1");
        headers.append(COOKIE, HeaderValue::from_static("b=2"));
        headers.append(COOKIE, HeaderValue::from_static("c=3"));
        join_cookies(&mut headers);
        assert_eq!(headers[COOKIE], "a=1; b=2; c=3");
        assert_eq!(headers.get_all(COOKIE).iter().count(), 1);
    }
}
