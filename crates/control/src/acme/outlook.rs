//! The outlook of each certificate's orders: the next one, and why the latest failed.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The outcomes of orders, and what comes next.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    obtained: AtomicU64,
    failed: AtomicU64,
    /// By the names of the certificate.
    outlooks: Mutex<BTreeMap<Box<str>, CertificateOutlook>>,
}

/// The orders of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateOutlook {
    /// The time of the next order, unless an operator or a client asks for one before.
    pub next: Option<SystemTime>,
    /// The latest order, if it has failed.
    pub failure: Option<FailedOrder>,
}

/// The latest order of a certificate, which has failed at every authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedOrder {
    /// Its end.
    pub at: SystemTime,
    /// The words of each authority, with its name.
    pub reason: String,
}

/// The most certificates whose failures are kept: clients may ask for any name.
const FAILING: usize = 200;
/// The age at which a failure is forgotten: nothing orders this certificate any more.
const FORGOTTEN: Duration = Duration::from_secs(48 * 3600);

impl Orders {
    /// The numbers by outcome.
    pub(crate) fn totals(&self) -> [(&'static str, u64); 2] {
        [("obtained", self.obtained.load(Ordering::Relaxed)), ("failed", self.failed.load(Ordering::Relaxed))]
    }

    /// The certificates whose latest order has failed, each with the reason.
    pub(crate) fn failing(&self, now: SystemTime) -> Vec<(Box<str>, String)> {
        let is_old = |order: &FailedOrder| now.duration_since(order.at).is_ok_and(|age| age >= FORGOTTEN);
        let mut outlooks = self.outlooks();
        outlooks.retain(|_, outlook| {
            outlook.failure.take_if(|order| is_old(order));
            outlook.failure.is_some() || outlook.next.is_some()
        });
        let failing = outlooks.iter().filter_map(|(names, outlook)| {
            outlook.failure.as_ref().map(|order| (names.clone(), order.reason.clone()))
        });
        failing.collect()
    }

    /// The outlook of the certificate with these names, or else of all that have some of them and no others: clients get
    /// one of the local CA for these.
    pub(crate) fn outlook(&self, names: &[String]) -> CertificateOutlook {
        let outlooks = self.outlooks();
        if let Some(same) = outlooks.get(&key(names.iter().map(String::as_str))) {
            return same.clone();
        }
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        let within = outlooks.iter().filter(|(own, _)| own.split(' ').all(|name| names.contains(name)));
        within.fold(CertificateOutlook::default(), |all, (own, one)| CertificateOutlook {
            next: all.next.into_iter().chain(one.next).min(),
            failure: match (all.failure, &one.failure) {
                (before, None) => before,
                (None, Some(failure)) => {
                    Some(FailedOrder { at: failure.at, reason: format!("{own}: {}", failure.reason) })
                }
                (Some(before), Some(failure)) => Some(FailedOrder {
                    at: before.at.max(failure.at),
                    reason: format!("{}; {own}: {}", before.reason, failure.reason),
                }),
            },
        })
    }

    /// Counts an order at one authority.
    pub(super) fn count(&self, obtained: bool) {
        let count = if obtained { &self.obtained } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the outcome of the order of a certificate: of all authorities together.
    pub(super) fn settle(&self, names: &str, failure: Option<FailedOrder>) {
        let mut outlooks = self.outlooks();
        let key = key(names.split(' '));
        if let Some(known) = outlooks.get_mut(&key).filter(|one| one.failure.is_some() || failure.is_none()) {
            known.failure = failure;
            return;
        }
        let failing = outlooks.values().filter(|outlook| outlook.failure.is_some()).count();
        if failure.is_some() && failing < FAILING {
            outlooks.entry(key).or_default().failure = failure;
        }
    }

    /// Takes the time of the next order, and the failure that is on disk, where this process knows of none.
    pub(super) fn plan(&self, names: &str, next: SystemTime, noted: Option<FailedOrder>) {
        let mut outlooks = self.outlooks();
        let outlook = outlooks.entry(key(names.split(' '))).or_default();
        outlook.next = Some(next);
        if outlook.failure.is_none() {
            outlook.failure = noted;
        }
    }

    /// Forgets a certificate that is not kept any more.
    pub(super) fn forget(&self, names: &str) {
        self.outlooks().remove(&key(names.split(' ')));
    }

    fn outlooks(&self) -> MutexGuard<'_, BTreeMap<Box<str>, CertificateOutlook>> {
        self.outlooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names in one order, with spaces between.
fn key<'n>(names: impl Iterator<Item = &'n str>) -> Box<str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.join(" ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_stays_until_an_order_succeeds_and_no_longer_than_two_days() {
        let (now, orders) = (SystemTime::now(), Orders::default());
        let failed = |reason: &str| Some(FailedOrder { at: now, reason: reason.to_owned() });
        for reason in ["first", "second"] {
            orders.settle("b.test a.test", failed(reason));
        }
        assert_eq!(orders.failing(now), [("a.test b.test".into(), "second".to_owned())]);
        orders.plan("a.test b.test", now, failed("on disk"));
        let outlook = orders.outlook(&["b.test".to_owned(), "a.test".to_owned()]);
        assert_eq!(outlook, CertificateOutlook { next: Some(now), failure: failed("second") });
        let wider = orders.outlook(&["b.test", "c.test", "a.test"].map(str::to_owned));
        assert_eq!(wider.failure.unwrap().reason, "a.test b.test: second");
        assert_eq!(orders.outlook(&["b.test".to_owned()]), CertificateOutlook::default());
        orders.settle("b.test a.test", None);
        assert!(orders.failing(now).is_empty());
        orders.plan("a.test b.test", now, failed("on disk"));
        assert_eq!(orders.failing(now).len(), 1, "a process that begins knows of it");
        assert!(orders.failing(now + FORGOTTEN).is_empty());
        orders.settle("b.test a.test", failed("third"));
        orders.forget("a.test b.test");
        assert_eq!(orders.outlook(&["a.test".to_owned()]), CertificateOutlook::default());
        assert!(orders.failing(now).is_empty());
    }

    #[test]
    fn a_flood_of_names_is_bounded() {
        let (now, orders) = (SystemTime::now(), Orders::default());
        for name in 0..10_000 {
            orders.settle(&format!("{name}.test"), Some(FailedOrder { at: now, reason: "no".to_owned() }));
        }
        assert_eq!(orders.failing(now).len(), FAILING);
    }
}
