//! How it went that an answer of the reader's was lost, for the writer to hear of.

use std::io;

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The peer takes nothing any more.
    Refused,
    /// The system could not send, for this reason: it has no buffers or no memory left, say.
    System(i32),
}

impl Lost {
    pub(super) fn of(error: &io::Error) -> Self {
        let refused = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
        error.raw_os_error().filter(|_| !refused).map_or(Self::Refused, Self::System)
    }

    pub(super) fn error(self) -> io::Error {
        match self {
            Self::Refused => io::ErrorKind::BrokenPipe.into(),
            Self::System(code) => io::Error::from_raw_os_error(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_stays_what_it_was() {
        // ENOMEM, ETIMEDOUT, ENOBUFS.
        for code in [12, 110, 105] {
            let lost = Lost::of(&io::Error::from_raw_os_error(code));
            assert_eq!(lost.error().raw_os_error(), Some(code));
        }
        // EPIPE, ECONNRESET.
        for code in [32, 104] {
            let lost = Lost::of(&io::Error::from_raw_os_error(code));
            assert_eq!((lost, lost.error().kind()), (Lost::Refused, io::ErrorKind::BrokenPipe));
        }
        assert_eq!(Lost::of(&io::ErrorKind::WriteZero.into()), Lost::Refused);
    }
}
