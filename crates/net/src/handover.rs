//! Messages with descriptors between an old process and its successor: a pair of Unix sockets that keep
//! message boundaries, shared memory, and the start of the new process.
//!
//! The content of the messages is defined by the caller.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Maximum descriptors per message; the kernel admits 253 (`SCM_MAX_FD`).
pub const MOST_DESCRIPTORS: usize = 200;
/// Maximum text per message, in bytes. It fits the smallest send buffer of a socket.
pub const LONGEST_TEXT: usize = 2048;
/// Maximum size of shared memory that is read, in bytes.
const LONGEST_MEMORY: u64 = 64 << 20;

/// One end of a channel between two processes.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// A message received on a [`Channel`].
#[derive(Debug)]
pub struct Message {
    /// Text of the message.
    pub text: Vec<u8>,
    /// Descriptors attached to the message.
    pub fds: Vec<OwnedFd>,
}

impl Channel {
    /// Creates two connected ends.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok((Self(one), Self(other)))
    }

    /// Takes the end from standard input, if that is one. Standard input is `/dev/null` from then on.
    ///
    /// # Errors
    /// No descriptor is free, or `/dev/null` is missing.
    pub fn of_stdin() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        let is_channel = sockopt::socket_domain(&stdin).is_ok_and(|domain| domain == AddressFamily::UNIX)
            && sockopt::socket_type(&stdin).is_ok_and(|kind| kind == SocketType::SEQPACKET);
        if !is_channel {
            return Ok(None);
        }
        let own = stdin.as_fd().try_clone_to_owned()?;
        nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
        Ok(Some(Self(own)))
    }

    /// Duplicates the descriptor of this end.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other end is closed or does not accept the message before `deadline`, or the message is too large.
    pub fn send(&self, text: &[u8], fds: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<()> {
        if text.len() > LONGEST_TEXT || fds.len() > MOST_DESCRIPTORS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        loop {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            match sendmsg(&self.0, &[IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives the next message; `None` once the other end is closed.
    ///
    /// # Errors
    /// Nothing arrived before `deadline` ([`io::ErrorKind::TimedOut`]), or the message exceeds the bounds.
    pub fn receive(&self, deadline: Instant) -> io::Result<Option<Message>> {
        let mut text = vec![0; LONGEST_TEXT];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        loop {
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received =
                recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
            let received = match received {
                Ok(received) => received,
                Err(Errno::AGAIN) => {
                    self.wait(PollFlags::IN, deadline)?;
                    continue;
                }
                // The kernel reports once that the other end was closed with unread data; its own messages
                // follow after that.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut fds = Vec::new();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = message {
                    fds.extend(more);
                }
            }
            if received.bytes == 0 && fds.is_empty() {
                return Ok(None);
            }
            let cut = rustix::net::ReturnFlags::TRUNC | rustix::net::ReturnFlags::CTRUNC;
            if received.flags.intersects(cut) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            text.truncate(received.bytes);
            return Ok(Some(Message { text, fds }));
        }
    }

    /// Like [`Channel::receive`], without blocking the thread. Needs a runtime. Cancel safe: dropping the
    /// future loses no message.
    ///
    /// # Errors
    /// Those of [`Channel::receive`], except for the deadline; or the runtime cannot watch the descriptor.
    pub async fn next(&self) -> io::Result<Option<Message>> {
        // SAFETY: the descriptor is borrowed from `self`, which is borrowed for as long as this future lives.
        let watched = unsafe { AsyncFd::register_with_interest(self.0.as_fd(), Interest::READABLE) }?;
        loop {
            let mut ready = watched.readable().await?;
            match self.receive(Instant::now()) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => ready.clear_ready(),
                message => return message,
            }
        }
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&self.0, flags)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Wraps an end that was received in a message.
impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Puts bytes into anonymous memory (memfd) and returns its descriptor. The bytes are never written to a
/// disk.
///
/// # Errors
/// Memory or descriptors have run out.
pub fn memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("offramp-handover", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Reads the memory behind a descriptor of [`memory`].
///
/// # Errors
/// It cannot be read, or exceeds the bound.
pub fn read_memory(memory: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = File::from(memory);
    // Both processes share the file position.
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(LONGEST_MEMORY + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_MEMORY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(bytes)
}

/// The deadline that is `limit` from now.
#[must_use]
pub fn within(limit: Duration) -> Instant {
    Instant::now() + limit
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn text_and_descriptors_arrive_as_they_were_sent() {
        let (one, other) = Channel::pair().unwrap();
        let memory = memory(b"kept in memory").unwrap();
        let many = vec![memory.as_fd(); MOST_DESCRIPTORS];
        one.send(b"first", &many, within(PATIENCE)).unwrap();
        one.send(b"second", &[], within(PATIENCE)).unwrap();
        let mut first = other.receive(within(PATIENCE)).unwrap().unwrap();
        assert_eq!((first.text.as_slice(), first.fds.len()), (&b"first"[..], MOST_DESCRIPTORS));
        for _ in 0..2 {
            assert_eq!(read_memory(first.fds.remove(0)).unwrap(), b"kept in memory");
        }
        assert_eq!(other.receive(within(PATIENCE)).unwrap().unwrap().text, b"second");
        let late = other.receive(Instant::now()).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        other.send(b"never read", &[], within(PATIENCE)).unwrap();
        one.send(b"last", &[], within(PATIENCE)).unwrap();
        drop(one);
        assert_eq!(other.receive(within(PATIENCE)).unwrap().unwrap().text, b"last");
        assert!(other.receive(within(PATIENCE)).unwrap().is_none());
    }

    #[test]
    fn large_messages_and_stalled_receivers_are_errors() {
        let (one, other) = Channel::pair().unwrap();
        let memory = memory(b"").unwrap();
        assert!(one.send(&[0; LONGEST_TEXT + 1], &[], within(PATIENCE)).is_err());
        assert!(one.send(b"x", &vec![memory.as_fd(); MOST_DESCRIPTORS + 1], within(PATIENCE)).is_err());
        let full = (0..100_000).find_map(|_| one.send(&[0; LONGEST_TEXT], &[], Instant::now()).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::TimedOut);
        drop(other);
        assert!(one.send(b"x", &[], within(PATIENCE)).is_err());
    }
}
