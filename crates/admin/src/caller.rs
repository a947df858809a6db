//! The client of a connection, as far as the kernel identifies it, and its admission.

use std::net::SocketAddr;

use offramp_control::Requester;
use offramp_net::process::UserIdentity;
use tokio::net::UnixStream;

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientIdentity {
    /// A process of root or of Offramp's own user, over a Unix socket.
    Operator {
        /// The user id of the client.
        user: u32,
        /// The process id, if the kernel reports it.
        process: Option<i32>,
    },
    /// A process of another user of this machine.
    Stranger,
    /// A client of a TCP address, which the kernel does not identify.
    Network(SocketAddr),
    /// A client of a TCP address with TLS.
    Encrypted(SocketAddr),
}

/// The decision about a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessDecision {
    /// Full access, under this name.
    Granted(Requester),
    /// No access, for this reason.
    Denied(&'static str),
    /// No access without the token.
    TokenNeeded {
        /// Set if a wrong token was sent.
        wrong: bool,
    },
}

impl ClientIdentity {
    /// Identifies the client by its credentials at the time of connecting (`SO_PEERCRED`, unix(7)).
    pub(crate) fn of(stream: &UnixStream) -> Self {
        // Both ends of the socket pair are in this process.
        let own = UnixStream::pair().and_then(|(one, _)| one.peer_cred()).map(|own| own.uid());
        match (stream.peer_cred(), own) {
            (Ok(peer), Ok(own)) => Self::by_user(peer.uid(), peer.pid(), own),
            _ => Self::Stranger,
        }
    }

    fn by_user(user: u32, process: Option<i32>, own: u32) -> Self {
        if user == 0 || user == own { Self::Operator { user, process } } else { Self::Stranger }
    }

    /// The address of a client that may show a secret; `None` for operators over a Unix socket.
    ///
    /// # Errors
    /// The reason for which no secret gives access.
    pub(crate) fn confidential(self) -> Result<Option<SocketAddr>, &'static str> {
        match self {
            Self::Operator { .. } => Ok(None),
            Self::Stranger => Err(FOR_OPERATORS),
            Self::Network(address) if !address.ip().to_canonical().is_loopback() => Err(WITHOUT_TLS),
            Self::Network(address) | Self::Encrypted(address) => Ok(Some(address)),
        }
    }

    /// Returns `false` where no browser connects: to a Unix socket.
    pub(crate) fn may_be_browser(self) -> bool {
        matches!(self, Self::Network(_) | Self::Encrypted(_))
    }

    /// Decides on access to the API. `shown` is the token in the request, `token` the required one.
    pub(crate) fn admit(self, shown: Option<&[u8]>, token: Option<&str>) -> AccessDecision {
        match (self, token) {
            (Self::Operator { user, process }, _) => {
                let process = process.map(|process| format!(", pid {process}")).unwrap_or_default();
                // The group has no influence on the name.
                let name = UserIdentity::of_numbers(user, user).name();
                let who = if name == user.to_string() {
                    format!("uid {user}")
                } else {
                    format!("{name} (uid {user})")
                };
                AccessDecision::Granted(Requester::Admin(format!("{who}{process}").into()))
            }
            (Self::Stranger, _) => AccessDecision::Denied(FOR_OPERATORS),
            (Self::Network(address), _) if !address.ip().to_canonical().is_loopback() => {
                AccessDecision::Denied(WITHOUT_TLS)
            }
            (Self::Network(_) | Self::Encrypted(_), None) => AccessDecision::Denied(
                "over TCP this needs a token: write token_file = \"/path\" into [admin] and run `offramp ctl upgrade`, for a \
                 change of [admin] needs an upgrade; or use the Unix socket",
            ),
            (Self::Network(address) | Self::Encrypted(address), Some(token)) => match shown {
                Some(shown) if same(shown, token.as_bytes()) => {
                    AccessDecision::Granted(Requester::Admin(format!("token, from {address}").into()))
                }
                _ => AccessDecision::TokenNeeded { wrong: shown.is_some() },
            },
        }
    }
}

const FOR_OPERATORS: &str = "this is for root and for the user that Offramp runs as";
const WITHOUT_TLS: &str =
    "over TCP without TLS this is for clients of this machine: the token must not be read on its way";

/// Compares two texts in a time that depends on their lengths only.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn root_and_the_own_user_are_operators() {
        let by_user = |user, own| ClientIdentity::by_user(user, None, own);
        let operator = |user| ClientIdentity::Operator { user, process: None };
        assert_eq!(by_user(0, 33), operator(0));
        assert_eq!(by_user(33, 33), operator(33));
        assert_eq!(by_user(34, 33), ClientIdentity::Stranger);
        assert_eq!(by_user(34, 0), ClientIdentity::Stranger);
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(matches!(ClientIdentity::of(&one), ClientIdentity::Operator { .. }));
        let granted = operator(33).admit(None, None);
        let AccessDecision::Granted(Requester::Admin(by)) = granted else { panic!("{granted:?}") };
        assert!(by.contains("uid 33"), "{by}");
        let granted = operator(0).admit(None, None);
        assert_eq!(granted, AccessDecision::Granted(Requester::Admin("root (uid 0)".into())));
        assert!(matches!(
            ClientIdentity::Stranger.admit(Some(b"secret"), Some("secret")),
            AccessDecision::Denied(_)
        ));
    }

    #[test]
    fn tcp_needs_the_token_and_a_loopback_address() {
        let near = ClientIdentity::Network("127.0.0.1:5".parse().unwrap());
        let far = ClientIdentity::Network("192.0.2.7:5".parse().unwrap());
        let token = Some("0123456789abcdef");
        assert!(matches!(near.admit(token.map(str::as_bytes), token), AccessDecision::Granted(_)));
        for wrong in [None, Some(&b"0123456789abcdeF"[..]), Some(b"0123456789abcde"), Some(b"")] {
            assert_eq!(near.admit(wrong, token), AccessDecision::TokenNeeded { wrong: wrong.is_some() });
        }
        assert!(
            matches!(near.admit(None, None), AccessDecision::Denied(why) if why.contains("token_file") && why.contains("upgrade"))
        );
        assert!(matches!(far.admit(token.map(str::as_bytes), token), AccessDecision::Denied(_)));
        let far = ClientIdentity::Encrypted("192.0.2.7:5".parse().unwrap());
        assert!(matches!(far.admit(token.map(str::as_bytes), token), AccessDecision::Granted(_)));
        assert_eq!(far.admit(Some(b"0123456789abcdeF"), token), AccessDecision::TokenNeeded { wrong: true });
        assert!(matches!(far.admit(None, None), AccessDecision::Denied(_)));
    }
}
