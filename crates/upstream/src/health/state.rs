//! What all workers know of a server, in atomics.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{Change, Check, Ejection, Probed, Record};
use crate::backend::Backend;
use crate::pick::{FULL_SHARE, Standing, Use};

/// How a server fares: shared by all workers and the prober, and carried over reloads by the server's
/// name. On cache lines of its own, since the count of requests is written often where it is kept.
#[derive(Debug)]
#[repr(align(128))]
pub struct ServerHealth {
    name: Arc<str>,
    /// Requests on it that all workers count together: see [`Backend::counts_together`].
    in_flight: AtomicU32,
    down: AtomicBool,
    /// A [`Duty`], as a number.
    duty: AtomicU8,
    /// Whether the row of failures is to be broken by the next success.
    tainted: AtomicBool,
    /// The end of the latest ejection, milliseconds; 0: there was none.
    ejected_until: AtomicU64,
    /// When it came up again, milliseconds; 0: it was never down.
    returned: AtomicU64,
    record: Mutex<Record>,
    probed: Mutex<Probed>,
    /// Why the latest probe that failed did so, until one succeeds.
    probe_fault: Mutex<Option<Arc<str>>>,
    /// Where workers count what they have on it themselves, and its place there.
    counts: Mutex<Vec<(Weak<[AtomicU32]>, usize)>>,
}

/// Probes of a server since its state changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Probes in a row that speak against the present state; [`Check::fall`] or [`Check::rise`] of them change it.
    pub row: u32,
    /// Why the latest probe failed; `None` where it succeeded, or there was none.
    pub fault: Option<Arc<str>>,
}

/// What the configuration wants of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Duty {
    /// It gets requests as long as it works.
    Serves,
    /// It finishes what it has and gets nothing new, because it is to leave.
    Drains,
    /// It finishes what it has and gets nothing new, and nobody checks it.
    Disabled,
}

/// What is known of a server, for a process that takes the place of this one. Times are milliseconds of the coarse
/// monotonic clock, which all processes of a machine share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Whether probes have found it down.
    pub down: bool,
    /// Probes in a row that speak against that.
    pub against: u32,
    /// Whether it is to leave.
    pub draining: bool,
    /// Requests in a row that failed.
    pub in_a_row: u32,
    /// How long its latest ejection lasts, and its end.
    pub ejection: Option<(u64, u64)>,
    /// When it came up again; 0: it was never down.
    pub returned: u64,
}

/// How a request went, as far as its server is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered.
    Good,
    /// It could not be reached, broke off, was too slow, or answered with 502, 503 or 504.
    Bad,
}

impl ServerHealth {
    /// A server of which nothing is known: up.
    #[must_use]
    pub fn new(name: &Arc<str>) -> Self {
        ServerHealth {
            name: Arc::clone(name),
            in_flight: AtomicU32::new(0),
            down: AtomicBool::new(false),
            duty: AtomicU8::new(Duty::Serves as u8),
            tainted: AtomicBool::new(false),
            ejected_until: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            record: Mutex::default(),
            probed: Mutex::default(),
            probe_fault: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// The server's name: its address as configured.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether probes have found it down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Whether failed requests have it left alone at `now` (milliseconds of the coarse clock).
    #[must_use]
    pub fn is_ejected(&self, now: u64) -> bool {
        now < self.ejected_until.load(Ordering::Relaxed)
    }

    /// What the configuration wants of it.
    #[must_use]
    pub fn duty(&self) -> Duty {
        match self.duty.load(Ordering::Relaxed) {
            duty if duty == Duty::Drains as u8 => Duty::Drains,
            duty if duty == Duty::Disabled as u8 => Duty::Disabled,
            _ => Duty::Serves,
        }
    }

    /// Changes that, for the connections of all snapshots. Those that wait are not called: see [`Backend::settle`].
    pub fn set_duty(&self, duty: Duty) {
        self.duty.store(duty as u8, Ordering::Relaxed);
    }

    /// Whether it gets nothing new, however it fares.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.duty.load(Ordering::Relaxed) != Duty::Serves as u8
    }

    /// Requests and relayed connections on it at the moment, of all workers and snapshots.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        let own: u32 = locked(&self.counts)
            .iter()
            .filter_map(|(counts, server)| Some(counts.upgrade()?.get(*server)?.load(Ordering::Relaxed)))
            .sum();
        self.in_flight.load(Ordering::Relaxed).saturating_add(own)
    }

