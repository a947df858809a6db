//! The keys that sign tokens, of servers: fetched at a start, again and again, and when a token names a key that is not known.
//!
//! A fetch that fails changes nothing: the keys that were fetched before stay in use, and without any no token is believed.
//! Routes look at the keys by a pointer, so that new ones need no new snapshot.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderMap, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use offramp_certs::anchors::Anchors;
use offramp_config::model::{KeyServer, KeySetUrl};
use offramp_observe::Log;
use offramp_process::supervise;
use offramp_proxy::credentials::jwt::{FetchedKeys, KeySet};
use serde::{Deserialize, Serialize};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::web::{Web, exchange_here};

/// The largest set, in bytes. Those of large issuers have some tens of kilobytes.
const MOST: usize = 256 << 10;
/// The time limit of one fetch.
const LIMIT: Duration = Duration::from_secs(10);
/// The time for which a start, or a change, waits for keys that were never fetched. Then requests get 503 until they
/// come: the server may be behind this very process.
const AT_START: Duration = Duration::from_secs(2);
/// The least time between two fetches because of what a response says of its age.
const SOONEST: Duration = Duration::from_secs(60);
/// From a fetch that has failed to the next one; each further failure doubles it.
const RETRY: Duration = Duration::from_secs(1);
/// The longest time from a failure to the next fetch.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// The time after a fetch that a token has begun in vain until a token may begin another one.
const REST: Duration = Duration::from_secs(30);
/// Like above, after a fetch that has brought other keys: tokens with invented keys cannot cause it.
const SHORT_REST: Duration = Duration::from_secs(2);
/// The most keys that cannot be used and are logged.
const WRONG_TOLD: usize = 3;

/// The origin of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeySetOrigin {
    url: KeySetUrl,
    ca: Option<PathBuf>,
    refresh: Duration,
}

impl KeySetOrigin {
    pub(crate) fn of(server: &KeyServer) -> Self {
        let ca = server.ca.as_ref().map(|file| file.path.clone());
        Self { url: server.url.clone(), ca, refresh: server.refresh }
    }
}

/// A server of keys, and the keys that were fetched.
#[derive(Debug)]
pub struct Provider {
    origin: KeySetOrigin,
    /// The authorities that its certificate is checked against; `None`: those of the system.
    roots: Option<Anchors>,
    keys: Arc<FetchedKeys>,
    latest: Mutex<Latest>,
}

#[derive(Debug, Default)]
struct Latest {
    /// The set as it came.
    text: String,
    /// The time of the next fetch; `None`: at once.
    due: Option<Instant>,
}

/// A set of keys, as one process tells another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownKeys {
    url: String,
    set: String,
}

/// The result of a fetch.
#[derive(Debug)]
struct Fetched {
    /// Other keys than before.
    changed: bool,
    /// The number of usable keys.
    keys: usize,
    /// Keys of the set that cannot be used, if the set is a new one.
    wrong: Vec<String>,
}

