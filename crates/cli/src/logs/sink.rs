//! The store as `logs ingest` writes it: requests without a host get one, and a person at a terminal sees progress.

use std::time::{Duration, Instant};

use offramp_analytics::ingest::{Mark, Sink};
use offramp_analytics::{Entry, Error, StoreSink};

use crate::surroundings::say_over;

/// Between two looks at the progress.
const EVERY: Duration = Duration::from_millis(200);

/// The store, and what is done to entries on their way to it.
pub(super) struct IngestSink {
    store: StoreSink,
    host: Option<String>,
    /// Where somebody looks on.
    progress: Option<Progress>,
}

struct Progress {
    begun: Instant,
    told: Instant,
    taken: u64,
}

impl IngestSink {
    pub(super) fn new(store: StoreSink, host: Option<String>, is_watched: bool) -> Self {
        let now = Instant::now();
        let progress = is_watched.then_some(Progress { begun: now, told: now, taken: 0 });
        Self { store, host, progress }
    }

    pub(super) fn into_store(self) -> StoreSink {
        self.store
    }
}

impl Sink for IngestSink {
    fn add(&mut self, entry: &Entry<'_>) -> Result<(), Error> {
        if let Some(progress) = &mut self.progress {
            progress.taken += 1;
        }
        match &self.host {
            Some(host) if entry.host.is_none() => {
                self.store.add(&Entry { host: Some(host.as_bytes()), ..*entry })
            }
            _ => self.store.add(entry),
        }
    }

    fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error> {
        self.store.commit(mark)?;
        if let Some(progress) = self.progress.as_mut().filter(|progress| progress.told.elapsed() >= EVERY) {
            progress.told = Instant::now();
            let rate = progress.taken as f64 / progress.begun.elapsed().as_secs_f64().max(0.001);
            say_over(&format!("{} requests, {rate:.0}/s", progress.taken));
        }
        Ok(())
    }

    fn position(&mut self, source: &str) -> Result<Option<Vec<u8>>, Error> {
        self.store.position(source)
    }

    fn tend(&mut self) -> Result<(), Error> {
        self.store.tend()
    }
}
