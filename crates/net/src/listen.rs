//! Listening sockets, one per worker and address where the kernel can share the load.

mod reserve;

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::sys::socket::SockaddrStorage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, acceptfrom_with, bind, connect,
    listen, socket_with,
};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use crate::address::{canonical, without_ipv6};
use crate::socket::watch;
use crate::{Address, Peer};

pub use reserve::Reserve;

/// Connections that may wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// Opens `count` listening sockets for `address`, one for each worker.
///
/// TCP sockets share the address by `SO_REUSEPORT` and the kernel spreads connections over them; a
/// Unix socket is one queue, whose descriptor is duplicated. An IPv6 wildcard address also takes
/// IPv4; where the machine has no IPv6, `[::]` falls back to `0.0.0.0`. Port 0 picks one free port
/// for all. A Unix socket file without a listener is replaced.
///
/// # Errors
/// What the kernel says: in use, no permission, no such directory.
pub fn open(address: &Address, count: usize) -> io::Result<Vec<OwnedFd>> {
    open_as(address, count, Alone::Must)
}

/// The same, though this process listens on an address that takes some of the same connections, as `0.0.0.0:443` does
/// those of `[::]:443`. The TCP sockets have their address and do not listen yet: the kernel would give them connections
/// of the others, which nobody accepts until it is certain that they are used. [`start`] has them listen.
///
/// # Errors
/// As [`open`]. Whether another process of this user shares the port is not found out.
pub fn open_beside_own(address: &Address, count: usize) -> io::Result<Vec<OwnedFd>> {
    open_as(address, count, Alone::NeedNot)
}

/// Has sockets of [`open_beside_own`] listen. Until the other sockets are closed, the kernel gives connections to each.
///
/// # Errors
/// What the kernel says.
pub fn start(fds: &[OwnedFd]) -> io::Result<()> {
    // To those that listen already it changes nothing.
    fds.iter().try_for_each(|fd| Ok(listen(fd, BACKLOG)?))
}

/// Whether no other socket may take connections of the address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alone {
    Must,
    NeedNot,
}

