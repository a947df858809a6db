//! The way of a request to a server: choice, queue, connection, exchange, and a retry if that is safe.

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::Deref;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Request, StatusCode};
use offramp_http::head::{self, Fields, Known, Response};
use offramp_net::clock::coarse_ms;

use super::again::{Back, RetryVerdict, judge, keep};
use super::body::ServerBody;
use super::h2::{FinalHead, Http2Stream, StreamExchange};
use super::line::{Http1Connection, InterimListener, Outbound, ReceivedHead, RequestBody, ResponseLease};
use super::pool::ServerPool;
use super::pools::{BackendState, Pools, PrivateConnections};
use super::reach::{ServerConnection, connected, pooled};
use super::watch::{Deadline, after};
use crate::admission::{AdmissionError, Permit, PermitRequest, client_key, permit_later, permit_now};
use crate::backend::{Backend, PoolLimits, ServerProtocol};
use crate::connect::ConnectEvent;
use crate::ejection;
use crate::fault::{ConnectFault, FailedRequest, UpstreamFault};
use crate::health::ServerOutcome;
use crate::link::ServerStream;
use crate::pick::{BalancePolicy, HashSource, Tried, key};
use crate::sticky::{self, Tie};

/// Context of a request.
pub struct Affinity<'a, B: RequestBody> {
    /// Address of the client, for consistent hashing.
    pub client: Option<IpAddr>,
    /// Set if the client uses TLS, which makes a sticky cookie `Secure`.
    pub tls: bool,
    /// Connections to use instead of the worker's.
    pub private: Option<&'a PrivateConnections<B>>,
    /// Called when a server is picked, and for each attempt to connect.
    pub progress: &'a dyn Fn(ConnectEvent<'_>),
    /// Receives interim responses; without a listener they are dropped.
    pub interim: Option<Arc<dyn InterimListener>>,
    /// Timeouts that override those of the backend.
    pub timeouts: Timeouts,
}

/// Timeouts of one request that override those of its backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    /// For one attempt to connect.
    pub connect: Option<Duration>,
    /// From the request to the head of the response.
    pub response: Option<Duration>,
    /// Between two pieces of the response's body.
    pub body: Option<Duration>,
}

impl Timeouts {
    pub(super) fn connect(self, limits: &PoolLimits) -> Duration {
        self.connect.unwrap_or(limits.connect_timeout)
    }

    fn response(self, limits: &PoolLimits) -> Duration {
        self.response.unwrap_or(limits.response_timeout)
    }

    fn body(self, limits: &PoolLimits) -> Duration {
        self.body.unwrap_or(limits.body_timeout)
    }
}

/// A request for a server: its head, which the caller may keep, and its body.
#[derive(Debug)]
pub struct ServerRequest<'r, B> {
    head: HeadCow<'r>,
    body: B,
}

#[derive(Debug)]
enum HeadCow<'r> {
    Borrowed(&'r head::Request),
    Owned(Box<head::Request>),
}

impl Deref for HeadCow<'_> {
    type Target = head::Request;

    fn deref(&self) -> &head::Request {
        match self {
            Self::Borrowed(head) => head,
            Self::Owned(head) => head,
        }
    }
}

impl<'r, B> From<(&'r head::Request, B)> for ServerRequest<'r, B> {
    fn from((head, body): (&'r head::Request, B)) -> Self {
        Self { head: HeadCow::Borrowed(head), body }
    }
}

impl<B> From<Request<B>> for ServerRequest<'_, B> {
    fn from(request: Request<B>) -> Self {
        let head = HeadCow::Owned(Box::new((&request).into()));
        Self { head, body: request.into_body() }
    }
}

/// A response after its head was received.
#[derive(Debug)]
pub struct UpstreamResponse<B: RequestBody> {
    /// Head and body of the response.
    pub response: Response<ServerBody<B>>,
    /// Index of the server in its backend.
    pub server: usize,
    /// Number of connections tried.
    pub tries: u16,
    /// Time waited while all servers were full.
    pub queue: Duration,
    /// Duration of connecting; `None` for a pooled connection.
    pub connect: Option<Duration>,
    /// Cookie that ties the client to this server, if it has to be set.
    pub set_cookie: Option<HeaderValue>,
    /// The connection, if the protocol is switched by this response (101, or an accepted CONNECT).
    pub tunnel: Option<Tunnel>,
}

