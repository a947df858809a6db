//! The end: nothing new is accepted, what is open may finish, and the last events are written.

use std::time::{Duration, Instant};

use offramp_observe::facts::{Cause, Fault};
use offramp_proxy::{Command, WorkerHandle};
use tokio::sync::oneshot;

use crate::event_store::EventStore;
use crate::house::House;
use crate::server::Desk;
use crate::signals::Ask;

/// How long the last events may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Connections that were cut because they did not finish in time.
    pub cut: u64,
    /// Whether a second order to stop ended the drain early.
    pub hurried: bool,
    /// Workers whose thread panicked, a fault of Offramp's.
    pub panicked: usize,
}

impl House {
    /// Drains and ends. Whoever orders a second stop through `desk` ends it at once.
    pub(crate) async fn drain(mut self, desk: &mut Desk) -> Exit {
        let limit = self.config.limits.drain_timeout;
        let counters = self.crew.page.counters.clone();
        self.notifier.send("STOPPING=1");
        let open = counters.totals().active();
        self.log.info("draining", &[("connections", open.into()), ("limit_s", limit.as_secs().into())]);
        let begun = Instant::now();
        // Before the sockets close: a successor that replaces the files must not lose its own.
        self.listening.unlink_all();
        drop(self.metrics.take());
        let workers = std::mem::take(&mut self.crew.workers);
        workers.iter().for_each(|worker| worker.send(Command::Drain { limit }));
        let ended = until_second_stop(join(workers), desk).await;
        let totals = counters.totals();
        let drained: u64 = Fault::ALL.iter().map(|fault| totals.closed(Cause::Drain, *fault)).sum();
        let exit = Exit {
            cut: drained + totals.active(),
            hurried: ended.is_none(),
            panicked: ended.unwrap_or_default(),
        };
        let lost = self.crew.flusher.stop(LAST_WORDS).lost();
        let unstored = self.crew.store.take().map_or(0, EventStore::stop);
        let fields = [
            ("connections_cut", exit.cut.into()),
            ("events_lost", lost.into()),
            ("events_not_stored", unstored.into()),
            ("took_s", begun.elapsed().as_secs().into()),
            ("hurried", exit.hurried.into()),
        ];
        self.log.info("stopped", &fields);
        exit
    }
}

/// Waits for all workers on a thread of its own, since threads cannot be awaited; gives how many
/// panicked.
fn join(workers: Vec<WorkerHandle>) -> oneshot::Receiver<usize> {
    let (told, ended) = oneshot::channel();
    let wait = move || {
        let panicked = workers.into_iter().map(WorkerHandle::join).filter(|well| !well).count();
        // Nobody listens any more after a second order to stop.
        let _ = told.send(panicked);
    };
    // Without a thread there is nothing to wait for: the drain then ends at once.
    let _ = std::thread::Builder::new().name("offramp-drain".to_owned()).spawn(wait);
    ended
}

async fn until_second_stop(mut ended: oneshot::Receiver<usize>, desk: &mut Desk) -> Option<usize> {
    loop {
        tokio::select! {
            panicked = &mut ended => return panicked.ok(),
            request = desk.next() => if request.ask == Ask::Stop { return None },
        }
    }
}
