//! Who may enter: the networks that clients may come from, and what requests must show.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::words::words;
use super::{Cidr, FilePath, HeaderName, HeaderValue, Jwks, RelayTarget};
use crate::error::{At, Problem, shown};

/// The networks that clients may come from. Who is in `deny` is refused; where there is an `allow`, so is who is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientNetworks {
    /// Where clients may come from; empty: from anywhere.
    pub allow: Vec<Networks>,
    /// Where they may not come from, whatever `allow` says.
    pub deny: Vec<Networks>,
}

impl ClientNetworks {
    /// Whether every client may enter.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &Networks> {
        self.allow.iter().chain(&self.deny)
    }
}

/// One entry of `allow` or `deny`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Networks {
    /// This network.
    One(Cidr),
    /// The networks that stand in this file; see [`parse_networks`].
    File(FilePath),
    /// The networks of this country, by [`Config::geoip`](super::Config::geoip).
    Country(Country),
}

/// A country: two capital letters (ISO 3166-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

impl FromStr for Country {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match *text.as_bytes() {
            [one, other] if one.is_ascii_alphabetic() && other.is_ascii_alphabetic() => {
                Ok(Self([one.to_ascii_uppercase(), other.to_ascii_uppercase()]))
            }
            _ => {
                let problem = Problem::new(format!("`{}` is not the code of a country", shown(text)));
                Err(problem.help("write two letters (ISO 3166-1), such as \"country:DE\""))
            }
        }
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(network) => network.fmt(f),
            Self::File(file) => write!(f, "file:{}", file.path.display()),
            Self::Country(country) => write!(f, "country:{country}"),
        }
    }
}

/// What a request must show to be let in by a route; the default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// A name and a password.
    pub basic: Option<BasicAuth>,
    /// A token.
    pub jwt: Option<JwtAuth>,
    /// The yes of a server that knows who the client is.
    pub forward: Option<ForwardAuth>,
    /// Which of these and of the networks a request must satisfy.
    pub satisfy: Satisfy,
}

words! {
    /// How many of several access rules a request must satisfy.
    #[derive(Default)]
    pub enum Satisfy {
        /// Every rule must admit the client.
        #[default]
        All = "all",
        /// One rule that admits the client is enough.
        Any = "any",
    }
}

/// A server that is asked about each request, such as Authelia, Authentik or oauth2-proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The server.
    pub to: RelayTarget,
    /// The path that is asked for, with a query if there is one.
    pub path: String,
    /// The fields of its response that servers get.
    pub headers: Vec<HeaderName>,
    /// How long it may take: 1 ms to 1 h.
    pub timeout: Duration,
    /// Where it is written.
    pub at: At,
}

/// How long a server of [`ForwardAuth`] may take where nothing is written.
pub(crate) const FORWARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Tokens that others have signed (RFC 7519).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtAuth {
    /// The public keys.
    pub jwks: Jwks,
    /// Who must have issued it; `None`: anybody whose key is there.
    pub issuer: Option<String>,
    /// For whom it must be: one of these; empty: only for nobody in particular; [`JwtAuth::ANYBODY`] alone: for anybody.
    pub audience: Vec<String>,
    /// The fields that servers get, by name, with the claim or the JSON pointer of each.
    pub headers: Vec<(HeaderName, String)>,
    /// By how much clocks may differ: up to an hour.
    pub leeway: Duration,
    /// Whether servers get the token.
    pub keep_authorization: bool,
    /// Set where WebSockets and other tunnels go on when the token that opened them has ended.
    pub keep_tunnels: bool,
}

impl JwtAuth {
    /// The audience that admits tokens for anybody.
    pub const ANYBODY: &str = "*";
}

/// The leeway of [`JwtAuth`] where none is written.
pub(crate) const LEEWAY: Duration = Duration::from_secs(60);

/// Names and passwords of users (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// The file of users: lines `name:hash`.
    pub file: FilePath,
    /// What users are told that the password is for: printable ASCII without quotes and backslashes.
    pub realm: HeaderValue,
    /// The field that names the user to servers.
    pub header: HeaderName,
    /// Whether servers get the name and password.
    pub keep_authorization: bool,
}

/// The realm of [`BasicAuth`] where none is written.
pub(crate) const REALM: &str = "restricted";
/// The field of [`BasicAuth`] where none is written.
pub(crate) const USER_HEADER: &str = "remote-user";

/// Reads a list of networks: one in a line, blanks around it. What follows a `#` or a `;` is a comment.
///
/// # Errors
/// Every line that is no network, with its number from 1 and what is wrong with it.
pub fn parse_networks(text: &str) -> Result<Vec<Cidr>, Vec<(usize, Problem)>> {
    let (mut networks, mut wrong) = (Vec::new(), Vec::new());
    for (line, number) in text.lines().zip(1..) {
        let written = line.split(['#', ';']).next().unwrap_or_default().trim();
        if written.is_empty() {
            continue;
        }
        if written.contains(char::is_whitespace) {
            let problem = Problem::new(format!("`{}` is not one network", shown(written)));
            wrong.push((number, problem.help("write one network in each line")));
            continue;
        }
        match written.parse() {
            Ok(network) => networks.push(network),
            Err(problem) => wrong.push((number, problem)),
        }
    }
    if wrong.is_empty() { Ok(networks) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_comments_and_blank_lines() {
        let text = "# office\n10.0.0.0/8\n\n  192.0.2.7  # a host\r\n1.10.16.0/20 ; SBL256894\n2001:db8::/32";
        let networks: Vec<String> = parse_networks(text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.0.0.0/8", "192.0.2.7/32", "1.10.16.0/20", "2001:db8::/32"]);
        assert_eq!(parse_networks("").unwrap(), []);
    }

    #[test]
    fn every_line_that_is_no_network_is_named() {
        let wrong = parse_networks("10.0.0.0/8\n10.1.0.0/8\n\nlocalhost\n10.0.0.1 10.0.0.2\n").unwrap_err();
        let lines: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 4, 5]);
        assert!(wrong[0].1.to_string().contains("write \"10.0.0.0/8\""), "{}", wrong[0].1);
        assert!(wrong[2].1.to_string().contains("one network in each line"), "{}", wrong[2].1);
    }
}
