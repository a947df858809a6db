//! The files that a worker keeps: small ones in memory, of others the descriptor.
//!
//! What is kept is known by what was asked for: the route's files, the path in normal form, and the codings that the
//! client takes. So a request that is answered from here makes no look-up in a file system. After [`FRESH`] the path is
//! looked up again, and what was kept goes on only if it leads to the same file in the same state. It is not looked up by
//! `statx`, which would follow links out of the root and wait for a disk.
//!
//! Memory and descriptors have bounds. Above them goes what was not asked for lately, by the clock algorithm. What
//! was not asked for in [`KEPT`] goes as well, so that files that were removed give their space back.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::rc::Rc;
use std::sync::Arc;

use super::coded::Wishes;
use super::ready::{ContentLocation, ReadyFile};
use crate::snapshot::http::Files;

/// The time for which a path is taken to lead to the same file, in milliseconds.
pub(super) const FRESH: u64 = 1000;
/// The time for which an entry without requests is kept, in milliseconds.
pub(super) const KEPT: u64 = 60_000;
/// Descriptors that a worker keeps open.
const MOST_OPEN: usize = 256;

/// Key of a cached file.
#[derive(Clone, Copy)]
pub(super) struct FileQuery<'a> {
    pub(super) files: &'a Arc<Files>,
    pub(super) wishes: Wishes,
    /// The path of the request in normal form.
    pub(super) path: &'a str,
}

/// The state of a path in the cache.
pub(super) enum CacheState {
    /// This file is served.
    Fresh(Rc<ReadyFile>),
    /// This one was; whether it still is has to be looked up.
    Old(Rc<ReadyFile>),
    /// The file is not cached.
    Unknown,
}

/// The files that a worker keeps.
#[derive(Default)]
pub(super) struct Cache {
    small: Clock,
    open: Clock,
    hasher: RandomState,
    /// Set while a task sweeps it.
    pub(super) is_swept: bool,
}

impl Cache {
    /// The state at `now`, in milliseconds of a steady clock.
    pub(super) fn get(&mut self, asked: FileQuery<'_>, now: u64) -> CacheState {
        let hash = self.hash(asked);
        let found = self.small.get(hash, asked).or_else(|| self.open.get(hash, asked));
        match found {
            Some(slot) if now.saturating_sub(slot.checked) < FRESH => {
                CacheState::Fresh(Rc::clone(&slot.ready))
            }
            Some(slot) => CacheState::Old(Rc::clone(&slot.ready)),
            None => CacheState::Unknown,
        }
    }

    /// Keeps what was found at `now`, where there is room for it among `most` bytes.
    pub(super) fn keep(&mut self, asked: FileQuery<'_>, ready: &Rc<ReadyFile>, now: u64, most: usize) {
        let hash = self.hash(asked);
        for clock in [&mut self.small, &mut self.open] {
            if let Some(slot) = clock.get(hash, asked)
                && Rc::ptr_eq(&slot.ready, ready)
            {
                slot.checked = now;
                return;
            }
            clock.remove(hash);
        }
        let slot = |cost| CacheSlot {
            hash,
            files: Arc::clone(asked.files),
            wishes: asked.wishes,
            path: asked.path.into(),
            cost,
            checked: now,
            used: false,
            ready: Rc::clone(ready),
        };
        match ready.content {
            ContentLocation::Memory(_) => {
                let cost = ready.held() + asked.path.len() + size_of::<CacheSlot>();
                self.small.put(slot(cost), most);
            }
            ContentLocation::File(_) => self.open.put(slot(1), MOST_OPEN),
        }
    }

    /// Drops what was not asked for lately; returns true if something is left.
    pub(super) fn sweep(&mut self, now: u64) -> bool {
        self.small.sweep(now);
        self.open.sweep(now);
        !self.small.slots.is_empty() || !self.open.slots.is_empty()
    }

    fn hash(&self, asked: FileQuery<'_>) -> u64 {
        self.hasher.hash_one((Arc::as_ptr(asked.files), asked.wishes, asked.path))
    }
}

struct CacheSlot {
    hash: u64,
    files: Arc<Files>,
    wishes: Wishes,
    path: Box<str>,
    ready: Rc<ReadyFile>,
    /// Part of the bounded memory or descriptors that it takes.
    cost: usize,
    /// The time at which it was last looked up.
    checked: u64,
    /// It was asked for since the hand passed.
    used: bool,
}

/// Slots with a bound; the hand of a clock passes over them.
#[derive(Default)]
struct Clock {
    places: HashMap<u64, usize>,
    slots: Vec<CacheSlot>,
    hand: usize,
    held: usize,
}

impl Clock {
    fn get(&mut self, hash: u64, asked: FileQuery<'_>) -> Option<&mut CacheSlot> {
        let slot = self.slots.get_mut(*self.places.get(&hash)?)?;
        // Two of them may have one hash.
        let same =
            Arc::ptr_eq(&slot.files, asked.files) && slot.wishes == asked.wishes && *slot.path == *asked.path;
        slot.used = true;
        same.then_some(slot)
    }

    fn put(&mut self, slot: CacheSlot, most: usize) {
        while !self.slots.is_empty() && self.held.saturating_add(slot.cost) > most {
            self.evict();
        }
        if slot.cost <= most {
            self.held += slot.cost;
            self.places.insert(slot.hash, self.slots.len());
            self.slots.push(slot);
        }
    }

    /// Drops the next one that was not asked for since the hand passed it.
    fn evict(&mut self) {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let Some(slot) = self.slots.get_mut(self.hand) else { return };
            if !std::mem::take(&mut slot.used) {
                let hash = slot.hash;
                return self.remove(hash);
            }
            self.hand += 1;
        }
    }

    fn remove(&mut self, hash: u64) {
        let Some(at) = self.places.remove(&hash) else { return };
        self.held -= self.slots.swap_remove(at).cost;
        if let Some(moved) = self.slots.get(at) {
            self.places.insert(moved.hash, at);
        }
    }

    fn sweep(&mut self, now: u64) {
        let mut at = 0;
        while let Some(slot) = self.slots.get(at) {
            if now.saturating_sub(slot.checked) < KEPT {
                at += 1;
            } else {
                let hash = slot.hash;
                self.remove(hash);
            }
        }
        if self.slots.is_empty() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests;
