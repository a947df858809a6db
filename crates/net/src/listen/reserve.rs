//! Listening sockets that nobody is to accept on for a while, and that may be needed again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::{Shutdown, listen, shutdown, sockopt};

use super::BACKLOG;

/// The sockets of one address, each once. Workers that accept on them tell when they have stopped: from then on a socket
/// that can be suspended refuses clients, and keeps its port.
#[derive(Debug)]
pub struct Reserve {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fds: Vec<OwnedFd>,
    /// Whether the sockets are suspended when nobody accepts on them.
    suspends: bool,
    /// Acceptors that go on.
    left: usize,
    /// Whether each acceptor has a socket of its own.
    is_each_own: bool,
    /// Whether they are accepted on again.
    in_use: bool,
}

impl Reserve {
    /// Keeps `fds`, at least one, on which so many acceptors accept now. Where `suspends` is not set, who connects waits.
    #[must_use]
    pub fn new(fds: Vec<OwnedFd>, acceptors: usize, suspends: bool) -> Self {
        let is_each_own = fds.len() == acceptors;
        Self { state: Mutex::new(State { fds, suspends, left: acceptors, is_each_own, in_use: false }) }
    }

    /// The acceptor of this number, which has the socket of this number if there are as many, has stopped.
    pub fn stopped(&self, acceptor: usize) {
        let mut state = self.state();
        state.left = state.left.saturating_sub(1);
        if state.in_use || !state.suspends {
            return;
        }
        // One that cannot be suspended keeps who connects waiting.
        if state.is_each_own {
            let _ = state.fds.get(acceptor).map(suspend);
        } else if state.left == 0 {
            state.fds.iter().for_each(|fd| drop(suspend(fd)));
        }
    }

    /// Copies of the descriptors, `count` at least. The sockets stay as they are.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn copies(&self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let fds = &self.state().fds;
        (0..count.max(fds.len())).map(|at| fds[at % fds.len()].try_clone()).collect()
    }

    /// Has the sockets listen again, for good.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn resume(&self) -> io::Result<()> {
        let mut state = self.state();
        state.in_use = true;
        if state.suspends { state.fds.iter().try_for_each(resume) } else { Ok(()) }
    }

    /// Whether they listen again.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.state().in_use
    }

    /// Whoever panicked with the lock has left nothing half done that matters.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has a listening TCP socket refuse connections, and keeps its port: no other user's process can take it until the socket
/// is closed. Who waits in its queue is reset. [`resume`] undoes it, unless the kernel picked the port.
fn suspend(fd: &OwnedFd) -> io::Result<()> {
    // On Linux a listening socket becomes one that is only bound, as HAProxy uses it to pause.
    shutdown(fd, Shutdown::Read)?;
    // With it another process could bind the port as long as this one does not listen.
    sockopt::set_socket_reuseaddr(fd, false)?;
    Ok(())
}

/// Has a socket listen, whether it was suspended or not.
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
        // A port that was picked by the kernel is not kept.
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
        // As servers bind: with SO_REUSEADDR.
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
        // A worker that was late does not stop those that accept now.
        reserve.stopped(0);
        assert!(reserve.is_in_use() && copies.iter().all(|fd| sockopt::socket_acceptconn(fd).unwrap()));
    }

    #[test]
    fn a_socket_that_several_share_is_suspended_after_the_last_of_them() {
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