/// The outcomes of fetches.
#[derive(Debug, Default)]
pub struct Fetches {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Fetches {
    /// The numbers by outcome.
    pub fn totals(&self) -> [(&'static str, u64); 2] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("success", of(&self.succeeded)), ("failed", of(&self.failed))]
    }

    fn note<T>(&self, outcome: &Result<T, String>) {
        let count = if outcome.is_ok() { &self.succeeded } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Provider {
    /// The provider of this origin. One that `before` has goes on as it is, and one of the same URL gives its keys.
    pub(crate) fn of<'p>(
        origin: KeySetOrigin,
        roots: Option<Anchors>,
        mut before: impl Iterator<Item = &'p Arc<Self>> + Clone,
    ) -> Arc<Self> {
        let same = |one: &&Arc<Self>| one.origin == origin && one.roots == roots;
        if let Some(same) = before.clone().find(same) {
            return Arc::clone(same);
        }
        let known = before.find(|one| one.origin.url == origin.url);
        let this = Self { origin, roots, keys: Arc::default(), latest: Mutex::default() };
        if let Some(known) = known {
            this.take(&known.latest().text);
        }
        Arc::new(this)
    }

    /// The keys, as routes look at them.
    pub(crate) fn keys(&self) -> &Arc<FetchedKeys> {
        &self.keys
    }

    /// The set at this moment, for another process; nothing where none has come.
    pub(crate) fn known(&self) -> Option<KnownKeys> {
        let set = self.latest().text.clone();
        (!set.is_empty()).then(|| KnownKeys { url: self.origin.url.as_str().to_owned(), set })
    }

    /// Takes over what another process knew.
    pub(crate) fn recall(&self, known: &[KnownKeys]) {
        if let Some(known) = known.iter().find(|known| known.url == self.origin.url.as_str()) {
            self.take(&known.set);
        }
    }

    /// Believes a set that was fetched before.
    fn take(&self, text: &str) {
        if let Ok((keys, _)) = KeySet::of_server(text) {
            self.keys.set(Arc::new(keys));
            text.clone_into(&mut self.latest().text);
        }
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        // Nothing panics with the lock held.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches the set, and has routes believe it.
    async fn fetch(&self) -> Result<Fetched, String> {
        let answered = timeout(LIMIT, self.exchange()).await;
        let response = answered.map_err(|_| format!("no response within {} s", LIMIT.as_secs()))??;
        if response.status() != StatusCode::OK {
            return Err(format!("the server answered {}", response.status()));
        }
        let text = std::str::from_utf8(response.body()).map_err(|_| "the response is not text".to_owned())?;
        let (keys, wrong) = KeySet::of_server(text).map_err(|wrong| summary(&wrong))?;
        let count = keys.count();
        let changed = self.keys.set(Arc::new(keys));
        let mut latest = self.latest();
        latest.due = Some(Instant::now() + fresh_for(response.headers(), self.origin.refresh));
        if changed {
            text.clone_into(&mut latest.text);
        }
        Ok(Fetched { changed, keys: count, wrong: if changed { wrong } else { Vec::new() } })
    }

    /// Says what has come.
    fn tell(&self, fetched: &Fetched, log: &Log) {
        let url = || ("url", self.origin.url.as_str().into());
        log.info("the keys of tokens were fetched", &[url(), ("keys", fetched.keys.into())]);
        if !fetched.wrong.is_empty() {
            let reason = summary(&fetched.wrong);
            log.warn("some keys of tokens cannot be used", &[url(), ("reason", (&reason).into())]);
        }
    }

    async fn exchange(&self) -> Result<Response<Bytes>, String> {
        let request = Request::get(self.origin.url.as_str())
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .header(USER_AGENT, "offramp")
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let answered = if self.origin.url.is_https() {
            Web::new(self.roots.as_ref())?.exchange(request, MOST).await
        } else {
            exchange_here(request, MOST).await
        };
        answered.map_err(|unanswered| unanswered.reason)
    }
}

/// The first of what is wrong, in one line.
fn summary(wrong: &[String]) -> String {
    let mut summary = wrong.iter().take(WRONG_TOLD).map(String::as_str).collect::<Vec<_>>().join("; ");
    if wrong.len() > WRONG_TOLD {
        summary.push_str(&format!("; and {} more", wrong.len() - WRONG_TOLD));
    }
    summary
}

/// The time for which a set is used: for `refresh`, or for less if the response says so (RFC 9111 section 5.2.2.1).
fn fresh_for(headers: &HeaderMap, refresh: Duration) -> Duration {
    let fields = headers.get_all(CACHE_CONTROL).iter().filter_map(|field| field.to_str().ok());
    let directives = fields.flat_map(|field| field.split(',')).map(|one| one.trim().to_ascii_lowercase());
    let ages = directives.filter_map(|one| match one.strip_prefix("max-age=") {
        Some(seconds) => seconds.trim_matches('"').parse().ok().map(Duration::from_secs),
        None => matches!(&*one, "no-store" | "no-cache").then_some(Duration::ZERO),
    });
    ages.min().map_or(refresh, |age| age.max(SOONEST)).min(refresh)
}

/// The pause after so many failures in a row.
fn backoff(failures: u32, refresh: Duration) -> Duration {
    let doubled = RETRY * (1 << failures.saturating_sub(1).min(6));
    doubled.min(LONGEST_RETRY).min(refresh)
}

/// Fetches the keys of providers that have none, for a short time. What does not come then is fetched later.
pub async fn fetch_new(providers: impl Iterator<Item = Arc<Provider>>, fetches: &Fetches, log: &Log) {
    let mut tasks = JoinSet::new();
    for provider in providers.filter(|provider| provider.keys.current().is_none()) {
        tasks.spawn(async move { (provider.fetch().await, provider) });
    }
    let all = async {
        while let Some(Ok((outcome, provider))) = tasks.join_next().await {
            fetches.note(&outcome);
            // The refresher tries again at once, and logs failures.
            if let Ok(fetched) = &outcome {
                provider.tell(fetched, log);
            }
        }
    };
    let _ = timeout(AT_START, all).await;
}

/// Keeps the keys of providers fresh, until it is dropped.
pub struct Fetchers {
    tasks: HashMap<KeySetOrigin, (Arc<Provider>, AbortHandle)>,
    fetches: Arc<Fetches>,
    log: Log,
}

impl Fetchers {
    /// Without providers; outcomes are counted in `fetches`.
    pub fn new(fetches: Arc<Fetches>, log: Log) -> Self {
        Self { tasks: HashMap::new(), fetches, log }
    }

    /// The outcomes of fetches.
    pub fn fetches(&self) -> &Fetches {
        &self.fetches
    }

    /// Looks after these providers from now on, and no others. Must be called within a tokio runtime.
    pub fn follow(&mut self, providers: impl Iterator<Item = Arc<Provider>>) {
        let mut before = std::mem::take(&mut self.tasks);
        for provider in providers {
            let origin = provider.origin.clone();
            let running = before.remove(&origin);
            let task = match running {
                Some((same, task)) if Arc::ptr_eq(&same, &provider) => task,
                other => {
                    other.iter().for_each(|(_, task)| task.abort());
                    let (kept, fetches, task_log) =
                        (Arc::clone(&provider), Arc::clone(&self.fetches), self.log.clone());
                    supervise::spawn("keys of tokens", &self.log, move || {
                        Keeper::new(&kept, &fetches, &task_log).run()
                    })
                }
            };
            self.tasks.insert(origin, (provider, task));
        }
        before.values().for_each(|(_, task)| task.abort());
    }
}

impl Drop for Fetchers {
    fn drop(&mut self) {
        self.tasks.values().for_each(|(_, task)| task.abort());
    }
}

/// Looks after one provider.
struct Keeper {
    provider: Arc<Provider>,
    fetches: Arc<Fetches>,
    log: Log,
    /// Fetches in a row that have failed.
    failures: u32,
    /// Until when no token begins a fetch.
    rest_until: Option<Instant>,
}

/// A fetch under way: its end is announced, even where it is given up.
struct UnderWay<'k> {
    keys: &'k FetchedKeys,
    rest: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.keys.end(self.rest);
    }
}

impl Keeper {
    fn new(provider: &Arc<Provider>, fetches: &Arc<Fetches>, log: &Log) -> Self {
        let (provider, fetches) = (Arc::clone(provider), Arc::clone(fetches));
        Self { provider, fetches, log: log.clone(), failures: 0, rest_until: None }
    }

