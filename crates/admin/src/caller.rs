//! Who is at the other end of a connection, as far as the kernel tells.

use std::net::SocketAddr;

use offramp_control::Requester;
use offramp_net::process::Identity;
use tokio::net::UnixStream;

/// Who may ask about the running process, and change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of root's or of the user that Offramp runs as, over a Unix socket.
    Operator {
        /// Its user.
        user: u32,
        /// Its process, where the kernel tells.
        process: Option<i32>,
    },
    /// A process of another user of this machine.
    Stranger,
    /// Anyone who reaches a TCP address: the kernel does not tell who that is.
    Network(SocketAddr),
    /// The same over TLS.
    Encrypted(SocketAddr),
}

/// What a caller gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Everything, under this name.
    Granted(Requester),
    /// Nothing, for this reason.
    Denied(&'static str),
    /// Nothing without the token.
    TokenNeeded {
        /// Whether another one was sent.
        wrong: bool,
    },
}

impl Caller {
    /// By the credentials that the client had when it connected (`SO_PEERCRED`, unix(7)).
    pub(crate) fn of(stream: &UnixStream) -> Self {
        // The socket pair has both ends in this process.
        let own = UnixStream::pair().and_then(|(one, _)| one.peer_cred()).map(|own| own.uid());
        match (stream.peer_cred(), own) {
            (Ok(peer), Ok(own)) => Self::by_user(peer.uid(), peer.pid(), own),
            _ => Self::Stranger,
        }
    }

    fn by_user(user: u32, process: Option<i32>, own: u32) -> Self {
        if user == 0 || user == own { Self::Operator { user, process } } else { Self::Stranger }
    }

    /// Whether it may use the API. `shown` is the token that it has sent, `token` the one that is asked for.
    pub(crate) fn admit(self, shown: Option<&[u8]>, token: Option<&str>) -> Admission {
        match (self, token) {
            (Self::Operator { user, process }, _) => {
                let process = process.map(|process| format!(", pid {process}")).unwrap_or_default();
                // The group does not matter to the name.
                let name = Identity::of_numbers(user, user).name();
                let who = if name == user.to_string() {
                    format!("uid {user}")
                } else {
                    format!("{name} (uid {user})")
                };
                Admission::Granted(Requester::Admin(format!("{who}{process}").into()))
            }
            (Self::Stranger, _) => {
                Admission::Denied("this is for root and for the user that Offramp runs as")
            }
            (Self::Network(address), _) if !address.ip().to_canonical().is_loopback() => Admission::Denied(
                "over TCP without TLS this is for clients of this machine: the token must not be read on its way",
            ),
            (Self::Network(_) | Self::Encrypted(_), None) => Admission::Denied(
                "over TCP this needs a token: write token_file = \"/path\" into [admin] and run `offramp ctl upgrade`, for a \
                 change of [admin] needs an upgrade; or use the Unix socket",
            ),
            (Self::Network(address) | Self::Encrypted(address), Some(token)) => match shown {
                Some(shown) if same(shown, token.as_bytes()) => {
                    Admission::Granted(Requester::Admin(format!("token, from {address}").into()))
                }
                _ => Admission::TokenNeeded { wrong: shown.is_some() },
            },
        }
    }
}

/// Whether two texts are equal, in a time that depends on their lengths alone.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn root_and_the_own_user_are_operators() {
        let by_user = |user, own| Caller::by_user(user, None, own);
        let operator = |user| Caller::Operator { user, process: None };
        assert_eq!(by_user(0, 33), operator(0));
        assert_eq!(by_user(33, 33), operator(33));
        assert_eq!(by_user(34, 33), Caller::Stranger);
        assert_eq!(by_user(34, 0), Caller::Stranger);
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(matches!(Caller::of(&one), Caller::Operator { .. }));
        let granted = operator(33).admit(None, None);
        let Admission::Granted(Requester::Admin(by)) = granted else { panic!("{granted:?}") };
        assert!(by.contains("uid 33"), "{by}");
        let granted = operator(0).admit(None, None);
        assert_eq!(granted, Admission::Granted(Requester::Admin("root (uid 0)".into())));
        assert!(matches!(Caller::Stranger.admit(Some(b"secret"), Some("secret")), Admission::Denied(_)));
    }

    #[test]
    fn tcp_needs_the_token_and_a_loopback_address() {
        let near = Caller::Network("127.0.0.1:5".parse().unwrap());
        let far = Caller::Network("192.0.2.7:5".parse().unwrap());
        let token = Some("0123456789abcdef");
        assert!(matches!(near.admit(token.map(str::as_bytes), token), Admission::Granted(_)));
        for wrong in [None, Some(&b"0123456789abcdeF"[..]), Some(b"0123456789abcde"), Some(b"")] {
            assert_eq!(near.admit(wrong, token), Admission::TokenNeeded { wrong: wrong.is_some() });
        }
        assert!(
            matches!(near.admit(None, None), Admission::Denied(why) if why.contains("token_file") && why.contains("upgrade"))
        );
        assert!(matches!(far.admit(token.map(str::as_bytes), token), Admission::Denied(_)));
        let far = Caller::Encrypted("192.0.2.7:5".parse().unwrap());
        assert!(matches!(far.admit(token.map(str::as_bytes), token), Admission::Granted(_)));
        assert_eq!(far.admit(Some(b"0123456789abcdeF"), token), Admission::TokenNeeded { wrong: true });
        assert!(matches!(far.admit(None, None), Admission::Denied(_)));
    }
}
