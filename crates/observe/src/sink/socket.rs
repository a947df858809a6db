//! Sockets that never block a writer for long: messages that they do not take soon are abandoned and counted
//! by the caller.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A connected, non-blocking socket.
#[derive(Debug)]
pub(super) enum OutputSocket {
    Datagram(UnixDatagram),
    Stream(UnixStream),
    Udp(UdpSocket),
}

impl OutputSocket {
    /// Connects to a Unix datagram socket, or to a stream socket where the path is one.
    pub(super) fn unix(path: &Path) -> io::Result<Self> {
        match Self::datagram(path) {
            Err(error) if is_wrong_type(&error) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Stream(stream))
            }
            done => done,
        }
    }

    /// Connects to a Unix datagram socket.
    pub(super) fn datagram(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self::Datagram(socket))
    }

    /// Connects a UDP socket to `host:port`; resolving a host name may block.
    pub(super) fn udp(address: &str) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => ([0_u8; 4], 0).into(),
                SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
            };
            match UdpSocket::bind(any).and_then(|socket| {
                socket.connect(address)?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            }) {
                Ok(socket) => return Ok(Self::Udp(socket)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(super) const fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Sends one whole message, waiting for room until `deadline` at most.
    pub(super) fn send(&mut self, message: &[u8], deadline: Instant) -> io::Result<()> {
        let mut sent = 0;
        loop {
            let outcome = match self {
                Self::Datagram(socket) => socket.send(message),
                Self::Udp(socket) => socket.send(message),
                Self::Stream(socket) => socket.write(&message[sent..]),
            };
            match outcome {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(deadline)?;
                }
                Err(error) => return Err(error),
            }
            if !self.is_stream() && sent > 0 || sent == message.len() {
                return Ok(());
            }
        }
    }

    /// Waits until the socket is writable.
    pub(super) fn wait(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "its reader does not keep up"));
        }
        let left = Timespec { tv_sec: 0, tv_nsec: i64::from(left.min(ALMOST_A_SECOND).subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::OUT)], Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for OutputSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Datagram(socket) => socket.as_fd(),
            Self::Stream(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

/// Returns `true` for errors that mean a lost peer, which merit one reconnection.
pub(super) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, NotFound};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected | NotFound)
}

/// Returns `true` if the message is too long for one datagram.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

fn is_wrong_type(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::PROTOTYPE.raw_os_error())
}

/// The time that a batch waits for a slow reader: granted once, and again only after a message went through,
/// so that a hanging reader costs next to nothing.
#[derive(Debug, Default)]
pub(super) struct WaitBudget {
    is_over: bool,
}

impl WaitBudget {
    /// The deadline of a batch that starts now.
    pub(super) fn deadline(&self) -> Instant {
        let now = Instant::now();
        if self.is_over { now } else { now + WAIT_BUDGET }
    }

    /// Records the outcome of a message.
    pub(super) fn record(&mut self, outcome: &io::Result<()>) {
        self.is_over = outcome.is_err();
    }
}

/// Meanwhile the rings fill; they hold at least a tenth of a second of the heaviest load.
const WAIT_BUDGET: Duration = Duration::from_millis(200);

const ALMOST_A_SECOND: Duration = Duration::from_millis(999);
