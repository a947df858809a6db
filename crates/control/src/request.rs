//! Requests to the process, and the only way in for them: signals, `watch`, the admin API, `offramp ctl`, discovery.
//!
//! Each request carries the channel of its own reply. They are served one at a time. An order to stop overtakes the
//! others, and is obeyed while one of them is read.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use offramp_process::signals::{Asked, Signals};
use offramp_proxy::CloseReport;
use offramp_proxy::live::Filter;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::change::{Change, NotChanged, Report, Terms};
use crate::connections::Closer;
use crate::history::Requester;
use crate::stopping::{Cause, Stopping, Stops};
use crate::upgrade::Upgraded;

/// A request to the process.
#[derive(Debug)]
pub(crate) enum Request {
    /// A change of the configuration; a reload is one.
    Change(Box<ChangeRequest>),
    /// Log files are reopened.
    Reopen,
    /// The program on disk takes over.
    Upgrade(UpgradeRequest),
    /// The process drains and ends.
    Stop {
        /// The requester, for the log and the history.
        by: Requester,
    },
}

/// A request for a change of the configuration.
pub(crate) struct ChangeRequest {
    /// The time of the request.
    pub(crate) at: Instant,
    pub(crate) change: Change,
    pub(crate) terms: Terms,
    pub(crate) by: Requester,
    /// The channel of the outcome; `None`: only the log has it.
    pub(crate) reply: Option<oneshot::Sender<Result<Report, NotChanged>>>,
}

/// A request for an upgrade.
#[derive(Debug)]
pub(crate) struct UpgradeRequest {
    pub(crate) by: Requester,
    /// Set where changes may be lost that the file does not have.
    pub(crate) force: bool,
    /// The channel of the outcome; `None`: only the log has it.
    pub(crate) reply: Option<oneshot::Sender<Result<Upgraded, String>>>,
}

impl ChangeRequest {
    /// A request to read the configuration again, as SIGHUP makes it.
    pub(crate) fn reload(by: Requester) -> Self {
        Self { at: Instant::now(), change: Change::Reload, terms: Terms::default(), by, reply: None }
    }

    /// Set for a reload that is no trial.
    pub(crate) fn is_real_reload(&self) -> bool {
        matches!(self.change, Change::Reload) && !self.terms.dry_run
    }
}

impl fmt::Debug for ChangeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeRequest")
            .field("change", &self.change)
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// A reload with its outcome in the log only.
    pub(crate) fn reload(by: Requester) -> Self {
        Self::Change(Box::new(ChangeRequest::reload(by)))
    }

    /// Set for a request that another one, which waits already, stands for: no reply is wanted.
    fn is_covered_by(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Reopen, Self::Reopen) => true,
            (Self::Upgrade(one), Self::Upgrade(_)) => one.reply.is_none(),
            (Self::Change(one), Self::Change(other)) => {
                let certain = other.terms.expected.is_none() && other.terms.confirm.is_none();
                one.reply.is_none() && one.is_real_reload() && other.is_real_reload() && certain
            }
            _ => false,
        }
    }
}

impl From<Asked> for Request {
    fn from(asked: Asked) -> Self {
        let by = Requester::Signal;
        match asked {
            Asked::Reload => Self::reload(by),
            Asked::Reopen => Self::Reopen,
            Asked::Upgrade => Self::Upgrade(UpgradeRequest { by, force: false, reply: None }),
            Asked::Stop => Self::Stop { by },
        }
    }
}

/// Commands a [`Server`](crate::Server) from any thread. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    requests: Sender<Request>,
    /// Orders to stop, which find a place however many other requests wait.
    stops: Stops,
    closer: Closer,
}

/// The longest queue of requests: those beyond are refused.
const WAITING: usize = 32;

impl Handle {
    /// Has the configuration and the certificates read anew, as SIGHUP does. The receiver gets the
    /// outcome; it gets nothing from a server that ends, or that has too many requests.
    pub fn reload(&self) -> oneshot::Receiver<Result<Report, NotChanged>> {
        let (reply, outcome) = oneshot::channel();
        let reload = ChangeRequest { reply: Some(reply), ..ChangeRequest::reload(Requester::Program) };
        // The receiver sees its channel go where the server has ended.
        let _ = self.requests.try_send(Request::Change(Box::new(reload)));
        outcome
    }

    /// Makes a change, on these terms and on behalf of `by`, and waits for its outcome.
    ///
    /// # Errors
    /// Nothing has changed.
    pub async fn change(&self, change: Change, terms: Terms, by: Requester) -> Result<Report, NotChanged> {
        let (reply, outcome) = oneshot::channel();
        let request = ChangeRequest { at: Instant::now(), change, terms, by, reply: Some(reply) };
        self.place(Request::Change(Box::new(request)))?;
        outcome.await.unwrap_or(Err(NotChanged::Ended))
    }

    /// Confirms the latest change, which would be taken back otherwise.
    ///
    /// # Errors
    /// There is none, or it cannot be written to the file.
    pub async fn confirm(&self, by: Requester) -> Result<Report, NotChanged> {
        self.change(Change::Confirm { write: true }, Terms::default(), by).await
    }

