//! The order in which passwords are checked, without threads and clocks.
//!
//! Clients take turns by network ([`FairQueue`]), so that no flood keeps a newcomer out. A client that has logged
//! in with a name from the same address before goes first. A name that is being guessed from many addresses is
//! checked now and then only ([`SlowName`]): first for those whose networks have guessed the least, the widest
//! first.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::hash::PasswordHash;
use crate::fair_queue::{ClientNetworkPath, FairQueue, NETWORKS};

/// The passwords that wait to be checked: of clients that have logged in before, and of all others.
pub(super) const QUEUE: usize = 128;
/// The passwords that wait for each slow name, and for all of them.
const WAITING_PER_NAME: usize = 8;
const WAITING_FOR_NAMES: usize = 256;
/// Slow names that are known to have been checked a moment ago.
const SLOW_NAMES: usize = 4096;
/// One check in so many is of another client than those that have logged in before.
const OWNERS_IN_A_ROW: u32 = 3;

/// One password to be checked.
pub(super) struct HashJob {
    pub(super) hash: PasswordHash,
    pub(super) password: Zeroizing<Vec<u8>>,
    pub(super) done: oneshot::Sender<bool>,
    pub(super) client: ClientNetworkPath,
    /// The name, by its keyed hash.
    pub(super) name: u128,
    pub(super) standing: Standing,
}

/// The place of a password in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Set where the client has logged in with the name before.
    pub(super) is_owner: bool,
    /// The pause between two checks of the name; `None`: it is not being guessed.
    pub(super) pace: Option<Duration>,
    /// The wrong passwords of the client's networks for the name.
    pub(super) guesses: Guesses,
}

/// Wrong passwords of the networks of a client, the widest first, and compared in that order: with each network
/// that has guessed nothing the owner of a wider one would begin anew, and go before all that have guessed once.
pub(super) type Guesses = [u32; NETWORKS];

/// Names a job, to take it back.
pub(super) type JobId = u64;

/// The queue is full, and others have a better right to a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy;

/// A job in the queue.
struct QueuedJob {
    id: JobId,
    job: HashJob,
}

pub(super) struct CheckQueue {
    owners: FairQueue<QueuedJob>,
    others: FairQueue<QueuedJob>,
    /// Checks of owners since the last one of others.
    owners_in_a_row: u32,
    slow: HashMap<u128, SlowName>,
    waiting_for_names: usize,
    next_id: JobId,
}

/// A name that is being guessed.
struct SlowName {
    /// The time at which the next password is checked.
    due: Instant,
    /// In the order in which they came.
    waiting: Vec<QueuedJob>,
}

/// The order for a slow name: the wrong passwords of the client's networks, then the passwords that wait of the widest of them.
type Rank = (Guesses, usize);

impl SlowName {
    fn waiting_from(&self, widest: u128) -> usize {
        self.waiting.iter().filter(|queued| queued.job.client.widest() == widest).count()
    }

    fn rank(&self, at: usize) -> Rank {
        let job = &self.waiting[at].job;
        (job.standing.guesses, self.waiting_from(job.client.widest()))
    }

    /// The one with the least right to its place; of equals the newest.
    fn last(&self) -> Option<(Rank, usize)> {
        (0..self.waiting.len()).map(|at| (self.rank(at), at)).max()
    }

    /// The one that is next; of equals the oldest.
    fn first(&self) -> Option<usize> {
        (0..self.waiting.len()).min_by_key(|at| self.rank(*at))
    }
}

impl Default for CheckQueue {
    fn default() -> Self {
        Self {
            owners: FairQueue::new(QUEUE),
            others: FairQueue::new(QUEUE),
            owners_in_a_row: 0,
            slow: HashMap::new(),
            waiting_for_names: 0,
            next_id: 0,
        }
    }
}

impl CheckQueue {
    /// Adds a job. A job that gives way to it is dropped, which its channel shows.
    pub(super) fn push(&mut self, job: HashJob, now: Instant) -> Result<JobId, Busy> {
        let id = self.next_id;
        self.next_id += 1;
        match job.standing {
            Standing { is_owner: true, .. } => {
                drop(self.owners.push(job.client, QueuedJob { id, job }).map_err(|_| Busy)?);
            }
            Standing { pace: Some(_), .. } => self.push_slow(QueuedJob { id, job }, now)?,
            _ => {
                drop(self.others.push(job.client, QueuedJob { id, job }).map_err(|_| Busy)?);
            }
        }
        Ok(id)
    }

