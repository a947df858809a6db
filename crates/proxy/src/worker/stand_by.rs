//! A timer before all others.
//!
//! The runtime wakes itself, by a system call, for every timer that is due before all others that it knows of; with
//! connections that come and go that is nearly every one. So while connections begin, one timer is kept that is due before
//! theirs. It costs a wake-up a second, and none in a second in which no connection began.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;

/// The period of the timer.
const STAND_BY: Duration = Duration::from_secs(1);

/// The timer, which runs while connections begin.
#[derive(Default)]
pub(super) struct StandBy {
    running: Cell<bool>,
    begun: Cell<u64>,
}

impl StandBy {
    /// Notes that a connection begins, and starts the timer unless it runs.
    pub(super) fn connection_begins(self: &Rc<Self>) {
        self.begun.set(self.begun.get() + 1);
        if self.running.replace(true) {
            return;
        }
        let stand_by = Rc::clone(self);
        spawn_local(async move {
            loop {
                let before = stand_by.begun.get();
                tokio::time::sleep(STAND_BY).await;
                if stand_by.begun.get() == before {
                    break;
                }
            }
            stand_by.running.set(false);
        });
    }
}