    /// Has the program as it is on disk take over, as SIGUSR2 does, and waits until it has. With `force` it may lose
    /// changes that were not written to the file.
    ///
    /// # Errors
    /// Nothing has changed.
    pub async fn replace(&self, by: Requester, force: bool) -> Result<Upgraded, NotChanged> {
        let (reply, outcome) = oneshot::channel();
        self.place(Request::Upgrade(UpgradeRequest { by, force, reply: Some(reply) }))?;
        match outcome.await {
            Ok(outcome) => outcome.map_err(NotChanged::NotUpgraded),
            Err(_) => Err(NotChanged::Ended),
        }
    }

    fn place(&self, request: Request) -> Result<(), NotChanged> {
        self.requests.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotChanged::Busy,
            mpsc::error::TrySendError::Closed(_) => NotChanged::Ended,
        })
    }

    /// Closes the connections that are meant, and gives how many. `what` says in words which these are, for the log and
    /// the history. It waits for no change that is under way, and is done and remembered even if its requester has gone.
    pub async fn close_connections(&self, filter: Filter, what: &str, by: &Requester) -> CloseReport {
        self.closer.close(&Arc::new(filter), what, by).await
    }

    /// Reopens log files, as SIGUSR1 does.
    pub fn reopen(&self) {
        let _ = self.requests.try_send(Request::Reopen);
    }

    /// Has the program as it is on disk take over, as SIGUSR2 does. The log has the outcome.
    pub fn upgrade(&self) {
        let by = Requester::Program;
        let _ = self.requests.try_send(Request::Upgrade(UpgradeRequest { by, force: false, reply: None }));
    }

    /// Has the server drain and end, as SIGTERM does; during the drain, nothing more.
    pub fn stop(&self) {
        self.order_stop(false, Requester::Program);
    }

    /// Like [`Self::stop`], on behalf of `by`; with `now`, open connections are closed at once.
    pub fn order_stop(&self, now: bool, by: Requester) -> Stopping {
        self.stops.order(now, by)
    }
}

/// The requests of signals and handles, in their order.
pub(crate) struct RequestQueue {
    signals: Option<Signals>,
    requests: Receiver<Request>,
    pub(crate) stops: Stops,
    /// The requests that came while another was read.
    deferred: VecDeque<Request>,
    /// Set once all handles are gone and this was reported.
    is_deserted: bool,
}

impl RequestQueue {
    /// An empty queue, and its handle.
    pub(crate) fn new(signals: Option<Signals>, closer: Closer) -> (Self, Handle) {
        let (sender, requests) = mpsc::channel(WAITING);
        let stops = Stops::default();
        let handle = Handle { requests: sender, stops: stops.clone(), closer };
        (Self { signals, requests, stops, deferred: VecDeque::new(), is_deserted: false }, handle)
    }

    /// The next request. May be dropped and called again without losing any. Where neither signals nor handles are left,
    /// that is an order to stop, once.
    pub(crate) async fn next(&mut self) -> Request {
        match self.deferred.pop_front() {
            Some(request) => request,
            None => self.receive().await,
        }
    }

    /// Waits for `work`, which may be dropped, or for an order to stop. Other requests wait.
    ///
    /// # Errors
    /// There was such an order, and there is no outcome.
    pub(crate) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Cause> {
        let mut work = pin!(work);
        loop {
            let request = tokio::select! {
                biased;
                outcome = &mut work => return Ok(outcome),
                request = self.receive() => request,
            };
            match request {
                Request::Stop { by } => return Err(Cause::Order(by)),
                covered if self.deferred.iter().any(|other| covered.is_covered_by(other)) => {}
                request => self.deferred.push_back(request),
            }
        }
    }

    /// Drops all requests, so that their requesters learn that nothing comes of them here. Log files are reopened
    /// nevertheless.
    pub(crate) fn dismiss(&mut self) {
        while let Ok(request) = self.requests.try_recv() {
            self.deferred.push_back(request);
        }
        self.deferred.retain(|request| matches!(request, Request::Reopen));
    }

    /// The next request that comes in. Where the queue of deferred ones is full, those of handles stay in theirs.
    async fn receive(&mut self) -> Request {
        let has_room = self.deferred.len() < WAITING;
        let stopped = self.stops.ordered();
        match &mut self.signals {
            None if self.is_deserted => std::future::pending().await,
            None => tokio::select! {
                biased;
                by = stopped => Request::Stop { by },
                request = self.requests.recv(), if has_room => request.unwrap_or_else(|| {
                    self.is_deserted = true;
                    Request::Stop { by: Requester::Program }
                }),
            },
            Some(signals) => tokio::select! {
                biased;
                asked = signals.next() => asked.into(),
                by = stopped => Request::Stop { by },
                Some(request) = self.requests.recv(), if has_room => request,
            },
        }
    }
}

#[cfg(test)]
mod tests;
