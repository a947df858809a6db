//! The end: nothing new is accepted, what is open may finish, and the last events are written.

use std::future::pending;
use std::time::{Duration, Instant};

use offramp_observe::{LogField, NoticeKind};
use offramp_proxy::{WorkerCommand, WorkerHandle};
use tokio::sync::oneshot;
use tokio::time::{sleep_until, timeout};

use crate::heartbeat::Heartbeat;
use crate::history::Requester;
use crate::request::{Request, RequestQueue};
use crate::running::Running;
use crate::service::Service as _;
use crate::stopping::{Cause, Meaning, orderer};

/// The time for workers to end after a second order to stop: they close what is open, and tell of it.
const HURRY: Duration = Duration::from_secs(3);
/// The longest wait for the workers to take the order to drain. One that hangs may never.
const HEARD: Duration = Duration::from_secs(1);
/// The time for the last events to be written.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// The time for notifications that wait for their first try.
const LAST_MESSAGES: Duration = Duration::from_secs(3);

/// The end of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Connections that were cut because they did not finish in time.
    pub cut: u64,
    /// Set if a second order to stop ended the drain early.
    pub hurried: bool,
    /// Workers that ended by a panic, a fault of Offramp's.
    pub panicked: usize,
}

/// Drains and ends. A second order to stop, which comes through `queue`, has open connections closed at once.
pub(crate) async fn drain(mut running: Running, queue: &mut RequestQueue, cause: &Cause) -> Exit {
    let limit = running.config().limits.drain_timeout;
    let counters = running.plane.page.counters.clone();
    let open = counters.totals().active();
    let by = cause.as_str();
    let fields = [("connections", open.into()), ("limit_s", limit.as_secs().into()), ("by", by.into())];
    running.log.info("draining", &fields);
    running.notices().note(NoticeKind::Stop, "begun", &fields);
    let at_once = queue.stops.begins(limit);
    let begun = Instant::now();
    running.services.listeners.stop();
    running.services.metrics.stop();
    running.services.probes.stop();
    let drained = drain_workers(&mut running, queue, at_once, limit).await;
    // The number of open connections is all that is known of workers that did not end.
    let unended = Ended { cut: counters.totals().active(), panicked: 0 };
    let Ended { cut, panicked } = drained.ended.unwrap_or(unended);
    let exit = Exit { cut, hurried: drained.hurried, panicked };
    let end = [("connections_cut", cut.into()), ("hurried", exit.hurried.into())];
    running.notices().note(NoticeKind::Stop, "ended", &end);
    running.services.senders.notify.registry().deliver_rest(LAST_MESSAGES, &running.log).await;
    // Watchers learn of the end.
    running.services.admin.stop();
    running.services.admin.join();
    running.plane.shared.refusals.say_now();
    let Running { plane, mut services, log, .. } = running;
    let lost = plane.flusher.stop(LAST_WORDS).lost();
    let unstored = services.store.close();
    let fields = [
        ("connections_cut", exit.cut.into()),
        ("events_lost", lost.into()),
        ("events_not_stored", unstored.into()),
        ("took_s", begun.elapsed().as_secs().into()),
        ("hurried", exit.hurried.into()),
    ];
    log.info("stopped", &fields);
    exit
}

/// The end of the workers.
struct Drained {
    /// `None` if they did not end in time.
    ended: Option<Ended>,
    /// Set if an order had them cut open connections.
    hurried: bool,
}

/// Has the workers drain, and waits until they have ended.
async fn drain_workers(
    running: &mut Running,
    queue: &mut RequestQueue,
    at_once: Meaning,
    limit: Duration,
) -> Drained {
    let workers = std::mem::take(&mut running.plane.workers);
    let order = |limit| {
        let commanders: Vec<_> = workers.iter().map(WorkerHandle::commander).collect();
        move || commanders.iter().for_each(|worker| worker.send(WorkerCommand::Drain { limit }))
    };
    let (drain, cut) = (order(limit), order(Duration::ZERO));
    drain();
    // Logged once it is true: the sockets are closed by then.
    let _ = timeout(HEARD, Heartbeat::of(&workers).answered()).await;
    running.notifier.send("STOPPING=1");
    until_ended(running, join(workers), queue, at_once, cut).await
}

/// Logs the effect of an order to stop that came during the drain.
fn log_further_order(running: &Running, meaning: Meaning, by: &Requester) {
    let (open, by) = (running.plane.page.counters.totals().active(), orderer(by));
    let fields: [LogField<'_>; 2] = [("connections", open.into()), ("by", by.into())];
    let what = match meaning {
        Meaning::Hurry => {
            running.log.warn("another order to stop: open connections are closed now", &fields);
            "hurried"
        }
        Meaning::Nothing => {
            let message = "another order to stop changes nothing: the drain goes on; `offramp ctl stop --now` or another \
                           signal closes what is open";
            running.log.info(message, &fields);
            "ordered_again"
        }
    };
    running.notices().note(NoticeKind::Stop, what, &fields);
}

/// The figures of workers that have ended.
#[derive(Default)]
struct Ended {
    /// Connections that they cut.
    cut: u64,
    /// The number of those that panicked.
    panicked: usize,
}

/// Waits for all workers on a separate thread, because threads cannot be awaited.
fn join(workers: Vec<WorkerHandle>) -> oneshot::Receiver<Ended> {
    let (reply, ended) = oneshot::channel();
    let wait = move || {
        let mut all = Ended::default();
        for worker in workers {
            match worker.join() {
                Some(cut) => all.cut += cut,
                None => all.panicked += 1,
            }
        }
        // The receiver is gone if it took too long.
        let _ = reply.send(all);
    };
    // Without a thread there is nothing to wait for: the drain then ends at once.
    let _ = std::thread::Builder::new().name("offramp-drain".to_owned()).spawn(wait);
    ended
}

/// Waits for the end of the workers. An order that means it has them `cut` open connections; one more is not waited for.
async fn until_ended(
    running: &Running,
    mut ended: oneshot::Receiver<Ended>,
    queue: &mut RequestQueue,
    at_once: Meaning,
    cut: impl Fn(),
) -> Drained {
    let hurry = || {
        cut();
        Some(tokio::time::Instant::now() + HURRY)
    };
    let mut until = if at_once == Meaning::Hurry { hurry() } else { None };
    loop {
        let late = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        let by = tokio::select! {
            ended = &mut ended => return Drained { ended: ended.ok(), hurried: until.is_some() },
            () = late => return Drained { ended: None, hurried: true },
            request = queue.next() => match request {
                Request::Stop { by } => by,
                Request::Reopen => {
                    running.reopen();
                    continue;
                }
                Request::Upgrade(_) | Request::Change(_) => continue,
            },
        };
        let meaning = queue.stops.meaning(&by);
        log_further_order(running, meaning, &by);
        match (meaning, until) {
            (Meaning::Nothing, _) => {}
            (Meaning::Hurry, None) => until = hurry(),
            (Meaning::Hurry, Some(_)) => return Drained { ended: None, hurried: true },
        }
    }
}
