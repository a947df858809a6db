//! A change that waits to be confirmed, and the way back from it.
//!
//! The way back must not fail. What the configuration before needs is kept until the change is confirmed: the sockets that
//! the change has given up ([`Sockets::Keep`](crate::commit::Sockets)), and what was read from certificates and other
//! files. If it fails nevertheless, it is tried again until it works.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_sources::certificates::Sources;
use tokio::time::Instant;

use crate::config_file::FileChange;
use crate::plan::Kept;
use crate::running_config::RunningConfig;

/// The pauses between two attempts to take a change back: the first, which doubles, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The configuration before a change, with everything that was read for it.
pub(crate) struct WayBack {
    pub(crate) running: RunningConfig,
    pub(crate) sources: Sources,
    pub(crate) kept: Kept,
}

/// A change that is taken back, unless an operator confirms it.
pub(crate) struct Confirmation {
    /// The time to take it back, or to try that again.
    pub(crate) due: Instant,
    /// The time to take it back, by the clock of people.
    pub(crate) until: SystemTime,
    pub(crate) way_back: WayBack,
    /// The text that a confirmation writes to the file.
    pub(crate) file: Option<FileChange>,
    /// The version that the change has made.
    pub(crate) version: Option<u64>,
    /// The pause until the next attempt, if the next one fails.
    pause: Duration,
    /// The reason why it could not be taken back.
    failed: Option<Arc<str>>,
}

/// The outcome of a change that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The change stays in force.
    Confirmed,
    /// Another configuration is in force now.
    Replaced,
    /// The configuration before is in force again.
    TakenBack,
}

impl Confirmation {
    /// A change that is about to be made waits for so long.
    pub(crate) fn new(time: Duration, way_back: WayBack, file: Option<FileChange>) -> Self {
        Self {
            due: Instant::now() + time,
            until: SystemTime::now() + time,
            way_back,
            file,
            version: None,
            pause: AGAIN.0,
            failed: None,
        }
    }

    /// Notes why it could not be taken back, and gives the pause until the next attempt.
    pub(crate) fn failed_again(&mut self) -> Duration {
        let pause = self.pause;
        self.due = Instant::now() + pause;
        self.pause = (pause * 2).min(AGAIN.1);
        pause
    }

    /// Keeps the reason of a failure. True if it is another one than the last time.
    pub(crate) fn fails_for(&mut self, reason: &str) -> bool {
        if self.failed.as_deref() == Some(reason) {
            return false;
        }
        self.failed = Some(reason.into());
        true
    }

    /// The reason why it could not be taken back yet.
    pub(crate) fn failure(&self) -> Option<&Arc<str>> {
        self.failed.as_ref()
    }
}

/// Waits until a change is to be taken back.
pub(crate) async fn unconfirmed(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
