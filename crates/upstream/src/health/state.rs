//! State of a server shared by all workers, in atomics.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{Ejection, FailureRecord, HealthChange, ProbeSettings, Probed};
use crate::pick::{FULL_SHARE, ServerStanding, Use};

/// Health of a server: shared by all workers and the prober, and carried over reloads by the server's name.
/// Has cache lines of its own, since the count of requests may be written often.
#[derive(Debug)]
#[repr(align(128))]
pub struct ServerHealth {
    name: Arc<str>,
    /// Requests that all workers count together: see [`Backend::counts_together`](crate::Backend::counts_together).
    in_flight: AtomicU32,
    down: AtomicBool,
    /// A [`Duty`] as a number.
    duty: AtomicU8,
    /// Set while failures are recorded that the next success must reset.
    tainted: AtomicBool,
    /// End of the latest ejection in milliseconds; 0 if there was none.
    ejected_until: AtomicU64,
    /// Time of the latest return in milliseconds; 0 if it was never down.
    returned: AtomicU64,
    record: Mutex<FailureRecord>,
    probed: Mutex<Probed>,
    /// Reason of the latest failed probe, until one succeeds.
    probe_fault: Mutex<Option<Arc<str>>>,
    /// Counters of the workers that count separately, and the server's index there.
    counts: Mutex<Vec<(Weak<[AtomicU32]>, usize)>>,
}

/// Probes of a server since its last change of state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeProgress {
    /// Consecutive probes that contradict the state; [`ProbeSettings::fall`] or [`ProbeSettings::rise`] of
    /// them change it.
    pub row: u32,
    /// Reason of the latest failed probe; `None` after a success or without probes.
    pub fault: Option<Arc<str>>,
}

/// Configured duty of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Duty {
    /// Gets requests as long as it is healthy.
    Serves,
    /// Finishes its requests and gets no new ones, before it is removed.
    Drains,
    /// Finishes its requests, gets no new ones, and is not probed.
    Disabled,
}

/// State of a server handed over to a successor of this process. Times are milliseconds of the coarse
/// monotonic clock, which all processes of a machine share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthHandover {
    /// Set if probes have marked it as down.
    pub down: bool,
    /// Consecutive probes that contradict that.
    pub against: u32,
    /// Set if it is being drained.
    pub draining: bool,
    /// Number of consecutive failed requests.
    pub in_a_row: u32,
    /// Duration and end of its latest ejection.
    pub ejection: Option<(u64, u64)>,
    /// Time of its latest return; 0 if it was never down.
    pub returned: u64,
}

/// Outcome of a request with regard to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOutcome {
    /// The server responded, with a status other than 502, 503 and 504.
    Good,
    /// It could not be reached, aborted, was too slow, or responded with 502, 503 or 504.
    Bad,
}

impl ServerHealth {
    /// Creates the state of an unknown server: up.
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

    /// Name of the server: its address as configured.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns true if probes have marked it as down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Returns true if it is ejected at `now` (milliseconds of the coarse clock).
    #[must_use]
    pub fn is_ejected(&self, now: u64) -> bool {
        now < self.ejected_until.load(Ordering::Relaxed)
    }

    /// Configured duty of the server.
    #[must_use]
    pub fn duty(&self) -> Duty {
        match self.duty.load(Ordering::Relaxed) {
            duty if duty == Duty::Drains as u8 => Duty::Drains,
            duty if duty == Duty::Disabled as u8 => Duty::Disabled,
            _ => Duty::Serves,
        }
    }

    /// Changes the duty, for the connections of all snapshots. Waiting requests are not woken: see
    /// [`Backend::settle`](crate::Backend::settle).
    pub fn set_duty(&self, duty: Duty) {
        self.duty.store(duty as u8, Ordering::Relaxed);
    }

