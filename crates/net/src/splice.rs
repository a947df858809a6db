//! Moves bytes between sockets within the kernel, by `splice(2)` and a pipe.
//!
//! A [`SplicePipe`] holds bytes that one socket has delivered and the other has not taken yet. A worker lends
//! pipes from its [`Pipes`] and takes them back when they are empty, so that a connection has one only while
//! bytes are in it. Their number is bounded, because each takes two descriptors and kernel memory that no
//! limit of the process counts. A connection without a pipe copies.
//!
//! A short splice says nothing about a socket, because a pipe can be full of small pieces. So a socket counts
//! as empty, or full, only when the kernel says so (`EAGAIN`).

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::Socket;
use crate::pace::TransferDirection;

/// A kernel pipe, and the number of bytes in it.
pub struct SplicePipe {
    from: OwnedFd,
    to: OwnedFd,
    held: usize,
}

impl SplicePipe {
    fn open(size: usize) -> io::Result<Self> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if size > DEFAULT_SIZE {
            // If the user has many pipes already, the pipe keeps its size and moves less per call.
            let _ = fcntl_setpipe_size(&to, size);
        }
        Ok(Self { from, to, held: 0 })
    }

    /// Number of bytes in the pipe.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Reads the content out: for a remainder that is sent in another way.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.held];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::io::read(&self.from, &mut bytes[filled..]) {
                Ok(n @ 1..) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                // Less than was spliced in; nothing can be done about it.
                Ok(0) | Err(_) => break,
            }
        }
        bytes.truncate(filled);
        bytes
    }
}

/// The pipes of a worker.
#[derive(Default)]
pub struct Pipes {
    free: RefCell<Vec<SplicePipe>>,
    /// Number of open pipes, including those on loan.
    open: Cell<usize>,
}

impl Pipes {
    /// Lends an empty pipe; `None` at the bound, or without descriptors for one more.
    #[must_use]
    pub fn lend(&self) -> Option<SplicePipe> {
        if let Some(pipe) = self.free.borrow_mut().pop() {
            return Some(pipe);
        }
        if self.open.get() >= MOST {
            return None;
        }
        let pipe = SplicePipe::open(SIZE).ok()?;
        self.open.set(self.open.get() + 1);
        Some(pipe)
    }

    /// Takes a pipe back. It is closed if it is not empty, or if enough pipes are free.
    pub fn give_back(&self, pipe: SplicePipe) {
        let mut free = self.free.borrow_mut();
        if pipe.held == 0 && free.len() < KEPT {
            free.push(pipe);
        } else {
            self.open.set(self.open.get() - 1);
        }
    }

    /// Closes a pipe of this worker, and returns its content.
    #[must_use]
    pub fn empty(&self, pipe: SplicePipe) -> Vec<u8> {
        self.open.set(self.open.get() - 1);
        pipe.into_bytes()
    }
}

impl Socket {
    /// Moves received bytes into a pipe, which must be empty; 0 bytes mean the end of the stream.
    ///
    /// # Errors
    /// Errors of splice(2); see [`is_unsupported`] for sockets that cannot be spliced at all.
    pub fn poll_splice_from(&self, cx: &mut Context<'_>, pipe: &mut SplicePipe) -> Poll<io::Result<usize>> {
        debug_assert_eq!(pipe.held, 0, "a full pipe looks like an empty socket");
        let room = ready!(self.poll_room(cx, TransferDirection::In, SIZE));
        let moved = self.poll_with_room(cx, |fd| {
            let n = splice(fd, None, &pipe.to, None, room, FLAGS)?;
            Ok((n, n))
        });
        if let Poll::Ready(Ok(n)) = moved {
            pipe.held = n;
        }
        moved
    }

    /// Moves the content of a pipe, which must not be empty, to this socket.
    ///
    /// # Errors
    /// Errors of splice(2).
    pub fn poll_splice_to(&self, cx: &mut Context<'_>, pipe: &mut SplicePipe) -> Poll<io::Result<usize>> {
        let held = pipe.held;
        let room = ready!(self.poll_room(cx, TransferDirection::Out, held));
        let moved = self.poll_with_write(cx, 0, |fd| splice(&pipe.from, None, fd, None, room, FLAGS));
        if let Poll::Ready(Ok(n)) = moved {
            pipe.held -= n.min(held);
        }
        moved
    }
}

