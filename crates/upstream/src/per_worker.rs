//! What each worker keeps of a backend for itself: whose turn it is, and how much it has on each server.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::backend::Backend;
use crate::pick::Chooser;

/// One worker's part of a backend. Belongs to the thread of the worker.
#[derive(Debug)]
pub struct PerWorker {
    pub(crate) chooser: RefCell<Chooser>,
    pub(crate) loads: Rc<Loads>,
}

impl PerWorker {
    /// The part of worker `worker`, counted from 0.
    #[must_use]
    pub fn new(backend: &Backend, worker: usize, now: Instant) -> Self {
        let chooser = Chooser::new(Arc::clone(&backend.picker), worker, now);
        Self { chooser: RefCell::new(chooser), loads: Rc::new(Loads::new(backend)) }
    }
}

/// How many requests and connections a worker has on each server of a backend. The worker alone writes, so that counting
/// is an ordinary addition in memory that no other worker touches; [`ServerHealth::in_flight`] reads it from any thread.
///
/// [`ServerHealth::in_flight`]: crate::ServerHealth::in_flight
#[derive(Debug)]
pub(crate) struct Loads(Arc<[AtomicU32]>);

impl Loads {
    fn new(backend: &Backend) -> Self {
        let counts: Arc<[AtomicU32]> = backend.health.iter().map(|_| AtomicU32::new(0)).collect();
        for (server, health) in backend.health.iter().enumerate() {
            health.is_counted_in(&counts, server);
        }
        Self(counts)
    }

    /// One more on a server.
    pub(crate) fn enter(&self, server: u32) {
        let count = &self.0[server as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// One that has entered is gone.
    pub(crate) fn leave(&self, server: u32) {
        let count = &self.0[server as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }
}
