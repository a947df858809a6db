//! Signs of life of the workers.

use offramp_proxy::{Commander, WorkerCommand, WorkerHandle};
use tokio::sync::oneshot;

/// Asks all workers of a process, again and again.
#[derive(Clone)]
pub(crate) struct Heartbeat {
    workers: Vec<Commander>,
}

impl Heartbeat {
    pub(crate) fn of(workers: &[WorkerHandle]) -> Self {
        Self { workers: workers.iter().map(WorkerHandle::commander).collect() }
    }

    /// Waits until every worker has taken the commands that it was sent before, or has ended.
    pub(crate) async fn answered(self) {
        let asked: Vec<_> = self
            .workers
            .iter()
            .map(|worker| {
                let (alive, answer) = oneshot::channel();
                worker.send(WorkerCommand::Beat { alive });
                answer
            })
            .collect();
        for answer in asked {
            // One that has ended does not answer either: what is to be done about that is decided elsewhere.
            let _ = answer.await;
        }
    }
}
