//! Where a log store is plugged in: `control` and the store know nothing of each other.
//!
//! The store is opened once the user is switched, is fed by a tap of the flusher, and ends after the flusher: by
//! then it has been given everything.

use std::sync::Arc;

use offramp_config::Config;
use offramp_observe::{Log, Sampled, Tap};
use offramp_process::Error;

/// A store that is open.
pub trait EventStore: Send {
    /// The tap that feeds it, as a configuration wants events.
    fn tap(&self, config: &Config) -> Box<dyn Tap>;

    /// The source of its figures for the metrics, which waits for nothing.
    fn figures(&self) -> StoreFigures;

    /// Writes what it was given, ends, and says how many events were lost since it was opened. It takes some seconds
    /// at most, whatever the store does.
    fn stop(self: Box<Self>) -> u64;
}

/// Tells the figures of a store.
pub type StoreFigures = Arc<dyn Fn() -> Vec<Sampled> + Send + Sync>;

/// Opens the store of a configuration, if that has one. It is called once, as the user that the process runs as.
pub type OpenStore = Box<dyn FnOnce(&Config, &Log) -> Result<Option<Box<dyn EventStore>>, Error> + Send>;
