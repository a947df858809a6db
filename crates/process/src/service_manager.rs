//! The service manager: systemd, or nothing.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The service manager's part in the process, where systemd has started it.
#[derive(Debug, Default)]
pub struct ServiceManager {
    /// The value of `NOTIFY_SOCKET`.
    pub notify_socket: Option<OsString>,
    /// The sockets that it has opened, with their names.
    pub activated: Vec<(String, OwnedFd)>,
    /// The longest time between two signs of life (`WATCHDOG_USEC`).
    pub watchdog: Option<Duration>,
}
