//! Panics of the control loop. Background tasks outlive theirs: each begins anew after a pause, and the log has it once. In
//! a change a panic is an error of that change, and the loop itself goes on with the next event.

use std::time::Duration;

use offramp_observe::Log;
use offramp_observe::panics::{Panicked, caught, log_restart};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::error::Error;

/// The pauses between a panic and the next beginning of a task.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// The first, which doubles with each panic in a row.
    first: Duration,
    /// The longest pause before a task starts again.
    most: Duration,
}

impl Pauses {
    /// From a second to a minute.
    pub const SHORT: Self = Self { first: Duration::from_secs(1), most: Duration::from_secs(60) };

    /// Waits the same pause before each start.
    pub const fn of(pause: Duration) -> Self {
        Self { first: pause, most: pause }
    }

    /// The pause behind a run that took `ran`, after `last` behind the run before.
    fn next(self, last: Option<Duration>, ran: Duration) -> Duration {
        match last {
            Some(last) if ran < STEADY => (last * 2).min(self.most),
            _ => self.first,
        }
    }
}

/// A task that has run for so long begins with the first pause again.
const STEADY: Duration = Duration::from_secs(600);

/// Spawns the future that `begin` makes, and another after a panic, until one returns or the task is aborted. To be called
/// within the runtime.
pub fn spawn<F>(task: &'static str, log: &Log, begin: impl FnMut() -> F + Send + 'static) -> AbortHandle
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let log = log.clone();
    tokio::spawn(async move { run(task, &log, Pauses::SHORT, begin).await }).abort_handle()
}

/// Awaits the future that `begin` makes, and another after a panic, until one returns.
pub async fn run<F: Future>(
    task: &str,
    log: &Log,
    pauses: Pauses,
    mut begin: impl FnMut() -> F,
) -> F::Output {
    let mut pause = None;
    loop {
        let begun = Instant::now();
        let panicked = match caught(begin()).await {
            Ok(done) => return done,
            Err(panicked) => panicked,
        };
        let (is_first, next) = (pause.is_none(), pauses.next(pause, begun.elapsed()));
        if is_first {
            log_restart(task, &panicked, next, log);
        }
        sleep(next).await;
        pause = Some(next);
    }
}

/// Awaits the turns of a loop, until one gives the reason to end it. A turn that panics ends alone, and the next begins after
/// `pause`.
pub async fn turns<C>(pause: Duration, mut turn: impl AsyncFnMut() -> Result<(), C>) -> C {
    loop {
        match contained(turn()).await {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => return cause,
            // The hook of panics has counted and logged it.
            Err(_) => sleep(pause).await,
        }
    }
}

/// Awaits `work`, and catches its panic. It gets a place of its own: guards within guards would each double the future of the
/// whole loop.
///
/// # Errors
/// The panic of `work`.
pub fn contained<F: Future>(work: F) -> impl Future<Output = Result<F::Output, Panicked>> {
    caught(Box::pin(work))
}

/// Awaits a part of a change. A panic in it is an error of the change.
///
/// # Errors
/// Those of `work`, and its panic.
pub fn guarded<T, E: From<Error>>(
    work: impl Future<Output = Result<T, E>>,
) -> impl Future<Output = Result<T, E>> {
    let work = contained(work);
    async move { work.await.unwrap_or_else(|panicked| Err(fault(&panicked).into())) }
}

/// The error of a change that panicked.
pub fn fault(panicked: &Panicked) -> Error {
    Error::one(format!(
        "this met a fault of Offramp's own, and the configuration before stays in force: {panicked}; please report it \
         with the line of the log that begins \"panicked\""
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use offramp_observe::{Level, LogFormat, Output};

    use super::*;

    #[test]
    fn pauses_grow_until_a_run_is_long() {
        let mut pause = None;
        let mut seconds = Vec::new();
        for ran in [0, 0, 599, 0, 600, 0, 0, 0, 0, 0, 0, 0, 0] {
            let next = Pauses::SHORT.next(pause, Duration::from_secs(ran));
            seconds.push(next.as_secs());
            pause = Some(next);
        }
        assert_eq!(seconds, [1, 2, 4, 8, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[tokio::test]
    async fn a_task_begins_anew_and_is_told_of_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::open(Output::File(path.clone()), LogFormat::Logfmt, Level::Debug).unwrap();
        let begun = Instant::now();
        let mut runs = 0;
        let done = run("figures", &log, Pauses::of(Duration::from_millis(5)), || {
            runs += 1;
            let number = runs;
            async move {
                assert!(number == 4, "run {number}");
                number
            }
        });
        assert_eq!(done.await, 4);
        assert!(begun.elapsed() >= Duration::from_millis(15), "without pauses");
        let written = std::fs::read_to_string(path).unwrap();
        assert_eq!(written.matches("task=figures").count(), 1, "{written}");
        assert!(written.contains("level=error") && written.contains("run 1"), "{written}");
    }

    #[tokio::test]
    async fn a_panic_in_a_change_is_an_error_of_it() {
        assert_eq!(guarded(async { Ok::<_, Error>(7) }).await, Ok(7));
        assert_eq!(guarded(async { Err::<(), _>(Error::one("no")) }).await, Err(Error::one("no")));
        let refused = guarded::<(), Error>(async { panic!("index 7") }).await.unwrap_err().to_string();
        assert!(refused.contains("index 7") && refused.contains("please report it"), "{refused}");
    }

    #[tokio::test]
    async fn a_loop_goes_on_after_a_turn_that_panics() {
        let (begun, pause) = (Instant::now(), Duration::from_millis(5));
        let mut number = 0;
        let cause = turns(pause, async || {
            number += 1;
            match number {
                1 | 3 => panic!("turn {number}"),
                5 => Err("order"),
                _ => Ok(()),
            }
        });
        assert_eq!(cause.await, "order");
        assert_eq!(number, 5);
        assert!(begun.elapsed() >= pause * 2, "without pauses");
    }

    #[tokio::test]
    async fn a_task_that_is_aborted_ends() {
        let runs = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&runs);
        let task = spawn("aborted", &Log::silent(), move || {
            seen.fetch_add(1, Ordering::Relaxed);
            async { panic!("at once") }
        });
        while runs.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        task.abort();
        while !task.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(runs.load(Ordering::Relaxed), 1, "the pause of a second was not over");
    }
}
