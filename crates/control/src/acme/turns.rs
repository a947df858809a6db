//! One order at a time for each certificate: a keeper that renews and a client that asks for the name may come at once,
//! and each order counts at the authority.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use offramp_certs::acme::Subject;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The orders that are under way or wait.
#[derive(Default)]
pub(super) struct Turns(StdMutex<HashMap<Subject, Arc<Mutex<()>>>>);

/// The right to order a certificate, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    subject: &'a Subject,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits until no other task orders this one. The caller then checks first if it is there.
    pub(super) async fn take<'a>(&'a self, subject: &'a Subject) -> Turn<'a> {
        // It is there during the wait, which may be given up.
        let mut turn = Turn { turns: self, subject, guard: None };
        let own = Arc::clone(self.all().entry(subject.clone()).or_default());
        turn.guard = Some(own.lock_owned().await);
        turn
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<Subject, Arc<Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.turns.all();
        self.guard = None;
        // No task waits for it.
        if all.get(self.subject).is_some_and(|own| Arc::strong_count(own) == 1) {
            all.remove(self.subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use offramp_certs::acme::KeyType;

    use super::*;

    #[test]
    fn orders_for_one_certificate_come_one_after_the_other() {
        let turns = Turns::default();
        let [one, other] = ["a.test", "b.test"].map(|name| Subject::new(&[name], KeyType::P256).unwrap());
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(turns.take(&one)).poll(&mut cx) else { panic!("nobody has it") };
        assert!(pin!(turns.take(&other)).poll(&mut cx).is_ready());
        {
            let mut given_up = pin!(turns.take(&one));
            assert!(given_up.as_mut().poll(&mut cx).is_pending());
        }
        let mut second = pin!(turns.take(&one));
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(first);
        let Poll::Ready(second) = second.as_mut().poll(&mut cx) else { panic!("the first has ended") };
        assert_eq!(turns.all().len(), 1);
        drop(second);
        assert!(turns.all().is_empty(), "nothing is kept");
    }
}
