//! The threads that hash passwords, and the queue before them.
//!
//! A hash of argon2 works in 19 MiB and more. Each thread keeps that memory while there is work, and gives it back
//! when there was none for [`IDLE`].

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use offramp_observe::panics;

use super::check_queue::{Busy, CheckQueue, HashJob, JobId};
use super::hash::ArgonBlocks;
use crate::fair_queue::ClientNetworkPath;

/// Passwords that are checked at a time.
const THREADS: usize = 2;
/// The pause after which a thread gives its memory back: longer than between the requests of one page.
const IDLE: Duration = Duration::from_secs(1);

/// The queue of passwords, for all workers.
#[derive(Default)]
pub(super) struct Checkers {
    state: Mutex<CheckersState>,
    /// Something waits, or it is over.
    changed: Condvar,
}

#[derive(Default)]
struct CheckersState {
    queue: CheckQueue,
    /// Threads that run at the moment.
    threads: usize,
    /// No thread takes anything more.
    closed: bool,
}

impl Checkers {
    /// Has a password checked. The first one starts the threads, on `cores`.
    pub(super) fn add(self: &Arc<Self>, job: HashJob, cores: &[usize]) -> Result<JobId, Busy> {
        let mut state = self.lock();
        while !state.closed && state.threads < THREADS && self.start(cores).is_ok() {
            state.threads += 1;
        }
        if state.closed || state.threads == 0 {
            return Err(Busy);
        }
        let id = state.queue.push(job, Instant::now())?;
        drop(state);
        self.changed.notify_one();
        Ok(id)
    }

    /// Takes a job back without a receiver for its result. Returns true if no thread had taken it yet.
    pub(super) fn cancel(&self, client: ClientNetworkPath, id: JobId) -> bool {
        self.lock().queue.cancel(client, id)
    }

    /// Ends the threads; what waits is dropped.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.queue = CheckQueue::default();
        drop(state);
        self.changed.notify_all();
    }

    fn start(self: &Arc<Self>, cores: &[usize]) -> io::Result<()> {
        let (this, cores) = (Arc::clone(self), cores.to_vec());
        let work = move || {
            // Where that is denied, they share the core of a worker.
            let _ = offramp_net::cores::free(&cores);
            let mut blocks = ArgonBlocks::default();
            while let Some(job) = this.next(&mut blocks) {
                // The receiver of the result sees that there is none.
                let _ = panics::catch(|| job.run(&mut blocks));
            }
        };
        std::thread::Builder::new().name("offramp-login".into()).spawn(work).map(drop)
    }

    /// The job that is next; `None` when the threads are to end.
    fn next(&self, blocks: &mut ArgonBlocks) -> Option<HashJob> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.queue.pop(Instant::now()) {
                return Some(job);
            }
            state = self.rest(state, blocks, IDLE);
        }
    }

    /// Waits for a change, or until a name is due. After `idle` without either the memory goes back.
    fn rest<'l>(
        &self,
        state: MutexGuard<'l, CheckersState>,
        blocks: &mut ArgonBlocks,
        idle: Duration,
    ) -> MutexGuard<'l, CheckersState> {
        let due = state.queue.due().map(|due| due.saturating_duration_since(Instant::now()));
        let pause = match (due, blocks.is_empty()) {
            (None, true) => return self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            (None, false) => idle,
            (Some(due), is_empty) => {
                if is_empty {
                    due
                } else {
                    due.min(idle)
                }
            }
        };
        let (state, end) = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
        if end.timed_out() && pause >= idle {
            // Under the lock, so that nothing is missed meanwhile: it takes less than a millisecond.
            *blocks = ArgonBlocks::default();
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, CheckersState> {
        // Nothing in here panics with the lock held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has no thread started: nothing takes what is added.
    #[cfg(test)]
    pub(super) fn hold(&self) {
        self.lock().threads = THREADS;
    }

    #[cfg(test)]
    pub(super) fn take_all(&self) -> Vec<HashJob> {
        let mut state = self.lock();
        std::iter::from_fn(|| state.queue.pop(Instant::now())).collect()
    }
}

impl HashJob {
    pub(super) fn run(self, blocks: &mut ArgonBlocks) {
        // A worker that has ended receives nothing.
        let _ = self.done.send(self.hash.fits(&self.password, blocks));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use zeroize::Zeroizing;

    use super::super::hash::PasswordHash;
    use super::*;

    const HASH: &str = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn job() -> (HashJob, oneshot::Receiver<bool>) {
        let (done, outcome) = oneshot::channel();
        let (hash, password) = (PasswordHash::parse(HASH).unwrap(), Zeroizing::new(b"x".to_vec()));
        let (client, name, standing) = Default::default();
        (HashJob { hash, password, done, client, name, standing }, outcome)
    }

    #[test]
    fn a_thread_keeps_its_memory_while_there_is_work_and_gives_it_back() {
        let checkers = Arc::new(Checkers::default());
        checkers.hold();
        let mut blocks = ArgonBlocks::default();
        for _ in 0..2 {
            let (job, outcome) = job();
            checkers.add(job, &[]).unwrap();
            checkers.next(&mut blocks).unwrap().run(&mut blocks);
            assert!(!outcome.blocking_recv().unwrap() && !blocks.is_empty());
        }
        drop(checkers.rest(checkers.lock(), &mut blocks, Duration::from_millis(1)));
        assert!(blocks.is_empty());
        checkers.close();
        assert!(checkers.next(&mut blocks).is_none());
        assert!(checkers.add(job().0, &[]).is_err());
    }
}
