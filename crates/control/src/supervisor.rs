//! The event loop of the control plane: it serves requests and does periodic work until the process drains.

use std::time::Duration;

use offramp_net::program_text;
use offramp_process::supervise;
use offramp_process::upgrade::Successor;
use offramp_sources::certificates::watcher::Watcher;
use offramp_sources::config_watch::ConfigWatch;
use tokio::time::{Instant, sleep_until};

use crate::confirmation::unconfirmed;
use crate::history::Requester;
use crate::notes;
use crate::refresh::{keep_up, refresh_certificates};
use crate::request::{ChangeRequest, Request, RequestQueue, UpgradeRequest};
use crate::running::Running;
use crate::stopping::Cause;
use crate::transact;
use crate::upgrade::{self, Upgraded};

/// From a panic to the next event: one that panics each time does not spin.
const PAUSE: Duration = Duration::from_secs(1);

/// The event loop, with what it waits for.
pub(crate) struct Supervisor<'q> {
    running: Running,
    queue: &'q mut RequestQueue,
    /// Watches the files of certificates.
    watcher: Watcher,
    /// Watches the files of the configuration.
    config_watch: ConfigWatch,
}

/// An event that the loop waits for.
enum Wake {
    Request(Request),
    /// Periodic work is due.
    Due,
    /// The files of certificates have changed.
    CertificatesChanged,
    /// The files of the configuration may have changed.
    ConfigTouched,
    /// A change was not confirmed in time.
    Unconfirmed,
    /// Authorities have issued certificates.
    CertificatesObtained,
    /// The thread of a worker has ended.
    WorkerLost,
}

impl<'q> Supervisor<'q> {
    pub(crate) fn new(running: Running, queue: &'q mut RequestQueue) -> Self {
        Self { running, queue, watcher: Watcher::default(), config_watch: ConfigWatch::default() }
    }

    /// Opens what a running process keeps open, then tells the log and the service manager that it serves: whoever
    /// limits its descriptors from then on limits those of connections alone.
    async fn announce(&mut self) {
        // A process that takes over is the only one that writes now.
        self.running.save().await;
        self.watch();
        // The code of the start is not needed again. What workers run is mapped again as it is touched.
        if let Err(error) = program_text::unmap() {
            self.running.log.debug("program_text", &[("kept", (&error.to_string()).into())]);
        }
        self.running.announce();
    }

    /// Watches the files that are in force.
    fn watch(&mut self) {
        let Running { ledger, services, source, log, .. } = &self.running;
        let carryover = &services.snapshot.carryover;
        self.watcher.follow(carryover.generation(), &carryover.sources, log);
        self.config_watch.follow(ledger.config(), &source.origin, log);
    }

    /// Serves until an order to stop, or another reason to drain. Gives the process that is to drain, and that reason.
    pub(crate) async fn run(mut self) -> (Running, Cause) {
        self.announce().await;
        let cause = supervise::turns(PAUSE, async || {
            let wake = self.wake().await;
            self.serve(wake).await
        });
        let cause = cause.await;
        self.running.autosave.release().await;
        (self.running, cause)
    }

    /// Waits for the next event.
    async fn wake(&mut self) -> Wake {
        self.watch();
        let Running { ledger, services, plane, autosave, log, .. } = &mut self.running;
        let look_at = services.certificates.due();
        let others = [services.tickets.due(), autosave.due()];
        let due = others.into_iter().flatten().fold(look_at, Instant::min);
        tokio::select! {
            request = self.queue.next() => Wake::Request(request),
            () = sleep_until(due) => Wake::Due,
            () = self.watcher.due(log) => Wake::CertificatesChanged,
            () = self.config_watch.due() => Wake::ConfigTouched,
            () = unconfirmed(ledger.take_back_at()) => Wake::Unconfirmed,
            () = services.acme.obtained() => Wake::CertificatesObtained,
            () = plane.worker_lost() => Wake::WorkerLost,
        }
    }