    /// A worker counts in `counts[server]` what it has on it, for as long as it keeps them.
    pub(crate) fn is_counted_in(&self, counts: &Arc<[AtomicU32]>, server: usize) {
        let mut all = locked(&self.counts);
        // Those of earlier snapshots, whose last request has ended.
        all.retain(|(counts, _)| counts.strong_count() > 0);
        all.push((Arc::downgrade(counts), server));
    }

    /// Takes note of a probe at `now`; what changed by it.
    pub fn probe(&self, good: bool, check: &Check, now: u64) -> Option<Change> {
        let change = locked(&self.probed).note(good, check)?;
        if change == Change::Up {
            self.returned.store(now.max(1), Ordering::Relaxed);
        }
        self.down.store(change == Change::Down, Ordering::Relaxed);
        Some(change)
    }

    /// Remembers why a probe failed, or that one succeeded.
    pub(crate) fn note_probe_fault(&self, fault: Option<String>) {
        *locked(&self.probe_fault) = fault.map(Arc::from);
    }

    /// How far the row of probes is that would change its state.
    #[must_use]
    pub fn probes(&self) -> Progress {
        let probed = *locked(&self.probed);
        Progress { row: probed.against(), fault: locked(&self.probe_fault).clone() }
    }

    /// Forgets what probes have said.
    pub(crate) fn forget_probes(&self) {
        *locked(&self.probed) = Probed::default();
        *locked(&self.probe_fault) = None;
        self.down.store(false, Ordering::Relaxed);
    }

    /// What is known of it.
    #[must_use]
    pub fn known(&self) -> Known {
        let probed = *locked(&self.probed);
        let (in_a_row, ejection) = locked(&self.record).parts();
        let returned = self.returned.load(Ordering::Relaxed);
        let (down, against) = (probed.is_down(), probed.against());
        Known { down, against, draining: self.duty() == Duty::Drains, in_a_row, ejection, returned }
    }

    /// Takes over what another process knew of it. Nobody may use it yet.
    pub fn recall(&self, known: &Known) {
        *locked(&self.probed) = Probed::of(known.down, known.against);
        *locked(&self.record) = Record::of(known.in_a_row, known.ejection);
        self.down.store(known.down, Ordering::Relaxed);
        self.set_duty(if known.draining { Duty::Drains } else { Duty::Serves });
        self.tainted.store(known.in_a_row > 0, Ordering::Relaxed);
        self.ejected_until.store(known.ejection.map_or(0, |(_, end)| end), Ordering::Relaxed);
        self.returned.store(known.returned, Ordering::Relaxed);
    }

    /// What picking has to know of it at `now`. `max`: so many requests at a time are its bound.
    pub(crate) fn standing(&self, now: u64, slow_return: Duration, max: Option<u32>) -> Standing {
        let ejected_until = self.ejected_until.load(Ordering::Relaxed);
        let usage = if self.is_down() || self.is_leaving() {
            Use::Never
        } else if now < ejected_until {
            Use::LastResort
        } else {
            Use::Normal
        };
        let returned = self.returned.load(Ordering::Relaxed).max(ejected_until);
        let share = if returned == 0 { FULL_SHARE } else { share(now.saturating_sub(returned), slow_return) };
        // In one order with the count of waiters, see `enter`.
        let load = self.in_flight.load(Ordering::SeqCst);
        Standing { usage, share, load, full: max.is_some_and(|max| load >= max) }
    }

