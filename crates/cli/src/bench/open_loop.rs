//! Requests at a fixed rate, each timed from the moment at which it was due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use super::application::Application;
use super::line::{Dialler, Line};

/// The longest time of a request that is told apart; a longer one counts as this long.
const LONGEST: Duration = Duration::from_secs(60);
/// The time after the last request was due in which answers still count.
const GRACE: Duration = Duration::from_secs(5);
/// The time for a connection, with its handshake.
const OPENING: Duration = Duration::from_secs(5);
/// The pause after a connection that failed.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest nap of the clock: it has to notice that the loop has ended.
const NAP: Duration = Duration::from_millis(50);

/// Rate, time and connections of a loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopPlan {
    /// Requests a second; infinite: each connection asks as soon as it was answered.
    pub(super) rate: f64,
    pub(super) time: Duration,
    pub(super) connections: usize,
}

impl LoopPlan {
    /// The number of requests; `None` without a rate.
    fn requests(&self) -> Option<u64> {
        self.rate.is_finite().then(|| (self.rate * self.time.as_secs_f64()).max(1.0) as u64)
    }

    /// The time from the start at which a request is due.
    fn due(&self, number: u64) -> Duration {
        Duration::from_secs_f64(number as f64 / self.rate)
    }
}

/// The answers of a loop.
#[derive(Clone, Debug)]
pub(super) struct LoopTimes {
    /// Times of answers with a status below 500, in microseconds.
    pub(super) times: Histogram<u64>,
    /// Answers with a status of 400 and more.
    pub(super) refused: u64,
    /// Requests without an answer, or with a status of 500 and more.
    pub(super) failed: u64,
    /// The reason of the first that failed.
    pub(super) first_failure: Option<String>,
}

impl Default for LoopTimes {
    fn default() -> Self {
        let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
        // Three digits over the whole range: 200 KiB.
        let times = Histogram::new_with_bounds(1, longest, 3).expect("bounds in order");
        Self { times, refused: 0, failed: 0, first_failure: None }
    }
}

impl LoopTimes {
    pub(super) fn answered(&self) -> u64 {
        self.times.len()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.times.add(&other.times).expect("the same bounds");
        self.refused += other.refused;
        self.failed += other.failed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }

    fn fail(&mut self, why: &str) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| why.to_owned());
    }

    fn answer(&mut self, status: u16, took: Duration) {
        if status >= 500 {
            return self.fail(&format!("the answer was {status}"));
        }
        self.refused += u64::from(status >= 400);
        self.times.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
    }
}

/// The state that the connections of a loop share.
struct SharedLoop {
    plan: LoopPlan,
    begin: Instant,
    /// The number of the next request.
    next: AtomicU64,
    /// One permit for each request that is due; closed when the loop ends.
    due: Arc<Semaphore>,
    outcome: Mutex<LoopTimes>,
    dialler: Dialler,
    app: Arc<Application>,
}

/// Runs a loop to its end. Requests that were not answered by then have failed.
pub(super) async fn run(plan: &LoopPlan, dialler: &Dialler, app: &Arc<Application>) -> LoopTimes {
    let (lines, first_failure) = open_all(plan.connections, dialler).await;
    let outcome = LoopTimes { first_failure, ..LoopTimes::default() };
    let shared = Arc::new(SharedLoop {
        plan: *plan,
        begin: Instant::now(),
        next: AtomicU64::new(0),
        due: Arc::new(Semaphore::new(0)),
        outcome: Mutex::new(outcome),
        dialler: dialler.clone(),
        app: Arc::clone(app),
    });
    let grace = if plan.rate.is_finite() { GRACE } else { Duration::ZERO };
    let end = shared.begin + plan.time + grace;
    let clock = plan.requests().map(|requests| shared.clock(requests));
    let mut tasks: JoinSet<()> = lines.into_iter().map(|line| Arc::clone(&shared).serve(line)).collect();
    let _ = timeout_at(end.into(), async { while tasks.join_next().await.is_some() {} }).await;
    shared.due.close();
    tasks.shutdown().await;
    if let Some(clock) = clock {
        // It ends within a nap.
        let _ = clock.join();
    }
    let mut outcome = shared.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let missing = plan.requests().unwrap_or(0).saturating_sub(outcome.answered() + outcome.failed);
    if missing > 0 {
        outcome.fail(&format!("no answer within {} s", GRACE.as_secs()));
        outcome.failed += missing - 1;
    }
    outcome
}

