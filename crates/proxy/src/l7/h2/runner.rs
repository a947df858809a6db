//! Tasks that serve one stream after the other.
//!
//! A task of the runtime has its memory from the allocator, and what it runs is moved into it: for a stream with one
//! small request that would be a tenth of all that is done for it. So a task that has served a stream waits for the
//! next one, of whichever connection of its worker.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use offramp_http::head::Request;

use super::handle::{Incoming, Respond};
use super::hints::Hints;
use super::memory::Memory;
use super::stream;
use crate::l7::answer::ErrorReply;
use crate::l7::session::Session;

/// Maximum number of tasks of a worker that wait; each has about 3 KiB.
const MOST_IDLE: usize = 64;

/// A stream that has begun.
pub(super) struct Job {
    pub(super) session: Rc<Session>,
    pub(super) head: Box<Request>,
    /// The protocol that an extended CONNECT asks for (RFC 8441 §4).
    pub(super) protocol: Option<Box<[u8]>>,
    /// Refusal of the request, if it is not served.
    pub(super) refused: Option<Box<ErrorReply>>,
    /// The content, if there is any.
    pub(super) incoming: Option<Incoming>,
    pub(super) respond: Respond,
    /// Bounds another protocol on the stream.
    pub(super) idle: Duration,
}

/// The tasks of a worker that have nothing to do.
#[derive(Default)]
pub(crate) struct Runners {
    idle: RefCell<Vec<Rc<Runner>>>,
    /// Memory of streams and their connections.
    pub(crate) memory: Rc<Memory>,
}

/// A task, and how it is called.
#[derive(Default)]
struct Runner {
    job: RefCell<Option<Job>>,
    waker: RefCell<Option<Waker>>,
}

impl Runners {
    /// Has a stream served.
    pub(super) fn run(self: &Rc<Self>, job: Job) {
        let idle = self.idle.borrow_mut().pop();
        let fresh = idle.is_none();
        let runner = idle.unwrap_or_default();
        *runner.job.borrow_mut() = Some(job);
        if fresh {
            tokio::task::spawn_local(Rc::clone(self).serve(runner));
        } else if let Some(waker) = &*runner.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    async fn serve(self: Rc<Self>, runner: Rc<Runner>) {
        let mut hints = Arc::new(Hints::default());
        loop {
            let job = poll_fn(|cx| match runner.job.take() {
                Some(job) => Poll::Ready(job),
                None => {
                    let mut waker = runner.waker.borrow_mut();
                    if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        *waker = Some(cx.waker().clone());
                    }
                    Poll::Pending
                }
            });
            stream::serve(job.await, Arc::clone(&hints)).await;
            hints = Hints::renewed(hints);
            let mut idle = self.idle.borrow_mut();
            if idle.len() >= MOST_IDLE {
                break;
            }
            idle.push(Rc::clone(&runner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::l7::body::ClientBody;
    use crate::l7::h2::memory::STREAM;
    use crate::l7::h2::table::SLOT;
    use crate::l7::record::RequestRecord;

    /// What a stream is counted as has room for what it is made of: its task, what is known of it, its connection to a
    /// server, and what the allocator adds.
    #[test]
    fn a_stream_is_counted_as_what_it_holds() {
        let task = size_of_val(&Rc::new(Runners::default()).serve(Rc::default()));
        let (record, job) = (size_of::<RequestRecord>(), size_of::<Job>());
        let connection = offramp_upstream::connection_memory::<ClientBody>();
        println!("task {task}, job {job}, record {record}, slot {SLOT}, connection {connection}");
        let held = task + job + record + SLOT + connection + ALLOCATOR;
        assert!(held <= STREAM, "{held}");
    }

    const ALLOCATOR: usize = 256;
}
