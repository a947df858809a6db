//! Listening sockets, one per worker and address where the kernel can share the load.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, acceptfrom_with, bind, listen,
    socket_with,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::address::{canonical, without_ipv6};
use crate::socket::watch;
use crate::{Address, Peer};

/// Connections that may wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Opens `count` listening sockets for `address`, one for each worker.
///
/// TCP sockets share the address by `SO_REUSEPORT` and the kernel spreads connections over them; a
/// Unix socket is one queue, whose descriptor is duplicated. An IPv6 wildcard address also takes
/// IPv4; where the machine has no IPv6, `[::]` falls back to `0.0.0.0`. Port 0 picks one free port
/// for all. A Unix socket file that nobody listens on any more is replaced.
///
/// # Errors
/// What the kernel says: in use, no permission, no such directory.
pub fn open(address: &Address, count: usize) -> io::Result<Vec<OwnedFd>> {
    match address {
        Address::Tcp(tcp) => match open_tcp(*tcp, count) {
            Err(error) if no_ipv6(&error) => match without_ipv6(*tcp) {
                Some(v4) => open_tcp(v4, count),
                None => Err(error),
            },
            other => other,
        },
        Address::Unix(path) => {
            let first = open_unix(path)?;
            let copies: io::Result<Vec<_>> = (1..count).map(|_| first.try_clone()).collect();
            let mut all = copies?;
            all.push(first);
            Ok(all)
        }
    }
}

/// The address that a listening socket is bound to.
#[must_use]
pub fn bound_address(fd: &OwnedFd) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok()
}

fn no_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL))
}

fn open_tcp(address: SocketAddr, count: usize) -> io::Result<Vec<OwnedFd>> {
    // Another process could share the port by SO_REUSEPORT too and silently take every other
    // connection; binding once without it finds out.
    if address.port() != 0 {
        let probe = tcp_socket(address)?;
        sockopt::set_socket_reuseaddr(&probe, true)?;
        bind(&probe, &address)?;
        listen(&probe, 1)?;
    }
    let mut bound = address;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count.max(1) {
        let fd = tcp_socket(address)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        // Accepted sockets inherit it (tcp(7)): records leave at once, without a call for each.
        sockopt::set_tcp_nodelay(&fd, true)?;
        bind(&fd, &bound)?;
        listen(&fd, BACKLOG)?;
        bound = bound_address(&fd).unwrap_or(bound);
        all.push(fd);
    }
    Ok(all)
}

fn tcp_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    if let SocketAddr::V6(v6) = address {
        sockopt::set_ipv6_v6only(&fd, !v6.ip().is_unspecified())?;
    }
    Ok(fd)
}

fn open_unix(path: &Path) -> io::Result<OwnedFd> {
    remove_stale(path)?;
    let fd = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&fd, &SocketAddrUnix::new(path)?)?;
    // Whoever may reach the directory may connect, as with a TCP port.
    rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Removes a socket file that nobody listens on; anything else in the way is an error.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in the way"))
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::Error::from(io::ErrorKind::AddrInUse)),
            Err(_) => fs::remove_file(path),
        },
    }
}

/// Why no connection could be accepted.
#[derive(Debug)]
pub enum AcceptError {
    /// The process or the system has no free descriptor: wait until connections have ended.
    Descriptors,
    /// The kernel has no memory for another socket: wait.
    Memory,
    /// The connection was gone before it could be accepted: accept the next.
    Gone,
    /// The listening socket itself is broken.
    Broken(io::Error),
}

/// A listening socket of one worker, registered with its runtime.
pub struct Acceptor {
    fd: AsyncFd<OwnedFd>,
    unix: bool,
}