    fn push_slow(&mut self, queued: QueuedJob, now: Instant) -> Result<(), Busy> {
        let name = queued.job.name;
        self.slow.retain(|_, slow| !slow.waiting.is_empty() || slow.due > now);
        if self.slow.len() >= SLOW_NAMES && !self.slow.contains_key(&name) {
            return Err(Busy);
        }
        let waiting = |slow: Option<&SlowName>| slow.map_or(0, |slow| slow.waiting.len());
        let own = waiting(self.slow.get(&name));
        if own >= WAITING_PER_NAME {
            self.displace(name, &queued.job)?;
        } else if self.waiting_for_names >= WAITING_FOR_NAMES {
            let (fullest, most) = self
                .slow
                .iter()
                .map(|(name, slow)| (*name, waiting(Some(slow))))
                .max_by_key(|(_, waiting)| *waiting)
                .ok_or(Busy)?;
            if most <= own + 1 {
                return Err(Busy);
            }
            self.displace_last(fullest)?;
        }
        let slow = self.slow.entry(name).or_insert(SlowName { due: now, waiting: Vec::new() });
        slow.waiting.push(queued);
        self.waiting_for_names += 1;
        Ok(())
    }

    /// Drops the one of a slow name that has the least right to its place, if that is less than a newcomer's.
    fn displace(&mut self, name: u128, newcomer: &HashJob) -> Result<(), Busy> {
        let slow = self.slow.get(&name).ok_or(Busy)?;
        let wide = newcomer.client.widest();
        // It would itself be one more.
        let rank = (newcomer.standing.guesses, slow.waiting_from(wide) + 1);
        let (_, last) = slow.last().filter(|(last, _)| *last > rank).ok_or(Busy)?;
        self.remove(name, last)
    }

    fn displace_last(&mut self, name: u128) -> Result<(), Busy> {
        let (_, last) = self.slow.get(&name).and_then(SlowName::last).ok_or(Busy)?;
        self.remove(name, last)
    }

    fn remove(&mut self, name: u128, at: usize) -> Result<(), Busy> {
        self.slow.get_mut(&name).ok_or(Busy)?.waiting.remove(at);
        self.waiting_for_names -= 1;
        Ok(())
    }

    /// Takes the job that is next.
    pub(super) fn pop(&mut self, now: Instant) -> Option<HashJob> {
        self.admit_slow(now);
        let owners_first = self.owners_in_a_row < OWNERS_IN_A_ROW || self.others.len() == 0;
        if owners_first && let Some(QueuedJob { job, .. }) = self.owners.pop() {
            self.owners_in_a_row += 1;
            return Some(job);
        }
        self.owners_in_a_row = 0;
        self.others.pop().or_else(|| self.owners.pop()).map(|queued| queued.job)
    }

    /// Moves the next password of each name that is due to where all clients take turns.
    fn admit_slow(&mut self, now: Instant) {
        for slow in self.slow.values_mut().filter(|slow| slow.due <= now) {
            let Some(first) = slow.first() else { continue };
            let queued = slow.waiting.remove(first);
            self.waiting_for_names -= 1;
            slow.due = now + queued.job.standing.pace.unwrap_or_default();
            // Where there is no place for it its request hears so.
            drop(self.others.push(queued.job.client, queued));
        }
    }

    /// The time at which the next slow name is due; `None` where no password waits for one.
    pub(super) fn due(&self) -> Option<Instant> {
        self.slow.values().filter(|slow| !slow.waiting.is_empty()).map(|slow| slow.due).min()
    }

    /// Takes a job back without a receiver for its result. Returns true if it was still in the queue.
    pub(super) fn cancel(&mut self, client: ClientNetworkPath, id: JobId) -> bool {
        let before = self.len();
        self.owners.remove_where(client, |queued| queued.id == id);
        self.others.remove_where(client, |queued| queued.id == id);
        for slow in self.slow.values_mut() {
            let waiting = slow.waiting.len();
            slow.waiting.retain(|queued| queued.id != id);
            self.waiting_for_names -= waiting - slow.waiting.len();
        }
        self.len() < before
    }

