//! Progress display on a terminal while logs are read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use offramp_analytics::ingest::ImportProgress;

use crate::surroundings::{is_watched, say, say_over};

/// Minimum time between two updates of the display.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Byte counts for the percentage: total size, and the files that are finished.
#[derive(Clone, Default)]
pub(super) struct Meter {
    /// Size of all files in bytes; `None` if it is unknown.
    total: Option<u64>,
    /// Size of the finished files in bytes.
    before: Arc<AtomicU64>,
}

impl Meter {
    /// Creates a meter for these files; the total is unknown with standard input or a pipe among them.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let total = files.iter().map(|file| size(file)).sum();
        Self { total, before: Arc::default() }
    }

    /// Counts a file as finished.
    pub(super) fn passed(&self, file: &Path) {
        self.before.fetch_add(size(file).unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns a callback that updates the display.
    pub(super) fn show(&self) -> impl FnMut(ImportProgress) + Send + 'static {
        let Self { total, before } = self.clone();
        let (begun, mut drawn) = (Instant::now(), Instant::now());
        let is_watched = is_watched();
        move |progress| {
            if !is_watched || drawn.elapsed() < REDRAW_INTERVAL {
                return;
            }
            drawn = Instant::now();
            let done = before.load(Ordering::Relaxed) + progress.bytes;
            say_over(&line(total, done, progress.accepted, begun.elapsed()));
        }
    }
}

fn line(total: Option<u64>, done: u64, requests: u64, elapsed: Duration) -> String {
    let rate = requests as f64 / elapsed.as_secs_f64().max(0.001);
    match total {
        Some(total) if total > 0 => {
            // A growing file may exceed 100 %.
            let percent = (done as f64 / total as f64 * 100.0).min(100.0);
            format!("{percent:3.0} %, {requests} requests, {rate:.0}/s")
        }
        _ => format!("{requests} requests, {rate:.0}/s"),
    }
}

fn size(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// Prints a message on a line of its own, over the progress display.
pub(super) fn note(text: &str) {
    if is_watched() {
        say_over("");
    }
    say(text);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::line;

    #[test]
    fn percentages_need_a_total() {
        let two = Duration::from_secs(2);
        assert_eq!(line(Some(400), 100, 50, two), " 25 %, 50 requests, 25/s");
        assert_eq!(line(Some(400), 500, 50, two), "100 %, 50 requests, 25/s");
        assert_eq!(line(None, 500, 50, two), "50 requests, 25/s");
        assert_eq!(line(Some(0), 0, 0, Duration::ZERO), "0 requests, 0/s");
    }
}
