//! The active health checks of servers of the current snapshot; changes go to the log.
//!
//! What a check has counted is kept with the server's health, which outlives snapshots: a reload begins the
//! checks anew and forgets nothing. They end with the loop that has them, before the drain.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use offramp_observe::Log;
use offramp_proxy::Snapshot;
use offramp_upstream::health::Change;
use offramp_upstream::{Backend, probe};

use crate::supervise::{self, Pauses};

/// The checks of one snapshot, one task for each backend that has a check.
#[derive(Default)]
pub(crate) struct Probes {
    /// Of the snapshot.
    generation: Option<u64>,
    tasks: Vec<Pin<Box<dyn Future<Output = Infallible>>>>,
}

impl Probes {
    /// Takes the backends of `snapshot` in place of those before, if it is another.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot, log: &Log) {
        if self.generation.replace(snapshot.generation) == Some(snapshot.generation) {
            return;
        }
        let checked = snapshot.backends.iter().filter(|backend| backend.check.is_some());
        self.tasks = checked.map(|backend| Box::pin(check(Arc::clone(backend), log.clone())) as _).collect();
    }

    /// Asks servers for as long as it is polled. May be dropped and called again: nothing is lost.
    pub(crate) async fn run(&mut self) -> Infallible {
        poll_fn(|cx| {
            for task in &mut self.tasks {
                let Poll::Pending = task.as_mut().poll(cx);
            }
            Poll::Pending
        })
        .await
    }
}

/// Checks the servers of a backend for as long as it is polled.
async fn check(backend: Arc<Backend>, log: Log) -> Infallible {
    let task = format!("checks of {}", backend.name);
    let begin = || probe::run(Arc::clone(&backend), |report| tell(&report, &log));
    supervise::run(&task, &log, Pauses::SHORT, begin).await
}

fn tell(report: &probe::Report<'_>, log: &Log) {
    let mut fields = vec![("backend", report.backend.into()), ("server", report.server.into())];
    match report.change {
        Change::Up => log.info("a server is up again", &fields),
        Change::Down => {
            let reason = report.reason.map(ToString::to_string).unwrap_or_default();
            fields.push(("reason", (&reason).into()));
            log.warn("a server is down", &fields);
        }
    }
}
