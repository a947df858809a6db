//! Orders to stop, and what becomes of them: the first begins the drain, and a later one must not shorten it unless
//! that is the meaning of a second order.
//!
//! A second signal means it, as is the custom. A client of the admin API says so (`now`). A first signal after a client's
//! order does not: its sender may not know of the first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use crate::history::Requester;

/// Orders that wait; more would say nothing new.
const WAITING: usize = 32;

/// The outcome of an order to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// Set if the process was stopping already.
    pub already: bool,
    /// The latest time at which open connections are closed, where that is known already.
    pub until: Option<SystemTime>,
}

/// The reason of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An order.
    Order(Requester),
    /// Another process has taken over.
    Upgrade,
    /// A worker ended by a fault of Offramp's.
    Fault,
}

impl Cause {
    /// As operators know it.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Order(by) => orderer(by),
            Self::Upgrade => "upgrade",
            Self::Fault => "the end of a worker",
        }
    }
}

/// The name of a requester of a stop, for operators.
pub(crate) fn orderer(by: &Requester) -> &str {
    match by {
        Requester::Signal => "a signal",
        other => other.as_str(),
    }
}

/// The meaning of an order for a drain that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Open connections are closed now.
    Hurry,
    /// Nothing: the drain goes on as it is.
    Nothing,
}

/// The orders of handles. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Stops(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Default)]
struct State {
    orders: VecDeque<Order>,
    /// Set once there was an order.
    ordered: bool,
    /// The latest end of the drain.
    until: Option<SystemTime>,
    /// Set if the order that was taken last means `now`.
    now: bool,
    /// Set if a handle's order began the drain, and no signal has come since.
    unsignalled: bool,
}

struct Order {
    now: bool,
    by: Requester,
}

impl Stops {
    /// An order: to end at once, or after the drain.
    pub(crate) fn order(&self, now: bool, by: Requester) -> Stopping {
        let mut state = self.state();
        let stopping = Stopping { already: state.ordered || state.until.is_some(), until: state.until };
        state.ordered = true;
        if state.orders.len() < WAITING {
            state.orders.push_back(Order { now, by });
        }
        drop(state);
        self.0.woken.notify_one();
        stopping
    }

    /// Waits for an order, and gives its sender. May be dropped and called again without losing any.
    pub(crate) async fn ordered(&self) -> Requester {
        loop {
            if let Some(by) = self.take() {
                return by;
            }
            self.0.woken.notified().await;
        }
    }

    fn take(&self) -> Option<Requester> {
        let mut state = self.state();
        let Order { now, by } = state.orders.pop_front()?;
        state.now = now;
        if state.until.is_none() {
            state.unsignalled = true;
        }
        Some(by)
    }

    /// The drain begins. Whether what is open is to be closed at once.
    pub(crate) fn begins(&self, limit: Duration) -> Meaning {
        let mut state = self.state();
        state.until = SystemTime::now().checked_add(limit);
        if std::mem::take(&mut state.now) { Meaning::Hurry } else { Meaning::Nothing }
    }

    /// The meaning of a further order during the drain.
    pub(crate) fn meaning(&self, by: &Requester) -> Meaning {
        let mut state = self.state();
        let hurry = match by {
            Requester::Signal => !std::mem::take(&mut state.unsignalled),
            _ => std::mem::take(&mut state.now),
        };
        if hurry { Meaning::Hurry } else { Meaning::Nothing }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics with the lock held.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn admin() -> Requester {
        Requester::Admin("root".into())
    }

    #[tokio::test]
    async fn a_second_order_shortens_the_drain_only_if_it_says_so() {
        let stops = Stops::default();
        assert_eq!(stops.order(false, admin()), Stopping { already: false, until: None });
        assert!(stops.order(false, Requester::Program).already);
        assert_eq!(stops.ordered().await, admin());
        assert_eq!(stops.begins(LIMIT), Meaning::Nothing);
        let by = stops.ordered().await;
        assert_eq!((&by, stops.meaning(&by)), (&Requester::Program, Meaning::Nothing));
        let now = stops.order(true, admin());
        assert!(now.already && now.until.unwrap() > SystemTime::now());
        let by = stops.ordered().await;
        assert_eq!(stops.meaning(&by), Meaning::Hurry);
        assert_eq!(stops.meaning(&by), Meaning::Nothing, "it was that order's");
    }

    #[tokio::test]
    async fn of_signals_the_second_hurries_and_the_first_after_a_client_does_not() {
        let stops = Stops::default();
        assert_eq!(stops.begins(LIMIT), Meaning::Nothing);
        assert_eq!(stops.meaning(&Requester::Signal), Meaning::Hurry);
        let stops = Stops::default();
        stops.order(false, admin());
        stops.ordered().await;
        stops.begins(LIMIT);
        assert_eq!(stops.meaning(&Requester::Signal), Meaning::Nothing);
        assert_eq!(stops.meaning(&Requester::Signal), Meaning::Hurry);
    }

    #[tokio::test]
    async fn a_first_order_may_mean_now_and_few_wait() {
        let stops = Stops::default();
        for _ in 0..2 * WAITING {
            stops.order(true, admin());
        }
        assert_eq!(stops.state().orders.len(), WAITING);
        stops.ordered().await;
        assert_eq!(stops.begins(LIMIT), Meaning::Hurry);
    }
}
