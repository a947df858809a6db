//! Names that clients ask for and that have no certificate yet: those that may get one on demand are handed to
//! `control`, once each, and the handshakes that ask for them wait a while.
//!
//! A name comes from the client, so that everything is bounded here: how many names are on their way at a time, how many
//! refusals are remembered, and how long a handshake waits. What is beyond is answered as a name without a certificate
//! is in any case.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use offramp_certs::DnsPattern;
use tokio::sync::{mpsc, watch};

/// Names that are on their way at a time, asked about or ordered.
pub const PENDING: usize = 64;
/// Refusals that are remembered: with names of full length about 2 MiB.
pub const REFUSED: usize = 4096;

/// The names that may be demanded by one `[[certificate]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DemandRule {
    /// The names that may have a certificate without a question.
    pub names: Vec<DnsPattern>,
    /// Set if the endpoint is asked about all other names.
    pub asks: bool,
    /// The longest wait of a handshake.
    pub wait: Duration,
}

/// The number of names that clients asked for, by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandOutcome {
    /// There is a certificate.
    Obtained,
    /// The authorities issued none.
    Failed,
    /// The name may not have one.
    Denied,
    /// The endpoint did not say if the name may have one.
    Unanswered,
    /// More names than `rate` allows.
    OverRate,
    /// Too many names at a time.
    Busy,
    /// Every authority wants to be left alone for a while.
    Paused,
}

impl DemandOutcome {
    /// All outcomes, in the order of [`Demand::totals`].
    pub const ALL: [Self; 7] = [
        Self::Obtained,
        Self::Failed,
        Self::Denied,
        Self::Unanswered,
        Self::OverRate,
        Self::Busy,
        Self::Paused,
    ];

    /// As in the metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Obtained => "obtained",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Unanswered => "unanswered",
            Self::OverRate => "over_rate",
            Self::Busy => "busy",
            Self::Paused => "paused",
        }
    }
}

/// The reason why a name gets no certificate for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandRefusal {
    /// The outcome of the work on it.
    pub outcome: DemandOutcome,
    /// The time at which it is worked on again, once a client asks.
    pub until: Instant,
}

/// The standing of a name among those that clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandStanding {
    /// No client has asked for it lately, or what was decided then is over.
    Unasked,
    /// It is being asked about or ordered.
    Pending,
    /// It was refused.
    Refused(DemandRefusal),
}

/// The names that are on their way, and those that were refused.
pub struct Demand {
    rules: ArcSwap<Vec<DemandRule>>,
    names: Mutex<DemandedNames>,
    sender: mpsc::Sender<Box<str>>,
    counts: [AtomicU64; 7],
}

#[derive(Default)]
struct DemandedNames {
    /// Names that are being worked on. Waiters see the end of the sender.
    pending: HashMap<Box<str>, watch::Sender<()>>,
    refused: HashMap<Box<str>, DemandRefusal>,
    /// The refused ones, the oldest first.
    order: VecDeque<Box<str>>,
}

/// A name that is on its way.
pub(crate) struct DemandWaiter {
    done: watch::Receiver<()>,
    wait: Duration,
}

impl DemandWaiter {
    /// Waits until it is known what became of the name, but no longer than the rule says, nor until `latest`.
    pub(crate) async fn end(mut self, latest: tokio::time::Instant) {
        let deadline = latest.min(tokio::time::Instant::now() + self.wait);
        // Nothing is ever sent: the end of the sender ends the wait.
        let _ = tokio::time::timeout_at(deadline, self.done.changed()).await;
    }
}

impl Demand {
    /// Nothing may be demanded yet. The receiver gets each name once, and must [`Demand::end`] it.
    #[must_use]
    pub fn new() -> (Arc<Self>, mpsc::Receiver<Box<str>>) {
        let (sender, receiver) = mpsc::channel(PENDING);
        let (rules, names, counts) = Default::default();
        (Arc::new(Self { rules, names, sender, counts }), receiver)
    }

    /// Sets the rules for names from now on. Refusals are forgotten: the rules may be others.
    pub fn set_rules(&self, rules: Vec<DemandRule>) {
        if *self.rules.load_full() != rules {
            self.rules.store(Arc::new(rules));
        }
        let mut names = self.lock();
        names.refused.clear();
        names.order.clear();
    }

    /// A client asks for `name`, which has no certificate; something to wait for, where that is worth it.
    pub(crate) fn ask(&self, name: &str, now: Instant) -> Option<DemandWaiter> {
        let rules = self.rules.load();
        if rules.is_empty() {
            return None;
        }
        let pattern = DnsPattern::parse(name).ok().filter(|name| !name.is_wildcard())?;
        let name = pattern.host();
        let by_name = rules.iter().find(|rule| rule.names.iter().any(|allowed| allowed.matches(name)));
        let wait = by_name.or_else(|| rules.iter().find(|rule| rule.asks))?.wait;
        let mut names = self.lock();
        if let Some(sender) = names.pending.get(name) {
            return Some(DemandWaiter { done: sender.subscribe(), wait });
        }
        if names.refused.get(name).is_some_and(|refusal| refusal.until > now) {
            return None;
        }
        if names.pending.len() >= PENDING || self.sender.try_send(name.into()).is_err() {
            drop(names);
            self.count(DemandOutcome::Busy);
            return None;
        }
        let (sender, done) = watch::channel(());
        names.pending.insert(name.into(), sender);
        Some(DemandWaiter { done, wait })
    }

