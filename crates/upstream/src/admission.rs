//! Admission of requests to servers: the choice, the count of requests, and the wait while all are full.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Instant;

use offramp_net::clock::coarse_ms;
use offramp_tls::client::Connector;

use crate::backend::Backend;
use crate::fault::ConnectFault;
use crate::health::ServerHealth;
use crate::per_worker::{Loads, PerWorker};
use crate::pick::{ChoiceParams, Picked, ServerStanding, Tried, key};
use crate::queue::{QueueTicket, ServerId};

/// A request or connection that counts on its server until it is dropped.
#[derive(Debug)]
pub struct Permit(LoadCount);

/// Owner of the count. The server index has a size that leaves room for the rest: permits are part of each
/// request.
#[derive(Debug)]
enum LoadCount {
    /// All workers together, because a bound or the policy depends on it.
    Together { backend: Arc<Backend>, server: u32 },
    /// The worker alone, for metrics.
    Alone { loads: Rc<Loads>, server: u32 },
}

impl Permit {
    /// Index of the server in its backend.
    #[must_use]
    pub fn server(&self) -> usize {
        match self.0 {
            LoadCount::Together { server, .. } | LoadCount::Alone { server, .. } => server as usize,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match &self.0 {
            LoadCount::Alone { loads, server } => loads.leave(*server),
            LoadCount::Together { backend, server } => {
                let server = *server as usize;
                backend.health[server].leave();
                if backend.limits.max_connections.is_some() {
                    backend.queue.freed(backend.id(server));
                }
            }
        }
    }
}

/// Reason for which a request is admitted to no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionError {
    /// Every server that may be tried was tried.
    Exhausted,
    /// Every server is down or leaving.
    NoServerAlive,
    /// All servers are full, and so is the queue.
    QueueFull,
}

impl AdmissionError {
    /// Reason to be reported; `None` if the error of the last attempt says more.
    pub(crate) fn reason(self) -> Option<ConnectFault> {
        match self {
            Self::Exhausted => None,
            Self::NoServerAlive => Some(ConnectFault::NoServerAlive),
            Self::QueueFull => Some(ConnectFault::QueueFull),
        }
    }
}

/// Servers that a request may go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitRequest<'w> {
    /// Hash key of the request, for consistent hashing.
    pub(crate) key: Option<u64>,
    /// Server that it is tied to, while that one is alive.
    pub(crate) tied: Option<usize>,
    /// Servers that were tried already.
    pub(crate) tried: &'w Tried,
}

/// Addresses of a server's health and of its TLS connector.
pub(crate) type PoolId = (ServerId, usize);

/// Reserves the addresses of a server and of its connector, though not their content: while an owner exists,
/// no other server gets the same [`PoolId`].
pub(crate) struct Owner {
    health: Weak<ServerHealth>,
    connector: Option<Weak<Connector>>,
}

impl Owner {
    /// Returns true while a snapshot, or a request under way, has the server and its connector.
    pub(crate) fn is_there(&self) -> bool {
        let connector = self.connector.as_ref();
        self.health.strong_count() > 0 && connector.is_none_or(|connector| connector.strong_count() > 0)
    }

    /// Identifier that is unique while this owner exists.
    #[cfg(test)]
    pub(crate) fn id(&self) -> PoolId {
        let connector = self.connector.as_ref().map_or(0, |connector| connector.as_ptr() as usize);
        (self.health.as_ptr() as ServerId, connector)
    }
}

impl Backend {
    /// Returns true if all workers count the requests of its servers together: such a count is a cache line
    /// that all of them write, so it is kept only if a bound or the policy depends on it. Otherwise each
    /// worker counts its own.
    #[must_use]
    pub fn counts_together(&self) -> bool {
        self.limits.max_connections.is_some() || self.policy.needs_load()
    }

    pub(crate) fn id(&self, server: usize) -> ServerId {
        Arc::as_ptr(&self.health[server]) as ServerId
    }

    /// Key of the connections to a server: they must not be used under another TLS configuration.
    pub(crate) fn pool_id(&self, server: usize) -> PoolId {
        (self.id(server), self.connector(server).map_or(0, |connector| Arc::as_ptr(connector) as usize))
    }

    /// Owner of the addresses in [`Backend::pool_id`].
    pub(crate) fn owner(&self, server: usize) -> Owner {
        let connector = self.connector(server).map(Arc::downgrade);
        Owner { health: Arc::downgrade(&self.health[server]), connector }
    }

