//! Errors of the admin interface as a whole. Those of single requests are in `refusal`.

use std::fmt;
use std::io;

use offramp_net::{Address, port_holder};

/// A failure to start the admin interface.
#[derive(Debug)]
pub enum Error {
    /// Listening on the address failed.
    Listen(Address, io::Error),
    /// The thread or its event loop could not be created.
    Thread(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => {
                write!(
                    f,
                    "the admin interface cannot listen on {address}: {error}; {}",
                    advice(address, error)
                )
            }
            Self::Thread(error) => write!(f, "the admin interface cannot start: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::Thread(error) => Some(error),
        }
    }
}

/// Advice for an address that cannot be listened on.
fn advice(address: &Address, error: &io::Error) -> String {
    match (address, error.kind()) {
        (Address::Tcp(tcp), io::ErrorKind::AddrInUse) => port_holder::advice(tcp.port()),
        (Address::Tcp(_), io::ErrorKind::PermissionDenied) => "choose a port above 1023".to_owned(),
        (Address::Unix(_), io::ErrorKind::PermissionDenied) => {
            "the user that Offramp runs as must be able to write to the directory".to_owned()
        }
        (Address::Unix(_), io::ErrorKind::NotFound) => "make the directory first".to_owned(),
        _ => "choose another address".to_owned(),
    }
}
