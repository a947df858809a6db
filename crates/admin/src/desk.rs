//! Who asks the log store: a few blocking threads, each question bounded in time, so that nothing else waits.
//!
//! Connections to the store are kept for the next question, but not for long: a store that was moved aside, or a
//! database that was started anew, is noticed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use offramp_analytics::{Answer, Filter, Questions, Settings, Top};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::refusal::Refusal;

/// The log store that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// `sqlite:` and a path, or a `postgres://` URL.
    pub url: String,
    /// A GeoIP file in MaxMind's format, for lists of countries and cities.
    pub geoip: Option<PathBuf>,
}

/// Requests that ask the store at once. A dashboard asks for all its panels together; they take turns, so that the
/// cores are left to traffic.
pub(crate) const AT_ONCE: usize = 2;
/// How long a request waits for its turn.
const TURN: Duration = Duration::from_secs(30);
/// How long one question of a request may take.
const QUESTION: Duration = Duration::from_secs(10);
/// How long all questions of one request may take together.
const TOGETHER: Duration = Duration::from_secs(30);
/// How long a connection to the store is used, and its cache kept.
const LIFE: Duration = Duration::from_secs(60);
/// So many rows the store gives at most: 50 series of 11,000 points, and some.
pub(crate) const MOST_ROWS: usize = 600_000;

/// Asks one store, for everybody.
pub(crate) struct Desk {
    store: Store,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Opened>>,
    /// Whether somebody waits to close what is kept too long.
    watched: AtomicBool,
}

struct Opened {
    questions: Questions,
    since: Instant,
}

impl Desk {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            idle: Mutex::default(),
            watched: AtomicBool::new(false),
        }
    }

    /// Whether lists of places can be made.
    pub(crate) fn knows_places(&self) -> bool {
        self.store.geoip.is_some()
    }

    /// Does `work` on a thread that may block. It runs a second time where a connection that was kept turns out
    /// to be broken.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Fn(&mut Asking<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = timeout(TURN, Arc::clone(&self.places).acquire_owned()).await;
        // The semaphore is never closed.
        let Ok(Ok(place)) = turn else {
            return Err(Refusal::later("too many questions are being answered; try again later"));
        };
        let desk = Arc::clone(self);
        let job = spawn_blocking(move || {
            let result = desk.work(&work);
            drop(place);
            result
        });
        self.watch();
        match timeout(TOGETHER + 2 * QUESTION, job).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Refusal {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                text: "answering failed by a fault of Offramp's own; please report it".to_owned(),
            }),
            Err(_) => Err(Refusal::late()),
        }
    }

    /// Closes connections that nobody uses any more; asleep while there are none.
    fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let desk = Arc::clone(self);
        tokio::spawn(async move {
            sleep(LIFE).await;
            desk.watched.store(false, Ordering::Relaxed);
            let checked = Arc::clone(&desk);
            // Closing may wait for a disk.
            if let Ok(true) = spawn_blocking(move || checked.forget()).await {
                desk.watch();
            }
        });
    }

    /// Closes what was kept too long, and says whether something is left.
    fn forget(&self) -> bool {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|opened| opened.since.elapsed() < LIFE);
        !idle.is_empty()
    }

    fn work<T>(&self, work: impl Fn(&mut Asking<'_>) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let until = Instant::now() + TOGETHER;
        let kept = self.kept();
        let again = kept.is_some();
        let mut opened = kept.map_or_else(|| self.open(), Ok)?;
        let mut result = work(&mut Asking { questions: &mut opened.questions, until });
        if again && is_broken(&result) {
            opened = self.open()?;
            result = work(&mut Asking { questions: &mut opened.questions, until });
        }
        if !is_broken(&result) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(opened);
        }
        result
    }

    fn kept(&self) -> Option<Opened> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|opened| opened.since.elapsed() < LIFE);
        idle.pop()
    }

    fn open(&self) -> Result<Opened, Refusal> {
        let settings =
            Settings { time_limit: QUESTION, most_rows: MOST_ROWS, geoip: self.store.geoip.clone() };
        let questions = Questions::open(&self.store.url, &settings)?;
        Ok(Opened { questions, since: Instant::now() })
    }
}

/// Whether the connection to the store may be what failed.
fn is_broken<T>(result: &Result<T, Refusal>) -> bool {
    matches!(result, Err(refusal) if refusal.status.is_server_error() && *refusal != Refusal::late())
}

/// The store, for the questions of one request.
pub(crate) struct Asking<'a> {
    questions: &'a mut Questions,
    until: Instant,
}

impl Asking<'_> {
    pub(crate) fn top(&mut self, top: Top, filter: &Filter) -> Result<Answer, Refusal> {
        self.in_time()?;
        Ok(self.questions.top(top, filter)?)
    }

    pub(crate) fn traffic(
        &mut self,
        interval: Duration,
        by_host: bool,
        filter: &Filter,
    ) -> Result<Answer, Refusal> {
        self.in_time()?;
        let answer = self.questions.traffic(interval, by_host, filter)?;
        if answer.rows.len() >= MOST_ROWS {
            return Err(Refusal::wrong("the answer has too many points: ask for a longer interval"));
        }
        Ok(answer)
    }

    pub(crate) fn search(&mut self, text: &str, filter: &Filter) -> Result<Answer, Refusal> {
        self.in_time()?;
        Ok(self.questions.search(text, filter)?)
    }

    fn in_time(&self) -> Result<(), Refusal> {
        if Instant::now() < self.until { Ok(()) } else { Err(Refusal::late()) }
    }
}