/// Returns true for errors of [`Socket::poll_splice_from`] that mean this kind of socket cannot be spliced.
#[must_use]
pub fn is_unsupported(error: &io::Error) -> bool {
    // EINVAL, ENOSYS and EOPNOTSUPP.
    matches!(error.raw_os_error(), Some(22 | 38 | 95))
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
/// Default capacity of a Linux pipe: sixteen pages, or sixteen pieces as received by the network card.
const DEFAULT_SIZE: usize = 64 * 1024;
/// Capacity that is asked for, and so the bytes moved per call.
const SIZE: usize = 256 * 1024;
/// Maximum number of open pipes per worker.
const MOST: usize = 128;
/// Maximum number of free pipes that a worker keeps.
const KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    trait Far: Read + Write + Send {}
    impl<T: Read + Write + Send> Far for T {}

    fn tcp() -> (Box<dyn Far>, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        (Box::new(far), Socket::tcp(near.into()).unwrap())
    }

    fn unix() -> (Box<dyn Far>, Socket) {
        let (far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (Box::new(far), Socket::unix(near.into()).unwrap())
    }

    /// Relays everything until the end of the stream.
    async fn relay(pipes: &Pipes, from: &Socket, to: &Socket) -> usize {
        let mut all = 0;
        loop {
            let mut pipe = pipes.lend().unwrap();
            let n = poll_fn(|cx| from.poll_splice_from(cx, &mut pipe)).await.unwrap();
            all += n;
            while pipe.held() > 0 {
                poll_fn(|cx| to.poll_splice_to(cx, &mut pipe)).await.unwrap();
            }
            pipes.give_back(pipe);
            if n == 0 {
                to.shutdown_write().unwrap();
                return all;
            }
        }
    }

    fn goes_through(from: fn() -> (Box<dyn Far>, Socket), to: fn() -> (Box<dyn Far>, Socket)) {
        let sent: Vec<u8> = (0..5_000_077_usize).map(|at| (at / 7 + at % 251) as u8).collect();
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let ((mut sender, from), (mut receiver, to)) = (from(), to());
            let pipes = Pipes::default();
            let bytes = sent.clone();
            let sending = std::thread::spawn(move || {
                // Small pieces and large ones; dropping the socket ends the stream.
                for piece in bytes[..100_000].chunks(33).chain(bytes[100_000..].chunks(300_000)) {
                    sender.write_all(piece).unwrap();
                }
            });
            let receiving = std::thread::spawn(move || {
                let mut received = Vec::new();
                receiver.read_to_end(&mut received).unwrap();
                received
            });
            assert_eq!(relay(&pipes, &from, &to).await, sent.len());
            sending.join().unwrap();
            assert!(receiving.join().unwrap() == sent, "bytes were lost, doubled or moved");
            assert_eq!((pipes.open.get(), pipes.free.borrow().len()), (1, 1));
        });
    }

    #[test]
    fn bytes_are_spliced_between_sockets_of_any_kind() {
        for from in [tcp, unix] {
            for to in [tcp, unix] {
                goes_through(from, to);
            }
        }
    }

    #[test]
    fn content_of_a_pipe_can_be_read_out() {
        let pipes = Pipes::default();
        let mut pipe = pipes.lend().unwrap();
        pipe.held = rustix::io::write(&pipe.to, b"a last word").unwrap();
        assert_eq!(pipes.empty(pipe), b"a last word");
        assert_eq!(pipes.open.get(), 0);
    }

    #[test]
    fn pipes_are_bounded_and_full_ones_are_not_lent_again() {
        let pipes = Pipes::default();
        let mut lent: Vec<_> = std::iter::from_fn(|| pipes.lend()).collect();
        assert_eq!((lent.len(), pipes.open.get()), (MOST, MOST));
        lent[0].held = 1;
        lent.into_iter().for_each(|pipe| pipes.give_back(pipe));
        assert_eq!((pipes.open.get(), pipes.free.borrow().len()), (KEPT, KEPT));
        assert!(pipes.free.borrow().iter().all(|pipe| pipe.held == 0));
    }
}
