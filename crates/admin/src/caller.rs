//! Who is at the other end of a connection, as far as the kernel tells.

use tokio::net::UnixStream;

/// Who may ask about the running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of root's or of the user that Offramp runs as, over a Unix socket.
    Operator,
    /// A process of another user of this machine.
    Stranger,
    /// Anyone who reaches a TCP address: the kernel does not tell who that is.
    Network,
}

impl Caller {
    /// By the credentials that the client had when it connected (`SO_PEERCRED`, unix(7)).
    pub(crate) fn of(stream: &UnixStream) -> Self {
        // The socket pair has both ends in this process.
        let own = UnixStream::pair().and_then(|(one, _)| one.peer_cred()).map(|own| own.uid());
        match (stream.peer_cred(), own) {
            (Ok(peer), Ok(own)) => Self::by_user(peer.uid(), own),
            _ => Self::Stranger,
        }
    }

    fn by_user(user: u32, own: u32) -> Self {
        if user == 0 || user == own { Self::Operator } else { Self::Stranger }
    }

    /// Why it gets no answer about the running process, if it gets none.
    pub(crate) fn refused(self) -> Option<&'static str> {
        match self {
            Self::Operator => None,
            Self::Stranger => Some("this is for root and for the user that Offramp runs as"),
            Self::Network => Some(
                "this is served on a Unix socket only: write address = \"unix:/run/offramp/admin.sock\" \
                 into [admin]",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn root_and_the_own_user_are_operators() {
        assert_eq!(Caller::by_user(0, 33), Caller::Operator);
        assert_eq!(Caller::by_user(33, 33), Caller::Operator);
        assert_eq!(Caller::by_user(34, 33), Caller::Stranger);
        assert_eq!(Caller::by_user(34, 0), Caller::Stranger);
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(Caller::of(&one), Caller::Operator);
        assert!(Caller::Stranger.refused().is_some() && Caller::Network.refused().is_some());
    }
}
