//! Ejection of servers with failing requests, a decision among all servers of their backend.

use crate::backend::Backend;
use crate::health::{ServerHealth, ServerOutcome};

/// Records the outcome of a request to server `index` at `now`; returns true if that ejected the server. The
/// last server that is not down, ejected or leaving is never ejected.
pub(crate) fn note(backend: &Backend, index: usize, outcome: ServerOutcome, now: u64) -> bool {
    let (Some(terms), Some(health)) = (&backend.ejection, backend.health.get(index)) else { return false };
    if outcome == ServerOutcome::Good {
        health.succeeded();
        return false;
    }
    // Failures are decided one at a time; otherwise two workers could eject the last two servers.
    let one = backend.queue.deciding();
    let alive = |server: &ServerHealth| !server.is_down() && !server.is_ejected(now) && !server.is_leaving();
    let others = backend.health.iter().enumerate().any(|(at, server)| at != index && alive(server));
    let ejected = health.failed(terms, now, !others);
    drop(one);
    if ejected {
        // Requests tied to the server may go elsewhere now.
        backend.queue.stir();
    }
    ejected
}

/// Wakes requests that wait for a server of `backend` if an ejection has ended after `before` and by `now`.
pub(crate) fn note_returns(backend: &Backend, before: u64, now: u64) {
    if backend.ejection.is_none() || backend.queue.waiting() == 0 {
        return;
    }
    if backend.health.iter().any(|server| server.is_ejected(before) && !server.is_ejected(now)) {
        backend.queue.stir();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::backend::Server;
    use crate::health::Ejection;
    use crate::pick::Candidate;

    fn backend(servers: usize) -> Backend {
        let server = |index| {
            let path = format!("/nowhere/{index}").into();
            (Server::at(offramp_net::Address::Unix(path)), Candidate::default())
        };
        let ejection = Ejection { failures: 2, ..Ejection::default() };
        Backend { ejection: Some(ejection), ..Backend::new("test", (0..servers).map(server)) }
    }

    #[test]
    fn waiting_requests_are_woken_when_an_ejection_ends() {
        #[derive(Default)]
        struct Calls(AtomicU32);
        impl std::task::Wake for Calls {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let backend = backend(2);
        let calls = Arc::new(Calls::default());
        let _ = (note(&backend, 0, ServerOutcome::Bad, 1000), note(&backend, 0, ServerOutcome::Bad, 1000));
        let until = backend.health[0].known().ejection.map_or(0, |(_, end)| end);
        assert!(until > 1000);
        let (place, _) = backend.queue.join(None, 10, &Arc::clone(&calls).into()).unwrap();
        let called = || calls.0.swap(0, Ordering::Relaxed);
        for (before, now, wanted) in
            [(1001, until - 1, 0), (until - 1, until, 1), (until, until + 100, 0), (1001, until + 9, 1)]
        {
            note_returns(&backend, before, now);
            assert_eq!(called(), wanted, "{before} {now}");
        }
        drop(place);
        note_returns(&backend, 1001, until);
        assert_eq!(called(), 0);
    }

    proptest! {
        /// Whatever fails in whatever order, a server is left.
        #[test]
        fn the_last_one_alive_stays(
            servers in 1usize..5,
            steps in prop::collection::vec((0usize..5, 0u64..5000, 0u8..5), 0..200),
        ) {
            let backend = backend(servers);
            let mut now = 1;
            for (index, later, what) in steps {
                now += later;
                let outcome = if what == 0 { ServerOutcome::Good } else { ServerOutcome::Bad };
                note(&backend, index % servers, outcome, now);
                prop_assert!(backend.health.iter().any(|server| !server.is_ejected(now)));
            }
        }
    }
}