/// A connection to a server after a switch of the protocol, with its count on the server.
pub struct Tunnel {
    /// The connection to the server.
    pub link: ServerStream,
    /// Bytes read behind the response: the beginning of the new protocol.
    pub ahead: Bytes,
    _permit: Permit,
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("ahead", &self.ahead.len()).finish_non_exhaustive()
    }
}

/// The unsent part of a request while it is on no connection.
#[allow(clippy::large_enum_variant)]
enum Unsent<B: RequestBody> {
    /// The body; the head was not encoded yet.
    New(B),
    /// A request returned by an HTTP/1 connection.
    Written(Outbound<B>),
    /// A request returned by an HTTP/2 stream.
    Returned(Back<B>),
}

/// A request under way.
struct UpstreamRequest<'r, B: RequestBody> {
    head: HeadCow<'r>,
    /// The unsent part, while the request is on no connection.
    unsent: Option<Unsent<B>>,
    pools: &'r Pools<B>,
    backend: &'r Arc<Backend>,
    about: &'r Affinity<'r, B>,
    state: Rc<BackendState<B>>,
    key: Option<u64>,
    tied: Option<Tie>,
    tried: Tried,
    server: Option<usize>,
    tries: u16,
    queue: Duration,
    connect: Option<Duration>,
}

/// Result of an attempt. Large, and moved once.
#[allow(clippy::large_enum_variant)]
enum AttemptResult<B: RequestBody> {
    Answered(Response<ServerBody<B>>, Option<Tunnel>),
    /// Nothing of the request was used, and it was returned: another server may get it.
    Unreached(ConnectFault),
    /// The server had closed the connection, and the request was returned: another connection may get it.
    Stale(UpstreamFault, Permit),
    /// The server has refused the request unprocessed, and it was returned: another connection may get it, or
    /// another server.
    Refused(UpstreamFault, Permit),
    Failed(UpstreamFault),
}

impl<B: RequestBody> Pools<B> {
    /// Sends a request to a server of `backend` and waits for the head of the response.
    ///
    /// The request is sent as it is: its target, its `Host` and the removal of hop-by-hop fields are up to
    /// the caller.
    ///
    /// Retries: a server that cannot be reached is replaced by the next one, whatever the method, as nothing
    /// was sent. A pooled connection that turns out to be closed is replaced by a new one to another server,
    /// or to the same if there is no other, provided that the method is idempotent (RFC 9110 §9.2.2), nothing
    /// of the body was used and no byte of a response came; if the new connection is dropped in the same way,
    /// one more server is tried. A request that an HTTP/2 server refused unseen is sent again whatever its
    /// method (RFC 9113 §8.7), once to the same server and then to the others, while the sent part of its
    /// body is kept.
    ///
    /// # Errors
    /// A [`FailedRequest`], which determines the response and names the party at fault.
    pub fn send<'r, R: Into<ServerRequest<'r, B>>>(
        &'r self,
        backend: &'r Arc<Backend>,
        request: R,
        about: &'r Affinity<'r, B>,
    ) -> impl Future<Output = Result<UpstreamResponse<B>, FailedRequest>> + use<'r, B, R> {
        self.attend();
        let ServerRequest { head, body } = request.into();
        let names = || backend.servers.iter().map(|server| &*server.name);
        let tied = backend.sticky.as_ref().and_then(|sticky| sticky.server(&head.fields, names()));
        let mut request = UpstreamRequest {
            pools: self,
            backend,
            about,
            state: self.state(backend),
            key: hash_key(&backend.policy, &head.fields, about.client),
            tied,
            head,
            unsent: Some(Unsent::New(body)),
            tried: Tried::default(),
            server: None,
            tries: 0,
            queue: Duration::ZERO,
            connect: None,
        };
        // Captured values are stored once; the arguments of an async function would be stored beside its
        // locals.
        async move {
            match request.run().await {
                Ok((response, tunnel)) => Ok(request.answer(response, tunnel)),
                Err(fault) => Err(request.failure(fault)),
            }
        }
    }
}