    fn standing(&self, server: usize, now: u64) -> ServerStanding {
        self.health[server].standing(now, self.slow_return, self.limits.max_connections)
    }

    fn permit(self: &Arc<Self>, own: &PerWorker, server: usize) -> Option<Permit> {
        // A configuration cannot list so many servers.
        let place = server as u32;
        if !self.counts_together() {
            own.loads.enter(place);
            return Some(Permit(LoadCount::Alone { loads: Rc::clone(&own.loads), server: place }));
        }
        let entered = self.health[server].enter(self.limits.max_connections);
        entered.then(|| Permit(LoadCount::Together { backend: Arc::clone(self), server: place }))
    }
}

/// Hash key of a client.
pub(crate) fn client_key(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => key(&address.octets()),
        IpAddr::V6(address) => key(&address.octets()),
    }
}

/// Tries once to get a permit; `Ok(None)` if all servers are full.
fn try_permit(
    backend: &Arc<Backend>,
    own: &PerWorker,
    request: PermitRequest<'_>,
) -> Result<Option<Permit>, AdmissionError> {
    if let Some(tied) = request.tied {
        return Ok(backend.permit(own, tied));
    }
    let now_ms = coarse_ms();
    loop {
        let mut chooser = own.chooser.borrow_mut();
        // The exact time matters to back-offs only.
        let now = if chooser.is_untroubled() { chooser.since() } else { Instant::now() };
        let question = ChoiceParams { policy: &backend.policy, key: request.key, tried: request.tried, now };
        let picked = chooser.next(question, |server| backend.standing(server, now_ms));
        drop(chooser);
        match picked {
            Picked::Server(server) => {
                if let Some(permit) = backend.permit(own, server) {
                    return Ok(Some(permit));
                }
                // Another worker was faster; the server is full now, and the next iteration sees that.
            }
            Picked::Full => return Ok(None),
            Picked::Exhausted => return Err(AdmissionError::Exhausted),
            Picked::NoneAlive => return Err(AdmissionError::NoServerAlive),
        }
    }
}

/// Server of a tied request; `None` if that is down, leaving or was tried.
fn usable_tie(backend: &Backend, request: PermitRequest<'_>) -> Option<usize> {
    let usable = |server: &usize| {
        let health = &backend.health[*server];
        !health.is_down()
            && !health.is_leaving()
            && !health.is_ejected(coarse_ms())
            && !request.tried.contains(*server)
    };
    request.tied.filter(usable)
}

/// Returns a permit at once, if there is one and no request waits for it already; `Ok(None)` means wait.
pub(crate) fn permit_now(
    backend: &Arc<Backend>,
    own: &PerWorker,
    mut request: PermitRequest<'_>,
) -> Result<Option<Permit>, AdmissionError> {
    request.tied = usable_tie(backend, request);
    if backend.limits.max_connections.is_some() && backend.queue.waiting() > 0 {
        return Ok(None);
    }
    try_permit(backend, own, request)
}

/// Waits for a permit behind earlier requests. The caller bounds the wait.
pub(crate) async fn permit_later(
    backend: &Arc<Backend>,
    own: &PerWorker,
    mut request: PermitRequest<'_>,
) -> Result<Permit, AdmissionError> {
    let mut place: Option<QueueTicket> = None;
    let asked = request.tied;
    poll_fn(|cx| {
        request.tied = asked;
        request.tied = usable_tie(backend, request);
        let called = match &place {
            Some(place) => place.is_called(request.tied.map(|server| backend.id(server)), cx.waker()),
            None => {
                let (joined, first) = join(backend, request.tied, cx.waker())?;
                place = Some(joined);
                first
            }
        };
        if !called {
            return Poll::Pending;
        }
        let looked = try_permit(backend, own, request).inspect_err(|_| {
            // It was woken for a slot that others behind it can use.
            if let Some(place) = &place {
                place.pass();
            }
        });
        match looked? {
            None => {
                // The free slot may be on a server that this request cannot use.
                if let Some(place) =
                    place.as_ref().filter(|_| request.tied.is_some() || !request.tried.is_empty())
                {
                    place.pass();
                }
                Poll::Pending
            }
            Some(permit) => {
                if let Some(place) = place.take() {
                    place.served();
                }
                Poll::Ready(Ok(permit))
            }
        }
    })
    .await
}

