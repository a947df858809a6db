//! What a person at a terminal sees while logs are read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use offramp_analytics::ingest::Progress;

use crate::surroundings::{is_watched, say, say_over};

/// Between two looks at the progress.
const EVERY: Duration = Duration::from_millis(200);

/// How much there is to read, and how much was read.
#[derive(Clone, Default)]
pub(super) struct Meter {
    /// Bytes of all files; `None` if unknown.
    total: Option<u64>,
    /// Bytes of the files that have been read.
    before: Arc<AtomicU64>,
}

impl Meter {
    /// Of these files; the length of standard input and of pipes is unknown.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let total = files.iter().map(|file| size(file)).sum();
        Self { total, before: Arc::default() }
    }

    /// This file has been read.
    pub(super) fn passed(&self, file: &Path) {
        self.before.fetch_add(size(file).unwrap_or(0), Ordering::Relaxed);
    }

    /// Shows how far it is, now and then.
    pub(super) fn show(&self) -> impl FnMut(Progress) + Send + 'static {
        let Self { total, before } = self.clone();
        let (begun, mut told) = (Instant::now(), Instant::now());
        let is_watched = is_watched();
        move |progress| {
            if !is_watched || told.elapsed() < EVERY {
                return;
            }
            told = Instant::now();
            let done = before.load(Ordering::Relaxed) + progress.bytes;
            say_over(&line(total, done, progress.accepted, begun.elapsed()));
        }
    }
}

fn line(total: Option<u64>, done: u64, requests: u64, elapsed: Duration) -> String {
    let rate = requests as f64 / elapsed.as_secs_f64().max(0.001);
    match total {
        Some(total) if total > 0 => {
            // The file may be growing.
            let percent = (done as f64 / total as f64 * 100.0).min(100.0);
            format!("{percent:3.0} %, {requests} requests, {rate:.0}/s")
        }
        _ => format!("{requests} requests, {rate:.0}/s"),
    }
}

fn size(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

/// Says something below what is shown.
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