/// Opens connections together; one that is not open in time, or is refused, is tried again by its first request. Also the
/// reason of the first that is not open.
async fn open_all(connections: usize, dialler: &Dialler) -> (Vec<Option<Line>>, Option<String>) {
    let mut opening = JoinSet::new();
    for _ in 0..connections {
        let dialler = dialler.clone();
        opening.spawn(async move { timeout(OPENING, Line::open(&dialler)).await });
    }
    let (mut lines, mut reason) = (Vec::with_capacity(connections), None);
    while let Some(opened) = opening.join_next().await {
        let line = match opened {
            Ok(Ok(line)) => line,
            Ok(Err(_)) => Err(format!("no connection within {} s", OPENING.as_secs())),
            Err(failed) => Err(failed.to_string()),
        };
        lines.push(line.map_err(|why| reason.get_or_insert(why).len()).ok());
    }
    (lines, reason)
}

impl SharedLoop {
    /// Sends requests over one connection until all are sent. After a failure it connects anew.
    async fn serve(self: Arc<Self>, mut line: Option<Line>) {
        while let Some(due) = self.next().await {
            let answer = match line.as_mut() {
                Some(open) => open.ask(&self.app).await,
                None => match Line::open(&self.dialler).await {
                    Ok(new) => line.insert(new).ask(&self.app).await,
                    Err(why) => Err(why),
                },
            };
            let took = due.elapsed();
            let failed = answer.is_err();
            {
                let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
                match answer {
                    Ok(answer) => outcome.answer(answer.status, took),
                    Err(why) => outcome.fail(&why),
                }
            }
            if failed {
                sleep(PAUSE).await;
            }
            // A server may close a connection after an answer, which is no failure.
            line = line.filter(|line| !failed && line.is_open());
        }
    }

    /// Waits until a request is due, and gives that moment. `None` if all were sent.
    async fn next(&self) -> Option<Instant> {
        let Some(requests) = self.plan.requests() else {
            return (self.begin.elapsed() < self.plan.time).then(Instant::now);
        };
        if self.next.load(Ordering::Relaxed) >= requests {
            return None;
        }
        self.due.acquire().await.ok()?.forget();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number + 1 >= requests {
            // The others wait for requests that do not come.
            self.due.close();
        }
        Some(self.begin + self.plan.due(number))
    }

    /// A thread that says when requests are due: timers of the runtime are good to a millisecond only.
    fn clock(self: &Arc<Self>, requests: u64) -> JoinHandle<()> {
        let (plan, begin, due) = (self.plan, self.begin, Arc::clone(&self.due));
        thread::spawn(move || {
            let mut said = 0;
            while said < requests && !due.is_closed() {
                let now = (begin.elapsed().as_secs_f64() * plan.rate) as u64 + 1;
                if now.min(requests) > said {
                    due.add_permits(usize::try_from(now.min(requests) - said).unwrap_or(1));
                    said = now.min(requests);
                }
                thread::sleep(plan.due(said).saturating_sub(begin.elapsed()).min(NAP));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_the_rate() {
        let plan = LoopPlan { rate: 250.0, time: Duration::from_secs(2), connections: 1 };
        assert_eq!(plan.requests(), Some(500));
        assert_eq!(plan.due(250), Duration::from_secs(1));
        assert_eq!(LoopPlan { rate: f64::INFINITY, ..plan }.requests(), None);
        assert_eq!(LoopPlan { rate: 0.1, ..plan }.requests(), Some(1), "at least one");
    }

    #[test]
    fn answers_are_counted_by_their_status() {
        let mut times = LoopTimes::default();
        times.answer(200, Duration::from_millis(3));
        times.answer(404, Duration::from_nanos(1));
        times.answer(200, Duration::from_secs(600));
        times.answer(502, Duration::from_millis(1));
        times.fail("refused");
        assert_eq!((times.answered(), times.refused, times.failed), (3, 1, 2));
        assert_eq!(times.first_failure.as_deref(), Some("the answer was 502"));
        assert!(times.times.max() >= 59_000_000, "{}", times.times.max());
        let mut both = LoopTimes::default();
        both.add(&times);
        both.add(&times);
        assert_eq!((both.answered(), both.refused, both.failed), (6, 2, 4));
    }
}