    async fn run(mut self) {
        let mut due = self.provider.latest().due.unwrap_or_else(Instant::now);
        loop {
            let rested = async {
                match self.rest_until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let asked = tokio::select! {
                () = rested => {
                    self.rest_until = None;
                    self.provider.keys.rested();
                    continue;
                }
                () = self.provider.keys.asked() => true,
                () = sleep_until(due) => false,
            };
            due = self.fetch(asked).await;
        }
    }

    /// Fetches the keys once. Gives when to do it again.
    async fn fetch(&mut self, asked: bool) -> Instant {
        let provider = Arc::clone(&self.provider);
        let mut under_way = UnderWay { keys: &provider.keys, rest: self.rest_until.is_some() };
        under_way.keys.begin();
        let outcome = provider.fetch().await;
        let now = Instant::now();
        if asked {
            let changed = outcome.as_ref().is_ok_and(|fetched| fetched.changed);
            self.rest_until = Some(now + if changed { SHORT_REST } else { REST });
            under_way.rest = true;
        }
        drop(under_way);
        self.fetches.note(&outcome);
        self.tell(&outcome);
        match outcome {
            Ok(_) => {
                self.failures = 0;
                provider.latest().due.unwrap_or(now + provider.origin.refresh)
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                now + backoff(self.failures, provider.origin.refresh)
            }
        }
    }

    /// Says what has changed, and the first of several failures.
    fn tell(&self, outcome: &Result<Fetched, String>) {
        match outcome {
            Ok(fetched) if fetched.changed || self.failures > 0 => self.provider.tell(fetched, &self.log),
            Ok(_) => {}
            Err(reason) if self.failures == 0 => {
                let message = if self.provider.keys.current().is_some() {
                    "the keys of tokens cannot be fetched; those that were fetched before stay in use"
                } else {
                    "the keys of tokens cannot be fetched; requests get 503 until they are there"
                };
                let url = ("url", self.provider.origin.url.as_str().into());
                self.log.warn(message, &[url, ("reason", reason.into())]);
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_shortens_the_time_within_bounds() {
        let of = |fields: &[&str], refresh| {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(CACHE_CONTROL, field.parse().unwrap());
            }
            fresh_for(&headers, Duration::from_secs(refresh)).as_secs()
        };
        for (fields, refresh, expected) in [
            (&[][..], 600, 600),
            (&["public, max-age=300"], 600, 300),
            (&["Max-Age=\"300\""], 600, 300),
            (&["max-age=21600"], 600, 600),
            (&["max-age=0"], 600, 60),
            (&["no-store"], 600, 60),
            (&["private", "no-cache, max-age=500"], 600, 60),
            (&["max-age=99999999999999999999"], 600, 600),
            (&["max-age=-1"], 600, 600),
            (&["max-age=1"], 10, 10),
        ] {
            assert_eq!(of(fields, refresh), expected, "{fields:?}");
        }
    }

    #[test]
    fn failures_are_repeated_less_and_less_often() {
        let of = |failures, refresh| backoff(failures, Duration::from_secs(refresh)).as_secs();
        assert_eq!([1, 2, 3, 6, 7, 1000].map(|failures| of(failures, 600)), [1, 2, 4, 32, 60, 60]);
        assert_eq!(of(7, 10), 10);
    }

    #[test]
    fn what_is_wrong_has_a_bound() {
        let wrong: Vec<String> = (0..64).map(|number| format!("key {number}")).collect();
        assert_eq!(summary(&wrong), "key 0; key 1; key 2; and 61 more");
        assert_eq!(summary(&wrong[..2]), "key 0; key 1");
    }
}
