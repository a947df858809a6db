//! A request's way to a server: choice, queue, connection, exchange, and another try where that is safe.

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

use super::again::{Back, Verdict, judge, keep};
use super::body::ServerBody;
use super::h2::{Exchange, Head as ServerHead, Http2Stream};
use super::line::{Held, Http1Connection, InterimListener, Outbound, Received, RequestBody};
use super::pool::ServerPool;
use super::pools::{BackendState, Pools, PrivateConnections};
use super::reach::{ServerConnection, connected, pooled};
use super::watch::{Deadline, after};
use crate::admission::{Denied, Permit, Wish, client_key, permit_later, permit_now};
use crate::backend::{Backend, PoolLimits, Protocol};
use crate::connect::{Progress, Reason};
use crate::fault::{Failure, Fault};
use crate::health::{self, Outcome};
use crate::link::Link;
use crate::pick::{HashKey, Policy, Tried, key};
use crate::sticky::{self, Tie};

/// What is known of a request beside itself.
pub struct Affinity<'a, B: RequestBody> {
    /// The client's address, for consistent hashing.
    pub client: Option<IpAddr>,
    /// Whether the client came over TLS: a sticky cookie is then for TLS alone.
    pub tls: bool,
    /// The connections to use instead of the worker's.
    pub private: Option<&'a PrivateConnections<B>>,
    /// Called when a server is picked, and for each attempt to connect.
    pub progress: &'a dyn Fn(Progress<'_>),
    /// Receives interim responses; without one they are dropped.
    pub interim: Option<Arc<dyn InterimListener>>,
    /// Times instead of those of the backend.
    pub timeouts: Timeouts,
}

/// Times of one request instead of those of its backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    /// From the request to the head of the response.
    pub response: Option<Duration>,
    /// Between two pieces of the response's body.
    pub body: Option<Duration>,
}

impl Timeouts {
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
    head: Head<'r>,
    body: B,
}

#[derive(Debug)]
enum Head<'r> {
    Borrowed(&'r head::Request),
    Owned(Box<head::Request>),
}

impl Deref for Head<'_> {
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
        Self { head: Head::Borrowed(head), body }
    }
}

impl<B> From<Request<B>> for ServerRequest<'_, B> {
    fn from(request: Request<B>) -> Self {
        let head = Head::Owned(Box::new((&request).into()));
        Self { head, body: request.into_body() }
    }
}

/// A response whose head has come.
#[derive(Debug)]
pub struct Answer<B: RequestBody> {
    /// The response.
    pub response: Response<ServerBody<B>>,
    /// The server's place in its backend.
    pub server: usize,
    /// How many connections were tried.
    pub tries: u16,
    /// How long it waited while all servers were full; zero where it did not.
    pub queue: Duration,
    /// How long connecting took; `None` where a connection of the pool did.
    pub connect: Option<Duration>,
    /// The cookie that ties the client to this server, where it has to be set.
    pub set_cookie: Option<HeaderValue>,
    /// The connection, where the protocol changes with this response (101, or a CONNECT that was let through).
    pub tunnel: Option<Tunnel>,
}

/// A connection to a server that speaks HTTP no longer, and what is held of its server meanwhile.
pub struct Tunnel {
    /// The connection.
    pub link: Link,
    /// What was read behind the response: the first bytes of the new protocol.
    pub ahead: Bytes,
    _permit: Permit,
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("ahead", &self.ahead.len()).finish_non_exhaustive()
    }
}

/// What is to be sent of a request, while it is on no connection.
#[allow(clippy::large_enum_variant)]
enum Unsent<B: RequestBody> {
    /// The body; the head was not written yet.
    New(B),
    /// It was sent on an HTTP/1 connection, which gave it back.
    Written(Outbound<B>),
    /// It was on a stream of HTTP/2, which gave it back.
    Returned(Back<B>),
}

/// A request under way.
struct UpstreamRequest<'r, B: RequestBody> {
    head: Head<'r>,
    /// What is to be sent, while it is not on a connection.
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