    pub(super) fn len(&self) -> usize {
        self.owners.len() + self.others.len() + self.waiting_for_names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    const OWNER: Standing = Standing { is_owner: true, pace: None, guesses: [0; NETWORKS] };
    const OTHER: Standing = Standing { is_owner: false, pace: None, guesses: [0; NETWORKS] };

    fn slow(guesses: u32) -> Standing {
        Standing { is_owner: false, pace: Some(Duration::from_secs(2)), guesses: [guesses; NETWORKS] }
    }

    /// The name doubles as the mark by which a job is known again.
    fn job(client: &str, name: u128, standing: Standing) -> (HashJob, oneshot::Receiver<bool>) {
        let (done, outcome) = oneshot::channel();
        let client = ClientNetworkPath::of(Some(client.parse().unwrap()));
        let hash = PasswordHash::parse(HASH).unwrap();
        (HashJob { hash, password: Zeroizing::new(Vec::new()), done, client, name, standing }, outcome)
    }

    fn is_dropped(outcome: &mut oneshot::Receiver<bool>) -> bool {
        matches!(outcome.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn a_newcomer_is_next_whatever_a_network_sends() {
        for attacker in ["2001:db8:0:NN00::1", "203.0.113.NN", "203.0.NN.113"] {
            let (mut queue, now) = (CheckQueue::default(), Instant::now());
            let mut held = Vec::new();
            for number in 0..QUEUE + 20 {
                let address = attacker.replace("NN", &(10 + number % 80).to_string());
                let (job, outcome) = job(&address, 1, OTHER);
                assert_eq!(queue.push(job, now).is_ok(), number < QUEUE, "{address} {number}");
                held.push(outcome);
            }
            let (newcomer, outcome) = job("198.51.100.7", 2, OTHER);
            queue.push(newcomer, now).unwrap();
            assert_eq!(held.iter_mut().map(|one| usize::from(is_dropped(one))).sum::<usize>(), 21);
            let order: Vec<_> = (0..2).map(|_| queue.pop(now).unwrap().name).collect();
            assert_eq!(order, [1, 2], "{attacker}");
            drop(outcome);
        }
    }

    #[test]
    fn owners_go_first_and_keep_nobody_out() {
        let (mut queue, now) = (CheckQueue::default(), Instant::now());
        for name in 0..2 {
            queue.push(job("10.0.0.1", name, OTHER).0, now).unwrap();
        }
        for name in 10..17 {
            queue.push(job("10.9.0.1", name, OWNER).0, now).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(now)).map(|job| job.name).collect();
        assert_eq!(order, [10, 11, 12, 0, 13, 14, 15, 1, 16]);
    }

    #[test]
    fn a_name_that_is_guessed_is_checked_now_and_then() {
        let (mut queue, mut now) = (CheckQueue::default(), Instant::now());
        for number in 0..WAITING_PER_NAME {
            queue.push(job(&format!("10.{number}.0.1"), 1, slow(5)).0, now).unwrap();
        }
        assert_eq!(queue.push(job("10.99.0.1", 1, slow(5)).0, now), Err(Busy));
        // Somebody who has guessed nothing takes the place of a guesser, and is next.
        let owner = job("198.51.100.7", 1, slow(0));
        queue.push(owner.0, now).unwrap();
        assert_eq!((queue.len(), queue.due()), (WAITING_PER_NAME, Some(now)));
        assert_eq!(queue.pop(now).unwrap().standing.guesses, [0; NETWORKS]);
        // Other names do not wait.
        queue.push(job("10.5.0.1", 2, OTHER).0, now).unwrap();
        assert_eq!(queue.pop(now).unwrap().name, 2);
        for _ in 0..WAITING_PER_NAME - 1 {
            assert!(queue.pop(now).is_none());
            now += Duration::from_millis(1999);
            assert!(queue.pop(now).is_none());
            now += Duration::from_millis(1);
            assert_eq!(queue.due(), Some(now));
            assert_eq!(queue.pop(now).unwrap().standing.guesses, [5; NETWORKS]);
        }
        assert_eq!((queue.due(), queue.len()), (None, 0));
        // The pause holds for who comes later, too, and is then forgotten.
        queue.push(job("10.5.0.1", 1, slow(0)).0, now).unwrap();
        assert!(queue.pop(now).is_none());
        assert!(queue.pop(now + Duration::from_secs(2)).is_some());
        queue.push(job("10.5.0.1", 3, slow(0)).0, now + Duration::from_secs(9)).unwrap();
        assert_eq!(queue.slow.len(), 1);
    }

    #[test]
    fn many_slow_names_are_bounded() {
        let (mut queue, now) = (CheckQueue::default(), Instant::now());
        for number in 0..10_000 {
            let _ = queue.push(job("10.0.0.1", number % 100, slow(1)).0, now);
        }
        assert_eq!(queue.len(), WAITING_FOR_NAMES);
        // A name for which nobody waits yet has its place.
        queue.push(job("10.0.0.1", 1 << 100, slow(1)).0, now).unwrap();
        assert_eq!(queue.len(), WAITING_FOR_NAMES);
        // Nor are there more in the end, by any number of names.
        for number in 0..10_000 {
            let _ = queue.push(job("10.0.0.1", number, slow(1)).0, now);
            let _ = queue.pop(now);
        }
        assert!(queue.len() <= WAITING_FOR_NAMES + QUEUE && queue.slow.len() <= SLOW_NAMES);
    }

    #[test]
    fn what_nobody_waits_for_is_taken_back() {
        let (mut queue, now) = (CheckQueue::default(), Instant::now());
        for standing in [OWNER, OTHER, slow(1)] {
            let (job, _outcome) = job("10.0.0.1", 1, standing);
            let client = job.client;
            let id = queue.push(job, now).unwrap();
            assert!(queue.cancel(client, id) && !queue.cancel(client, id));
            assert_eq!((queue.len(), queue.pop(now + Duration::from_secs(60)).is_some()), (0, false));
        }
    }
}
