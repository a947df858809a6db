//! A request's way to a server: choice, queue, connection, exchange, and another try where that is safe.

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::header::HeaderValue;
use http::{Method, Request, Response, StatusCode};
use offramp_net::clock::coarse_ms;

use super::again::{judge, pack};
use super::body::{Carrier, ServerBody, Source};
use super::line::RequestBody;
use super::outgoing::Progress;
use super::pools::{House, Pools, PrivateConnections};
use super::reach::{connected, pooled};
use super::watch::{Deadline, after};
use crate::admission::{Denied, Seat, Wish, client_key, seat_later, seat_now};
use crate::backend::Backend;
use crate::connect::Reason;
use crate::fault::{Failure, Fault};
use crate::health::{self, Outcome};
use crate::pick::{HashKey, Policy, Tried, key};
use crate::sticky;

/// What is known of a request beside itself.
pub struct Affinity<'a, B: RequestBody> {
    /// The client's address, for consistent hashing.
    pub client: Option<IpAddr>,
    /// Whether the client came over TLS: a sticky cookie is then for TLS alone.
    pub tls: bool,
    /// The connections to use instead of the worker's.
    pub private: Option<&'a PrivateConnections<B>>,
    /// Told of each attempt to connect, and whether it succeeded.
    pub attempted: &'a dyn Fn(bool),
}

/// A response whose head has come.
#[derive(Debug)]
pub struct Answer<B: RequestBody> {
    /// The response; with status 101 `hyper::upgrade::on` gives the connection.
    pub response: Response<ServerBody<B>>,
    /// The server's name.
    pub server: Arc<str>,
    /// How many connections were tried.
    pub tries: u16,
    /// How long it waited while all servers were full; zero where it did not.
    pub queue: Duration,
    /// How long connecting took; `None` where a connection of the pool did.
    pub connect: Option<Duration>,
    /// The cookie that ties the client to this server, where it has to be set.
    pub set_cookie: Option<HeaderValue>,
    /// Where the connection was upgraded (101, or a CONNECT that was let through): to be kept as long
    /// as it is used.
    pub tunnel: Option<Tunnel<B>>,
}

/// What an upgraded connection holds of its server.
pub struct Tunnel<B: RequestBody> {
    _seat: Seat,
    _carrier: Option<Carrier<B>>,
}

impl<B: RequestBody> fmt::Debug for Tunnel<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel")
    }
}

/// A request under way.
struct Journey<'j, B: RequestBody> {
    /// The request, while it is not on a connection.
    request: Option<Request<B>>,
    pools: &'j Pools<B>,
    backend: &'j Arc<Backend>,
    about: &'j Affinity<'j, B>,
    house: Rc<House<B>>,
    key: Option<u64>,
    tied: Option<usize>,
    /// Whether the method is CONNECT.
    connects: bool,
    tried: Tried,
    server: Option<usize>,
    tries: u16,
    queue: Duration,
    connect: Option<Duration>,
}

/// How one attempt ended. Large, and moved once.
#[allow(clippy::large_enum_variant)]
enum Attempt<B: RequestBody> {
    Answered(Response<ServerBody<B>>, Option<Tunnel<B>>),
    /// Nothing of the request was used, and it is back: another server may have it.
    Unreached(Reason),
    /// The server had closed the connection, and the request is back: another connection may have it.
    Stale(Fault, Seat),
    Failed(Fault),
}

impl<B: RequestBody> Pools<B> {
    /// Sends a request to a server of `backend` and waits for the head of the response.
    ///
    /// The request is sent as it is: its target, its `Host` and the absence of hop-by-hop headers are
    /// the caller's business. A server that cannot be reached is replaced by the next one, whatever the
    /// method, as nothing was sent. A connection of the pool that turns out to be closed is replaced
    /// once by a new one, where the method is idempotent (RFC 9110 §9.2.2), nothing of the body was
    /// used and no byte of a response came.
    ///
    /// # Errors
    /// [`Failure`] says what to answer and whose fault it is.
    pub async fn send(
        &self,
        backend: &Arc<Backend>,
        request: Request<B>,
        about: &Affinity<'_, B>,
    ) -> Result<Answer<B>, Failure> {
        self.attend();
        let names = || backend.servers.iter().map(|server| &*server.name);
        let tied = backend.sticky.as_ref().and_then(|sticky| sticky.server(request.headers(), names()));
        let mut journey = Journey {
            pools: self,
            backend,
            about,
            house: self.house(backend),
            key: hash_key(&backend.policy, &request, about.client),
            tied,
            connects: request.method() == Method::CONNECT,
            request: Some(request),
            tried: Tried::default(),
            server: None,
            tries: 0,
            queue: Duration::ZERO,
            connect: None,
        };
        match journey.run().await {
            Ok((response, tunnel)) => Ok(journey.answer(response, tunnel)),
            Err(fault) => Err(journey.failure(fault)),
        }
    }
}

