//! Notifications to systemd (`sd_notify(3)`): datagrams to the socket named in `NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long a notification may wait for a manager that reads nothing: it must not hold up reloads, upgrades and the end.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whether a value of `NOTIFY_SOCKET` is an abstract name (unix(7)), and no path.
#[must_use]
pub fn is_abstract(socket: &std::ffi::OsStr) -> bool {
    socket.as_bytes().starts_with(b"@")
}

/// Where to send notifications; silent where the process was not started by such a manager.
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
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
            own.set_write_timeout(Some(PATIENCE)).ok()?;
            Some((own, address))
        };
        Self { socket: socket.filter(|name| !name.is_empty()).and_then(open) }
    }

    /// Sends one state such as `READY=1`. Without a receiver it does nothing, and one that reads nothing gets no more than
    /// the kernel keeps for it.
    pub fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }

    /// `RELOADING=1` with the time stamp that `Type=notify-reload` asks for.
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
    fn a_manager_hears_it() {
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
    fn a_manager_that_reads_nothing_holds_up_nobody_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        // Its queue is full (net.unix.max_dgram_qlen).
        let filler = UnixDatagram::unbound().unwrap();
        filler.set_nonblocking(true).unwrap();
        while filler.send_to(b"x", &path).is_ok() {}
        let (told, ended) = std::sync::mpsc::channel();
        let notifier = Notifier::new(Some(path.as_os_str()));
        std::thread::spawn(move || {
            notifier.send("READY=1");
            let _ = told.send(());
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("it does not wait for ever");
        drop(manager);
    }
}
