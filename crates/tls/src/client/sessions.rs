//! Cache of the sessions that can be resumed with a server. None is resumed after the expiry of the
//! certificates by which the server was verified, because a resumption presents no certificate.

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
    /// Earliest expiry of the chains accepted since `sessions` was created.
    until: Expiry,
}

impl SessionCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Resumable::new()))
    }

    /// Records the expiry of an accepted chain, which limits the session that follows.
    pub(super) fn accepted(&self, end: Expiry) {
        let mut kept = self.lock();
        kept.until = kept.until.min(end);
    }

    /// Sessions that are valid at `now`.
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
    use std::sync::Arc;
    use std::time::Duration;

    use offramp_record::aead::Library;
    use offramp_record::{LibraryChoice, RecordSize};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
    use rustls::RootCertStore;
    use rustls::client::danger::ServerCertVerifier;

    use super::super::verify::verifier;
    use super::super::{ConnectorSettings, ServerVerification};
    use super::*;

    /// Seconds of the first day of 2030 and of 2031.
    const Y2030: u64 = 1_893_456_000;
    const Y2031: u64 = 1_924_992_000;

    #[test]
    fn sessions_end_with_the_certificates_of_the_server() {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2024, 1, 1), date_time_ymd(2030, 1, 1));
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();

        let name = ServerName::try_from("a.example").unwrap();
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        for (verify, now, accepted, end) in [
            (ServerVerification::Roots(Arc::new(roots.clone()).into()), Y2030 - 1, true, Y2030),
            (ServerVerification::Roots(Arc::new(roots).into()), Y2031, false, u64::MAX),
            (ServerVerification::Nothing, Y2031, true, u64::MAX),
        ] {
            let settings = ConnectorSettings {
                verify,
                name: name.clone(),
                sni: None,
                certificate: None,
                preamble: None,
                alpn: Vec::new(),
                post_quantum: false,
                choice: LibraryChoice::always(Library::Ring),
                record_size: RecordSize::Fixed(16_384),
            };
            let sessions = Arc::new(SessionCache::new());
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let verifier = verifier(&settings, &provider, Arc::clone(&sessions)).unwrap();
            let said = verifier.verify_server_cert(&leaf, &[], &name, &[], at(now));
            assert_eq!(said.is_ok(), accepted, "{said:?}");
            sessions.set_kx_hint(name.clone(), NamedGroup::X25519);
            assert!(sessions.at(at(end)).sessions.kx_hint(&name).is_some());
            assert_eq!(
                sessions.at(at(end.saturating_add(1))).sessions.kx_hint(&name).is_some(),
                end == u64::MAX
            );
        }
    }

    #[test]
    fn sessions_are_dropped_at_the_earliest_expiry() {
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
        // Later sessions have an expiry of their own.
        cache.set_kx_hint(name.clone(), NamedGroup::X25519);
        assert!(kept(1_001));
        cache.accepted(Expiry::at(3_000));
        assert!(kept(3_000) && !kept(3_001));
    }
}
