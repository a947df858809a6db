//! Reaching a server of a backend, trying others where one cannot be reached.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offramp_net::connect::connect_to;
use offramp_net::{Address, Socket};
use tokio::time::timeout;

use crate::backend::{Backend, Target};
use crate::pick::RoundRobin;

/// A connection to a server.
pub struct Connected {
    /// The socket.
    pub socket: Socket,
    /// The server's place in its backend.
    pub server: usize,
    /// How many attempts it took.
    pub tries: u16,
}

/// No server of a backend could be reached.
#[derive(Debug)]
pub struct Unreachable {
    /// The server that was tried last; `None` where none has an address.
    pub server: Option<usize>,
    /// How many attempts were made.
    pub tries: u16,
    /// How the last attempt failed.
    pub reason: Reason,
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum Reason {
    /// It took longer than the connect timeout.
    Timeout,
    /// The kernel said no.
    Io(io::Error),
    /// The server's host name does not resolve.
    NoAddress,
}

impl Reason {
    /// Whether it lies with this machine, which has no descriptor or no memory left.
    fn is_ours(&self) -> bool {
        // ENOMEM, ENFILE, EMFILE, ENOBUFS.
        matches!(self, Self::Io(error) if matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105)))
    }
}

/// Connects to the server whose turn it is, or to the next that can be reached. Each attempt may
/// take `limit`. Failures are remembered in `turns`, so that a server that is down is not everybody's
/// first choice. `attempted` is told of each attempt, and whether it succeeded.
///
/// # Errors
/// Where every address of every server failed, or where descriptors or memory have run out here.
pub async fn connect(
    backend: &Backend,
    turns: &RefCell<RoundRobin>,
    limit: Duration,
    mut attempted: impl FnMut(bool),
) -> Result<Connected, Unreachable> {
    let mut failed = Unreachable { server: None, tries: 0, reason: Reason::NoAddress };
    let order = turns.borrow_mut().order(Instant::now());
    for index in order {
        let server = &backend.servers[index];
        let addresses = match &server.target {
            Target::Fixed(address) => Addresses::One(Some(address.clone())),
            Target::Resolved(resolved) => Addresses::Many(resolved.load_full(), 0),
        };
        for address in addresses {
            failed.server = Some(index);
            failed.tries += 1;
            let reason = match timeout(limit, connect_to(&address)).await {
                Ok(Ok(socket)) => {
                    attempted(true);
                    turns.borrow_mut().note_success(index);
                    return Ok(Connected { socket, server: index, tries: failed.tries });
                }
                Ok(Err(error)) => Reason::Io(error),
                Err(_) => Reason::Timeout,
            };
            attempted(false);
            let ours = reason.is_ours();
            failed.reason = reason;
            if ours {
                // The next server would fare no better, and this one did nothing wrong.
                return Err(failed);
            }
        }
        turns.borrow_mut().note_failure(index, Instant::now());
    }
    Err(failed)
}

/// The addresses of one server, one after the other.
enum Addresses {
    One(Option<Address>),
    Many(Arc<Vec<SocketAddr>>, usize),
}

impl Iterator for Addresses {
    type Item = Address;

    fn next(&mut self) -> Option<Address> {
        match self {
            Self::One(address) => address.take(),
            Self::Many(all, at) => {
                let address = all.get(*at).copied().map(Address::Tcp);
                *at += 1;
                address
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_failure_it_is() {
        let of = |code| Reason::Io(io::Error::from_raw_os_error(code));
        assert!([12, 23, 24, 105].into_iter().all(|code| of(code).is_ours()));
        assert!(!of(111).is_ours() && !Reason::Timeout.is_ours() && !Reason::NoAddress.is_ours());
    }
}