    /// Counts a request, unless there are `max` already.
    pub(crate) fn enter(&self, max: Option<u32>) -> bool {
        // Before a waiter sleeps it looks at this count, and who leaves looks for waiters afterwards:
        // one of them sees the other only if both are in one order.
        let Some(max) = max else {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        let more = |count: u32| (count < max).then(|| count + 1);
        self.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// A request that was counted is over.
    pub(crate) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    fn succeeded(&self) {
        if self.tainted.load(Ordering::Relaxed) {
            self.tainted.store(false, Ordering::Relaxed);
            locked(&self.record).succeeded();
        }
    }

    fn failed(&self, terms: &Ejection, now: u64, spared: bool) -> bool {
        self.tainted.store(true, Ordering::Relaxed);
        let Some(end) = locked(&self.record).failed(terms, now, spared) else { return false };
        self.ejected_until.store(end, Ordering::Relaxed);
        true
    }
}

/// Takes note of how a request to server `index` went at `now`; whether it was ejected for it. The last
/// server that is not down, ejected or draining is never ejected.
pub(crate) fn note(backend: &Backend, index: usize, outcome: Outcome, now: u64) -> bool {
    let (Some(terms), Some(health)) = (&backend.ejection, backend.health.get(index)) else { return false };
    if outcome == Outcome::Good {
        health.succeeded();
        return false;
    }
    // Failures are decided one at a time, or two workers could eject the last two servers.
    let one = backend.queue.deciding();
    let alive = |server: &ServerHealth| !server.is_down() && !server.is_ejected(now) && !server.is_leaving();
    let others = backend.health.iter().enumerate().any(|(at, server)| at != index && alive(server));
    let ejected = health.failed(terms, now, !others);
    drop(one);
    if ejected {
        // Those who wait for it alone may go elsewhere now.
        backend.queue.stir();
    }
    ejected
}

/// Calls whoever waits for a server of `backend` where an ejection has ended behind `before`, and by `now`.
pub(crate) fn note_returns(backend: &Backend, before: u64, now: u64) {
    if backend.ejection.is_none() || backend.queue.waiting() == 0 {
        return;
    }
    if backend.health.iter().any(|server| server.is_ejected(before) && !server.is_ejected(now)) {
        backend.queue.stir();
    }
}

/// The share of a server that came back `since` milliseconds ago: from a sixteenth to all of it.
fn share(since: u64, slow_return: Duration) -> u16 {
    let whole = u64::try_from(slow_return.as_millis()).unwrap_or(u64::MAX);
    if since >= whole {
        return FULL_SHARE;
    }
    let full = u64::from(FULL_SHARE);
    // Less than `full`, as `since` is less than `whole`.
    let part = (u128::from(full) * u128::from(since) / u128::from(whole)) as u16;
    part.max(FULL_SHARE / 16)
}

/// A lock whose holders leave nothing half done, so that one that panicked is no obstacle.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::Server;
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
    fn shares_grow() {
        let ramp = Duration::from_secs(16);
        let shares = [0, 1000, 4000, 8000, 15_999, 16_000, u64::MAX].map(|since| share(since, ramp));
        assert_eq!(shares, [16, 16, 64, 128, 255, 256, 256]);
        assert_eq!(share(0, Duration::ZERO), FULL_SHARE);
    }

    #[test]
    fn a_server_that_comes_back_is_spared() {
        let backend = backend(2);
        let health = &backend.health[0];
        let standing = |now| health.standing(now, Duration::from_secs(10), None);
        assert_eq!(standing(5).share, FULL_SHARE);
        let check = Check { rise: 1, fall: 1, ..Check::default() };
        assert_eq!(health.probe(false, &check, 100), Some(Change::Down));
        assert_eq!(standing(100).usage, Use::Never);
        assert_eq!(health.probe(true, &check, 1000), Some(Change::Up));
        assert_eq!(standing(6000), Standing { usage: Use::Normal, share: 128, load: 0, full: false });
        assert!(!note(&backend, 0, Outcome::Bad, 50_000) && note(&backend, 0, Outcome::Bad, 50_000));
        assert_eq!(standing(50_001).usage, Use::LastResort);
        assert_eq!(standing(65_000), Standing { usage: Use::Normal, share: 128, load: 0, full: false });
    }

    #[test]
    fn who_waits_is_called_when_an_ejection_ends() {
        #[derive(Default)]
        struct Calls(AtomicU32);
        impl std::task::Wake for Calls {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let backend = backend(2);
        let calls = Arc::new(Calls::default());
        let _ = (note(&backend, 0, Outcome::Bad, 1000), note(&backend, 0, Outcome::Bad, 1000));
        let until = backend.health[0].ejected_until.load(Ordering::Relaxed);
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

    #[test]
    fn bounds_are_held() {
        let backend = backend(1);
        let health = &backend.health[0];
        assert!(health.enter(Some(2)) && health.enter(Some(2)) && !health.enter(Some(2)));
        assert!(health.standing(0, Duration::ZERO, Some(2)).full);
        health.leave();
        assert!(health.enter(Some(2)));
        assert_eq!(health.in_flight(), 2);
    }

    #[test]
    fn another_process_knows_what_was_learnt() {
        let (old, new) = (backend(2), backend(2));
        let check = Check { rise: 1, fall: 2, ..Check::default() };
        old.health[0].probe(false, &check, 1);
        old.health[0].probe(false, &check, 2);
        old.health[0].probe(true, &check, 3);
        old.health[0].probe(false, &check, 4);
        old.health[1].set_duty(Duty::Drains);
        let _ = (
            note(&old, 0, Outcome::Bad, 50),
            note(&old, 0, Outcome::Bad, 50),
            note(&old, 0, Outcome::Bad, 50),
        );
        for (old, new) in old.health.iter().zip(new.health.iter()) {
            new.recall(&old.known());
            assert_eq!(new.known(), old.known());
            for now in [4, 49, 60, 9_000, 60_000] {
                let standing = |health: &ServerHealth| health.standing(now, Duration::from_secs(10), None);
                assert_eq!(standing(new), standing(old), "{now}");
            }
        }
        // One more bad probe decides in both.
        assert_eq!(new.health[0].probe(false, &check, 70_000), old.health[0].probe(false, &check, 70_000));
        assert!(new.health[0].is_down() && new.health[1].duty() == Duty::Drains);
    }

    #[test]
    fn a_reload_keeps_what_was_learnt() {
        let old = backend(2);
        let check = Check { rise: 1, fall: 1, ..Check::default() };
        old.health[1].probe(false, &check, 1);
        old.health[1].enter(None);
        let mut new = backend(3);
        new.check = Some(check);
        new.carry_over(&old);
        assert_eq!([0, 1, 2].map(|index: usize| new.health[index].is_down()), [false, true, false]);
        assert_eq!(new.health[1].in_flight(), 1);
        let mut unchecked = backend(2);
        unchecked.carry_over(&old);
        assert!(old.health[1].is_down(), "what is only planned changes nothing");
        unchecked.settle(|_| Duty::Serves);
        assert!(!unchecked.health[1].is_down());
    }

    #[test]
    fn who_leaves_gets_nothing_new_by_any_snapshot() {
        let old = backend(2);
        let check = Check { rise: 1, fall: 1, ..Check::default() };
        old.health[1].probe(false, &check, 1);
        let mut new = backend(2);
        new.check = Some(check);
        new.carry_over(&old);
        let usages = |backend: &Backend| {
            [0, 1].map(|at: usize| backend.health[at].standing(5, Duration::ZERO, None).usage)
        };
        assert_eq!(usages(&old), [Use::Normal, Use::Never]);
        for (duty, down) in [(Duty::Drains, true), (Duty::Disabled, false)] {
            new.settle(|_| duty);
            assert_eq!((usages(&old), usages(&new)), ([Use::Never; 2], [Use::Never; 2]));
            assert_eq!((new.health[0].duty(), new.health[1].is_down()), (duty, down));
        }
        new.settle(|_| Duty::Serves);
        assert_eq!(usages(&old), [Use::Normal; 2], "what was known of it is as old as its absence");
    }

    proptest! {
        /// Whatever fails in whatever order: somebody is always left.
        #[test]
        fn the_last_one_alive_stays(
            servers in 1usize..5,
            steps in prop::collection::vec((0usize..5, 0u64..5000, 0u8..5), 0..200),
        ) {
            let backend = backend(servers);
            let mut now = 1;
            for (index, later, what) in steps {
                now += later;
                let outcome = if what == 0 { Outcome::Good } else { Outcome::Bad };
                note(&backend, index % servers, outcome, now);
                prop_assert!(backend.health.iter().any(|server| !server.is_ejected(now)));
            }
        }
    }
}
