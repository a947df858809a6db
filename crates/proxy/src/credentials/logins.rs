//! Checks of passwords, beside the workers: a few threads, a bounded queue, and what each worker remembers.
//!
//! A check costs tens of milliseconds of CPU time and as many MiB of memory, on purpose. So it is done by [`THREADS`]
//! threads for all workers; more than [`QUEUE`] requests do not wait. A password that was right is remembered for a
//! while, so that a browser's next requests cost a hash of nanoseconds.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use offramp_observe::panics;
use rustls::crypto::aws_lc_rs;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tokio::sync::{Notify, oneshot};
use zeroize::Zeroizing;

use super::hash::PasswordHash;
use super::throttle::{Refused, Throttle};
use super::users::Users;

/// How many passwords are checked at a time.
const THREADS: usize = 2;
/// How many wait to be checked.
const QUEUE: usize = 64;
/// How long a password that was right is remembered.
const REMEMBER: Duration = Duration::from_secs(5 * 60);
/// How many each worker remembers: with what the tables add, less than 512 KiB.
const REMEMBERED: usize = 4096;

/// Who checks passwords, for all workers.
pub struct Logins {
    queue: Mutex<Option<SyncSender<Job>>>,
    throttle: Arc<Throttle>,
    /// What passwords are remembered by: a new key for each process.
    key: [u8; 16],
    /// Where the threads may run: not only where the worker is tied to that starts them.
    cores: Vec<usize>,
}

/// One password to be checked.
struct Job {
    hash: PasswordHash,
    password: Zeroizing<Vec<u8>>,
    done: oneshot::Sender<bool>,
}

/// As many passwords as may be are waiting to be checked already, or there is no thread.
#[derive(Debug)]
struct Busy;

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
        let (queue, throttle) = Default::default();
        Arc::new(Self { queue, throttle, key, cores: offramp_net::cores::usable() })
    }

    fn check(
        &self,
        hash: PasswordHash,
        password: Zeroizing<Vec<u8>>,
    ) -> Result<oneshot::Receiver<bool>, Busy> {
        let (done, outcome) = oneshot::channel();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.is_none() {
            *queue = Some(start(&self.cores).map_err(|_| Busy)?);
        }
        let sender = queue.as_ref().ok_or(Busy)?;
        sender.try_send(Job { hash, password, done }).map_err(|_| Busy)?;
        Ok(outcome)
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

/// Starts the threads. They end when the queue is dropped.
fn start(cores: &[usize]) -> std::io::Result<SyncSender<Job>> {
    let (sender, receiver) = sync_channel(QUEUE);
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..THREADS {
        let (receiver, cores) = (Arc::clone(&receiver), cores.to_vec());
        let work = move || {
            // Where that is denied, they share the core of a worker.
            let _ = offramp_net::cores::free(&cores);
            while let Some(job) = next(&receiver) {
                // Whoever waits for the answer learns that there is none.
                let _ = panics::catch(|| job.run());
            }
        };
        std::thread::Builder::new().name("offramp-login".into()).spawn(work)?;
    }
    Ok(sender)
}

fn next(receiver: &Mutex<Receiver<Job>>) -> Option<Job> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

impl Job {
    fn run(self) {
        // Nobody waits where the worker has ended.
        let _ = self.done.send(self.hash.fits(&self.password));
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
        loop {
            let over = under_way.over.notified();
            if let Some(outcome) = under_way.outcome.get() {
                return outcome;
            }
            over.await;
        }
    }

    /// Has a password checked. That goes on where the request that began it is given up, for others may wait too, and a
    /// wrong one counts.
    fn begin(
        self: &Rc<Self>,
        logins: &Arc<Logins>,
        name: &str,
        ((hash, known), password): ((PasswordHash, bool), Zeroizing<Vec<u8>>),
        key: Asked,
    ) -> Result<Rc<UnderWay>, Outcome> {
        let names = (logins.keyed(&[name.as_bytes()]), key.0);
        let attempt =
            logins.throttle.begin(key.1, names, Instant::now()).map_err(|refused| match refused {
                Refused::Wait(wait) => Outcome::Wait(wait),
                Refused::WrongBefore => Outcome::Wrong,
            })?;
        let fits = logins.check(hash, password).map_err(|Busy| Outcome::Busy)?;
        let under_way = Rc::new(UnderWay::default());
        self.under_way.borrow_mut().insert(key, Rc::clone(&under_way));
        let (this, done) = (Rc::clone(self), Rc::clone(&under_way));
        tokio::task::spawn_local(async move {
            let outcome = match fits.await {
                Ok(true) if known => Outcome::Right,
                Ok(_) => Outcome::Wrong,
                // The thread is gone.
                Err(_) => Outcome::Busy,
            };
            let now = Instant::now();
            match outcome {
                Outcome::Right => this.right.borrow_mut().add(key.0, now),
                Outcome::Wrong => attempt.was_wrong(now),
                Outcome::Wait(_) | Outcome::Busy => {}
            }
            this.under_way.borrow_mut().remove(&key);
            done.outcome.set(Some(outcome));
            done.over.notify_waiters();
        });
        Ok(under_way)
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
            // No thread takes anything.
            let (sender, receiver) = sync_channel(QUEUE);
            *logins.queue.lock().unwrap() = Some(sender);
            let users = Users::parse(USERS).unwrap();
            let client = |number: usize| Some(IpAddr::V4(u32::try_from(number).unwrap().into()));
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
            let jobs: Vec<Job> = receiver.try_iter().collect();
            assert_eq!(jobs.len(), QUEUE);
            jobs.into_iter().for_each(Job::run);
            for one in all {
                assert_eq!(one.await, Outcome::Right);
            }
            // A thread that is gone lets nobody in.
            drop(receiver);
            let unseen = remembered.check(&logins, &users, ("anna", password("x")), None).await;
            assert_eq!(unseen, Outcome::Busy);
            assert!(remembered.under_way.borrow().is_empty());
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