impl<B: RequestBody> Journey<'_, B> {
    async fn run(&mut self) -> Result<(Response<ServerBody<B>>, Option<Tunnel<B>>), Fault> {
        let mut unreached: Option<Reason> = None;
        loop {
            let seat = match self.sit().await {
                Ok(seat) => seat,
                Err(None) => return Err(Fault::Connect(unreached.unwrap_or(Reason::NoServerAlive))),
                Err(Some(reason)) => return Err(Fault::Connect(unreached.unwrap_or(reason))),
            };
            let server = seat.server();
            self.server = Some(server);
            let mut attempt = self.attempt(seat, false).await;
            if let Attempt::Stale(_, seat) = attempt {
                attempt = self.attempt(seat, true).await;
            }
            match attempt {
                Attempt::Answered(response, tunnel) => {
                    self.note(server, outcome(response.status()));
                    self.house.chooser.borrow_mut().note_success(server);
                    return Ok((response, tunnel));
                }
                Attempt::Unreached(reason) => {
                    // The next server would fare no better, and this one did nothing wrong.
                    if reason.is_ours() {
                        return Err(Fault::Connect(reason));
                    }
                    self.note(server, Outcome::Bad);
                    self.house.chooser.borrow_mut().note_failure(server, Instant::now());
                    self.tried.insert(server);
                    unreached = Some(reason);
                }
                Attempt::Stale(fault, ..) | Attempt::Failed(fault) => {
                    if fault.is_the_servers() {
                        self.note(server, Outcome::Bad);
                    }
                    return Err(fault);
                }
            }
        }
    }

    /// A seat, after a wait if need be; `Err(None)`: nobody is left to be tried.
    async fn sit(&mut self) -> Result<Seat, Option<Reason>> {
        let wish = Wish { key: self.key, tied: self.tied, tried: &self.tried };
        let chooser = &self.house.chooser;
        if let Some(seat) = seat_now(self.backend, chooser, wish).map_err(Denied::reason)? {
            return Ok(seat);
        }
        let begun = Instant::now();
        let due = after(coarse_ms(), self.backend.limits.queue_timeout);
        let later = seat_later(self.backend, chooser, wish);
        let seat = until(due, self.pools.watch().deadline(), later).await;
        self.queue += begun.elapsed();
        match seat {
            Some(seat) => seat.map_err(Denied::reason),
            None => Err(Some(Reason::QueueTimeout)),
        }
    }

    /// One connection, one exchange; `again`: on a connection that is new.
    async fn attempt(&mut self, seat: Seat, again: bool) -> Attempt<B> {
        self.tries = self.tries.saturating_add(1);
        let server = seat.server();
        let shelf = match self.about.private {
            Some(private) => private.shelf(self.backend, server),
            None => Rc::clone(&self.house.shelves[server]),
        };
        let pooled = if again { None } else { pooled(self.backend.protocol, &shelf) };
        let mut carrier = match pooled {
            Some(carrier) => carrier,
            None => {
                let begun = Instant::now();
                let made = connected(self.backend, server, shelf, self.about).await;
                self.connect = Some(self.connect.unwrap_or_default() + begun.elapsed());
                match made {
                    Ok(carrier) => carrier,
                    Err(reason) => return Attempt::Unreached(reason),
                }
            }
        };
        let Some(request) = self.request.take() else {
            // It comes back before another attempt is made.
            return Attempt::Unreached(Reason::NoServerAlive);
        };
        let (request, copy) = pack(request, &carrier, carrier.is_reused() && !again);
        let mut deadline = self.pools.watch().deadline();
        let limit = self.backend.limits.response_timeout;
        let due = |progress: &Progress| progress.since().map(|since| after(since, limit));
        let heard = match &mut carrier {
            Carrier::Line(line, _) => {
                let response = pin!(line.send(request));
                line.hear(response, &mut deadline, due).await
            }
            Carrier::Stream(stream) => {
                let response = pin!(stream.send(request));
                stream.hear(response, &mut deadline, due).await
            }
        };
        match heard {
            Ok(response) if self.is_upgraded(response.status()) => {
                let tunnel = Tunnel { _seat: seat, _carrier: carrier.hand_over().await };
                Attempt::Answered(response.map(ServerBody::empty), Some(tunnel))
            }
            Ok(response) => {
                let patience = self.backend.limits.body_timeout;
                let source = Source { carrier, _seat: seat, deadline, patience, moved: coarse_ms() };
                Attempt::Answered(response.map(|incoming| ServerBody::new(incoming, source)), None)
            }
            Err(broken) => {
                let (fault, request) = judge(broken, copy, &carrier);
                self.request = request;
                if self.request.is_some() { Attempt::Stale(fault, seat) } else { Attempt::Failed(fault) }
            }
        }
    }

    /// Whether the connection is no longer HTTP's after a response with this status.
    fn is_upgraded(&self, status: StatusCode) -> bool {
        status == StatusCode::SWITCHING_PROTOCOLS || (self.connects && status.is_success())
    }

    fn answer(&self, response: Response<ServerBody<B>>, tunnel: Option<Tunnel<B>>) -> Answer<B> {
        // One has answered.
        let server = self.server.unwrap_or_default();
        let name = Arc::clone(&self.backend.servers[server].name);
        let sticky = self.backend.sticky.as_ref().filter(|_| self.tied != Some(server));
        let set_cookie = sticky.and_then(|sticky| sticky.set_cookie(&name, self.about.tls));
        Answer {
            response,
            server: name,
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
fn hash_key<B>(policy: &Policy, request: &Request<B>, client: Option<IpAddr>) -> Option<u64> {
    let Policy::Hash(by) = policy else { return None };
    let own = match by {
        HashKey::Client => None,
        HashKey::Cookie(name) => sticky::cookie(request.headers(), name).map(key),
        HashKey::Header(name) => request.headers().get(name).map(|value| key(value.as_bytes())),
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
