//! What wakes whoever drives a connection.
//!
//! The two ends of a hyper connection, the driver and the body, wake each other whenever one of them
//! moves. Here one task polls both, one after the other, so that such a wake-up from within a poll says
//! "once more" and need not go through the scheduler. Those from outside go to the task. And since the
//! connection knows only its bell, one that lies in the pool keeps no finished task in memory for long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use bytes::Bytes;

use crate::health::locked;

/// Heads that are larger are not kept, and their requests not sent again.
const MOST_KEPT: usize = 64 * 1024;

/// The waker of one connection, and what its driver and its socket tell each other.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Whether its owner polls at the moment.
    inside: AtomicBool,
    rung: AtomicBool,
    owner: Mutex<Option<Waker>>,
    /// Whether a byte of the response has come.
    heard: AtomicBool,
    /// Whether what is sent next is to be kept.
    keeps: AtomicBool,
    kept: Mutex<Vec<u8>>,
}

impl Bell {
    /// From now on `waker` is woken; nobody, where there is none.
    pub(crate) fn belongs_to(&self, waker: Option<Waker>) {
        *locked(&self.owner) = waker;
    }

    /// The owner is about to poll everything there is: what rang before is answered by that, and what
    /// rings from now on is kept for [`Bell::has_rung`].
    pub(crate) fn enter(&self) {
        self.has_rung();
        self.inside.store(true, Ordering::SeqCst);
    }

    /// The owner has polled, and is woken again from now on. Whether it has to poll once more instead.
    pub(crate) fn leave(&self) -> bool {
        self.inside.store(false, Ordering::SeqCst);
        self.rung.load(Ordering::SeqCst)
    }

    /// Whether something called for another poll since this was last asked.
    pub(crate) fn has_rung(&self) -> bool {
        // The load alone is nearly free, and the answer is no more often than not.
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::SeqCst)
    }

    /// A byte has come.
    pub(crate) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether a byte has come since [`Bell::listen`].
    pub(crate) fn has_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    /// A request is about to be sent.
    pub(crate) fn listen(&self) {
        self.heard.store(false, Ordering::Relaxed);
    }

    /// Has the next bytes that are sent kept.
    pub(crate) fn keep_bytes(&self) {
        self.keeps.store(true, Ordering::Relaxed);
        locked(&self.kept).clear();
    }

    /// `bytes` are about to be sent: hyper sends a head as one piece.
    pub(crate) fn sends(&self, bytes: &[u8]) {
        if self.keeps.load(Ordering::Relaxed) {
            self.keeps.store(false, Ordering::Relaxed);
            if bytes.len() <= MOST_KEPT {
                locked(&self.kept).extend_from_slice(bytes);
            }
        }
    }

    /// What was kept.
    pub(crate) fn bytes(&self) -> Bytes {
        std::mem::take(&mut *locked(&self.kept)).into()
    }

    /// Gives memory back.
    pub(crate) fn forget_bytes(&self) {
        *locked(&self.kept) = Vec::new();
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // In this order: either the owner sees that it rang when it comes out, or it is out already.
        self.rung.store(true, Ordering::SeqCst);
        if !self.inside.load(Ordering::SeqCst)
            && let Some(owner) = &*locked(&self.owner)
        {
            owner.wake_by_ref();
        }
    }
}
