//! journald's native socket: one datagram per entry, or a sealed memfd for entries too large for a datagram
//! (systemd's "Native Journal Protocol").

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::socket::{OutputSocket, WaitBudget, is_gone, is_too_long};

/// An open connection to journald.
#[derive(Debug)]
pub(super) struct Journald {
    path: PathBuf,
    /// `None` once the connection is lost.
    socket: Option<OutputSocket>,
    wait_budget: WaitBudget,
}

impl Journald {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let socket = OutputSocket::datagram(&path)?;
        Ok(Self { path, socket: Some(socket), wait_budget: WaitBudget::default() })
    }

    /// Connects again by the same path.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.socket = Some(OutputSocket::datagram(&self.path)?);
        Ok(())
    }

    /// Sends entries. A failure carries the number of entries sent before it; later ones are not sent.
    pub(super) fn send<'m>(
        &mut self,
        entries: impl Iterator<Item = &'m [u8]>,
    ) -> Result<(), (usize, io::Error)> {
        let deadline = self.wait_budget.deadline();
        let mut may_reconnect = true;
        for (sent, entry) in entries.enumerate() {
            let outcome = self.send_one(entry, deadline, &mut may_reconnect);
            self.wait_budget.record(&outcome);
            outcome.map_err(|error| (sent, error))?;
        }
        Ok(())
    }

    fn send_one(&mut self, entry: &[u8], deadline: Instant, may_reconnect: &mut bool) -> io::Result<()> {
        loop {
            let socket = match &mut self.socket {
                Some(socket) => socket,
                lost => lost.insert(OutputSocket::datagram(&self.path)?),
            };
            match socket.send(entry, deadline) {
                Err(error) if is_too_long(&error) => return send_file(socket, entry, deadline),
                // journald was restarted: reconnect once per batch.
                Err(error) if is_gone(&error) => {
                    self.socket = None;
                    if !std::mem::take(may_reconnect) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }
}

/// Sends an entry as a memfd, which is sealed so that journald may map it.
fn send_file(socket: &OutputSocket, entry: &[u8], deadline: Instant) -> io::Result<()> {
    let memory: OwnedFd = memfd_create(c"journal-entry", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(entry)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [file.as_fd()];
        // The buffer has room for one descriptor.
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        match sendmsg(socket, &[IoSlice::new(&[])], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => socket.wait(deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
}
