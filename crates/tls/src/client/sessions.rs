//! The sessions that can be resumed with a server. None is resumed after the end of the certificates by which the server
//! was verified: a resumption shows no certificate.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::{ServerName, UnixTime};

use crate::tickets::Expiry;

/// The sessions of a connector.
#[derive(Debug)]
pub(super) struct SessionCache(Mutex<Resumable>);

#[derive(Debug)]
struct Resumable {
    sessions: ClientSessionMemoryCache,
    /// The earliest end of the chains that were accepted since `sessions` began.
    until: Expiry,
}

impl SessionCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Resumable::new()))
    }

    /// A chain with this end was accepted; the session that follows ends with it.
    pub(super) fn accepted(&self, end: Expiry) {
        let mut kept = self.lock();
        kept.until = kept.until.min(end);
    }

    /// What is left of the sessions at `now`.
    fn at(&self, now: UnixTime) -> MutexGuard<'_, Resumable> {
        let mut kept = self.lock();
        if kept.until.is_over(now) {
            *kept = Resumable::new();
        }
        kept
    }

    fn lock(&self) -> MutexGuard<'_, Resumable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resumable {
    fn new() -> Self {
        Self { sessions: ClientSessionMemoryCache::new(SESSIONS), until: Expiry::NEVER }
    }
}

impl ClientSessionStore for SessionCache {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.lock().sessions.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().sessions.kx_hint(name)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.lock().sessions.set_tls12_session(name, value);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.at(UnixTime::now()).sessions.tls12_session(name)
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.lock().sessions.remove_tls12_session(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.lock().sessions.insert_tls13_ticket(name, value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.at(UnixTime::now()).sessions.take_tls13_ticket(name)
    }
}

/// rustls keeps as many for one name, and a connector has one name.
const SESSIONS: usize = 8;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_is_kept_after_the_earliest_end() {
        let cache = SessionCache::new();
        let name = ServerName::try_from("a.example").unwrap();
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let kept = |now| cache.at(at(now)).sessions.kx_hint(&name).is_some();
        cache.set_kx_hint(name.clone(), NamedGroup::X25519);
        assert!(kept(1 << 40));
        for end in [2_000, 1_000, 3_000] {
            cache.accepted(Expiry::at(end));
        }
        assert!(kept(1_000) && !kept(1_001));
        // What comes after has ends of its own.
        cache.set_kx_hint(name.clone(), NamedGroup::X25519);
        assert!(kept(1_001));
        cache.accepted(Expiry::at(3_000));
        assert!(kept(3_000) && !kept(3_001));
    }
}
