//! Interim responses (1xx) on their way from a server to a stream of HTTP/2 (RFC 9113 §8.1).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use offramp_http::head::{Fields, Known};
use offramp_http::semantics::HeaderRules;
use offramp_upstream::InterimListener;

use super::handle::Respond;
use crate::l7::interim;

/// The most that wait at a time; more are dropped, as no client needs them.
const MOST_WAITING: usize = 16;

/// The interim responses to one request, until its task sends them. Listeners have to be `Send`; nothing here
/// ever leaves the worker's thread, so neither the lock nor the flag is contended.
#[derive(Default)]
pub(crate) struct Hints {
    waiting: AtomicBool,
    heads: Mutex<Vec<(StatusCode, Fields)>>,
    /// Rules of the route for the fields of responses.
    rules: Mutex<Option<Arc<HeaderRules>>>,
    /// Bytes that may be read of the response.
    read_budget: AtomicUsize,
}

impl Hints {
    /// Those of another request: the same memory, unless the one before still has a listener.
    pub(super) fn renewed(mut hints: Arc<Self>) -> Arc<Self> {
        match Arc::get_mut(&mut hints) {
            Some(Self { waiting, heads, rules, .. }) => {
                *waiting.get_mut() = false;
                *rules.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
                heads.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
                hints
            }
            None => Arc::default(),
        }
    }

    /// Has the interim responses follow the rules of their route.
    pub(crate) fn follow(&self, rules: Arc<HeaderRules>) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules);
    }

    /// So much may be read of the response at a time, until something else is said.
    pub(super) fn limit(&self, read_budget: usize) {
        self.read_budget.store(read_budget, Ordering::Relaxed);
    }

    /// Sends the hints that wait.
    pub(super) fn send(&self, respond: &Respond) {
        if self.waiting.load(Ordering::Relaxed) {
            self.waiting.store(false, Ordering::Relaxed);
            let heads = std::mem::take(&mut *self.heads.lock().unwrap_or_else(PoisonError::into_inner));
            for (status, fields) in heads {
                // A stream that is gone says so when the response is sent.
                let _ = respond.interim(status, &fields);
            }
        }
    }
}

impl InterimListener for Hints {
    fn interim(&self, status: StatusCode, fields: &Fields) {
        // Another protocol is agreed on otherwise here (RFC 9113 §8.6).
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        if heads.len() == MOST_WAITING {
            return;
        }
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fields = interim::fields(fields, rules.as_deref());
        fields.remove(Known::ContentLength);
        heads.push((status, fields));
        self.waiting.store(true, Ordering::Relaxed);
    }

    fn read_budget(&self) -> usize {
        self.read_budget.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_wait_without_fields_of_the_connection() {
        let hints = Hints::default();
        let all = [("link", "</a.css>; rel=preload"), ("connection", "x"), ("x", "1")];
        let headers: Fields = all.into_iter().collect();
        hints.interim(StatusCode::SWITCHING_PROTOCOLS, &headers);
        assert!(!hints.waiting.load(Ordering::Relaxed));
        for _ in 0..100 {
            hints.interim(StatusCode::EARLY_HINTS, &headers);
        }
        let heads = hints.heads.lock().unwrap();
        assert_eq!(heads.len(), MOST_WAITING);
        assert_eq!(heads[0].0, StatusCode::EARLY_HINTS);
        assert_eq!(heads[0].1.iter().map(|(name, _)| name).collect::<Vec<_>>(), [b"link"]);
    }
}
