//! Checks of passwords, beside the workers: a few threads, a bounded queue, and what each worker remembers.
//!
//! A check costs tens of milliseconds of CPU time and as many MiB of memory, on purpose. So a few threads do it for all
//! workers ([`Checkers`]); a bounded number of requests waits. A password that was right is remembered for a
//! while, so that a browser's next requests cost a hash of nanoseconds.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::Hasher as _;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tokio::sync::{Notify, oneshot};
use zeroize::Zeroizing;

use super::check_queue::{Busy, HashJob, JobId};
use super::checkers::Checkers;
use super::hash::PasswordHash;
use super::throttle::{PasswordAttempt, Throttle, ThrottleDenial};
use super::users::Users;
use crate::fair_queue::ClientNetworkPath;
use crate::limit::client_key;

/// The time for which a password that was right is remembered.
const REMEMBER: Duration = Duration::from_secs(5 * 60);
/// Passwords that each worker remembers: with the tables, less than 512 KiB.
const REMEMBERED: usize = 4096;

/// The check of passwords, for all workers.
pub struct Logins {
    checkers: Arc<Checkers>,
    throttle: Arc<Throttle>,
    /// The key of digests of passwords: a new one for each process.
    key: [u8; 16],
    /// Cores of the threads: not only the one to which the worker that starts them is tied.
    cores: Vec<usize>,
}

/// The outcome of the check of a name and a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The password fits the name.
    Right,
    /// There is no such user, or it has another password.
    Wrong,
    /// The client has guessed too often, and has to wait so long.
    Wait(Duration),
    /// Too many wait to be checked.
    Busy,
}

impl Logins {
    /// No remembered passwords. No thread runs until there is something to check. The threads will run on the cores
    /// that the calling thread may use.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut key = [0; 16];
        // Passwords are never remembered by a key that others could know.
        let drawn = aws_lc_rs::default_provider().secure_random.fill(&mut key).is_ok();
        assert!(drawn, "the system has random numbers: TLS has drawn some before");
        let (checkers, throttle) = Default::default();
        Arc::new(Self { checkers, throttle, key, cores: offramp_net::cores::usable() })
    }

    /// Checks a name and its password for `client`, without a worker that would remember it. A check that has begun goes
    /// on where the caller gives up, and a wrong password counts: a client that goes away has guessed as well.
    pub async fn check(
        self: &Arc<Self>,
        users: &Users,
        name: &str,
        password: Zeroizing<Vec<u8>>,
        client: Option<IpAddr>,
    ) -> LoginOutcome {
        let (hash, known) = users.hash(name);
        let digest = self.digest(&hash, name, &password, client);
        let candidate = PasswordCandidate { hash, known, password };
        let Queued { fits, attempt, .. } = match self.enqueue(name, candidate, (digest, client)) {
            Ok(queued) => queued,
            Err(outcome) => return outcome,
        };
        let checked = tokio::spawn(async move { attempt.conclude(fits.await.ok(), known, Instant::now()) });
        checked.await.unwrap_or(LoginOutcome::Busy)
    }

    /// Puts a password in the queue of those that are checked, unless its client has to wait.
    fn enqueue(
        &self,
        name: &str,
        PasswordCandidate { hash, password, .. }: PasswordCandidate,
        asked: Asked,
    ) -> Result<Queued, LoginOutcome> {
        let name = self.keyed(&[name.as_bytes()]);
        let attempt = self.throttle.begin(asked.1, name, asked.0, Instant::now());
        let attempt = attempt.map_err(|refused| match refused {
            ThrottleDenial::Wait(wait) => LoginOutcome::Wait(wait),
            ThrottleDenial::WrongBefore => LoginOutcome::Wrong,
        })?;
        let ((done, fits), client) = (oneshot::channel(), ClientNetworkPath::of(asked.1));
        let job = HashJob { hash, password, done, client, name, standing: attempt.standing };
        let job = self.checkers.add(job, &self.cores).map_err(|Busy| LoginOutcome::Busy)?;
        Ok(Queued { job, fits, attempt })
    }

    /// Key under which a name and a password are remembered for a client, with the hash that they are checked against: a
    /// file with another hash makes them unknown. What one client was let in with is unknown for others, who could guess
    /// without a wait until they hit it.
    fn digest(&self, hash: &PasswordHash, name: &str, password: &[u8], client: Option<IpAddr>) -> u128 {
        let client = client_key(client.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
        let (v4, v6);
        let client: &[u8] = match client {
            IpAddr::V4(address) => {
                v4 = address.octets();
                &v4
            }
            IpAddr::V6(address) => {
                v6 = address.octets();
                &v6
            }
        };
        self.keyed(&[hash.identity(), name.as_bytes(), password, client])
    }

    /// A hash that no client can know or aim at.
    fn keyed(&self, parts: &[&[u8]]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish128().as_u128()
    }
}

impl Drop for Logins {
    fn drop(&mut self) {
        self.checkers.close();
    }
}

/// A name and a password, by their keyed hash, and the client that has sent them.
type Asked = (u128, Option<IpAddr>);

/// The passwords that a worker knows: those that were right, and those that are being checked.
#[derive(Default)]
pub(crate) struct KnownPasswords {
    right: RefCell<ValidLogins>,
    under_way: RefCell<HashMap<Asked, Rc<PendingLogin>>>,
}

