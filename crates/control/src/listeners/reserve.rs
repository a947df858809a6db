//! Sockets that an unconfirmed change gives up. They are kept until it is confirmed, so that the way back cannot fail
//! because another process has taken the address, or because this one may not open it any more.
//!
//! A TCP socket refuses connections meanwhile, as it would if it was closed. A client of one that cannot be suspended (a
//! Unix socket, one of the service manager, a port that the kernel picked) waits in its queue.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use offramp_net::Address;
use offramp_net::listen::Reserve;
use offramp_process::inherited::WantedSocket;

use super::unlink;
use crate::socket_plan::HeldSocket;

/// The sockets of one address.
#[derive(Debug)]
pub(crate) struct Reserved {
    held: HeldSocket,
    bound: Address,
    /// Set if the service manager keeps them too.
    foreign: bool,
    sockets: Arc<Reserve>,
}

impl Reserved {
    /// Keeps the sockets, on which so many acceptors accept.
    pub(super) fn new(
        held: HeldSocket,
        bound: Address,
        foreign: bool,
        fds: Vec<OwnedFd>,
        acceptors: usize,
    ) -> Self {
        // A port that the kernel picked would be lost.
        let suspends = !foreign && matches!(&held.address, Address::Tcp(tcp) if tcp.port() != 0);
        Self { held, bound, foreign, sockets: Arc::new(Reserve::new(fds, acceptors, suspends)) }
    }

    /// The sockets themselves, for the workers that accept on them until now.
    pub(super) fn sockets(&self) -> Arc<Reserve> {
        Arc::clone(&self.sockets)
    }

    /// True if a wanted socket is this one.
    pub(super) fn is(&self, wanted: &WantedSocket) -> bool {
        let picked = matches!(&wanted.address, Address::Tcp(tcp) if tcp.port() == 0);
        self.held.address == wanted.address && (!picked || self.held.listener == wanted.listener)
    }

    pub(super) fn bound(&self) -> &Address {
        &self.bound
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Copies of the descriptors, one for each of `workers` at least.
    pub(super) fn copies(&self, workers: usize) -> io::Result<Vec<OwnedFd>> {
        self.sockets.copies(workers)
    }

    /// Has the sockets listen again.
    pub(super) fn resume(&self) -> io::Result<()> {
        self.sockets.resume()
    }

    /// Takes the file of a Unix socket away that is not used again.
    pub(super) fn give_up(&self) {
        if !self.foreign && !self.sockets.is_in_use() {
            unlink(&self.bound);
        }
    }
}
