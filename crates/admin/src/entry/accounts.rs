//! The users that may log in on the page: a file in the format of `basic_auth`, read again when it changes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use offramp_certs::Stamp;
use offramp_observe::Log;
use offramp_proxy::credentials::{LoginOutcome, Logins, Users};
use offramp_sources::access::read_users;
use zeroize::Zeroizing;

/// The interval of checks of the file; only logins and requests with a session check.
const AGAIN: Duration = Duration::from_secs(5);

/// The users of the page, and the check of their passwords. It has threads and a count of guesses of its own: a flood of
/// logins at a site keeps no operator out.
pub struct PageUsers {
    path: PathBuf,
    state: Mutex<LoadedUsers>,
    logins: Arc<Logins>,
    log: Log,
}

impl std::fmt::Debug for PageUsers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageUsers").field("path", &self.path).finish_non_exhaustive()
    }
}

struct LoadedUsers {
    users: Arc<Users>,
    /// The stamp of the file at the last load or failed attempt.
    stamp: Option<Stamp>,
    looked: Instant,
}

impl PageUsers {
    /// Reads the file.
    ///
    /// # Errors
    /// Every mistake in it, up to a bound.
    pub fn load(path: PathBuf, log: Log) -> Result<Self, Vec<String>> {
        let stamp = Stamp::of(&path);
        let users = Arc::new(read_users(&path)?);
        let state = Mutex::new(LoadedUsers { users, stamp, looked: Instant::now() });
        Ok(Self { path, state, logins: Logins::new(), log })
    }

    /// Checks a name and its password. The right one gives the identity of its hash.
    pub(super) async fn check(
        &self,
        name: &str,
        password: Zeroizing<Vec<u8>>,
        client: Option<IpAddr>,
    ) -> Result<Arc<[u8]>, LoginOutcome> {
        let users = self.current(Instant::now());
        match self.logins.check(&users, name, password, client).await {
            LoginOutcome::Right => users.identity(name).map(Arc::from).ok_or(LoginOutcome::Wrong),
            refused => Err(refused),
        }
    }

    /// Returns `true` if the user exists, with the password whose hash has this identity.
    pub(super) fn has(&self, name: &str, identity: &[u8], now: Instant) -> bool {
        self.current(now).identity(name) == Some(identity)
    }

    /// The users in the file, or those of the last usable one.
    fn current(&self, now: Instant) -> Arc<Users> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) >= AGAIN {
            state.looked = now;
            let stamp = Stamp::of(&self.path);
            if stamp != state.stamp {
                state.stamp = stamp;
                let path = self.path.display().to_string();
                match read_users(&self.path) {
                    Ok(users) => {
                        state.users = Arc::new(users);
                        self.log.info("the users of the page changed", &[("file", (&path).into())]);
                    }
                    Err(mistakes) => {
                        let reason = mistakes.join("; ");
                        let fields = [("file", (&path).into()), ("reason", (&reason).into())];
                        self.log.error("the page keeps its users: the new file cannot be used", &fields);
                    }
                }
            }
        }
        Arc::clone(&state.users)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";

    #[tokio::test]
    async fn a_new_file_counts_and_one_with_a_mistake_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, ANNA).unwrap();
        let users = PageUsers::load(path.clone(), Log::silent()).unwrap();
        let password = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
        let identity = users.check("anna", password("U*U"), None).await.unwrap();
        assert_eq!(users.check("anna", password("U*"), None).await, Err(LoginOutcome::Wrong));
        let begun = Instant::now();
        let replace = |text: &str| {
            // Another file, as editors and `mv` make one.
            std::fs::write(folder.path().join("new"), text).unwrap();
            std::fs::rename(folder.path().join("new"), &path).unwrap();
        };
        replace("anna\n");
        assert!(users.has("anna", &identity, begun + AGAIN), "a file with a mistake");
        replace("# nobody\n");
        assert!(users.has("anna", &identity, begun + AGAIN), "the file is not looked at each time");
        assert!(!users.has("anna", &identity, begun + AGAIN * 3));
        replace(&ANNA.replace("E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "VGOzA784oUp/Z0DY336zx7pLYAy0lwK"));
        assert!(!users.has("anna", &identity, begun + AGAIN * 6), "another password");
        let mistakes = PageUsers::load(folder.path().join("none"), Log::silent()).unwrap_err();
        assert!(mistakes[0].contains("cannot read"), "{mistakes:?}");
    }
}