    /// The standing of `name`, which is in lower case.
    #[must_use]
    pub fn standing(&self, name: &str, now: Instant) -> DemandStanding {
        let names = self.lock();
        if names.pending.contains_key(name) {
            return DemandStanding::Pending;
        }
        let refusal = names.refused.get(name).filter(|refusal| refusal.until > now);
        refusal.map_or(DemandStanding::Unasked, |refusal| DemandStanding::Refused(*refusal))
    }

    /// Ends the work on `name`: its waiters go on. While it is `refused`, no work begins anew.
    pub fn end(&self, name: &str, refused: Option<DemandRefusal>) {
        let mut names = self.lock();
        names.pending.remove(name);
        let Some(refusal) = refused else { return };
        if names.refused.insert(name.into(), refusal).is_none() {
            names.order.push_back(name.into());
        }
        if names.order.len() > REFUSED
            && let Some(oldest) = names.order.pop_front()
        {
            names.refused.remove(&oldest);
        }
    }

    /// Counts what became of a name.
    pub fn count(&self, outcome: DemandOutcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Number of names by outcome.
    #[must_use]
    pub fn totals(&self) -> [(DemandOutcome, u64); 7] {
        DemandOutcome::ALL.map(|outcome| (outcome, self.counts[outcome as usize].load(Ordering::Relaxed)))
    }

    fn lock(&self) -> MutexGuard<'_, DemandedNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(3600);

    fn demand(names: &[&str], asks: bool) -> (Arc<Demand>, mpsc::Receiver<Box<str>>) {
        let (demand, receiver) = Demand::new();
        let names = names.iter().map(|name| DnsPattern::parse(name).unwrap()).collect();
        demand.set_rules(vec![DemandRule { names, asks, wait: WAIT }]);
        (demand, receiver)
    }

    #[test]
    fn names_are_handed_on_once_and_only_those_that_may() {
        let (demand, mut receiver) = demand(&["*.example.org"], false);
        let now = Instant::now();
        for name in ["a.example.org", "A.example.ORG", "a.example.org."] {
            assert!(demand.ask(name, now).is_some(), "{name}");
        }
        for name in ["example.org", "a.b.example.org", "*.example.org", "a b.example.org", "10.0.0.1", ""] {
            assert!(demand.ask(name, now).is_none(), "{name}");
        }
        assert_eq!(receiver.try_recv().unwrap().as_ref(), "a.example.org");
        assert!(receiver.try_recv().is_err());
        demand.set_rules(Vec::new());
        assert!(demand.ask("b.example.org", now).is_none());
    }

    #[test]
    fn a_flood_of_names_is_bounded() {
        let (demand, mut receiver) = demand(&[], true);
        let now = Instant::now();
        let asked =
            (0..100_000).filter(|number| demand.ask(&format!("n{number}.test"), now).is_some()).count();
        assert_eq!(asked, PENDING);
        assert_eq!(demand.totals()[5], (DemandOutcome::Busy, 100_000 - PENDING as u64));
        let until = now + Duration::from_secs(60);
        let refused = Some(DemandRefusal { outcome: DemandOutcome::Denied, until });
        while let Ok(name) = receiver.try_recv() {
            demand.end(&name, refused);
        }
        assert!(demand.ask("n0.test", now).is_none() && demand.ask("n0.test", until).is_some());
        for number in 0..3 * REFUSED {
            demand.end(&format!("m{number}.test"), refused);
            demand.end(&format!("m{number}.test"), refused);
        }
        let names = demand.lock();
        assert_eq!((names.refused.len(), names.order.len()), (REFUSED, REFUSED));
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_name_or_with_its_deadline() {
        let (demand, _receiver) = demand(&["a.test"], false);
        let now = tokio::time::Instant::now();
        let (one, other) = (demand.ask("a.test", Instant::now()), demand.ask("a.test", Instant::now()));
        // The deadline of the handshake comes first.
        one.unwrap().end(now).await;
        demand.end("a.test", None);
        // Nobody waits out an hour.
        other.unwrap().end(now + WAIT).await;
        let refusal = DemandRefusal { outcome: DemandOutcome::Failed, until: Instant::now() + WAIT };
        assert_eq!(demand.standing("a.test", Instant::now()), DemandStanding::Unasked);
        assert!(demand.ask("a.test", Instant::now()).is_some());
        assert_eq!(demand.standing("a.test", Instant::now()), DemandStanding::Pending);
        demand.end("a.test", Some(refusal));
        assert!(demand.ask("a.test", Instant::now()).is_none());
        assert_eq!(demand.standing("a.test", Instant::now()), DemandStanding::Refused(refusal));
        assert_eq!(demand.standing("a.test", refusal.until), DemandStanding::Unasked);
    }
}
