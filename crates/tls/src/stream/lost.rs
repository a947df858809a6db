//! Errors of replies that the reader could not send, reported to the writer.

use std::io;

/// Cause of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The peer accepts nothing any more.
    Refused,
    /// A system error with this number, such as a lack of buffers or memory.
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
    fn system_errors_are_preserved() {
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
