//! A worker's own state of a backend: the choice of the next server, and its load on each server.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::backend::Backend;
use crate::pick::Chooser;

/// A worker's part of a backend. Belongs to the thread of the worker.
#[derive(Debug)]
pub struct PerWorker {
    pub(crate) chooser: RefCell<Chooser>,
    pub(crate) loads: Rc<Loads>,
}

impl PerWorker {
    /// Creates the part of worker `worker`, counted from 0.
    #[must_use]
    pub fn new(backend: &Backend, worker: usize, now: Instant) -> Self {
        let chooser = Chooser::new(Arc::clone(&backend.picker), worker, now);
        Self { chooser: RefCell::new(chooser), loads: Rc::new(Loads::new(backend)) }
    }
}

/// Requests and connections of a worker on each server of a backend. Only the worker writes, so that counting
/// is an ordinary addition in memory that no other worker touches; [`ServerHealth::in_flight`] reads it from
/// any thread.
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

    /// Counts a request on a server.
    pub(crate) fn enter(&self, server: u32) {
        let count = &self.0[server as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Ends a counted request on a server.
    pub(crate) fn leave(&self, server: u32) {
        let count = &self.0[server as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }
}
