//! The watchdog of systemd (`WATCHDOG_USEC`): a sign of life for as long as every loop of this process goes round.
//!
//! Each worker is asked before each sign. So a worker that hangs, and not the control loop alone, has systemd start the
//! service again.

use std::sync::Arc;
use std::time::Duration;

use offramp_net::notify::Notifier;
use offramp_observe::Log;
use offramp_proxy::{Command, Commander, WorkerHandle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::supervise;

/// Gives a sign at least every `limit`, until it is aborted. To be called within the runtime.
pub(crate) fn start(notifier: Notifier, limit: Duration, workers: &[WorkerHandle], log: &Log) -> AbortHandle {
    let workers: Vec<Commander> = workers.iter().map(WorkerHandle::commander).collect();
    let notifier = Arc::new(notifier);
    supervise::spawn("watchdog", log, move || run(Arc::clone(&notifier), limit, workers.clone()))
}

async fn run(notifier: Arc<Notifier>, limit: Duration, workers: Vec<Commander>) {
    loop {
        let asked: Vec<_> = workers
            .iter()
            .map(|worker| {
                let (alive, answer) = oneshot::channel();
                worker.send(Command::Beat { alive });
                answer
            })
            .collect();
        for answer in asked {
            // One that has ended does not answer either: what is to be done about that is decided elsewhere.
            let _ = answer.await;
        }
        notifier.send("WATCHDOG=1");
        // Twice as often as asked for, as sd_watchdog_enabled(3) has it.
        sleep(limit / 2).await;
    }
}
