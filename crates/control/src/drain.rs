//! The end: nothing new is accepted, what is open may finish, and the last events are written.

use std::future::pending;
use std::time::{Duration, Instant};

use offramp_observe::{LogField, NoticeKind};
use offramp_proxy::{Command, WorkerHandle};
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use crate::event_store::EventStore;
use crate::history::Requester;
use crate::running::Running;
use crate::server::Desk;
use crate::signals::Ask;
use crate::stopping::{Cause, Meaning, orderer};
use crate::upgrade::Carried;

/// How long workers have to end after a second order to stop: they close what is open, and tell of it.
const HURRY: Duration = Duration::from_secs(3);
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

impl Running {
    /// Drains and ends. Whoever orders a second stop through `desk` has what is open closed at once.
    pub(crate) async fn drain(mut self, desk: &mut Desk, cause: &Cause) -> Exit {
        let limit = self.config.limits.drain_timeout;
        let counters = self.crew.page.counters.clone();
        self.notifier.send("STOPPING=1");
        let open = counters.totals().active();
        let by = cause.as_str();
        let fields = [("connections", open.into()), ("limit_s", limit.as_secs().into()), ("by", by.into())];
        self.log.info("draining", &fields);
        self.notices().note(NoticeKind::Stop, "begun", &fields);
        let at_once = desk.stops.begins(limit);
        let begun = Instant::now();
        // Before the sockets close: a successor that replaces the files must not lose its own.
        self.listening.unlink_all();
        drop(self.metrics.take());
        let workers = std::mem::take(&mut self.crew.workers);
        let order = |limit| {
            let commanders: Vec<_> = workers.iter().map(WorkerHandle::commander).collect();
            move || commanders.iter().for_each(|worker| worker.send(Command::Drain { limit }))
        };
        let (drain, cut) = (order(limit), order(Duration::ZERO));
        drain();
        let told = |meaning, by: &Requester| self.further_order(meaning, by, counters.totals().active());
        let reopen = || self.reopen();
        let (ended, hurried) = until_ended(join(workers), desk, at_once, cut, (told, reopen)).await;
        // Of workers that did not end nobody knows more than that their connections are open.
        let unended = Ended { cut: counters.totals().active(), panicked: 0 };
        let Ended { cut, panicked } = ended.unwrap_or(unended);
        let exit = Exit { cut, hurried, panicked };
        let end = [("connections_cut", cut.into()), ("hurried", hurried.into())];
        self.notices().note(NoticeKind::Stop, "ended", &end);
        // Whoever watches hears of the end.
        self.endings.extend(self.carried.drain(..).filter_map(Carried::close));
        for ending in self.endings.drain(..) {
            // Each is over soon. One that panicked has said so itself.
            let _ = ending.join();
        }
        self.crew.shared.refusals.say_now();
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

    /// Says what comes of an order to stop that came during the drain.
    fn further_order(&self, meaning: Meaning, by: &Requester, open: u64) {
        let by = orderer(by);
        let fields: [LogField<'_>; 2] = [("connections", open.into()), ("by", by.into())];
        let what = match meaning {
            Meaning::Hurry => {
                self.log.warn("another order to stop: open connections are closed now", &fields);
                "hurried"
            }
            Meaning::Nothing => {
                let message = "another order to stop changes nothing: the drain goes on; `offramp ctl stop --now` or another \
                               signal closes what is open";
                self.log.info(message, &fields);
                "ordered_again"
            }
        };
        self.notices().note(NoticeKind::Stop, what, &fields);
    }
}

/// What the workers say at their end.
#[derive(Default)]
struct Ended {
    /// Connections that they cut.
    cut: u64,
    /// How many panicked.
    panicked: usize,
}

/// Waits for all workers on a separate thread, because threads cannot be awaited.
fn join(workers: Vec<WorkerHandle>) -> oneshot::Receiver<Ended> {
    let (told, ended) = oneshot::channel();
    let wait = move || {
        let mut all = Ended::default();
        for worker in workers {
            match worker.join() {
                Some(cut) => all.cut += cut,
                None => all.panicked += 1,
            }
        }
        // Nobody listens any more if it took too long.
        let _ = told.send(all);
    };
    // Without a thread there is nothing to wait for: the drain then ends at once.
    let _ = std::thread::Builder::new().name("offramp-drain".to_owned()).spawn(wait);
    ended
}

/// Waits for the end of the workers, and whether it was hurried: an order that means it has them `cut` what is open, one
/// more is not waited for. Each order is `told`.
async fn until_ended(
    mut ended: oneshot::Receiver<Ended>,
    desk: &mut Desk,
    at_once: Meaning,
    cut: impl Fn(),
    (told, reopen): (impl Fn(Meaning, &Requester), impl Fn()),
) -> (Option<Ended>, bool) {
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
        tokio::select! {
            ended = &mut ended => return (ended.ok(), until.is_some()),
            () = late => return (None, true),
            request = desk.next() => {
                match request.ask {
                    Ask::Stop => {}
                    Ask::Reopen => {
                        reopen();
                        continue;
                    }
                    Ask::Reload | Ask::Upgrade | Ask::Change => continue,
                }
                let meaning = desk.stops.meaning(&request.by);
                told(meaning, &request.by);
                match (meaning, until) {
                    (Meaning::Nothing, _) => {}
                    (Meaning::Hurry, None) => until = hurry(),
                    (Meaning::Hurry, Some(_)) => return (None, true),
                }
            }
        }
    }
}
