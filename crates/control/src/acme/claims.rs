//! Names that one order at a time has responses for.
//!
//! Two certificates may have a name in common, one of each kind of key for instance. A worker answers tls-alpn-01 with
//! one certificate for a name, so the second order must wait until the first has been looked at.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// The names that orders have claimed.
#[derive(Debug, Default)]
pub(super) struct Claims {
    taken: Mutex<BTreeSet<String>>,
    freed: Notify,
}

/// Some names, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    names: BTreeSet<String>,
}

impl Claims {
    /// Claims all of the names at once, as soon as no other order has any of them.
    pub(super) async fn claim(&self, names: BTreeSet<String>) -> Claim<'_> {
        loop {
            // Listened for before the look, so that none is missed.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.take(&names) {
                return Claim { claims: self, names };
            }
            freed.await;
        }
    }

    fn take(&self, names: &BTreeSet<String>) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = names.is_disjoint(&taken);
        if free {
            taken.extend(names.iter().cloned());
        }
        free
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut taken = self.claims.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.names.iter().for_each(|name| {
            taken.remove(name);
        });
        drop(taken);
        self.claims.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{Duration, timeout};

    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn a_name_has_one_order_at_a_time() {
        let claims = Arc::new(Claims::default());
        let first = claims.claim(names(&["a", "b"])).await;
        let other = claims.claim(names(&["c"])).await;
        let waiting = tokio::spawn({
            let claims = Arc::clone(&claims);
            async move { drop(claims.claim(names(&["b", "c"])).await) }
        });
        tokio::task::yield_now().await;
        drop(other);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "`b` is taken");
        assert!(claims.take(&names(&["c"])), "nothing is held while waiting");
        claims.taken.lock().unwrap().remove("c");
        drop(first);
        timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
        assert!(claims.taken.lock().unwrap().is_empty());
    }
}
