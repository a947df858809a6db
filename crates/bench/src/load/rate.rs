//! Arrivals at a fixed rate, free of coordinated omission: a request's latency counts from the moment at
//! which it was due, whether or not a connection was free then.
//!
//! A thread that sleeps to the microsecond hands the requests out; the runtime's own timers, of a
//! millisecond, are too coarse for latencies of tens of microseconds.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::load::conn::Conn;
use crate::load::relay::open;
use crate::load::{Gate, Tally, join};
use crate::protocol::{LoadResult, LoadSpec, Work};

/// Runs `Work::Rate`.
///
/// # Errors
/// When not every connection could be made, or warming up fails.
pub(crate) async fn run(spec: &LoadSpec, gate: &mut Gate) -> Result<LoadResult> {
    let Work::Rate { connections, request, response, rate, seconds, warmup } = spec.work else {
        return Err(Error::Measure("not a load of fixed rate".into()));
    };
    let mut conns = open(spec, connections).await?;
    let request: Arc<[u8]> = vec![b'q'; request].into();
    if warmup > 0.0 {
        let (back, tally) = window(conns, &request, response, rate, warmup).await?;
        if let Some(error) = tally.first_error {
            return Err(Error::Measure(format!("while warming up: {error}")));
        }
        conns = back;
    }
    gate.pass().await?;
    let start = Instant::now();
    let (_conns, tally) = window(conns, &request, response, rate, seconds).await?;
    Ok(tally.result(start))
}

/// The requests that are due and not yet taken by a connection.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    due: VecDeque<Instant>,
    closed: bool,
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, due: Instant) {
        self.state().due.push_back(due);
        self.news.notify_one();
    }

    fn close(&self) {
        self.state().closed = true;
        self.news.notify_waiters();
    }

    /// The next request that is due; none when the window is over.
    async fn next(&self) -> Option<Instant> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Registered before looking, so that a word between the two is not lost.
            news.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(due) = state.due.pop_front() {
                    return Some(due);
                }
                if state.closed {
                    return None;
                }
            }
            news.await;
        }
    }
}

/// One window of arrivals; gives back the connections that still work.
async fn window(
    conns: Vec<Conn>,
    request: &Arc<[u8]>,
    response: usize,
    rate: f64,
    seconds: f64,
) -> Result<(Vec<Conn>, Tally)> {
    let queue = Arc::new(Queue::default());
    let mut tasks = JoinSet::new();
    for mut conn in conns {
        let queue = Arc::clone(&queue);
        let request = Arc::clone(request);
        tasks.spawn(async move {
            let mut tally = Tally::new();
            while let Some(due) = queue.next().await {
                if let Err(error) = conn.exchange(&request, response).await {
                    tally.failure(&error);
                    return (None, tally);
                }
                tally.success(due.elapsed());
            }
            (Some(conn), tally)
        });
    }
    std::thread::spawn(move || dispatch(&queue, rate, seconds));
    let mut tally = Tally::new();
    let mut back = Vec::new();
    for (conn, part) in join(tasks).await? {
        back.extend(conn);
        tally.add(part);
    }
    Ok((back, tally))
}

/// Hands out each request when it is due; runs on a thread of its own, asleep between arrivals.
fn dispatch(queue: &Queue, rate: f64, seconds: f64) {
    // The default slack of 50 µs would be part of every latency. Where it cannot be set, it is.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let start = Instant::now();
    let gap = 1.0 / rate.max(1.0);
    let count = (seconds * rate) as u64;
    for index in 0..count {
        let due = start + Duration::from_secs_f64(gap * index as f64);
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
        queue.push(due);
    }
    queue.close();
}
