//! The sink of `logs ingest`: sets the host of requests that have none.

use offramp_analytics::ingest::{EntrySink, FileRecord, Mark};
use offramp_analytics::{Error, LogEntry, StoreSink};

/// Store, and the host for requests that have none.
pub(super) struct IngestSink {
    store: StoreSink,
    host: Option<String>,
}

impl IngestSink {
    pub(super) const fn new(store: StoreSink, host: Option<String>) -> Self {
        Self { store, host }
    }

    pub(super) fn into_store(self) -> StoreSink {
        self.store
    }
}

impl EntrySink for IngestSink {
    fn add(&mut self, entry: &LogEntry<'_>) -> Result<(), Error> {
        match &self.host {
            Some(host) if entry.host.is_none() => {
                self.store.add(&LogEntry { host: Some(host.as_bytes()), ..*entry })
            }
            _ => self.store.add(entry),
        }
    }

    fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error> {
        self.store.commit(mark)
    }

    fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error> {
        self.store.files(source)
    }

    fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
        self.store.files_with_head(head)
    }

    fn tend(&mut self) -> Result<(), Error> {
        self.store.tend()
    }
}
