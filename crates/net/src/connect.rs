//! Outgoing connections to servers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::{Address, Socket};

/// Retry interval for a Unix socket with a full backlog: connect(2) fails with `EAGAIN`, and the kernel
/// offers no readiness to wait for (unix(7)).
const BACKLOG_RETRY: Duration = Duration::from_millis(5);

/// Connects to `address`. Sets no timeout: the caller bounds the wait.
///
/// # Errors
/// Errors of connect(2): refused, unreachable, no such socket, out of descriptors or ports.
pub async fn connect_to(address: &Address) -> io::Result<Socket> {
    match address {
        Address::Tcp(tcp) => {
            let family = if tcp.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let fd = open(family)?;
            sockopt::set_tcp_nodelay(&fd, true)?;
            match connect(&fd, tcp) {
                Ok(()) => Socket::tcp(fd),
                Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {
                    let socket = Socket::tcp(fd)?;
                    socket.connected().await?;
                    Ok(socket)
                }
                Err(error) => Err(error.into()),
            }
        }
        Address::Unix(path) => {
            let name = SocketAddrUnix::new(path)?;
            let fd = open(AddressFamily::UNIX)?;
            loop {
                match connect(&fd, &name) {
                    // Registered only after connecting: an unconnected Unix socket reports a hang-up, and
                    // epoll would remember that edge.
                    Ok(()) => return Socket::unix(fd),
                    Err(rustix::io::Errno::AGAIN) => tokio::time::sleep(BACKLOG_RETRY).await,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?)
}
