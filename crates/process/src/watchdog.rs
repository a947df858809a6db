//! The watchdog of systemd (`WATCHDOG_USEC`): a sign of life for as long as every loop of this process goes round.
//!
//! The loops are asked before each sign. So one that hangs, and not the control loop alone, has systemd start the service
//! again.

use std::sync::Arc;
use std::time::Duration;

use offramp_net::notify::Notifier;
use offramp_observe::Log;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::supervise;

/// Gives a sign at least every `limit`, each time that the future of `answered` is ready, until it is aborted. To be called
/// within the runtime.
pub fn start<A, F>(notifier: Notifier, limit: Duration, log: &Log, answered: A) -> AbortHandle
where
    A: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let notifier = Arc::new(notifier);
    supervise::spawn("watchdog", log, move || run(Arc::clone(&notifier), limit, answered.clone()))
}

async fn run<F: Future<Output = ()>>(notifier: Arc<Notifier>, limit: Duration, answered: impl Fn() -> F) {
    loop {
        answered().await;
        notifier.send("WATCHDOG=1");
        // Twice as often as asked for, as sd_watchdog_enabled(3) has it.
        sleep(limit / 2).await;
    }
}
