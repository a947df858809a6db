//! Checks of passwords, beside the workers: a few threads, a bounded queue, and what each worker remembers.
//!
//! A check costs tens of milliseconds of CPU time and as many MiB of memory, on purpose. So a few threads do it for all
//! workers ([`Checkers`]); a bounded number of requests waits. A password that was right is remembered for a
//! while, so that a browser's next requests cost a hash of nanoseconds.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tokio::sync::{Notify, oneshot};
use zeroize::Zeroizing;

use super::check_queue::{Busy, Job, JobId};
use super::checkers::Checkers;
use super::hash::PasswordHash;
use super::throttle::{Attempt, Refused, Throttle};
use super::users::Users;
use crate::fair_queue::ClientNetworkPath;

/// How long a password that was right is remembered.
const REMEMBER: Duration = Duration::from_secs(5 * 60);
/// How many each worker remembers: with what the tables add, less than 512 KiB.
const REMEMBERED: usize = 4096;

/// Who checks passwords, for all workers.
pub struct Logins {
    checkers: Arc<Checkers>,
    throttle: Arc<Throttle>,
    /// What passwords are remembered by: a new key for each process.
    key: [u8; 16],
    /// Where the threads may run: not only where the worker is tied to that starts them.
    cores: Vec<usize>,
}

/// What came of a name and a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// They fit.
    Right,
    /// There is no such user, or it has another password.
    Wrong,
    /// The client has guessed too often, and has to wait so long.
    Wait(Duration),
    /// Too many wait to be checked.
    Busy,
}

impl Logins {
    /// Nobody is known, and no thread runs until there is something to check. The threads will run on the cores that the
    /// calling thread may use.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut key = [0; 16];
        // Passwords are never remembered by a key that somebody could know.
        let drawn = aws_lc_rs::default_provider().secure_random.fill(&mut key).is_ok();
        assert!(drawn, "the system has random numbers: TLS has drawn some before");
        let (checkers, throttle) = Default::default();
        Arc::new(Self { checkers, throttle, key, cores: offramp_net::cores::usable() })
    }

    /// What a name and a password are known by, with the hash that they are checked against: a file with another hash
    /// makes them unknown.
    fn digest(&self, hash: &PasswordHash, name: &str, password: &[u8]) -> u128 {
        self.keyed(&[hash.identity(), name.as_bytes(), password])
    }

    /// A hash that nobody outside can know or aim at.
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

/// What a worker knows of passwords: those that were right, and those that are being checked.
#[derive(Default)]
pub(crate) struct KnownPasswords {
    right: RefCell<Right>,
    under_way: RefCell<HashMap<Asked, Rc<UnderWay>>>,
}

#[derive(Default)]
struct Right {
    until: HashMap<u128, Instant>,
    /// The oldest first.
    order: VecDeque<u128>,
}

#[derive(Default)]
struct UnderWay {
    outcome: Cell<Option<Outcome>>,
    over: Notify,
    /// Requests that wait for the outcome.
    waiting: Cell<usize>,
    /// None waits any more.
    abandoned: Notify,
}

/// A request that waits.
struct Waiter(Rc<UnderWay>);

