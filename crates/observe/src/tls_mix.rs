//! Statistics of TLS sessions in bounded memory: negotiated parameters, handshake time, failures by cause.
//!
//! Sessions are counted by the whole combination (version, suite, group, full or resumed), because every
//! share of interest is a sum over it; a client shows only a few combinations.

use std::time::Duration;

use crate::facts::{Cause, ConnectionFacts, Handshake, TlsVersion};
use crate::histogram::micros;

/// Counts of a group of sessions.
#[derive(Clone, Debug, Default)]
pub struct TlsMix {
    sessions: Vec<(SessionParameters, u64)>,
    failures: Vec<(Cause, u64)>,
    handshake_micros: u64,
}

/// The negotiated parameters of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionParameters {
    /// The version; `None` stands for all sessions beyond [`TlsMix::MOST_SESSIONS`] combinations.
    pub version: Option<TlsVersion>,
    /// The IANA name of the cipher suite.
    pub suite: &'static str,
    /// The IANA name of the key-exchange group; empty for a resumption without key exchange.
    pub group: &'static str,
    /// Full handshake or resumption.
    pub kind: Handshake,
}

impl SessionParameters {
    /// Returns `true` if the key exchange is post-quantum: it has an ML-KEM part.
    #[must_use]
    pub fn is_post_quantum(&self) -> bool {
        self.group.contains("MLKEM")
    }
}

impl TlsMix {
    /// The maximum number of combinations: more than any honest client shows.
    pub const MOST_SESSIONS: usize = 64;

    /// Counts the outcome of a connection's handshake. Returns `false` if there was none.
    pub(crate) fn count(&mut self, facts: &ConnectionFacts) -> bool {
        let Some(took) = facts.times.handshake else { return false };
        match facts.tls.handshake {
            Some(kind) => self.succeeded(facts, kind, took),
            None => bump(&mut self.failures, facts.close.cause),
        }
        true
    }

    fn succeeded(&mut self, facts: &ConnectionFacts, kind: Handshake, took: Duration) {
        let tls = &facts.tls;
        let mut session = SessionParameters {
            version: tls.version,
            suite: tls.suite.unwrap_or_default(),
            group: tls.group.unwrap_or_default(),
            kind,
        };
        let known = self.sessions.iter().any(|(known, _)| *known == session);
        if !known && self.sessions.len() >= Self::MOST_SESSIONS {
            session = SessionParameters { version: None, suite: "other", group: "other", kind };
        }
        bump(&mut self.sessions, session);
        self.handshake_micros = self.handshake_micros.saturating_add(micros(took));
    }

    /// Completed handshakes by negotiated parameters.
    pub fn sessions(&self) -> impl Iterator<Item = (&SessionParameters, u64)> {
        self.sessions.iter().map(|(session, count)| (session, *count))
    }

    /// Failed handshakes by cause.
    pub fn failures(&self) -> impl Iterator<Item = (Cause, u64)> {
        self.failures.iter().copied()
    }

    /// The total time of completed handshakes, in microseconds.
    #[must_use]
    pub const fn handshake_micros(&self) -> u64 {
        self.handshake_micros
    }
}

/// Increments the count of `what`. The list has one entry per cause, or is bounded by the caller.
fn bump<T: PartialEq>(list: &mut Vec<(T, u64)>, what: T) {
    match list.iter_mut().find(|(known, _)| *known == what) {
        Some((_, count)) => *count += 1,
        None => list.push((what, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::TlsMix;
    use crate::facts::{Cause, Close, ConnectionFacts, Handshake, IdSource, TlsVersion};
    use std::time::{Duration, UNIX_EPOCH};

    fn facts() -> ConnectionFacts {
        let id = IdSource::new(0, 0).next(UNIX_EPOCH);
        let client: std::net::SocketAddr = "192.0.2.1:443".parse().unwrap();
        let mut facts = ConnectionFacts::new(id, 0, "web".into(), UNIX_EPOCH, client.into());
        facts.times.handshake = Some(Duration::from_micros(250));
        facts
    }

    #[test]
    fn sessions_and_failures_are_counted_apart() {
        let mut mix = TlsMix::default();
        let mut session = facts();
        session.tls.version = Some(TlsVersion::Tls13);
        session.tls.handshake = Some(Handshake::Full);
        session.tls.suite = Some("TLS_AES_128_GCM_SHA256");
        for group in ["X25519MLKEM768", "x25519", "X25519MLKEM768"] {
            session.tls.group = Some(group);
            assert!(mix.count(&session));
        }
        let mut failure = facts();
        failure.close = Close::from(Cause::NoCommonVersion);
        assert!(mix.count(&failure) && mix.count(&failure));
        failure.times.handshake = None;
        assert!(!mix.count(&failure), "there was no handshake");
        let post_quantum: u64 =
            mix.sessions().filter(|(session, _)| session.is_post_quantum()).map(|(_, count)| count).sum();
        assert_eq!((mix.sessions().count(), post_quantum), (2, 2));
        assert_eq!(mix.failures().collect::<Vec<_>>(), [(Cause::NoCommonVersion, 2)]);
        assert_eq!(mix.handshake_micros(), 750);
    }

    #[test]
    fn combinations_are_bounded() {
        const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let mut mix = TlsMix::default();
        let mut session = facts();
        session.tls.handshake = Some(Handshake::Full);
        for suite in NAMES {
            for group in NAMES {
                (session.tls.suite, session.tls.group) = (Some(suite), Some(group));
                mix.count(&session);
            }
        }
        assert_eq!(mix.sessions().count(), TlsMix::MOST_SESSIONS + 1);
        assert_eq!(mix.sessions().map(|(_, count)| count).sum::<u64>(), 81);
        assert_eq!(mix.sessions().last().unwrap().1, 81 - TlsMix::MOST_SESSIONS as u64);
    }
}