/// How one attempt ended. Large, and moved once.
#[allow(clippy::large_enum_variant)]
enum Attempt<B: RequestBody> {
    Answered(Response<ServerBody<B>>, Option<Tunnel>),
    /// Nothing of the request was used, and it is back: another server may have it.
    Unreached(Reason),
    /// The server had closed the connection, and the request is back: another connection may have it.
    Stale(Fault, Permit),
    /// The server says that it has done nothing with the request, which is back: another connection may have it, or
    /// another server.
    Refused(Fault, Permit),
    Failed(Fault),
}

impl<B: RequestBody> Pools<B> {
    /// Sends a request to a server of `backend` and waits for the head of the response.
    ///
    /// The request is sent as it is: its target, its `Host` and the absence of hop-by-hop headers are
    /// the caller's business. A server that cannot be reached is replaced by the next one, whatever the
    /// method, as nothing was sent. A connection of the pool that turns out to be closed is replaced
    /// by a new one to another server, or to the same where there is no other, where the method is idempotent (RFC 9110
    /// §9.2.2), nothing of the body was used and no byte of a response came; if that one is dropped in the same way,
    /// another server is tried once more. A request that a server of HTTP/2 refused unseen is sent again
    /// whatever its method (RFC 9113 §8.7), once to the same server and then to the others, where what was
    /// sent of its body is not more than is kept.
    ///
    /// # Errors
    /// [`Failure`] says what to answer and whose fault it is.
    pub fn send<'r, R: Into<ServerRequest<'r, B>>>(
        &'r self,
        backend: &'r Arc<Backend>,
        request: R,
        about: &'r Affinity<'r, B>,
    ) -> impl Future<Output = Result<Answer<B>, Failure>> + use<'r, B, R> {
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
        // What is taken in is kept once; the arguments of a function would be kept beside what becomes of them.
        async move {
            match request.run().await {
                Ok((response, tunnel)) => Ok(request.answer(response, tunnel)),
                Err(fault) => Err(request.failure(fault)),
            }
        }
    }
}