    /// Returns true if it gets no new requests by configuration.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.duty.load(Ordering::Relaxed) != Duty::Serves as u8
    }

    /// Current requests and relayed connections, of all workers and snapshots.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        let own: u32 = locked(&self.counts)
            .iter()
            .filter_map(|(counts, server)| Some(counts.upgrade()?.get(*server)?.load(Ordering::Relaxed)))
            .sum();
        self.in_flight.load(Ordering::Relaxed).saturating_add(own)
    }

    /// Registers a worker's counters: `counts[server]` is its count for this server.
    pub(crate) fn is_counted_in(&self, counts: &Arc<[AtomicU32]>, server: usize) {
        let mut all = locked(&self.counts);
        // Counters of earlier snapshots without remaining requests.
        all.retain(|(counts, _)| counts.strong_count() > 0);
        all.push((Arc::downgrade(counts), server));
    }

    /// Records a probe at `now`; returns a change of the state.
    pub fn probe(&self, good: bool, check: &ProbeSettings, now: u64) -> Option<HealthChange> {
        let change = locked(&self.probed).note(good, check)?;
        if change == HealthChange::Up {
            self.returned.store(now.max(1), Ordering::Relaxed);
        }
        self.down.store(change == HealthChange::Down, Ordering::Relaxed);
        Some(change)
    }

    /// Records the reason of a failed probe, or a success.
    pub(crate) fn note_probe_fault(&self, fault: Option<String>) {
        *locked(&self.probe_fault) = fault.map(Arc::from);
    }

    /// Progress of the probes towards a change of the state.
    #[must_use]
    pub fn probes(&self) -> ProbeProgress {
        let probed = *locked(&self.probed);
        ProbeProgress { row: probed.against(), fault: locked(&self.probe_fault).clone() }
    }

    /// Forgets all probes; the server counts as up.
    pub(crate) fn forget_probes(&self) {
        *locked(&self.probed) = Probed::default();
        *locked(&self.probe_fault) = None;
        self.down.store(false, Ordering::Relaxed);
    }

    /// State for a successor of this process.
    #[must_use]
    pub fn known(&self) -> HealthHandover {
        let probed = *locked(&self.probed);
        let (in_a_row, ejection) = locked(&self.record).parts();
        let returned = self.returned.load(Ordering::Relaxed);
        let (down, against) = (probed.is_down(), probed.against());
        HealthHandover { down, against, draining: self.duty() == Duty::Drains, in_a_row, ejection, returned }
    }

    /// Takes over the state of a predecessor. The server must not be in use yet.
    pub fn recall(&self, known: &HealthHandover) {
        *locked(&self.probed) = Probed::of(known.down, known.against);
        *locked(&self.record) = FailureRecord::of(known.in_a_row, known.ejection);
        self.down.store(known.down, Ordering::Relaxed);
        self.set_duty(if known.draining { Duty::Drains } else { Duty::Serves });
        self.tainted.store(known.in_a_row > 0, Ordering::Relaxed);
        self.ejected_until.store(known.ejection.map_or(0, |(_, end)| end), Ordering::Relaxed);
        self.returned.store(known.returned, Ordering::Relaxed);
    }

    /// State at `now` for the choice of a server. `max` is the bound on its concurrent requests.
    pub(crate) fn standing(&self, now: u64, slow_return: Duration, max: Option<u32>) -> ServerStanding {
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
        // Sequentially consistent with the count of waiters, see `enter`.
        let load = self.in_flight.load(Ordering::SeqCst);
        ServerStanding { usage, share, load, full: max.is_some_and(|max| load >= max) }
    }

    /// Counts a request, unless there are `max` already.
    pub(crate) fn enter(&self, max: Option<u32>) -> bool {
        // A waiter reads this count before it sleeps, and a finished request looks for waiters afterwards:
        // that one of them sees the other requires a single order.
        let Some(max) = max else {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        let more = |count: u32| (count < max).then(|| count + 1);
        self.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Ends a counted request.
    pub(crate) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Notes a request that went well.
    pub(crate) fn succeeded(&self) {
        if self.tainted.load(Ordering::Relaxed) {
            self.tainted.store(false, Ordering::Relaxed);
            locked(&self.record).succeeded();
        }
    }

    /// Notes a request that failed at `now`; set if the server is ejected for it. One that is `spared` never is.
    pub(crate) fn failed(&self, terms: &Ejection, now: u64, spared: bool) -> bool {
        self.tainted.store(true, Ordering::Relaxed);
        let Some(end) = locked(&self.record).failed(terms, now, spared) else { return false };
        self.ejected_until.store(end, Ordering::Relaxed);
        true
    }
}

/// Share of a server that returned `since` milliseconds ago: from a sixteenth to all of it.
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

/// Locks a mutex, ignoring poisoning: its holders leave a consistent state.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, Server};
    use crate::ejection::note;
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
    fn a_returning_server_gets_a_small_share() {
        let backend = backend(2);
        let health = &backend.health[0];
        let standing = |now| health.standing(now, Duration::from_secs(10), None);
        assert_eq!(standing(5).share, FULL_SHARE);
        let check = ProbeSettings { rise: 1, fall: 1, ..ProbeSettings::default() };
        assert_eq!(health.probe(false, &check, 100), Some(HealthChange::Down));
        assert_eq!(standing(100).usage, Use::Never);
        assert_eq!(health.probe(true, &check, 1000), Some(HealthChange::Up));
        assert_eq!(standing(6000), ServerStanding { usage: Use::Normal, share: 128, load: 0, full: false });
        assert!(
            !note(&backend, 0, ServerOutcome::Bad, 50_000) && note(&backend, 0, ServerOutcome::Bad, 50_000)
        );
        assert_eq!(standing(50_001).usage, Use::LastResort);
        assert_eq!(standing(65_000), ServerStanding { usage: Use::Normal, share: 128, load: 0, full: false });
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
    fn state_is_handed_over_to_another_process() {
        let (old, new) = (backend(2), backend(2));
        let check = ProbeSettings { rise: 1, fall: 2, ..ProbeSettings::default() };
        old.health[0].probe(false, &check, 1);
        old.health[0].probe(false, &check, 2);
        old.health[0].probe(true, &check, 3);
        old.health[0].probe(false, &check, 4);
        old.health[1].set_duty(Duty::Drains);
        let _ = (
            note(&old, 0, ServerOutcome::Bad, 50),
            note(&old, 0, ServerOutcome::Bad, 50),
            note(&old, 0, ServerOutcome::Bad, 50),
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
    fn a_reload_keeps_the_state() {
        let old = backend(2);
        let check = ProbeSettings { rise: 1, fall: 1, ..ProbeSettings::default() };
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
    fn a_leaving_server_gets_no_requests_in_any_snapshot() {
        let old = backend(2);
        let check = ProbeSettings { rise: 1, fall: 1, ..ProbeSettings::default() };
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
}