impl Acceptor {
    /// Registers a listening socket from [`open`] with the current tokio runtime.
    ///
    /// # Errors
    /// Where the kernel cannot watch the descriptor.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let unix = sockopt::socket_domain(&fd)? == AddressFamily::UNIX;
        Ok(Self { fd: watch(fd, Interest::READABLE)?, unix })
    }

    /// Waits for a connection and accepts it.
    ///
    /// # Errors
    /// By what to do about it; see [`AcceptError`].
    pub async fn accept(&self) -> Result<(OwnedFd, Peer), AcceptError> {
        loop {
            let mut ready = self.fd.readable().await.map_err(AcceptError::Broken)?;
            match self.try_accept() {
                Ok(Some(accepted)) => return Ok(accepted),
                Ok(None) => ready.clear_ready(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Accepts one connection that is already waiting; `None` where there is none.
    ///
    /// # Errors
    /// By what to do about it; see [`AcceptError`].
    pub fn try_accept(&self) -> Result<Option<(OwnedFd, Peer)>, AcceptError> {
        use rustix::io::Errno;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = if self.unix {
            accept_with(self.fd.as_fd(), flags).map(|fd| (fd, Peer::Unix))
        } else {
            acceptfrom_with(self.fd.as_fd(), flags).map(|(fd, from)| {
                let address = from.and_then(|from| SocketAddr::try_from(from).ok());
                (fd, address.map_or(Peer::Unix, |address| Peer::Tcp(canonical(address))))
            })
        };
        match accepted {
            Ok(accepted) => Ok(Some(accepted)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::MFILE | Errno::NFILE) => Err(AcceptError::Descriptors),
            Err(Errno::NOBUFS | Errno::NOMEM) => Err(AcceptError::Memory),
            // accept(2) hands on errors of the connection itself, to be treated like a retry.
            Err(
                Errno::CONNABORTED
                | Errno::INTR
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::PERM
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTUNREACH
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::TIMEDOUT
                | Errno::CONNRESET,
            ) => Err(AcceptError::Gone),
            Err(error) => Err(AcceptError::Broken(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Socket;

    fn free() -> Address {
        Address::Tcp("127.0.0.1:0".parse().unwrap())
    }

    #[test]
    fn workers_share_one_port() {
        let all = open(&free(), 3).unwrap();
        let addresses: Vec<_> = all.iter().map(|fd| bound_address(fd).unwrap()).collect();
        assert!(addresses[0].port() != 0 && addresses.iter().all(|address| *address == addresses[0]));
        let taken = open(&Address::Tcp(addresses[0]), 1).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("s"));
        drop(open(&address, 2).unwrap());
        let live = open(&address, 1).unwrap();
        assert_eq!(open(&address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(live);
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        assert_eq!(open(&Address::Unix(file.clone()), 1).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(file).unwrap(), b"x");
    }

    #[tokio::test]
    async fn accept_connect_and_a_short_read_needs_no_second_call() {
        for address in [free(), Address::Unix(tempfile::tempdir().unwrap().keep().join("s"))] {
            let fd = open(&address, 1).unwrap().remove(0);
            let address = bound_address(&fd).map_or(address, Address::Tcp);
            let acceptor = Acceptor::new(fd).unwrap();
            let client = crate::connect::connect_to(&address).await.unwrap();
            let (fd, _) = acceptor.accept().await.unwrap();
            let server = Socket::new(fd).unwrap();
            client.write_all(b"hello").await.unwrap();
            client.shutdown_write().unwrap();
            let mut buffer = [0; 64];
            assert_eq!(server.read(&mut buffer).await.unwrap(), 5);
            assert_eq!(server.read(&mut buffer).await.unwrap(), 0);
            server.write_all(b"bye").await.unwrap();
            drop(server);
            assert_eq!(client.read(&mut buffer).await.unwrap(), 3);
            assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn a_refused_connect_says_so() {
        let fd = open(&free(), 1).unwrap().remove(0);
        let address = Address::Tcp(bound_address(&fd).unwrap());
        drop(fd);
        let error = crate::connect::connect_to(&address).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
