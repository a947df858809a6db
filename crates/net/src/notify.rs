//! Notifications to systemd (`sd_notify(3)`): datagrams to the socket named in `NOTIFY_SOCKET`.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum wait for a manager that does not read: it must not hold up reloads, upgrades and the exit. After one such
/// wait, notifications are sent without waiting until one succeeds.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns true if a value of `NOTIFY_SOCKET` is an abstract name (unix(7)) instead of a path.
#[must_use]
pub fn is_abstract(socket: &std::ffi::OsStr) -> bool {
    socket.as_bytes().starts_with(b"@")
}

/// Sender of notifications; does nothing if the process has no such manager.
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Set while the manager does not read: the socket does not block then.
    stalled: AtomicBool,
}

impl Notifier {
    /// Takes the value of `NOTIFY_SOCKET`: a path, or an abstract name that begins with `@`.
    #[must_use]
    pub fn new(socket: Option<&std::ffi::OsStr>) -> Self {
        let open = |name: &std::ffi::OsStr| {
            let address = match name.as_bytes() {
                [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok()?,
                _ => SocketAddr::from_pathname(name).ok()?,
            };
            let own = UnixDatagram::unbound().ok()?;
            own.set_write_timeout(Some(SEND_TIMEOUT)).ok()?;
            Some((own, address))
        };
        let socket = socket.filter(|name| !name.is_empty()).and_then(open);
        Self { socket, stalled: AtomicBool::new(false) }
    }

    /// Sends one state such as `READY=1`. Failures are ignored; a manager that does not read gets what fits
    /// its socket's queue.
    pub fn send(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        let sent = socket.send_to_addr(state.as_bytes(), address);
        let stalls = sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        if stalls != self.stalled.swap(stalls, Ordering::Relaxed) {
            let _ = socket.set_nonblocking(stalls);
        }
    }

    /// Sends `RELOADING=1` with the time stamp that `Type=notify-reload` requires.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_reach_the_manager() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        Notifier::new(Some(path.as_os_str())).send("READY=1");
        let mut buffer = [0; 64];
        let n = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"READY=1");
        Notifier::new(None).send("READY=1");
    }

    #[test]
    fn a_manager_that_does_not_read_delays_by_one_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        // Fills the queue (net.unix.max_dgram_qlen).
        let filler = UnixDatagram::unbound().unwrap();
        filler.set_nonblocking(true).unwrap();
        while filler.send_to(b"x", &path).is_ok() {}
        let (reply, ended) = std::sync::mpsc::channel();
        let notifier = Notifier::new(Some(path.as_os_str()));
        std::thread::spawn(move || {
            // With a wait for each they would take 500 s.
            (0..1000).for_each(|_| notifier.send("READY=1"));
            let _ = reply.send(notifier);
        });
        let notifier = ended.recv_timeout(Duration::from_secs(60)).expect("one wait for all of them");
        assert!(notifier.stalled.load(Ordering::Relaxed));
        let mut buffer = [0; 64];
        manager.set_nonblocking(true).unwrap();
        while manager.recv(&mut buffer).is_ok() {}
        notifier.send("STOPPING=1");
        let n = manager.recv(&mut buffer).unwrap();
        assert_eq!((&buffer[..n], notifier.stalled.load(Ordering::Relaxed)), (&b"STOPPING=1"[..], false));
    }
}