fn join(
    backend: &Arc<Backend>,
    tied: Option<usize>,
    waker: &Waker,
) -> Result<(QueueTicket, bool), AdmissionError> {
    let wants = tied.map(|server| backend.id(server));
    backend.queue.join(wants, backend.limits.queue, waker).ok_or(AdmissionError::QueueFull)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;
    use crate::backend::Server;
    use crate::ejection::note;
    use crate::health::{Ejection, ProbeSettings, ServerOutcome};
    use crate::pick::Candidate;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Two servers that are full, one request each.
    fn full() -> (Arc<Backend>, PerWorker, [Permit; 2]) {
        let server = |index| {
            let path = format!("/nowhere/{index}").into();
            (Server::at(offramp_net::Address::Unix(path)), Candidate::default())
        };
        let mut backend = Backend::new("test", (0..2).map(server));
        backend.limits.max_connections = Some(1);
        backend.check = Some(ProbeSettings { rise: 1, fall: 1, ..ProbeSettings::default() });
        backend.ejection = Some(Ejection { failures: 1, ..Ejection::default() });
        let backend = Arc::new(backend);
        let own = PerWorker::new(&backend, 0, Instant::now());
        let permits = [0, 1].map(|server| backend.permit(&own, server).unwrap());
        (backend, own, permits)
    }

    /// Queues a request tied to the first server, makes that unavailable by `lost`, then frees the second.
    fn waits_for_another(lost: impl FnOnce(&Backend)) {
        let (backend, own, permits) = full();
        let [_first, second] = permits;
        let tried = Tried::default();
        let request = PermitRequest { key: None, tied: Some(0), tried: &tried };
        let mut waits = pin!(permit_later(&backend, &own, request));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut poll = || waits.as_mut().poll(&mut Context::from_waker(&waker));
        let wakes = || woken.0.load(Ordering::Relaxed);
        assert!(poll().is_pending());
        lost(&backend);
        assert_eq!(wakes(), 1, "it is told that its server is gone");
        assert!(poll().is_pending(), "the other one is full");
        drop(second);
        assert_eq!(wakes(), 2, "it is told of a place on the other one");
        let Poll::Ready(Ok(permit)) = poll() else { panic!("there is a place") };
        assert_eq!(permit.server(), 1);
    }

    #[test]
    fn a_tied_request_leaves_a_server_that_went_down() {
        waits_for_another(|backend| {
            let check = backend.check.as_ref().unwrap();
            assert!(backend.health[0].probe(false, check, coarse_ms()).is_some());
            // As the prober does.
            backend.queue.stir();
        });
    }

    #[test]
    fn a_tied_request_leaves_an_ejected_server() {
        waits_for_another(|backend| assert!(note(backend, 0, ServerOutcome::Bad, coarse_ms())));
    }

    #[test]
    fn workers_count_separately_and_the_sum_is_reported() {
        let server = |index| {
            let path = format!("/nowhere/{index}").into();
            (Server::at(offramp_net::Address::Unix(path)), Candidate::default())
        };
        let old = Arc::new(Backend::new("test", (0..2).map(server)));
        assert!(!old.counts_together());
        let counts = |backend: &Backend| [0, 1].map(|server| backend.health[server].in_flight());
        let workers = [0, 1].map(|worker| PerWorker::new(&old, worker, Instant::now()));
        let mut held: Vec<Permit> =
            workers.iter().flat_map(|own| [0, 1, 1].map(|server| old.permit(own, server).unwrap())).collect();
        assert_eq!(counts(&old), [2, 4]);
        // After a reload with another order of servers, and a policy that counts together.
        let mut new = Backend::new("test", [server(1), server(0)]);
        new.policy = crate::pick::BalancePolicy::LeastConn;
        new.carry_over(&old);
        let new = Arc::new(new);
        let later = PerWorker::new(&new, 0, Instant::now());
        held.push(new.permit(&later, 1).unwrap());
        assert_eq!(counts(&new), [4, 3]);
        drop(workers);
        drop(held.remove(0));
        assert_eq!(counts(&new), [4, 2], "those that are left count on");
        drop(held);
        assert_eq!(counts(&new), [0, 0]);
    }

    /// Each HTTP/2 stream has space for one.
    #[test]
    fn a_permit_is_small() {
        assert_eq!((size_of::<Permit>(), size_of::<Option<Permit>>()), (16, 16));
    }
}