// A request carries the futures of these along, and they are moved as a whole: what is rare is boxed.
impl<B: RequestBody> UpstreamRequest<'_, B> {
    async fn run(&mut self) -> Result<(Response<ServerBody<B>>, Option<Tunnel>), Fault> {
        let mut unreached: Option<Reason> = None;
        let mut refused: Option<Fault> = None;
        let (mut kept, mut again, mut aborts) = (None, false, 0_u8);
        loop {
            let permit = match kept.take() {
                Some(permit) => permit,
                None => match self.acquire_now().transpose() {
                    Some(permit) => permit,
                    None => Box::pin(self.acquire()).await,
                }
                .map_err(|reason| {
                    let unreached = unreached.take().or(reason).unwrap_or(Reason::NoServerAlive);
                    refused.take().unwrap_or(Fault::Connect(unreached))
                })?,
            };
            let server = permit.server();
            if self.server != Some(server) {
                (self.about.progress)(Progress::Picked(&self.backend.servers[server].name));
            }
            self.server = Some(server);
            match self.attempt(permit, again).await {
                Attempt::Answered(response, tunnel) => {
                    self.note(server, outcome(response.status));
                    self.state.own.chooser.borrow_mut().note_success(server);
                    return Ok((response, tunnel));
                }
                Attempt::Unreached(reason) => {
                    // The next server would fare no better, and this one did nothing wrong.
                    if reason.is_ours() {
                        return Err(Fault::Connect(reason));
                    }
                    self.note(server, Outcome::Bad);
                    self.state.own.chooser.borrow_mut().note_failure(server, Instant::now());
                    self.tried.insert(server);
                    unreached = Some(reason);
                    again = false;
                }
                Attempt::Stale(fault, held) => {
                    aborts += 1;
                    let Some(next) = self.after_abort(held, aborts) else {
                        return Err(self.blame(server, fault));
                    };
                    (kept, again) = (Some(next), true);
                }
                Attempt::Refused(_, held) if !again => (kept, again) = (Some(held), true),
                // It is going, and says so: the others may have room.
                Attempt::Refused(fault, _) => {
                    self.tried.insert(server);
                    (refused, again) = (Some(fault), false);
                }
                Attempt::Failed(fault) => return Err(self.blame(server, fault)),
            }
        }
    }

    /// Notes a fault that the client learns of.
    fn blame(&self, server: usize, fault: Fault) -> Fault {
        if fault.is_the_servers() {
            self.note(server, Outcome::Bad);
        }
        fault
    }

    /// Whom a request goes to, by a new connection, that a server has dropped unanswered. That server may have done no more
    /// than close an idle connection, or it may be dead: another one gets the request where there is one. A request that
    /// belongs to its server, by a cookie or a hash, stays there for one more try, as does one for which there are only
    /// backups. Where a new connection was dropped as well, there is one more try with another server, and no third.
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

    /// A permit, if there is one at once; `Err(None)`: nobody is left to be tried.
    fn acquire_now(&self) -> Result<Option<Permit>, Option<Reason>> {
        let wish = Wish { key: self.key, tied: self.tied.map(|tie| tie.server), tried: &self.tried };
        permit_now(self.backend, &self.state.own, wish).map_err(Denied::reason)
    }

    /// A permit, after a wait.
    async fn acquire(&mut self) -> Result<Permit, Option<Reason>> {
        let wish = Wish { key: self.key, tied: self.tied.map(|tie| tie.server), tried: &self.tried };
        let begun = Instant::now();
        let due = after(coarse_ms(), self.backend.limits.queue_timeout);
        let later = permit_later(self.backend, &self.state.own, wish);
        let permit = until(due, self.pools.watch().deadline(), later).await;
        self.queue += begun.elapsed();
        match permit {
            Some(permit) => permit.map_err(Denied::reason),
            None => Err(Some(Reason::QueueTimeout)),
        }
    }

    /// One connection, one exchange; `again`: on a connection that is new.
    async fn attempt(&mut self, permit: Permit, again: bool) -> Attempt<B> {
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
                    Err(reason) => return Attempt::Unreached(reason),
                }
            }
        };
        match connection {
            ServerConnection::Http1(line, pool) => self.over_http1(line, pool, permit, again).await,
            ServerConnection::Http2(stream) => Box::pin(self.over_http2(stream, permit, again)).await,
        }
    }

    /// The version to be spoken. Where servers choose, a request that was written for one stays with it, and one that
    /// asks for another protocol (RFC 9110 §7.8) is for HTTP/1.1.
    fn protocol(&self) -> Protocol {
        match (self.backend.protocol, &self.unsent) {
            (Protocol::Either, Some(Unsent::Written(_))) => Protocol::Http1,
            (Protocol::Either, Some(Unsent::Returned(_))) => Protocol::Http2,
            (Protocol::Either, Some(Unsent::New(_))) if self.head.fields.contains(Known::Upgrade) => {
                Protocol::Http1
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
    ) -> Attempt<B> {
        // On a new connection, too, once one was dropped: its server may be going.
        let pooled = line.is_reused() || again;
        match self.unsent.take() {
            Some(Unsent::New(body)) => {
                // What another protocol will say is no content.
                let announce =
                    self.backend.protocol == Protocol::Either && !self.head.fields.contains(Known::Upgrade);
                line.send(&self.head, body, announce);
            }
            Some(Unsent::Written(request)) => line.send_again(&self.head, request),
            // It comes back before another attempt is made, and only a connection of its version is made for it.
            Some(Unsent::Returned(_)) | None => return Attempt::Unreached(Reason::NoServerAlive),
        }
        let limits = &self.backend.limits;
        let mut deadline = self.pools.watch().deadline();
        let (timeouts, interim) = (self.about.timeouts, self.about.interim.as_ref());
        match line.receive_head(interim, &mut deadline, timeouts.response(limits)).await {
            Ok(Received::Response(response)) => {
                let held = Held {
                    pool,
                    _permit: permit,
                    deadline,
                    patience: timeouts.body(limits),
                    moved: coarse_ms(),
                };
                Attempt::Answered(response.map(|()| ServerBody::of_line(line, held)), None)
            }
            Ok(Received::Switched(response)) => {
                let (link, ahead) = line.into_parts();
                let tunnel = Tunnel { link, ahead, _permit: permit };
                Attempt::Answered(response.map(|()| ServerBody::empty()), Some(tunnel))
            }
            Err(fault) => match line.take_back(&fault, pooled) {
                Some(request) => {
                    self.unsent = Some(Unsent::Written(request));
                    Attempt::Stale(fault, permit)
                }
                None => Attempt::Failed(fault),
            },
        }
    }

    /// An exchange over HTTP/2.
    async fn over_http2(&mut self, stream: Http2Stream, permit: Permit, again: bool) -> Attempt<B> {
        let pooled = stream.is_reused() || again;
        let body = match self.unsent.take() {
            Some(Unsent::New(body)) => keep(body, self.pools.kept_bodies()),
            Some(Unsent::Returned(back)) => back,
            Some(Unsent::Written(_)) | None => return Attempt::Unreached(Reason::NoServerAlive),
        };
        let (body, copy) = body.pack(&self.head.method, pooled);
        let mut exchange = Exchange::new(stream, body);
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
                let ServerHead { response, .. } = *head;
                let body = ServerBody::of_stream(exchange, permit, deadline, timeouts.body(limits));
                Attempt::Answered(response.map(|()| body), None)
            }
            Err(broken) => match judge(broken, copy, exchange.stream()) {
                Verdict::Over(fault) => Attempt::Failed(fault),
                Verdict::Stale(fault, back) => {
                    self.unsent = Some(Unsent::Returned(back));
                    Attempt::Stale(fault, permit)
                }
                Verdict::Refused(fault, back) => {
                    self.unsent = Some(Unsent::Returned(back));
                    Attempt::Refused(fault, permit)
                }
            },
        }
    }

    fn answer(&self, response: Response<ServerBody<B>>, tunnel: Option<Tunnel>) -> Answer<B> {
        // One has answered.
        let server = self.server.unwrap_or_default();
        let sticky =
            self.backend.sticky.as_ref().filter(|_| self.tied != Some(Tie { server, outdated: false }));
        let set_cookie =
            sticky.and_then(|sticky| sticky.set_cookie(&self.backend.servers[server].name, self.about.tls));
        Answer {
            response,
            server,
            tries: self.tries,
            queue: self.queue,
            connect: self.connect,
            set_cookie,
            tunnel,
        }
    }

    fn failure(self, fault: Fault) -> Failure {
        let server = self.server.map(|server| Arc::clone(&self.backend.servers[server].name));
        Failure { fault, server, tries: self.tries, queue: self.queue, connect: self.connect }
    }

    fn note(&self, server: usize, outcome: Outcome) {
        if self.backend.ejection.is_some() {
            health::note(self.backend, server, outcome, coarse_ms());
        }
    }
}

/// What a status says of the server that sent it.
fn outcome(status: StatusCode) -> Outcome {
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Outcome::Bad
        }
        _ => Outcome::Good,
    }
}

/// What a request is known by.
fn hash_key(policy: &Policy, fields: &Fields, client: Option<IpAddr>) -> Option<u64> {
    let Policy::Hash(by) = policy else { return None };
    let own = match by {
        HashKey::Client => None,
        HashKey::Cookie(name) => sticky::cookie(fields, name).map(key),
        HashKey::Header(name) => fields.named(name.as_str().as_bytes()).next().map(key),
    };
    // One that has no such thing goes where its client goes.
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
