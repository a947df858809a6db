//! Memory for the window of a response to an HTTP/1.1 client.
//!
//! Such a client has one response at a time, of which an HTTP/2 server may send the usual window ahead uncounted. The
//! worker lends what a far server needs beyond that, within the same bounds as for HTTP/2 clients.

use std::rc::Rc;

use offramp_upstream::SentAhead;

use super::{AHEAD, Memory};

/// Memory lent to one response, returned on drop.
#[derive(Debug)]
pub(crate) struct WindowLoan {
    memory: Rc<Memory>,
    lent: usize,
}

impl WindowLoan {
    /// Empty loan; `limit` is the maximum that all connections of the worker may hold.
    pub(crate) fn new(memory: &Rc<Memory>, limit: usize) -> Self {
        memory.limit(limit);
        Self { memory: Rc::clone(memory), lent: 0 }
    }

    /// Maximum number of bytes that the server may send ahead from now on, with windows of at most `most` bytes.
    pub(crate) fn room(&self, ahead: SentAhead, most: usize) -> usize {
        let more = ahead.needed.min(most).saturating_sub(AHEAD);
        AHEAD + more.min(self.memory.window_room(self.lent))
    }

    /// Counts the bytes that the server may send ahead now.
    pub(crate) fn count(&mut self, allowed: usize) {
        let lent = allowed.saturating_sub(AHEAD);
        self.memory.set(self.memory.used.get() - self.lent + lent);
        self.lent = lent;
    }
}

impl Drop for WindowLoan {
    fn drop(&mut self) {
        self.count(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn all_windows_together_have_half_of_the_memory() {
        let memory: Rc<Memory> = Rc::default();
        let far = |allowed| SentAhead { allowed, needed: 4 * MIB };
        let mut loans: Vec<_> = (0..5).map(|_| WindowLoan::new(&memory, 20 * MIB)).collect();
        assert_eq!(loans[0].room(SentAhead { allowed: 0, needed: 1000 }, 8 * MIB), AHEAD);
        assert_eq!(loans[0].room(far(0), MIB), MIB);
        for loan in &mut loans {
            let room = loan.room(far(0), 8 * MIB);
            loan.count(room);
            assert_eq!(loan.room(far(room), 8 * MIB), room, "what it has, it may keep");
        }
        assert_eq!(memory.used.get(), 10 * MIB);
        assert_eq!(loans[4].room(far(0), 8 * MIB), AHEAD);
        drop(loans);
        assert_eq!(memory.used.get(), 0);
    }
}