fn open_as(address: &Address, count: usize, alone: Alone) -> io::Result<Vec<OwnedFd>> {
    match address {
        Address::Tcp(tcp) => match open_tcp(*tcp, count, alone) {
            Err(error) if no_ipv6(&error) => match without_ipv6(*tcp) {
                Some(v4) => open_tcp(v4, count, alone),
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

/// Prepares listening sockets that another process has opened, for `count` workers at least.
///
/// Where there are fewer, TCP sockets that share their address by `SO_REUSEPORT` get others beside them. Where the
/// kernel refuses that (it must be the same user who opens them), and for all other sockets, several workers share one.
///
/// # Errors
/// No descriptor is free, or one is no listening stream socket.
pub fn adopt(mut fds: Vec<OwnedFd>, count: usize) -> io::Result<Vec<OwnedFd>> {
    for fd in &fds {
        if !sockopt::socket_acceptconn(fd)? || sockopt::socket_type(fd)? != SocketType::STREAM {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no listening stream socket"));
        }
        rustix::io::ioctl_fionbio(fd, true)?;
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
        if sockopt::socket_domain(fd)? != AddressFamily::UNIX {
            sockopt::set_tcp_nodelay(fd, true)?;
        }
    }
    let opened = fds.len();
    let mut alone = fds.first().is_some_and(|fd| !shares_address(fd));
    while opened > 0 && fds.len() < count {
        let beside = if alone { None } else { bound_address(&fds[0]).and_then(|at| open_beside(at).ok()) };
        alone |= beside.is_none();
        let more = match beside {
            Some(fd) => fd,
            None => fds[fds.len() % opened].try_clone()?,
        };
        fds.push(more);
    }
    Ok(fds)
}

/// Those of the sockets of one address that have a queue of their own: behind them they only repeat.
#[must_use]
pub fn queues(fds: &[OwnedFd]) -> &[OwnedFd] {
    let mut seen = std::collections::HashSet::new();
    // One whose number is not told is taken for another.
    let is_other = |fd: &&OwnedFd| rustix::fs::fstat(fd).map_or(true, |found| seen.insert(found.st_ino));
    &fds[..fds.iter().take_while(is_other).count()]
}

/// Whether others may be bound to the address of this TCP socket.
fn shares_address(fd: &OwnedFd) -> bool {
    bound_address(fd).is_some() && sockopt::socket_reuseport(fd).unwrap_or(false)
}

/// The address that a listening socket is bound to: of TCP, or the path of a Unix socket.
#[must_use]
pub fn address_of(fd: &OwnedFd) -> Option<Address> {
    match bound_address(fd) {
        Some(tcp) => Some(Address::Tcp(tcp)),
        None => {
            let unix = SocketAddrUnix::try_from(rustix::net::getsockname(fd).ok()?).ok()?;
            let path = unix.path()?;
            Some(Address::Unix(std::ffi::OsStr::from_bytes(path.to_bytes()).into()))
        }
    }
}

/// The address that a listening socket is bound to.
#[must_use]
pub fn bound_address(fd: &OwnedFd) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok()
}

/// Whether the address is one of this machine's.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    // That a socket can be bound to it says nothing: with `ip_nonlocal_bind` it can to any.
    match nix::ifaddrs::getifaddrs() {
        Ok(interfaces) => is_among(address, interfaces.filter_map(|interface| ip_of(interface.address?))),
        // Nothing is sent, and the port is free again at once.
        Err(_) => std::net::UdpSocket::bind((address, 0)).is_ok(),
    }
}

/// Whether an address is one of these, which interfaces have. All of `127.0.0.0/8` is where one of it is.
fn is_among(address: IpAddr, mut own: impl Iterator<Item = IpAddr>) -> bool {
    let address = address.to_canonical();
    let loopback = address.is_ipv4() && address.is_loopback();
    own.any(|own| own == address || (loopback && own.is_ipv4() && own.is_loopback()))
}

fn ip_of(address: SockaddrStorage) -> Option<IpAddr> {
    let four = || address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    four().or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

fn no_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

fn open_tcp(address: SocketAddr, count: usize, alone: Alone) -> io::Result<Vec<OwnedFd>> {
    // Another process could share the port by SO_REUSEPORT too and silently take every other
    // connection; binding once without it finds out.
    if address.port() != 0 && alone == Alone::Must {
        let probe = tcp_socket(address)?;
        sockopt::set_socket_reuseaddr(&probe, true)?;
        bind(&probe, &address)?;
        listen(&probe, 1)?;
    }
    let mut bound = address;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count.max(1) {
        let fd = match alone {
            Alone::Must => open_beside(bound)?,
            Alone::NeedNot => bind_beside(bound)?,
        };
        bound = bound_address(&fd).unwrap_or(bound);
        all.push(fd);
    }
    Ok(all)
}

/// Opens a socket that shares its address with others of this user.
fn open_beside(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = bind_beside(address)?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// The same, and it does not listen yet.
fn bind_beside(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = tcp_socket(address)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    // Accepted sockets inherit it (tcp(7)): records leave at once, without a call for each.
    sockopt::set_tcp_nodelay(&fd, true)?;
    bind(&fd, &address)?;
    Ok(fd)
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

/// Removes the file of a Unix socket, and nothing that is no socket. A file that is not there is no error.
///
/// # Errors
/// What the file system says.
pub fn unlink(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in the way")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a socket file that belongs to no socket any more; anything else in the way is an error.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => return unlink(path),
        Ok(_) => {}
    }
    if is_bound(path)? { Err(io::Error::from(io::ErrorKind::AddrInUse)) } else { unlink(path) }
}

/// Whether a Unix socket is bound to this path and clients come to it; nobody is waited for.
///
/// # Errors
/// What the kernel says, such as that the path may not be used. A path that is not there is no error.
pub fn is_bound(path: &Path) -> io::Result<bool> {
    // The kernel answers `ECONNREFUSED` for a file that no socket is bound to. It also answers that for a stream
    // socket that does not listen yet, and `EPROTOTYPE` to who connects to a socket of another type: so two types
    // are tried, one of which is another.
    for kind in [SocketType::STREAM, SocketType::DGRAM] {
        let probe =
            socket_with(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        match connect(&probe, &SocketAddrUnix::new(path)?) {
            Err(Errno::CONNREFUSED) => {}
            Err(Errno::NOENT) => return Ok(false),
            // A full backlog (`EAGAIN`) is one that somebody has.
            Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
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
    /// The kernel does not let the process accept: a security module or a seccomp filter. It may last, and it may
    /// end: wait.
    Denied(io::Error),
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

    /// Waits until a connection seems to wait.
    ///
    /// # Errors
    /// Where the socket cannot be watched any more, as its runtime ends.
    pub async fn ready(&self) -> io::Result<Ready<'_>> {
        Ok(Ready { acceptor: self, guard: self.fd.readable().await? })
    }

    /// Waits for a connection and accepts it.
    ///
    /// # Errors
    /// By what to do about it; see [`AcceptError`].
    pub async fn accept(&self) -> Result<(OwnedFd, Peer), AcceptError> {
        loop {
            if let Some(accepted) = self.ready().await.map_err(AcceptError::Broken)?.accept()? {
                return Ok(accepted);
            }
        }
    }

    /// Accepts one connection that is already waiting; `None` where there is none.
    ///
    /// # Errors
    /// By what to do about it; see [`AcceptError`].
    pub fn try_accept(&self) -> Result<Option<(OwnedFd, Peer)>, AcceptError> {
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
            Err(error) => Err(fault(error)),
        }
    }
}

/// A connection seems to wait.
pub struct Ready<'a> {
    acceptor: &'a Acceptor,
    guard: AsyncFdReadyGuard<'a, OwnedFd>,
}

impl Ready<'_> {
    /// Asks the kernel whether one waits indeed: it seems so, too, after the last one was accepted. If not,
    /// [`Acceptor::ready`] waits for the next one.
    #[must_use]
    pub fn confirm(mut self) -> Option<Self> {
        let mut watched = [PollFd::new(&self.acceptor.fd, PollFlags::IN)];
        // Where the kernel cannot say, to accept will.
        if let Ok(0) = poll(&mut watched, Some(&Timespec::default())) {
            self.guard.clear_ready();
            return None;
        }
        Some(self)
    }

    /// Accepts it; `None` where there is none, and [`Acceptor::ready`] waits for the next one.
    ///
    /// # Errors
    /// By what to do about it; see [`AcceptError`].
    pub fn accept(mut self) -> Result<Option<(OwnedFd, Peer)>, AcceptError> {
        let accepted = self.acceptor.try_accept();
        if let Ok(None) = accepted {
            self.guard.clear_ready();
        }
        accepted
    }
}

/// What to do about an error of accept(2).
fn fault(error: Errno) -> AcceptError {
    match error {
        Errno::MFILE | Errno::NFILE => AcceptError::Descriptors,
        Errno::NOBUFS | Errno::NOMEM => AcceptError::Memory,
        // accept(2) hands on errors of the connection itself, to be treated like a retry.
        Errno::CONNABORTED
        | Errno::INTR
        | Errno::PROTO
        | Errno::NOPROTOOPT
        | Errno::NETDOWN
        | Errno::NETUNREACH
        | Errno::HOSTUNREACH
        | Errno::HOSTDOWN
        | Errno::NONET
        | Errno::TIMEDOUT
        | Errno::CONNRESET => AcceptError::Gone,
        Errno::BADF | Errno::NOTSOCK | Errno::INVAL | Errno::FAULT => AcceptError::Broken(error.into()),
        // EPERM and EACCES of a security module, EOPNOTSUPP, and whatever a seccomp filter may answer.
        _ => AcceptError::Denied(error.into()),
    }
}

#[cfg(test)]
mod tests;
