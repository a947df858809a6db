//! Panics, which are bugs of Offramp: all are counted, and the first at each source location is logged.
//!
//! A panic ends one task or thread, never the process. Essential tasks restart after a pause ([`resume`] for
//! threads; `control` has the equivalent for its event loop).

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::HashSet;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::{Level, Log};

/// Source locations that are remembered. Panics elsewhere are counted only.
const PLACES: usize = 64;
/// The longest wait for the log, whose lock the panicking thread may hold.
const LOG_WAIT: Duration = Duration::from_millis(200);
/// The initial pause before a restart. It doubles up to [`LONGEST`].
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The panic counter of this process. Cheap to clone; all clones share one count.
#[derive(Clone, Debug, Default)]
pub struct Panics(Arc<PanicsInner>);

#[derive(Debug, Default)]
struct PanicsInner {
    count: AtomicU64,
    /// Source locations that were logged.
    places: Mutex<HashSet<String>>,
}

impl Panics {
    /// The number of panics so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Installs a panic hook that counts and logs the panics of all threads, in place of the report on
    /// standard error. With `RUST_BACKTRACE` set, that report follows once per source location.
    pub fn watch(&self, log: Log) {
        let (panics, report) = (self.clone(), take_hook());
        set_hook(Box::new(move |info| {
            if !panics.note(info, &log) || Backtrace::capture().status() == BacktraceStatus::Captured {
                report(info);
            }
        }));
    }

    /// Counts a panic, and logs the first of its source location. Returns `false` if the log stays locked.
    fn note(&self, info: &PanicHookInfo<'_>, log: &Log) -> bool {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        let place = info.location().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        {
            let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
            if places.len() >= PLACES || !places.insert(place.clone()) {
                return true;
            }
        }
        let reason = Panicked::of(info.payload()).to_string();
        let thread = thread::current();
        let fields = [
            ("at", (&place).into()),
            ("thread", thread.name().unwrap_or("unnamed").into()),
            ("reason", (&reason).into()),
            ("advice", "please report it; further panics at this place are counted only".into()),
        ];
        log.write_within(LOG_WAIT, Level::Error, "panicked: a fault of Offramp's own", &fields)
    }
}

/// The message of a caught panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(String);

impl Panicked {
    fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(text.unwrap_or("without a message").to_owned())
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Panicked {}

/// Runs `work` and catches its panic. State that `work` shares must be valid at every point that may panic:
/// atomics, and locks that are taken in spite of poison.
///
/// # Errors
/// The panic of `work`.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked::of(&*payload))
}

/// Awaits `work` and catches its panic, under the conditions of [`catch`].
///
/// # Errors
/// The panic of `work`.
pub async fn caught<F: Future>(work: F) -> Result<F::Output, Panicked> {
    let mut work = pin!(work);
    // A future that has panicked is dropped, never polled again.
    poll_fn(move |cx| match catch(|| work.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Runs `work` on this thread until it returns. After a panic it runs again, after a pause of a second to a
/// minute, under the conditions of [`catch`].
pub fn resume<T>(task: &str, log: &Log, work: impl FnMut() -> T) -> T {
    resume_after(PAUSE, task, log, work)
}

fn resume_after<T>(first: Duration, task: &str, log: &Log, mut work: impl FnMut() -> T) -> T {
    let mut pause = first;
    loop {
        match catch(&mut work) {
            Ok(done) => return done,
            Err(panicked) if pause == first => log_restart(task, &panicked, pause, log),
            Err(_) => {}
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    }
}

/// Logs that `task` restarts `pause` after a panic.
pub fn log_restart(task: &str, panicked: &Panicked, pause: Duration, log: &Log) {
    let (reason, seconds) = (panicked.to_string(), pause.as_secs());
    let fields = [("task", task.into()), ("reason", (&reason).into()), ("pause_seconds", seconds.into())];
    log.error("task panicked; it restarts after a pause", &fields);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::task::{Context, Waker};

    use super::*;
    use crate::{LogFormat, Output};

    fn log(folder: &tempfile::TempDir) -> Log {
        Log::open(Output::File(folder.path().join("log")), LogFormat::Logfmt, Level::Debug).unwrap()
    }

    /// A single test: the panic hook belongs to the process.
    #[test]
    fn panics_are_counted_and_logged_once_for_each_place() {
        let folder = tempfile::tempdir().unwrap();
        let panics = Panics::default();
        panics.watch(log(&folder));
        let begun = panics.total();
        for number in 0..3 {
            assert_eq!(
                catch(|| panic!("number {number}")),
                Err::<(), _>(Panicked(format!("number {number}")))
            );
        }
        assert!(catch(|| panic!("elsewhere")).is_err());
        // Other tests of this process may panic at the same time.
        assert!(panics.total() >= begun + 4);
        let written = fs::read_to_string(folder.path().join("log")).unwrap();
        let lines = |word: &str| written.lines().filter(|line| line.contains(word)).count();
        assert_eq!((lines("number 0"), lines("number 1"), lines("elsewhere")), (1, 0, 1), "{written}");
        assert!(written.contains("panics.rs:") && written.contains("please report it"), "{written}");
        let _ = take_hook();
    }

    #[test]
    fn a_future_that_panics_ends_with_the_message() {
        let poll = |work: std::pin::Pin<&mut dyn Future<Output = Result<u8, Panicked>>>| {
            work.poll(&mut Context::from_waker(Waker::noop()))
        };
        assert_eq!(poll(pin!(caught(async { 7 }))), Poll::Ready(Ok(7)));
        let panics = caught(async {
            std::future::ready(()).await;
            panic!("in {}", "a future")
        });
        assert_eq!(poll(pin!(panics)), Poll::Ready(Err(Panicked("in a future".to_owned()))));
    }

    #[test]
    fn a_thread_goes_on_after_a_panic_and_says_so_once() {
        let folder = tempfile::tempdir().unwrap();
        let runs = Cell::new(0);
        let done = resume_after(Duration::from_millis(1), "work", &log(&folder), || {
            runs.set(runs.get() + 1);
            assert!(runs.get() > 2, "once more");
            runs.get()
        });
        assert_eq!(done, 3);
        let written = fs::read_to_string(folder.path().join("log")).unwrap();
        assert_eq!(written.matches("task=work").count(), 1, "{written}");
    }
}