#[derive(Default)]
struct ValidLogins {
    until: HashMap<u128, Instant>,
    /// Entries by age, the oldest first.
    order: VecDeque<u128>,
}

#[derive(Default)]
struct PendingLogin {
    outcome: Cell<Option<LoginOutcome>>,
    over: Notify,
    /// Requests that wait for the outcome.
    waiting: Cell<usize>,
    /// None waits any more.
    abandoned: Notify,
}

/// A request that waits.
struct Waiter(Rc<PendingLogin>);

impl Waiter {
    fn new(under_way: Rc<PendingLogin>) -> Self {
        under_way.waiting.set(under_way.waiting.get() + 1);
        Self(under_way)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        if self.0.waiting.get() == 0 {
            self.0.abandoned.notify_one();
        }
    }
}

/// A password and the hash that it is compared with.
struct PasswordCandidate {
    hash: PasswordHash,
    /// The hash is that of a user, and not of a name without one.
    known: bool,
    password: Zeroizing<Vec<u8>>,
}

/// A password in the queue of all workers.
struct Queued {
    job: JobId,
    fits: oneshot::Receiver<bool>,
    attempt: PasswordAttempt,
}

impl PasswordAttempt {
    /// Counts the end of a check. `fits` is `None` where others had a better right to the place in the queue, or the
    /// thread is gone; `known` means that there is such a user.
    fn conclude(&self, fits: Option<bool>, known: bool, now: Instant) -> LoginOutcome {
        match fits {
            Some(true) if known => {
                self.was_right(now);
                LoginOutcome::Right
            }
            Some(_) => {
                self.was_wrong(now);
                LoginOutcome::Wrong
            }
            None => LoginOutcome::Busy,
        }
    }
}

impl KnownPasswords {
    /// Checks a name and its password for `client`. The same ones of the same client are checked once at a time.
    pub(crate) async fn check(
        self: &Rc<Self>,
        logins: &Arc<Logins>,
        users: &Users,
        name: &str,
        password: Zeroizing<Vec<u8>>,
        client: Option<IpAddr>,
    ) -> LoginOutcome {
        let (hash, known) = users.hash(name);
        let digest = logins.digest(&hash, name, &password, client);
        if known && self.right.borrow_mut().has(digest, Instant::now()) {
            return LoginOutcome::Right;
        }
        let key = (digest, client);
        let waiting = self.under_way.borrow().get(&key).cloned();
        let under_way = match waiting {
            Some(under_way) => under_way,
            None => match self.begin(logins, name, PasswordCandidate { hash, known, password }, key) {
                Ok(under_way) => under_way,
                Err(outcome) => return outcome,
            },
        };
        let under_way = Waiter::new(under_way);
        loop {
            let over = under_way.0.over.notified();
            if let Some(outcome) = under_way.0.outcome.get() {
                return outcome;
            }
            over.await;
        }
    }

    /// Has a password checked. Where all requests that wait for it are given up, it leaves the queue. A check that has
    /// begun goes on, and a wrong password counts: a client that goes away has guessed as well.
    fn begin(
        self: &Rc<Self>,
        logins: &Arc<Logins>,
        name: &str,
        candidate: PasswordCandidate,
        key: Asked,
    ) -> Result<Rc<PendingLogin>, LoginOutcome> {
        let known = candidate.known;
        let queued = logins.enqueue(name, candidate, key)?;
        let under_way = Rc::new(PendingLogin::default());
        self.under_way.borrow_mut().insert(key, Rc::clone(&under_way));
        let (this, waited, logins) = (Rc::clone(self), Rc::clone(&under_way), Arc::clone(logins));
        tokio::task::spawn_local(async move {
            let outcome = this.outcome(&logins, queued, known, key, &waited).await;
            this.under_way.borrow_mut().remove(&key);
            waited.outcome.set(Some(outcome));
            waited.over.notify_waiters();
        });
        Ok(under_way)
    }

    async fn outcome(
        &self,
        logins: &Logins,
        queued: Queued,
        known: bool,
        key: Asked,
        waited: &PendingLogin,
    ) -> LoginOutcome {
        let Queued { job, mut fits, attempt } = queued;
        let fits = loop {
            tokio::select! {
                biased;
                fits = &mut fits => break fits,
                () = waited.abandoned.notified() => {
                    // Another request may have come meanwhile.
                    let is_abandoned = waited.waiting.get() == 0;
                    if is_abandoned && logins.checkers.cancel(ClientNetworkPath::of(key.1), job) {
                        return LoginOutcome::Busy;
                    }
                }
            }
        };
        let now = Instant::now();
        let outcome = attempt.conclude(fits.ok(), known, now);
        if outcome == LoginOutcome::Right {
            self.right.borrow_mut().add(key.0, now);
        }
        outcome
    }
}

impl ValidLogins {
    fn has(&mut self, digest: u128, now: Instant) -> bool {
        self.until.get(&digest).is_some_and(|until| *until > now)
    }

    fn add(&mut self, digest: u128, now: Instant) {
        while let Some(oldest) = self.order.front().copied() {
            let over = self.until.get(&oldest).is_none_or(|until| *until <= now);
            if !over && self.order.len() < REMEMBERED {
                break;
            }
            self.order.pop_front();
            self.until.remove(&oldest);
        }
        if self.until.insert(digest, now + REMEMBER).is_none() {
            self.order.push_back(digest);
        }
    }
}

#[cfg(test)]
mod tests;
