//! Listening sockets: one per worker and address where the kernel can spread the load.

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
use crate::{Address, PeerAddress};

pub use reserve::Reserve;

/// Backlog of listening sockets; the kernel lowers it to `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// Opens `count` listening sockets for `address`, one for each worker.
///
/// TCP sockets share the address by `SO_REUSEPORT`, and the kernel spreads connections over them; a Unix
/// socket is one queue, with duplicated descriptors. An IPv6 wildcard address also accepts IPv4; on a
/// machine without IPv6, `[::]` falls back to `0.0.0.0`. Port 0 picks one free port for all. A Unix socket
/// file without a listener is replaced.
///
/// # Errors
/// Errors of the system calls: address in use, no permission, no such directory.
pub fn open(address: &Address, count: usize) -> io::Result<Vec<OwnedFd>> {
    open_as(address, count, Alone::Must)
}

/// Like [`open`], beside an overlapping address of this process, as `0.0.0.0:443` overlaps `[::]:443`. The
/// TCP sockets are bound but do not listen: otherwise the kernel would give them connections of the other
/// sockets, which would not be accepted until the change is certain. [`start`] makes them listen.
///
/// # Errors
/// As [`open`], but a port shared by another process of this user is not detected.
pub fn open_beside_own(address: &Address, count: usize) -> io::Result<Vec<OwnedFd>> {
    open_as(address, count, Alone::NeedNot)
}

/// Makes sockets of [`open_beside_own`] listen. Until the other sockets are closed, the kernel gives
/// connections to both sets.
///
/// # Errors
/// Errors of listen(2).
pub fn start(fds: &[OwnedFd]) -> io::Result<()> {
    // No effect on sockets that listen already.
    fds.iter().try_for_each(|fd| Ok(listen(fd, BACKLOG)?))
}

/// Exclusiveness of the address among processes.
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

/// Prepares listening sockets opened by another process, for at least `count` workers.
///
/// If there are fewer, TCP sockets that share their address by `SO_REUSEPORT` are supplemented with new ones.
/// If the kernel refuses that (the same user must open them), and for all other sockets, several workers
/// share one.
///
/// # Errors
/// No descriptor is free, or one of them is not a listening stream socket.
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

/// The leading sockets of one address that have accept queues of their own; the sockets behind them are
/// duplicates.
#[must_use]
pub fn queues(fds: &[OwnedFd]) -> &[OwnedFd] {
    let mut seen = std::collections::HashSet::new();
    // A socket that fstat(2) cannot identify counts as distinct.
    let is_other = |fd: &&OwnedFd| rustix::fs::fstat(fd).map_or(true, |found| seen.insert(found.st_ino));
    &fds[..fds.iter().take_while(is_other).count()]
}

/// Returns true for TCP sockets that share their address with others.
fn shares_address(fd: &OwnedFd) -> bool {
    bound_address(fd).is_some() && sockopt::socket_reuseport(fd).unwrap_or(false)
}

/// The address that a listening socket is bound to: TCP, or the path of a Unix socket.
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

/// The TCP address that a listening socket is bound to.
#[must_use]
pub fn bound_address(fd: &OwnedFd) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok()
}

/// Returns true for addresses of this machine.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    // Binding would prove nothing: with `ip_nonlocal_bind` any address can be bound.
    match nix::ifaddrs::getifaddrs() {
        Ok(interfaces) => is_among(address, interfaces.filter_map(|interface| ip_of(interface.address?))),
        // Nothing is sent, and the port is released at once.
        Err(_) => std::net::UdpSocket::bind((address, 0)).is_ok(),
    }
}

/// Addresses of the interfaces of this machine, each once; empty if the kernel does not list them.
#[must_use]
pub fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let found: std::collections::BTreeSet<IpAddr> =
        interfaces.filter_map(|interface| ip_of(interface.address?)).collect();
    found.into_iter().collect()
}

/// Finds an address among those of the interfaces. Any address of `127.0.0.0/8` in the list stands for the
/// whole network.
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
    // Another process could share the port by SO_REUSEPORT and silently take a share of the connections.
    // Binding once without the option detects that.
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

