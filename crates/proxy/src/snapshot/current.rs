//! The snapshot in force, and those that were before and are still followed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::Snapshot;

/// The snapshot in force, swapped whole. Cheap to clone.
///
/// A snapshot with a thousand routes takes milliseconds to free. So that no worker does it, replaced snapshots are
/// kept here until no other owner is left, and freed by the thread that sweeps.
#[derive(Clone)]
pub struct Current(Arc<CurrentInner>);

struct CurrentInner {
    in_force: ArcSwap<Snapshot>,
    /// Not more than are followed, and those that were replaced since the last sweep.
    before: Mutex<Vec<Arc<Snapshot>>>,
}

impl Current {
    /// This one is in force.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self(Arc::new(CurrentInner { in_force: ArcSwap::from_pointee(snapshot), before: Mutex::default() }))
    }

    /// The snapshot in force, to be looked at for a moment.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.0.in_force.load()
    }

    /// The same, to be kept.
    #[must_use]
    pub fn load_full(&self) -> Arc<Snapshot> {
        self.0.in_force.load_full()
    }

    /// Puts another in force.
    pub fn replace(&self, snapshot: Snapshot) {
        // Without a thread that sweeps, they are swept here.
        self.sweep();
        let replaced = self.0.in_force.swap(Arc::new(snapshot));
        self.before().push(replaced);
    }

    /// Frees those without followers, and returns their number.
    pub fn sweep(&self) -> usize {
        let mut before = self.before();
        // They are out of force: no new follower can get one.
        let left: Vec<_> = before.extract_if(.., |snapshot| Arc::strong_count(snapshot) == 1).collect();
        drop(before);
        left.len()
    }

    /// Result of `look` in the snapshot in force, or in one that was before and is there still.
    pub(crate) fn find<T>(&self, look: impl Fn(&Snapshot) -> Option<T>) -> Option<T> {
        look(&self.load()).or_else(|| self.before().iter().rev().find_map(|snapshot| look(snapshot)))
    }

    fn before(&self) -> MutexGuard<'_, Vec<Arc<Snapshot>>> {
        // Nothing in here panics with the lock held.
        self.0.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::rig;

    #[test]
    fn who_follows_an_old_snapshot_does_not_free_it() {
        let current = Current::new(rig::snapshot(1));
        let (followed, weak) = (current.load_full(), Arc::downgrade(&current.load()));
        current.replace(rig::snapshot(2));
        assert_eq!((current.sweep(), current.load().limits.connections), (0, 2));
        drop(followed);
        assert!(weak.upgrade().is_some(), "the last one that followed it has freed it");
        assert_eq!((current.sweep(), current.sweep()), (1, 0));
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn replaced_snapshots_do_not_pile_up_where_nobody_sweeps() {
        let current = Current::new(rig::snapshot(0));
        let looked_at = current.load();
        for connections in 1..100 {
            current.replace(rig::snapshot(connections));
        }
        assert_eq!(current.before().len(), 2, "the first, which is looked at, and the last");
        assert_eq!(looked_at.limits.connections, 0);
        let found = |connections| {
            current.find(|snapshot| (snapshot.limits.connections == connections).then_some(())).is_some()
        };
        assert!(found(99) && found(98) && found(0) && !found(50));
    }
}
