//! Sockets that never hold a writer up for long: what they do not take soon is given up, and counted by
//! whoever counts.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A connected, non-blocking socket.
#[derive(Debug)]
pub(super) enum Socket {
    Datagram(UnixDatagram),
    Stream(UnixStream),
    Udp(UdpSocket),
}

impl Socket {
    /// A Unix socket that takes datagrams, or a stream where that is what listens there.
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

    /// A Unix socket that takes datagrams.
    pub(super) fn datagram(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self::Datagram(socket))
    }

    /// A UDP socket, by `host:port`; a host name is looked up, which may take its time.
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

    /// Sends one message, whole, and waits until `deadline` at most for room.
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

    /// Waits for room.
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

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Datagram(socket) => socket.as_fd(),
            Self::Stream(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

/// Whether the failure says that the other end is gone and a new one may be there: worth one reconnection.
pub(super) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, NotFound};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected | NotFound)
}

/// Whether the message is too long for one datagram.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

fn is_wrong_type(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::PROTOTYPE.raw_os_error())
}

/// How long a batch waits for a reader that does not keep up: once, and not again before it has taken
/// something, so that one that hangs costs next to nothing.
#[derive(Debug, Default)]
pub(super) struct Patience {
    is_over: bool,
}

impl Patience {
    /// Until when a batch that begins now may wait.
    pub(super) fn deadline(&self) -> Instant {
        let now = Instant::now();
        if self.is_over { now } else { now + PATIENCE }
    }

    /// Sees what became of a message.
    pub(super) fn learn(&mut self, outcome: &io::Result<()>) {
        self.is_over = outcome.is_err();
    }
}

/// Meanwhile the rings fill; they hold at least a tenth of a second of the heaviest load.
const PATIENCE: Duration = Duration::from_millis(200);

const ALMOST_A_SECOND: Duration = Duration::from_millis(999);