/// Opens a listening socket that shares its address with others of this user.
fn open_beside(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = bind_beside(address)?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Binds a socket like [`open_beside`], without listening.
fn bind_beside(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = tcp_socket(address)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    // Accepted sockets inherit the option (tcp(7)), which saves a call for each.
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
    // Access is controlled by the directory, as for a TCP port by the network.
    rustix::fs::chmod(path, Mode::from_raw_mode(0o666))?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Removes the file of a Unix socket. Files of other types are kept; a missing file is no error.
///
/// # Errors
/// Errors of the file system.
pub fn unlink(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is in the way")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a stale socket file; any other file in its place is an error.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => return unlink(path),
        Ok(_) => {}
    }
    if is_bound(path)? { Err(io::Error::from(io::ErrorKind::AddrInUse)) } else { unlink(path) }
}

/// Detects a Unix socket bound to this path. Does not block.
///
/// # Errors
/// Errors of connect(2), such as missing permission. A missing path is no error.
pub fn is_bound(path: &Path) -> io::Result<bool> {
    // The kernel answers `ECONNREFUSED` for a file without a bound socket. It also does so for a stream
    // socket that does not listen yet, and answers `EPROTOTYPE` if the socket types differ: so two types are
    // tried, and at least one of them differs.
    for kind in [SocketType::STREAM, SocketType::DGRAM] {
        let probe =
            socket_with(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        match connect(&probe, &SocketAddrUnix::new(path)?) {
            Err(Errno::CONNREFUSED) => {}
            Err(Errno::NOENT) => return Ok(false),
            // A full backlog (`EAGAIN`) belongs to a listening socket.
            Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Failure to accept a connection, classified by the reaction that it needs.
#[derive(Debug)]
pub enum AcceptError {
    /// The process or the system has no free descriptor: wait until connections have ended.
    Descriptors,
    /// The kernel has no memory for another socket: wait.
    Memory,
    /// The connection was closed before it could be accepted: accept the next.
    Gone,
    /// A security module or a seccomp filter denies accept(2), possibly for a while only: wait.
    Denied(io::Error),
    /// The listening socket itself is broken: stop accepting on it.
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
    /// The kernel cannot watch the descriptor.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let unix = sockopt::socket_domain(&fd)? == AddressFamily::UNIX;
        Ok(Self { fd: watch(fd, Interest::READABLE)?, unix })
    }

    /// Waits until the socket is reported readable, which may be outdated; see [`AcceptReadiness::confirm`].
    ///
    /// # Errors
    /// The socket cannot be watched any more because its runtime shuts down.
    pub async fn ready(&self) -> io::Result<AcceptReadiness<'_>> {
        Ok(AcceptReadiness { acceptor: self, guard: self.fd.readable().await? })
    }

    /// Waits for a connection and accepts it.
    ///
    /// # Errors
    /// An [`AcceptError`], which says how to react.
    pub async fn accept(&self) -> Result<(OwnedFd, PeerAddress), AcceptError> {
        loop {
            if let Some(accepted) = self.ready().await.map_err(AcceptError::Broken)?.accept()? {
                return Ok(accepted);
            }
        }
    }

    /// Accepts one pending connection; `None` if there is none.
    ///
    /// # Errors
    /// An [`AcceptError`], which says how to react.
    pub fn try_accept(&self) -> Result<Option<(OwnedFd, PeerAddress)>, AcceptError> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = if self.unix {
            accept_with(self.fd.as_fd(), flags).map(|fd| (fd, PeerAddress::Unix))
        } else {
            acceptfrom_with(self.fd.as_fd(), flags).map(|(fd, from)| {
                let address = from.and_then(|from| SocketAddr::try_from(from).ok());
                (fd, address.map_or(PeerAddress::Unix, |address| PeerAddress::Tcp(canonical(address))))
            })
        };
        match accepted {
            Ok(accepted) => Ok(Some(accepted)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }
}

/// A readiness report of an [`Acceptor`].
pub struct AcceptReadiness<'a> {
    acceptor: &'a Acceptor,
    guard: AsyncFdReadyGuard<'a, OwnedFd>,
}

impl AcceptReadiness<'_> {
    /// Polls the kernel for a pending connection, since readiness also remains set after the last one was
    /// accepted. On `None`, [`Acceptor::ready`] waits for the next one.
    #[must_use]
    pub fn confirm(mut self) -> Option<Self> {
        let mut watched = [PollFd::new(&self.acceptor.fd, PollFlags::IN)];
        // If poll(2) fails, accept(2) decides.
        if let Ok(0) = poll(&mut watched, Some(&Timespec::default())) {
            self.guard.clear_ready();
            return None;
        }
        Some(self)
    }

    /// Accepts the pending connection; on `None`, [`Acceptor::ready`] waits for the next one.
    ///
    /// # Errors
    /// An [`AcceptError`], which says how to react.
    pub fn accept(mut self) -> Result<Option<(OwnedFd, PeerAddress)>, AcceptError> {
        let accepted = self.acceptor.try_accept();
        if let Ok(None) = accepted {
            self.guard.clear_ready();
        }
        accepted
    }
}

/// Classifies an error of accept(2).
fn fault(error: Errno) -> AcceptError {
    match error {
        Errno::MFILE | Errno::NFILE => AcceptError::Descriptors,
        Errno::NOBUFS | Errno::NOMEM => AcceptError::Memory,
        // accept(2) passes on pending network errors of the connection itself; the manual page says to retry.
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
        // EPERM and EACCES of a security module, EOPNOTSUPP, and any error a seccomp filter may return.
        _ => AcceptError::Denied(error.into()),
    }
}

#[cfg(test)]
mod tests;
