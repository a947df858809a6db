//! Signals of the operating system as events: a thin layer, so that everything behind it can be driven
//! without a signal.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

/// The least time between two reloads by SIGHUP. All that come meanwhile are one: a script that renews a hundred certificates and
/// sends a signal after each has two reloads, and not a hundred.
const PAUSE: Duration = Duration::from_secs(1);

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGHUP: read the configuration and the certificates again.
    Reload,
    /// SIGUSR1: reopen log files.
    Reopen,
    /// SIGUSR2: have the program as it is on disk take over.
    Upgrade,
    /// SIGTERM, SIGINT: drain and end; during the drain, end at once (see `stopping`).
    Stop,
}

/// The signals that are listened to.
pub struct Signals {
    hangup: Signal,
    /// The time before which SIGHUP waits.
    paused_until: Option<Instant>,
    user: Signal,
    other_user: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on; must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            paused_until: None,
            user: signal(SignalKind::user_defined1())?,
            other_user: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next one. May be dropped and called again without losing any.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            () = hangup(&mut self.hangup, self.paused_until) => {
                self.paused_until = Some(Instant::now() + PAUSE);
                Asked::Reload
            }
            _ = self.user.recv() => Asked::Reopen,
            _ = self.other_user.recv() => Asked::Upgrade,
        }
    }
}

/// The next SIGHUP, and not before this time. Those that come meanwhile are remembered as one.
async fn hangup(signal: &mut Signal, not_before: Option<Instant>) {
    if let Some(time) = not_before {
        sleep_until(time).await;
    }
    // The stream of a signal has no end.
    let _ = signal.recv().await;
}