// The futures of these are part of each request and moved as a whole, so rare state is boxed.
impl<B: RequestBody> UpstreamRequest<'_, B> {
    async fn run(&mut self) -> Result<(Response<ServerBody<B>>, Option<Tunnel>), UpstreamFault> {
        let mut unreached: Option<ConnectFault> = None;
        let mut refused: Option<UpstreamFault> = None;
        let (mut kept, mut again, mut aborts) = (None, false, 0_u8);
        loop {
            let permit = match kept.take() {
                Some(permit) => permit,
                None => match self.acquire_now().transpose() {
                    Some(permit) => permit,
                    None => Box::pin(self.acquire()).await,
                }
                .map_err(|reason| {
                    let unreached = unreached.take().or(reason).unwrap_or(ConnectFault::NoServerAlive);
                    refused.take().unwrap_or(UpstreamFault::Connect(unreached))
                })?,
            };
            let server = permit.server();
            if self.server != Some(server) {
                (self.about.progress)(ConnectEvent::Picked(&self.backend.servers[server].name));
            }
            self.server = Some(server);
            match self.attempt(permit, again).await {
                AttemptResult::Answered(response, tunnel) => {
                    self.note(server, outcome(response.status));
                    self.state.own.chooser.borrow_mut().note_success(server);
                    return Ok((response, tunnel));
                }
                AttemptResult::Unreached(reason) => {
                    // The next server would fail as well, and this one is not at fault.
                    if reason.is_ours() {
                        return Err(UpstreamFault::Connect(reason));
                    }
                    self.note(server, ServerOutcome::Bad);
                    self.state.own.chooser.borrow_mut().note_failure(server, Instant::now());
                    self.tried.insert(server);
                    unreached = Some(reason);
                    again = false;
                }
                AttemptResult::Stale(fault, held) => {
                    aborts += 1;
                    let Some(next) = self.after_abort(held, aborts) else {
                        return Err(self.blame(server, fault));
                    };
                    (kept, again) = (Some(next), true);
                }
                AttemptResult::Refused(_, held) if !again => (kept, again) = (Some(held), true),
                // The server is shutting down; the others may have capacity.
                AttemptResult::Refused(fault, _) => {
                    self.tried.insert(server);
                    (refused, again) = (Some(fault), false);
                }
                AttemptResult::Failed(fault) => return Err(self.blame(server, fault)),
            }
        }
    }

    /// Records a fault that is reported to the client.
    fn blame(&self, server: usize, fault: UpstreamFault) -> UpstreamFault {
        if fault.blames_server() {
            self.note(server, ServerOutcome::Bad);
        }
        fault
    }

    /// Selects the server for a retry, by a new connection, after a server has dropped a request unanswered.
    /// That server may have closed an idle connection, or it may be dead: another one gets the request if
    /// there is one. A request bound to its server by a cookie or a hash stays there for one more try, as
    /// does one for which there are only backups. If a new connection was dropped as well, there is one more
    /// try with another server, and no third.
    fn after_abort(&mut self, held: Permit, aborts: u8) -> Option<Permit> {
        let (server, bound) = (held.server(), self.key.is_some() || self.tied.is_some());
        if aborts > 2 {
            return None;
        }
        if aborts == 1 && bound {
            return Some(held);
        }
        self.tried.insert(server);
        let backup = |server: usize| self.backend.picker.is_backup(server);
        match self.acquire_now() {
            Ok(Some(other)) if aborts > 1 || !backup(other.server()) || backup(server) => Some(other),
            _ => (aborts == 1).then_some(held),
        }
    }

    /// Gets a permit, if there is one at once; `Err(None)`: no server is left to try.
    fn acquire_now(&self) -> Result<Option<Permit>, Option<ConnectFault>> {
        let request =
            PermitRequest { key: self.key, tied: self.tied.map(|tie| tie.server), tried: &self.tried };
        permit_now(self.backend, &self.state.own, request).map_err(AdmissionError::reason)
    }

    /// Gets a permit, after a wait.
    async fn acquire(&mut self) -> Result<Permit, Option<ConnectFault>> {
        let request =
            PermitRequest { key: self.key, tied: self.tied.map(|tie| tie.server), tried: &self.tried };
        let begun = Instant::now();
        let due = after(coarse_ms(), self.backend.limits.queue_timeout);
        let later = permit_later(self.backend, &self.state.own, request);
        let permit = until(due, self.pools.watch().deadline(), later).await;
        self.queue += begun.elapsed();
        match permit {
            Some(permit) => permit.map_err(AdmissionError::reason),
            None => Err(Some(ConnectFault::QueueTimeout)),
        }
    }

    /// One connection, one exchange; `again` requires a new connection.
    async fn attempt(&mut self, permit: Permit, again: bool) -> AttemptResult<B> {
        self.tries = self.tries.saturating_add(1);
        let server = permit.server();
        let pool = match self.about.private {
            Some(private) => private.pool(self.pools, self.backend, server),
            None => Rc::clone(&self.state.server_pools[server]),
        };
        let protocol = self.protocol();
        let pooled = if again { None } else { pooled(protocol, &pool) };
        let connection = match pooled {
            Some(connection) => connection,
            None => {
                let begun = Instant::now();
                let made = Box::pin(connected(self.backend, protocol, server, pool, self.about)).await;
                self.connect = Some(self.connect.unwrap_or_default() + begun.elapsed());
                match made {
                    Ok(connection) => connection,
                    Err(reason) => return AttemptResult::Unreached(reason),
                }
            }
        };
        match connection {
            ServerConnection::Http1(line, pool) => self.over_http1(line, pool, permit, again).await,
            ServerConnection::Http2(stream) => Box::pin(self.over_http2(stream, permit, again)).await,
        }
    }

    /// Version of HTTP to be used. If servers choose, a request encoded for one version stays with it, and
    /// one that asks for another protocol (RFC 9110 §7.8) uses HTTP/1.1.
    fn protocol(&self) -> ServerProtocol {
        match (self.backend.protocol, &self.unsent) {
            (ServerProtocol::Either, Some(Unsent::Written(_))) => ServerProtocol::Http1,
            (ServerProtocol::Either, Some(Unsent::Returned(_))) => ServerProtocol::Http2,
            (ServerProtocol::Either, Some(Unsent::New(_))) if self.head.fields.contains(Known::Upgrade) => {
                ServerProtocol::Http1
            }
            (protocol, _) => protocol,
        }
    }

    /// An exchange over HTTP/1.
    async fn over_http1(
        &mut self,
        mut line: Box<Http1Connection<B>>,
        pool: Rc<ServerPool<B>>,
        permit: Permit,
        again: bool,
    ) -> AttemptResult<B> {
        // Also for a new connection after a dropped one: its server may be shutting down.
        let pooled = line.is_reused() || again;
        match self.unsent.take() {
            Some(Unsent::New(body)) => {
                // Data of an upgraded protocol is not content.
                let announce = self.backend.protocol == ServerProtocol::Either
                    && !self.head.fields.contains(Known::Upgrade);
                line.send(&self.head, body, announce);
            }
            Some(Unsent::Written(request)) => line.send_again(&self.head, request),
            // A returned request gets a connection of its own version only.
            Some(Unsent::Returned(_)) | None => return AttemptResult::Unreached(ConnectFault::NoServerAlive),
        }
        let limits = &self.backend.limits;
        let mut deadline = self.pools.watch().deadline();
        let (timeouts, interim) = (self.about.timeouts, self.about.interim.as_ref());
        match line.receive_head(interim, &mut deadline, timeouts.response(limits)).await {
            Ok(ReceivedHead::Response(response)) => {
                let held = ResponseLease {
                    pool,
                    _permit: permit,
                    deadline,
                    patience: timeouts.body(limits),
                    moved: coarse_ms(),
                };
                AttemptResult::Answered(response.map(|()| ServerBody::of_line(line, held)), None)
            }
            Ok(ReceivedHead::Switched(response)) => {
                let (link, ahead) = line.into_parts();
                let tunnel = Tunnel { link, ahead, _permit: permit };
                AttemptResult::Answered(response.map(|()| ServerBody::empty()), Some(tunnel))
            }
            Err(fault) => match line.take_back(&fault, pooled) {
                Some(request) => {
                    self.unsent = Some(Unsent::Written(request));
                    AttemptResult::Stale(fault, permit)
                }
                None => AttemptResult::Failed(fault),
            },
        }
    }

    /// An exchange over HTTP/2.
    async fn over_http2(&mut self, stream: Http2Stream, permit: Permit, again: bool) -> AttemptResult<B> {
        let pooled = stream.is_reused() || again;
        let body = match self.unsent.take() {
            Some(Unsent::New(body)) => keep(body, self.pools.kept_bodies()),
            Some(Unsent::Returned(back)) => back,
            Some(Unsent::Written(_)) | None => return AttemptResult::Unreached(ConnectFault::NoServerAlive),
        };
        let (body, copy) = body.pack(&self.head.method, pooled);
        let mut exchange = StreamExchange::new(stream, body);
        let mut deadline = self.pools.watch().deadline();
        let limits = &self.backend.limits;
        let (timeouts, interim) = (self.about.timeouts, self.about.interim.as_ref());
        let head = match exchange.send(&self.head) {
            Ok(()) => exchange.head(interim, &mut deadline, timeouts.response(limits)).await,
            Err(broken) => Err(broken),
        };
        match head {
            Ok(head) => {
                copy.settle();
                let FinalHead { response, .. } = *head;
                let body = ServerBody::of_stream(exchange, permit, deadline, timeouts.body(limits));
                AttemptResult::Answered(response.map(|()| body), None)
            }
            Err(broken) => match judge(broken, copy, exchange.stream()) {
                RetryVerdict::Over(fault) => AttemptResult::Failed(fault),
                RetryVerdict::Stale(fault, back) => {
                    self.unsent = Some(Unsent::Returned(back));
                    AttemptResult::Stale(fault, permit)
                }
                RetryVerdict::Refused(fault, back) => {
                    self.unsent = Some(Unsent::Returned(back));
                    AttemptResult::Refused(fault, permit)
                }
            },
        }
    }

    fn answer(&self, response: Response<ServerBody<B>>, tunnel: Option<Tunnel>) -> UpstreamResponse<B> {
        // A server has responded, so it is set.
        let server = self.server.unwrap_or_default();
        let sticky =
            self.backend.sticky.as_ref().filter(|_| self.tied != Some(Tie { server, outdated: false }));
        let set_cookie =
            sticky.and_then(|sticky| sticky.set_cookie(&self.backend.servers[server].name, self.about.tls));
        UpstreamResponse {
            response,
            server,
            tries: self.tries,
            queue: self.queue,
            connect: self.connect,
            set_cookie,
            tunnel,
        }
    }

    fn failure(self, fault: UpstreamFault) -> FailedRequest {
        let server = self.server.map(|server| Arc::clone(&self.backend.servers[server].name));
        FailedRequest { fault, server, tries: self.tries, queue: self.queue, connect: self.connect }
    }

    fn note(&self, server: usize, outcome: ServerOutcome) {
        if self.backend.ejection.is_some() {
            ejection::note(self.backend, server, outcome, coarse_ms());
        }
    }
}

/// Outcome for the server that sent a status.
fn outcome(status: StatusCode) -> ServerOutcome {
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            ServerOutcome::Bad
        }
        _ => ServerOutcome::Good,
    }
}

/// Hash key of a request.
fn hash_key(policy: &BalancePolicy, fields: &Fields, client: Option<IpAddr>) -> Option<u64> {
    let BalancePolicy::Hash(by) = policy else { return None };
    let own = match by {
        HashSource::Client => None,
        HashSource::Cookie(name) => sticky::cookie(fields, name).map(key),
        HashSource::Header(name) => fields.named(name.as_str().as_bytes()).next().map(key),
    };
    // Without the cookie or header, the client's address is the key.
    own.or_else(|| client.map(client_key))
}

/// Awaits `future` until `due`.
async fn until<T>(due: u64, mut deadline: Deadline, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending if deadline.wait(due, cx.waker()) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}