impl Waiter {
    fn new(under_way: Rc<UnderWay>) -> Self {
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

/// A password in the queue of all workers.
struct Queued {
    job: JobId,
    fits: oneshot::Receiver<bool>,
    attempt: Attempt,
}

impl KnownPasswords {
    /// Checks a name and its password for `client`. The same ones of the same client are checked once at a time.
    pub(crate) async fn check(
        self: &Rc<Self>,
        logins: &Arc<Logins>,
        users: &Users,
        (name, password): (&str, Zeroizing<Vec<u8>>),
        client: Option<IpAddr>,
    ) -> Outcome {
        let (hash, known) = users.hash(name);
        let digest = logins.digest(&hash, name, &password);
        if known && self.right.borrow_mut().has(digest, Instant::now()) {
            return Outcome::Right;
        }
        let key = (digest, client);
        let waiting = self.under_way.borrow().get(&key).cloned();
        let under_way = match waiting {
            Some(under_way) => under_way,
            None => match self.begin(logins, name, ((hash, known), password), key) {
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
        ((hash, known), password): ((PasswordHash, bool), Zeroizing<Vec<u8>>),
        key: Asked,
    ) -> Result<Rc<UnderWay>, Outcome> {
        let name = logins.keyed(&[name.as_bytes()]);
        let attempt = logins.throttle.begin(key.1, (name, key.0), Instant::now());
        let attempt = attempt.map_err(|refused| match refused {
            Refused::Wait(wait) => Outcome::Wait(wait),
            Refused::WrongBefore => Outcome::Wrong,
        })?;
        let ((done, fits), client) = (oneshot::channel(), ClientNetworkPath::of(key.1));
        let job = Job { hash, password, done, client, name, standing: attempt.standing };
        let job = logins.checkers.add(job, &logins.cores).map_err(|Busy| Outcome::Busy)?;
        let under_way = Rc::new(UnderWay::default());
        self.under_way.borrow_mut().insert(key, Rc::clone(&under_way));
        let (this, waited, logins) = (Rc::clone(self), Rc::clone(&under_way), Arc::clone(logins));
        tokio::task::spawn_local(async move {
            let outcome = this.outcome(&logins, Queued { job, fits, attempt }, known, key, &waited).await;
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
        waited: &UnderWay,
    ) -> Outcome {
        let Queued { job, mut fits, attempt } = queued;
        let fits = loop {
            tokio::select! {
                biased;
                fits = &mut fits => break fits,
                () = waited.abandoned.notified() => {
                    // Another request may have come meanwhile.
                    let is_abandoned = waited.waiting.get() == 0;
                    if is_abandoned && logins.checkers.cancel(ClientNetworkPath::of(key.1), job) {
                        return Outcome::Busy;
                    }
                }
            }
        };
        let now = Instant::now();
        match fits {
            Ok(true) if known => {
                attempt.was_right(now);
                self.right.borrow_mut().add(key.0, now);
                Outcome::Right
            }
            Ok(_) => {
                attempt.was_wrong(now);
                Outcome::Wrong
            }
            // Others had a better right to the place in the queue, or the thread is gone.
            Err(_) => Outcome::Busy,
        }
    }
}

impl Right {
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
mod tests {
    use tokio::task::LocalSet;

    use super::super::check_queue::QUEUE;
    use super::super::hash::ArgonBlocks;
    use super::*;

    const USERS: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";

    fn password(text: &str) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(text.as_bytes().to_vec())
    }

    async fn within(test: impl Future<Output = ()>) {
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn right_ones_are_remembered_and_wrong_ones_counted() {
        within(async {
            let (logins, remembered) = (Logins::new(), Rc::new(KnownPasswords::default()));
            let users = Users::parse(USERS).unwrap();
            let check = |name: &'static str, secret: &str| {
                let secret = password(secret);
                let (logins, remembered, users) = (&logins, &remembered, &users);
                async move { remembered.check(logins, users, (name, secret), None).await }
            };
            assert_eq!(check("anna", "U*U").await, Outcome::Right);
            for secret in ["U*", "", "U", "*", "U*U*"] {
                assert_eq!(check("anna", secret).await, Outcome::Wrong, "{secret}");
            }
            assert!(matches!(check("anna", "other").await, Outcome::Wait(_)));
            assert_eq!(check("x", "y").await, Outcome::Wrong, "another name does not wait");
            // Who has been let in before is not kept out by others at the same address.
            assert_eq!(check("anna", "U*U").await, Outcome::Right);
            // A stranger is never remembered, though it is checked against the hash of somebody.
            assert_eq!(check("bernd", "U*U").await, Outcome::Wrong);
            let other = Users::parse(
                &USERS.replace("E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "VGOzA784oUp/Z0DY336zx7pLYAy0lwK"),
            );
            let outcome = remembered.check(&logins, &other.unwrap(), ("anna", password("U*U")), None).await;
            assert!(matches!(outcome, Outcome::Wait(_)), "a new hash makes the old password unknown");
        })
        .await;
    }

    #[tokio::test]
    async fn the_same_password_is_checked_once_at_a_time_and_the_queue_is_bounded() {
        within(async {
            let (logins, remembered) = (Logins::new(), Rc::new(KnownPasswords::default()));
            logins.checkers.hold();
            let users = Users::parse(USERS).unwrap();
            // Each in a network of its own, so that nobody has a better right.
            let client = |number: usize| Some(IpAddr::V4((u32::try_from(number).unwrap() << 16).into()));
            let mut all: Vec<_> = (0..QUEUE)
                .flat_map(|number| [number, number])
                .map(|number| {
                    Box::pin(remembered.check(&logins, &users, ("anna", password("U*U")), client(number)))
                })
                .collect();
            for one in &mut all {
                let waker = std::task::Waker::noop();
                assert!(one.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
            }
            let late = remembered.check(&logins, &users, ("anna", password("U*U")), client(QUEUE)).await;
            assert_eq!(late, Outcome::Busy);
            let jobs = logins.checkers.take_all();
            assert_eq!(jobs.len(), QUEUE);
            jobs.into_iter().for_each(|job| job.run(&mut ArgonBlocks::default()));
            for one in all {
                assert_eq!(one.await, Outcome::Right);
            }
            // A thread that is gone lets nobody in.
            logins.checkers.close();
            let unseen = remembered.check(&logins, &users, ("anna", password("x")), None).await;
            assert_eq!(unseen, Outcome::Busy);
            assert!(remembered.under_way.borrow().is_empty());
        })
        .await;
    }

    #[tokio::test]
    async fn a_password_for_which_nobody_waits_leaves_the_queue_and_one_that_is_checked_counts() {
        within(async {
            let (logins, remembered) = (Logins::new(), Rc::new(KnownPasswords::default()));
            logins.checkers.hold();
            let users = Users::parse(USERS).unwrap();
            let check =
                |secret: &str| Box::pin(remembered.check(&logins, &users, ("anna", password(secret)), None));
            let waker = std::task::Waker::noop();
            let cx = &mut std::task::Context::from_waker(waker);
            for _ in 0..QUEUE * 2 {
                // Two requests wait for one check; it stays while one of them does.
                let (mut one, mut two) = (check("x"), check("x"));
                assert!(one.as_mut().poll(cx).is_pending() && two.as_mut().poll(cx).is_pending());
                drop(one);
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
                assert_eq!(remembered.under_way.borrow().len(), 1);
                drop(two);
                while !remembered.under_way.borrow().is_empty() {
                    tokio::task::yield_now().await;
                }
            }
            assert!(logins.checkers.take_all().is_empty());
            for number in 0..5 {
                let mut one = check(&number.to_string());
                assert!(one.as_mut().poll(cx).is_pending());
                let job = logins.checkers.take_all().remove(0);
                drop(one);
                tokio::task::yield_now().await;
                job.run(&mut ArgonBlocks::default());
                while !remembered.under_way.borrow().is_empty() {
                    tokio::task::yield_now().await;
                }
            }
            assert!(matches!(check("other").await, Outcome::Wait(_)), "five guesses were counted");
        })
        .await;
    }

    #[test]
    fn what_is_remembered_is_bounded_and_ends() {
        let (mut right, now) = (Right::default(), Instant::now());
        for digest in 0..3 * REMEMBERED as u128 {
            right.add(digest, now);
        }
        assert_eq!((right.until.len(), right.order.len()), (REMEMBERED, REMEMBERED));
        let last = 3 * REMEMBERED as u128 - 1;
        assert!(right.has(last, now) && !right.has(0, now) && !right.has(last, now + REMEMBER));
        right.add(0, now + REMEMBER);
        assert_eq!((right.until.len(), right.order.len()), (1, 1));
    }
}
