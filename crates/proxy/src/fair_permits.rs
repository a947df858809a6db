//! Requests that wait for a bounded number of permits, by turns of their clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::fair_queue::{ClientNetworkPath, FairQueue};

/// Permits of one worker, and the requests that wait for one.
pub(crate) struct FairPermits {
    free: Cell<usize>,
    waiting: RefCell<FairQueue<oneshot::Sender<FairPermit>>>,
}

/// Goes to the next request when it is dropped. It is empty only while it is handed over.
pub(crate) struct FairPermit(Option<Rc<FairPermits>>);

/// A place in the queue, given up when the request is.
struct PermitPlace<'q> {
    queue: &'q FairPermits,
    client: ClientNetworkPath,
    turn: oneshot::Receiver<FairPermit>,
}

impl FairPermits {
    /// So many permits, and the most requests that wait.
    pub(crate) fn new(permits: usize, waiting: usize) -> Rc<Self> {
        Rc::new(Self { free: Cell::new(permits), waiting: RefCell::new(FairQueue::new(waiting)) })
    }

    /// Waits for a permit. `None` where too many wait already, or others with a better right to the place have come.
    pub(crate) async fn enter(self: &Rc<Self>, client: ClientNetworkPath) -> Option<FairPermit> {
        if let Some(left) = self.free.get().checked_sub(1) {
            self.free.set(left);
            return Some(FairPermit(Some(Rc::clone(self))));
        }
        let (sender, turn) = oneshot::channel();
        // A displaced waiter notices that its sender is gone.
        drop(self.waiting.borrow_mut().push(client, sender).ok()?);
        let mut place = PermitPlace { queue: self, client, turn };
        (&mut place.turn).await.ok()
    }

    /// Does work that waits beside that of others, up to the bound. `None` where too many wait already, or others with a
    /// better right to the place have come meanwhile.
    pub(crate) async fn beside<T>(
        &self,
        client: ClientNetworkPath,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let (sender, turn) = oneshot::channel();
        drop(self.waiting.borrow_mut().push(client, sender).ok()?);
        let mut place = PermitPlace { queue: self, client, turn };
        tokio::select! {
            biased;
            done = work => Some(done),
            _ = &mut place.turn => None,
        }
    }
}

impl Drop for PermitPlace<'_> {
    fn drop(&mut self) {
        // A permit that was handed over and not received stays in the channel, and goes on with it.
        self.turn.close();
        if let Ok(mut waiting) = self.queue.waiting.try_borrow_mut() {
            waiting.remove_where(self.client, oneshot::Sender::is_closed);
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let Some(queue) = self.0.take() else { return };
        loop {
            let next = queue.waiting.borrow_mut().pop();
            let Some(next) = next else { break };
            match next.send(Self(Some(Rc::clone(&queue)))) {
                Ok(()) => return,
                // Its request is gone. Emptied, lest it look for a successor by itself.
                Err(mut permit) => permit.0 = None,
            }
        }
        queue.free.set(queue.free.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Entering<'q> = Pin<Box<dyn Future<Output = Option<FairPermit>> + 'q>>;

    fn client(text: &str) -> ClientNetworkPath {
        ClientNetworkPath::of(Some(text.parse().unwrap()))
    }

    fn enter<'q>(queue: &'q Rc<FairPermits>, text: &str) -> Entering<'q> {
        Box::pin(queue.enter(client(text)))
    }

    fn poll(entering: &mut Entering<'_>) -> Poll<Option<FairPermit>> {
        entering.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn clients_take_turns_and_who_has_left_is_skipped() {
        let queue = FairPermits::new(1, 8);
        let Poll::Ready(Some(first)) = poll(&mut enter(&queue, "10.0.0.1")) else { panic!("it is free") };
        let mut flood: Vec<_> = (0..8).map(|_| enter(&queue, "10.0.0.1")).collect();
        assert!(flood.iter_mut().all(|one| poll(one).is_pending()));
        assert!(matches!(poll(&mut enter(&queue, "10.0.0.1")), Poll::Ready(None)), "it is full");
        let mut other = enter(&queue, "10.0.1.1");
        assert!(poll(&mut other).is_pending());
        assert!(matches!(poll(&mut flood[7]), Poll::Ready(None)), "the newest of the flood made room");
        // The first of the flood is next; it and some more leave, one of them with the permit in its channel.
        drop(first);
        flood.drain(..3);
        let Poll::Ready(Some(second)) = poll(&mut other) else { panic!("the other client is next") };
        drop(second);
        assert!(matches!(poll(&mut flood[0]), Poll::Ready(Some(_))));
        drop(flood);
        assert_eq!((queue.free.get(), queue.waiting.borrow().len()), (1, 0));
    }

    #[test]
    fn work_that_waits_is_bounded_and_gives_way() {
        let queue = FairPermits::new(0, 2);
        let beside = |text: &str| Box::pin(queue.beside(client(text), std::future::pending::<()>()));
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut one, mut two) = (beside("::1"), beside("::1"));
        assert!(one.as_mut().poll(cx).is_pending() && two.as_mut().poll(cx).is_pending());
        assert_eq!(beside("::1").as_mut().poll(cx), Poll::Ready(None));
        let mut other = beside("10.0.0.1");
        assert!(other.as_mut().poll(cx).is_pending());
        assert_eq!(two.as_mut().poll(cx), Poll::Ready(None));
        drop((one, other));
        let mut done = Box::pin(queue.beside(client("::1"), async { 7 }));
        assert_eq!(done.as_mut().poll(cx), Poll::Ready(Some(7)));
        drop(done);
        assert_eq!(queue.waiting.borrow().len(), 0);
    }
}
