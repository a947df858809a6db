//! Where the keys of a route are: read once from a file, or fetched again and again by `control`.
//!
//! Workers load fetched keys by an atomic pointer, so that new keys need no new snapshot. A token by a key that is not
//! known has them fetched, as issuers change their keys when they like; how often that may be is `control`'s to say.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::KeySet;

/// The longest wait of a request for keys that are being fetched because of its token.
const PATIENCE: Duration = Duration::from_secs(3);

/// Nothing is fetched; a token by an unknown key begins it.
const READY: u8 = 0;
/// Keys are being fetched, or will be at once.
const UNDER_WAY: u8 = 1;
/// Keys were fetched because of a token, and are not again for a while.
const RESTING: u8 = 2;

/// The keys of a route.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// Those of a file.
    Fixed(Arc<KeySet>),
    /// Those of a server.
    Fetched(Arc<FetchedKeys>),
}

/// Keys that come and change while the process runs. Their fetcher has all that is public; workers ask for them.
#[derive(Debug, Default)]
pub struct FetchedKeys {
    current: ArcSwapOption<KeySet>,
    state: AtomicU8,
    /// A token by an unknown key has come.
    asked: Notify,
    /// A fetch is over.
    over: Notify,
}

impl FetchedKeys {
    /// The latest keys; none before the first fetch has succeeded.
    #[must_use]
    pub fn current(&self) -> Option<Arc<KeySet>> {
        self.current.load_full()
    }

    /// These keys are believed from now on. Gives whether they are other ones.
    pub fn set(&self, keys: Arc<KeySet>) -> bool {
        let same = self.current.load().as_ref().is_some_and(|current| current.digest() == keys.digest());
        if !same {
            self.current.store(Some(keys));
        }
        !same
    }

    /// Waits until a token has come by a key that is not known.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Begins a fetch: requests that lack a key wait for its end.
    pub fn begin(&self) {
        self.state.store(UNDER_WAY, Ordering::Release);
    }

    /// A fetch is over. Until [`Self::rested`] no token begins another one, if `rest`.
    pub fn end(&self, rest: bool) {
        self.state.store(if rest { RESTING } else { READY }, Ordering::Release);
        self.over.notify_waiters();
    }

    /// Tokens may have keys fetched again.
    pub fn rested(&self) {
        let _ = self.state.compare_exchange(RESTING, READY, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Other keys than `known`, where there are any, or a fetch brings them that is under way or that may begin now.
    async fn newer(&self, known: &Arc<KeySet>, patience: Duration) -> Option<Arc<KeySet>> {
        let mut over = pin!(self.over.notified());
        over.as_mut().enable();
        let other = || self.current().filter(|keys| !Arc::ptr_eq(keys, known));
        if let Some(keys) = other() {
            return Some(keys);
        }
        match self.state.compare_exchange(READY, UNDER_WAY, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => self.asked.notify_one(),
            Err(UNDER_WAY) => {}
            Err(_) => return None,
        }
        // One that takes longer is of use to the next request.
        let _ = timeout(patience, over).await;
        other()
    }
}

impl KeySource {
    /// The keys at this moment, if there are any yet.
    pub(super) fn current(&self) -> Option<Arc<KeySet>> {
        match self {
            Self::Fixed(keys) => Some(Arc::clone(keys)),
            Self::Fetched(keys) => keys.current(),
        }
    }

    /// Calls `look` with the keys at this moment.
    pub(super) fn with<T>(&self, look: impl FnOnce(&KeySet) -> T) -> Option<T> {
        match self {
            Self::Fixed(keys) => Some(look(keys)),
            Self::Fetched(keys) => keys.current.load().as_deref().map(look),
        }
    }

    /// Other keys than `known`, where they can change.
    pub(super) async fn newer(&self, known: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        match self {
            Self::Fixed(_) => None,
            Self::Fetched(keys) => keys.newer(known, PATIENCE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(60);

    fn set(id: &str) -> Arc<KeySet> {
        let text = r#"{"keys": [{"kid": "ID", "kty": "OKP", "crv": "Ed25519", "x": "O90zPHPPXgfY9KsdBaX-I6xN0aaPiM0LfwpEpkztaqA"}]}"#;
        Arc::new(KeySet::parse(&text.replace("ID", id)).unwrap())
    }

    #[tokio::test]
    async fn an_unknown_key_begins_one_fetch_and_then_there_is_a_rest() {
        let (keys, old) = (Arc::new(FetchedKeys::default()), set("old"));
        assert!(keys.current().is_none());
        assert!(keys.set(Arc::clone(&old)) && !keys.set(set("old")));
        assert!(Arc::ptr_eq(&keys.current().unwrap(), &old), "the same keys keep their place");
        // Two requests wait for one fetch.
        let fetch = async {
            keys.asked().await;
            keys.begin();
            keys.set(set("new"));
            keys.end(true);
        };
        let (one, two, ()) = tokio::join!(keys.newer(&old, LONG), keys.newer(&old, LONG), fetch);
        let new = one.unwrap();
        assert!(Arc::ptr_eq(&new, &two.unwrap()) && new.digest() == set("new").digest());
        // Who has not seen them yet does not wait; others are refused at once while there is a rest.
        assert!(keys.newer(&old, LONG).await.is_some());
        let begun = Instant::now();
        assert!(keys.newer(&new, LONG).await.is_none() && begun.elapsed() < LONG);
        keys.rested();
        // A fetch that takes too long is not waited for to its end.
        assert!(keys.newer(&new, Duration::from_millis(20)).await.is_none());
        keys.asked().await;
        keys.begin();
        keys.end(false);
        // Nor is one that brings nothing.
        let fetch = async {
            keys.asked().await;
            keys.end(true);
        };
        assert!(tokio::join!(keys.newer(&new, LONG), fetch).0.is_none());
        assert!(begun.elapsed() < LONG);
    }
}
