//! Queries of the log store: a few blocking threads, each query bounded in time, so that nothing else waits.
//!
//! Connections to the store are reused, but only for a short time, so that a store that was moved aside, or a
//! restarted database, is noticed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use offramp_analytics::{Error, QueryResult, QuerySettings, Questions, RequestFilter, Top};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::refusal::PlainRefusal;

/// The log store to query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// `sqlite:` and a path, or a `postgres://` URL.
    pub url: String,
    /// A GeoIP file in MaxMind's format, for lists of countries and cities.
    pub geoip: Option<PathBuf>,
}

/// Concurrent requests to the store. A dashboard queries all its panels together; they take turns, so that
/// the cores are left to traffic.
pub(crate) const AT_ONCE: usize = 2;
/// The maximum wait for a turn.
const TURN: Duration = Duration::from_secs(30);
/// The time limit of one query.
const QUESTION: Duration = Duration::from_secs(10);
/// The time limit of all queries of one request.
const TOGETHER: Duration = Duration::from_secs(30);
/// The time for which a connection to the store, and its cache, is reused.
const LIFE: Duration = Duration::from_secs(60);
/// The maximum number of rows: 50 series of 11,000 points, and some.
pub(crate) const MOST_ROWS: usize = 600_000;

/// Runs queries of one store for all clients.
pub(crate) struct QueryPool {
    store: Store,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<OpenedStore>>,
    /// Set while a task waits to close unused connections.
    watched: AtomicBool,
}

struct OpenedStore {
    questions: Questions,
    since: Instant,
}

impl QueryPool {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            idle: Mutex::default(),
            watched: AtomicBool::new(false),
        }
    }

    /// Returns `true` if lists of places are possible.
    pub(crate) fn knows_places(&self) -> bool {
        self.store.geoip.is_some()
    }

    /// Runs `work` on a thread that may block. Runs it a second time if a reused connection turns out to be
    /// broken.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&mut StoreSession<'_>) -> Result<T, PlainRefusal> + Send + 'static,
    ) -> Result<T, PlainRefusal> {
        let turn = timeout(TURN, Arc::clone(&self.places).acquire_owned()).await;
        // The semaphore is never closed.
        let Ok(Ok(place)) = turn else {
            return Err(PlainRefusal::later("too many questions are being answered; try again later"));
        };
        let queries = Arc::clone(self);
        let job = spawn_blocking(move || {
            let result = queries.work(&work);
            drop(place);
            result
        });
        self.watch();
        match timeout(TOGETHER + 2 * QUESTION, job).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(PlainRefusal {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                text: "answering failed by a fault of Offramp's own; please report it".to_owned(),
            }),
            Err(_) => Err(PlainRefusal::late()),
        }
    }

    /// Closes unused connections; no task runs while there are none.
    fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let queries = Arc::clone(self);
        tokio::spawn(async move {
            sleep(LIFE).await;
            queries.watched.store(false, Ordering::Relaxed);
            let checked = Arc::clone(&queries);
            // Closing may wait for a disk.
            if let Ok(true) = spawn_blocking(move || checked.forget()).await {
                queries.watch();
            }
        });
    }

    /// Closes expired connections; returns `true` if some are left.
    fn forget(&self) -> bool {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|opened| opened.since.elapsed() < LIFE);
        !idle.is_empty()
    }

    fn work<T>(
        &self,
        work: impl Fn(&mut StoreSession<'_>) -> Result<T, PlainRefusal>,
    ) -> Result<T, PlainRefusal> {
        let until = Instant::now() + TOGETHER;
        let kept = self.kept();
        let again = kept.is_some();
        let mut opened = kept.map_or_else(|| self.open(), Ok)?;
        let mut result = work(&mut StoreSession { questions: &mut opened.questions, until });
        if again && is_broken(&result) {
            opened = self.open()?;
            result = work(&mut StoreSession { questions: &mut opened.questions, until });
        }
        if !is_broken(&result) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(opened);
        }
        result
    }

    fn kept(&self) -> Option<OpenedStore> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|opened| opened.since.elapsed() < LIFE);
        idle.pop()
    }

    fn open(&self) -> Result<OpenedStore, PlainRefusal> {
        Ok(OpenedStore { questions: self.questions()?, since: Instant::now() })
    }

    /// A connection to the store that belongs to its caller. May wait for a disk.
    pub(crate) fn questions(&self) -> Result<Questions, Error> {
        let settings =
            QuerySettings { time_limit: QUESTION, most_rows: MOST_ROWS, geoip: self.store.geoip.clone() };
        Questions::open(&self.store.url, &settings)
    }
}

/// Returns `true` if the connection to the store may be the cause of the failure.
fn is_broken<T>(result: &Result<T, PlainRefusal>) -> bool {
    matches!(result, Err(refusal) if refusal.status.is_server_error() && *refusal != PlainRefusal::late())
}

/// The store for the queries of one request.
pub(crate) struct StoreSession<'a> {
    questions: &'a mut Questions,
    until: Instant,
}

impl StoreSession<'_> {
    pub(crate) fn top(&mut self, top: Top, filter: &RequestFilter) -> Result<QueryResult, PlainRefusal> {
        self.in_time()?;
        Ok(self.questions.top(top, filter)?)
    }

    pub(crate) fn traffic(
        &mut self,
        interval: Duration,
        by_host: bool,
        filter: &RequestFilter,
    ) -> Result<QueryResult, PlainRefusal> {
        self.in_time()?;
        let answer = self.questions.traffic(interval, by_host, filter)?;
        if answer.rows.len() >= MOST_ROWS {
            return Err(PlainRefusal::wrong("the answer has too many points: ask for a longer interval"));
        }
        Ok(answer)
    }

    pub(crate) fn search(&mut self, text: &str, filter: &RequestFilter) -> Result<QueryResult, PlainRefusal> {
        self.in_time()?;
        Ok(self.questions.search(text, filter)?)
    }

    /// Asks any question.
    pub(crate) fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Questions) -> Result<T, Error>,
    ) -> Result<T, PlainRefusal> {
        self.in_time()?;
        Ok(question(self.questions)?)
    }

    fn in_time(&self) -> Result<(), PlainRefusal> {
        if Instant::now() < self.until { Ok(()) } else { Err(PlainRefusal::late()) }
    }
}
