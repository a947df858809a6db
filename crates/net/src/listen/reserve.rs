//! Listening sockets that are taken out of service and may be needed again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::{Shutdown, listen, shutdown, sockopt};

use super::BACKLOG;

/// The sockets of one address, each once. Workers report when they have stopped accepting on them: from then
/// on a socket that can be suspended refuses clients and keeps its port.
#[derive(Debug)]
pub struct Reserve {
    state: Mutex<ReserveState>,
}

#[derive(Debug)]
struct ReserveState {
    fds: Vec<OwnedFd>,
    /// Suspends sockets once no acceptor uses them.
    suspends: bool,
    /// Number of acceptors that have not stopped yet.
    left: usize,
    /// Set if each acceptor has a socket of its own.
    is_each_own: bool,
    /// Set after [`Reserve::resume`].
    in_use: bool,
}

impl Reserve {
    /// Keeps `fds`, at least one, which `acceptors` acceptors use now. Without `suspends`, clients queue in
    /// the backlog.
    #[must_use]
    pub fn new(fds: Vec<OwnedFd>, acceptors: usize, suspends: bool) -> Self {
        let is_each_own = fds.len() == acceptors;
        Self {
            state: Mutex::new(ReserveState { fds, suspends, left: acceptors, is_each_own, in_use: false }),
        }
    }

    /// Records that acceptor number `acceptor` has stopped. If there are as many sockets as acceptors, it
    /// owns the socket of that number.
    pub fn stopped(&self, acceptor: usize) {
        let mut state = self.state();
        state.left = state.left.saturating_sub(1);
        if state.in_use || !state.suspends {
            return;
        }
        // Clients of a socket that cannot be suspended wait in its backlog.
        if state.is_each_own {
            let _ = state.fds.get(acceptor).map(suspend);
        } else if state.left == 0 {
            state.fds.iter().for_each(|fd| drop(suspend(fd)));
        }
    }

    /// Duplicates the descriptors, to at least `count`. The sockets stay as they are.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn copies(&self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let fds = &self.state().fds;
        (0..count.max(fds.len())).map(|at| fds[at % fds.len()].try_clone()).collect()
    }

    /// Makes the sockets listen again, for good.
    ///
    /// # Errors
    /// Errors of listen(2).
    pub fn resume(&self) -> io::Result<()> {
        let mut state = self.state();
        state.in_use = true;
        if state.suspends { state.fds.iter().try_for_each(resume) } else { Ok(()) }
    }

    /// Returns true after [`Reserve::resume`].
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.state().in_use
    }

    /// Ignores poisoning: a panic under the lock leaves a consistent state.
    fn state(&self) -> MutexGuard<'_, ReserveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a listening TCP socket refuse connections while it keeps its port: no process of another user can
/// bind it until the socket is closed. Queued clients are reset. [`resume`] undoes it, unless the kernel
/// picked the port.
fn suspend(fd: &OwnedFd) -> io::Result<()> {
    // On Linux, shutdown turns a listening socket into a bound one; HAProxy pauses listeners the same way.
    shutdown(fd, Shutdown::Read)?;
    // With SO_REUSEADDR another process could bind the port while this one does not listen.
    sockopt::set_socket_reuseaddr(fd, false)?;
    Ok(())
}

/// Makes a suspended or listening socket listen.
fn resume(fd: &OwnedFd) -> io::Result<()> {
    sockopt::set_socket_reuseaddr(fd, true)?;
    listen(fd, BACKLOG)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::super::{bound_address, open, open_beside_own};
    use super::*;
    use crate::Address;

    fn sockets(count: usize) -> (SocketAddr, Vec<OwnedFd>) {
        // A port that the kernel picked is not kept.
        let picked = open(&Address::Tcp("127.0.0.1:0".parse().unwrap()), 1).unwrap();
        let free = bound_address(&picked[0]).unwrap();
        drop(picked);
        (free, open(&Address::Tcp(free), count).unwrap())
    }

    fn is_refused(address: SocketAddr) -> bool {
        TcpStream::connect(address).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    #[test]
    fn a_suspended_socket_refuses_keeps_its_port_and_listens_again() {
        let (address, fds) = sockets(2);
        let reserve = Reserve::new(fds, 2, true);
        let established = TcpStream::connect(address).unwrap();
        reserve.stopped(1);
        assert!(!is_refused(address), "one still accepts");
        reserve.stopped(0);
        assert!(is_refused(address));
        // Servers bind with SO_REUSEADDR.
        let taken = TcpListener::bind(address).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let beside = Address::Tcp((Ipv4Addr::UNSPECIFIED, address.port()).into());
        let beside = open_beside_own(&beside, 1).unwrap();
        let copies = reserve.copies(3).unwrap();
        assert!(copies.len() == 3 && !reserve.is_in_use());
        reserve.resume().unwrap();
        drop((beside, established));
        let _client = TcpStream::connect(address).unwrap();
        let waits = |fd: &OwnedFd| {
            let mut watched = [PollFd::new(fd, PollFlags::IN)];
            poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
        };
        assert!(copies.iter().any(waits), "who connects now is accepted");
        // A late report of an old worker does not suspend sockets in use.
        reserve.stopped(0);
        assert!(reserve.is_in_use() && copies.iter().all(|fd| sockopt::socket_acceptconn(fd).unwrap()));
    }

    #[test]
    fn a_shared_socket_is_suspended_after_its_last_acceptor() {
        let (address, fds) = sockets(1);
        let reserve = Reserve::new(fds, 2, true);
        reserve.stopped(0);
        assert!(!is_refused(address));
        reserve.stopped(1);
        assert!(is_refused(address));
        let (address, fds) = sockets(1);
        let waiting = Reserve::new(fds, 1, false);
        waiting.stopped(0);
        assert!(!is_refused(address), "whoever connects waits");
        waiting.resume().unwrap();
    }
}
