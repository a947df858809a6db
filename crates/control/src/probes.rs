//! The active health checks of servers of the current snapshot; changes go to the log.
//!
//! The count of a check is kept with the server's health, which outlives snapshots: a reload begins the checks anew and
//! forgets nothing. They run on the thread of the control loop, beside it, and end before the drain.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use offramp_observe::Log;
use offramp_process::supervise::{self, Pauses};
use offramp_proxy::{Current, Snapshot};
use offramp_upstream::health::HealthChange;
use offramp_upstream::{Backend, probe};
use tokio::sync::watch;

/// The generation of the snapshot that names the servers to check; `None`: checks end.
pub(crate) struct Probes(watch::Sender<Option<u64>>);

impl Default for Probes {
    fn default() -> Self {
        Self(watch::Sender::new(Some(0)))
    }
}

impl Probes {
    /// Checks the servers of the current snapshot, of this generation, in place of those before.
    pub(crate) fn follow(&self, generation: u64) {
        self.0.send_if_modified(|followed| {
            followed.is_some() && followed.replace(generation) != Some(generation)
        });
    }

    /// Ends the checks of all servers.
    pub(crate) fn end(&self) {
        self.0.send_replace(None);
    }

    /// The checks themselves, until they end. To be polled within the runtime.
    pub(crate) fn checks(&self, current: Current, log: Log) -> impl Future<Output = ()> + use<> {
        let mut generations = self.0.subscribe();
        async move {
            while generations.borrow_and_update().is_some() {
                let tasks = checks_of(&current.load(), &log);
                tokio::select! {
                    never = all(tasks) => match never {},
                    changed = generations.changed() => if changed.is_err() { return },
                }
            }
        }
    }
}

/// A task for each backend that has a check.
fn checks_of(snapshot: &Snapshot, log: &Log) -> Vec<Pin<Box<dyn Future<Output = Infallible>>>> {
    let checked = snapshot.backends.iter().filter(|backend| backend.check.is_some());
    checked.map(|backend| Box::pin(check(Arc::clone(backend), log.clone())) as _).collect()
}

/// Polls the checks of all servers.
async fn all(mut tasks: Vec<Pin<Box<dyn Future<Output = Infallible>>>>) -> Infallible {
    poll_fn(|cx| {
        for task in &mut tasks {
            let Poll::Pending = task.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await
}

/// Checks the servers of a backend until it is dropped.
async fn check(backend: Arc<Backend>, log: Log) -> Infallible {
    let task = format!("checks of {}", backend.name);
    let begin = || probe::run(Arc::clone(&backend), |report| tell(&report, &log));
    supervise::run(&task, &log, Pauses::SHORT, begin).await
}

fn tell(report: &probe::ProbeReport<'_>, log: &Log) {
    let mut fields = vec![("backend", report.backend.into()), ("server", report.server.into())];
    match report.change {
        HealthChange::Up => log.info("a server is up again", &fields),
        HealthChange::Down => {
            let reason = report.reason.map(ToString::to_string).unwrap_or_default();
            fields.push(("reason", (&reason).into()));
            log.warn("a server is down", &fields);
        }
    }
}
