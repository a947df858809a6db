//! Sessions of the page, without a clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use tokio::sync::watch;

use crate::caller::same;

/// The most sessions at a time: a team, with several browsers each.
const SESSIONS: usize = 256;
/// The longest life of a session: a working day.
const LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// The time after which an unused session ends.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// The holder of a session, by the credential that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionHolder {
    /// Knows the token of `[admin]`.
    Token,
    /// A user of the file `users`.
    User {
        /// The name that has logged in.
        name: Arc<str>,
        /// The identity of the hash that the password was checked against: another password ends the session.
        identity: Arc<[u8]>,
    },
    /// Followed the link of `offramp ui`, under the name of who ran it.
    Link(Arc<str>),
}

impl SessionHolder {
    /// The name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Token => "token",
            Self::User { name, .. } | Self::Link(name) => name,
        }
    }
}

/// A session that a browser has. Secrets stay out of its `Debug` form.
pub(super) struct PageSession {
    id: String,
    csrf: String,
    holder: SessionHolder,
    began: Instant,
    used: Instant,
    /// Dropped with the session.
    alive: watch::Sender<()>,
}

/// The end of a session, which ends its event streams.
#[derive(Clone, Debug)]
pub struct SessionEnd(watch::Receiver<()>);

impl SessionEnd {
    /// Waits until the session was closed, or has given its place to another.
    pub async fn wait(mut self) {
        // Nothing is ever sent: it ends with an error.
        while self.0.changed().await.is_ok() {}
    }
}

impl std::fmt::Debug for PageSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageSession").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl PageSession {
    /// The secret that the page sends with each change.
    pub(super) fn csrf(&self) -> &str {
        &self.csrf
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn holder(&self) -> &SessionHolder {
        &self.holder
    }

    pub(super) fn end(&self) -> SessionEnd {
        SessionEnd(self.alive.subscribe())
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= LIFE || now.saturating_duration_since(self.used) >= IDLE
    }
}

/// All sessions. Where there are too many, a new one takes the place of the one that was unused for longest.
#[derive(Debug, Default)]
pub(super) struct SessionTable(Vec<PageSession>);

impl SessionTable {
    /// Opens a session; `None` without random numbers.
    pub(super) fn open(&mut self, holder: SessionHolder, now: Instant) -> Option<&PageSession> {
        let (id, csrf) = (secret()?, secret()?);
        self.0.retain(|session| !session.is_over(now));
        if self.0.len() >= SESSIONS {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, session)| session.used);
            let oldest = oldest.map(|(at, _)| at);
            oldest.map(|at| self.0.swap_remove(at));
        }
        let alive = watch::Sender::new(());
        self.0.push(PageSession { id, csrf, holder, began: now, used: now, alive });
        self.0.last()
    }

    /// Finds the session with this id, and counts it as used. Takes as long for each id.
    pub(super) fn find(&mut self, id: &[u8], now: Instant) -> Option<&PageSession> {
        self.0.retain(|session| !session.is_over(now));
        let mut found = None;
        for (at, session) in self.0.iter().enumerate() {
            if same(session.id.as_bytes(), id) {
                found = Some(at);
            }
        }
        let session = self.0.get_mut(found?)?;
        session.used = now;
        Some(session)
    }

    /// Ends the session with this id, if there is one.
    pub(super) fn end(&mut self, id: &[u8]) {
        self.0.retain(|session| !same(session.id.as_bytes(), id));
    }
}

/// A secret of 256 bits in hexadecimal; `None` without random numbers.
#[must_use]
pub fn secret() -> Option<String> {
    let mut bytes = [0; SECRET_BYTES];
    aws_lc_rs::default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_unused_after_an_hour_and_used_after_half_a_day() {
        let (mut table, now) = (SessionTable::default(), Instant::now());
        let id = table.open(SessionHolder::Token, now).unwrap().id().to_owned();
        let minutes = |count: u64| now + Duration::from_secs(count * 60);
        let mut is_open = |at| table.find(id.as_bytes(), at).is_some();
        assert!((0..12 * 60).step_by(59).all(|count| is_open(minutes(count))));
        assert!(!is_open(minutes(12 * 60)), "used all the time");
        let id = table.open(SessionHolder::Token, now).unwrap().id().to_owned();
        assert!(table.find(id.as_bytes(), minutes(60)).is_none(), "unused");
    }

    #[test]
    fn a_session_is_found_by_its_whole_id_and_ends_when_it_is_told_to() {
        let (mut table, now) = (SessionTable::default(), Instant::now());
        let id = table.open(SessionHolder::Token, now).unwrap().id().to_owned();
        let other = table.open(SessionHolder::Token, now).unwrap();
        assert!(id.len() == 64 && other.id() != id && other.csrf() != other.id());
        let other = other.id().to_owned();
        for wrong in ["", &id[1..], &id[..63], &format!("{id}0"), &id.to_uppercase().replace('0', "1")] {
            assert!(table.find(wrong.as_bytes(), now).is_none(), "{wrong}");
        }
        table.end(id.as_bytes());
        assert!(table.find(id.as_bytes(), now).is_none() && table.find(other.as_bytes(), now).is_some());
    }

    #[test]
    fn the_least_used_session_makes_room() {
        let (mut table, now) = (SessionTable::default(), Instant::now());
        let mut ids = Vec::new();
        for number in 0..SESSIONS as u64 {
            let at = now + Duration::from_secs(number);
            ids.push(table.open(SessionHolder::Token, at).unwrap().id().to_owned());
        }
        let late = now + Duration::from_secs(1000);
        assert!(table.find(ids[0].as_bytes(), late).is_some());
        table.open(SessionHolder::Token, late).unwrap();
        assert_eq!(table.0.len(), SESSIONS);
        assert!(
            table.find(ids[0].as_bytes(), late).is_some() && table.find(ids[1].as_bytes(), late).is_none()
        );
    }
}