    /// Does what an event wants.
    ///
    /// # Errors
    /// The process is to drain.
    async fn serve(&mut self, wake: Wake) -> Result<(), Cause> {
        match wake {
            Wake::Request(request) => self.obey(request).await?,
            Wake::Due => self.queue.unless_stopped(keep_up(&mut self.running)).await?,
            Wake::CertificatesChanged => {
                let refreshed = self.queue.unless_stopped(refresh_certificates(&mut self.running)).await?;
                let again = self.running.services.snapshot.carryover.sources.again();
                self.watcher.looked(&refreshed, again, Instant::now());
            }
            Wake::ConfigTouched => {
                let Running { ledger, source, log, .. } = &self.running;
                let (known, origin) = (&ledger.file().config, &source.origin);
                if self.config_watch.has_changed(known, origin, &source.environment, log) {
                    self.change(ChangeRequest::reload(Requester::Watch)).await?;
                }
            }
            Wake::Unconfirmed => transact::take_back(&mut self.running).await,
            Wake::CertificatesObtained => {
                // Taken before the look, which finds them all.
                let fresh = self.running.services.acme.fresh();
                self.queue.unless_stopped(refresh_certificates(&mut self.running)).await?;
                drop(fresh);
            }
            Wake::WorkerLost => {
                // Its sockets are closed. The other workers still serve, but with fewer cores than configured,
                // so the supervisor of the process should see it and restart.
                self.running.log.error("a worker ended by a fault of Offramp's own; stopping", &[]);
                return Err(Cause::Fault);
            }
        }
        Ok(())
    }

    async fn obey(&mut self, request: Request) -> Result<(), Cause> {
        match request {
            Request::Stop { by } => return Err(Cause::Order(by)),
            Request::Reopen => self.running.reopen(),
            Request::Upgrade(request) => self.upgrade(request).await?,
            Request::Change(request) => self.change(*request).await?,
        }
        Ok(())
    }

    /// Makes a change. An order to stop overtakes it until it is read.
    async fn change(&mut self, request: ChangeRequest) -> Result<(), Cause> {
        // The files are read: what is found there is in force, or is refused and reported.
        let is_reload = request.is_real_reload();
        if is_reload {
            self.config_watch.reloading(&self.running.source.origin);
        }
        let draft = supervise::guarded(transact::draft(&self.running, &request));
        let draft = self.queue.unless_stopped(draft).await?;
        if transact::make(&mut self.running, request, draft).await {
            // What it wrote is in force, and no reason to reload with `watch`.
            self.config_watch.reloading(&self.running.source.origin);
        }
        Ok(())
    }

    /// Has another process take over.
    ///
    /// # Errors
    /// It has, or there was an order to stop: the drain follows.
    async fn upgrade(&mut self, request: UpgradeRequest) -> Result<(), Cause> {
        let UpgradeRequest { by, force, reply } = request;
        if let Requester::Admin(client) = &by {
            self.running.log.info("an upgrade is asked for", &[("by", (&**client).into())]);
        }
        self.running.notifier.reloading();
        notes::upgrade_begins(self.running.notices(), &by);
        let begun = Instant::now();
        let successor = supervise::contained(upgrade::start_successor(&self.running, force));
        let outcome = self.queue.unless_stopped(successor).await?;
        let outcome = outcome.unwrap_or_else(|panicked| Err(supervise::fault(&panicked).to_string()));
        let took = begun.elapsed();
        let answer = outcome.as_ref().map(Successor::id).map_err(String::as_str);
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        notes::upgrade_ends(self.running.notices(), answer, took_ms);
        // Before the admin interface goes, which has to answer.
        if let Some(reply) = reply {
            let upgraded = answer.map(|process| Upgraded { process, took }).map_err(str::to_owned);
            // The requester may be gone.
            let _ = reply.send(upgraded);
        }
        if outcome.is_ok() {
            self.queue.dismiss();
        }
        if upgrade::finish(&mut self.running, outcome, took_ms).await { Err(Cause::Upgrade) } else { Ok(()) }
    }
}
