//! Where a log store is plugged in: `control` and the store know nothing of each other.
//!
//! The store is opened once the user is switched, is fed by a tap of the flusher, and ends after the flusher: by
//! then it has been given everything.

use offramp_config::Config;
use offramp_observe::{Log, Tap};

use crate::error::Error;

/// A store that is open.
pub trait EventStore: Send {
    /// What takes events for it; `anonymize` has it forget the host part of clients' addresses.
    fn tap(&self, anonymize: bool) -> Box<dyn Tap>;

    /// Writes what it was given, ends, and says how many events were lost since it was opened.
    fn stop(self: Box<Self>) -> u64;
}

/// Opens the store of a configuration, if that has one. It is called once, as the user that the process runs as.
pub type OpenStore = Box<dyn FnOnce(&Config, &Log) -> Result<Option<Box<dyn EventStore>>, Error> + Send>;
