//! Access rules: the networks that clients may come from, and the credentials of requests.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::header::{Act, refused};
use super::words::words;
use super::{Cidr, FilePath, HeaderName, HeaderValue, Jwks, RelayTarget};
use crate::error::{At, Problem, shown};

/// The networks that clients may come from. Clients in `deny` are refused; with an `allow`, so are clients
/// outside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientNetworks {
    /// The admitted networks; empty for all.
    pub allow: Vec<Networks>,
    /// The refused networks, whatever `allow` says.
    pub deny: Vec<Networks>,
}

impl ClientNetworks {
    /// Returns `true` if every client is admitted.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// The entries of both lists.
    pub fn entries(&self) -> impl Iterator<Item = &Networks> {
        self.allow.iter().chain(&self.deny)
    }
}

/// One entry of `allow` or `deny`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Networks {
    /// A single network or address.
    One(Cidr),
    /// The networks in this file; see [`parse_networks`].
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

/// The credentials that a route requires; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// A name and a password.
    pub basic: Option<BasicAuthConfig>,
    /// A signed token in `Authorization`.
    pub jwt: Option<JwtAuth>,
    /// The consent of an authentication server.
    pub forward: Option<ForwardAuthConfig>,
    /// The combination of these and the networks that a request must satisfy.
    pub satisfy: Satisfy,
}

words! {
    /// The number of access rules that a request must satisfy.
    #[derive(Default)]
    pub enum Satisfy {
        /// Every rule must admit the client.
        #[default]
        All = "all",
        /// One rule that admits the client suffices.
        Any = "any",
    }
}

/// A server that decides about each request, such as Authelia, Authentik or oauth2-proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuthConfig {
    /// The address of the server.
    pub to: RelayTarget,
    /// The path to request, with an optional query.
    pub path: String,
    /// The fields of its response that are passed to servers.
    pub headers: Vec<HeaderName>,
    /// The time limit: 1 ms to 1 h.
    pub timeout: Duration,
    /// The place in the configuration.
    pub at: At,
}

impl ForwardAuthConfig {
    /// A server with the defaults of the other keys.
    pub fn to(server: RelayTarget) -> Self {
        ForwardAuthConfig {
            to: server,
            path: "/".to_owned(),
            headers: Vec::new(),
            timeout: Duration::from_secs(5),
            at: At::NOWHERE,
        }
    }
}

/// Parses the path and query requested from an authentication server.
pub(crate) fn asked(text: &str) -> Result<String, Problem> {
    let sound = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
    if text.starts_with('/') && text.len() <= 2048 && text.bytes().all(sound) {
        return Ok(text.to_owned());
    }
    let problem = Problem::new(format!("`{}` is not a path", shown(text)));
    Err(problem.help("write the path of the authentication server: \"/api/authz/forward-auth\""))
}

/// Signed tokens, JWTs as of RFC 7519.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtAuth {
    /// The public keys that verify tokens.
    pub jwks: Jwks,
    /// The required issuer; `None` accepts any with a known key.
    pub issuer: Option<String>,
    /// The accepted audiences, any of which suffices; empty accepts only tokens without an audience;
    /// [`JwtAuth::ANYBODY`] alone accepts any.
    pub audience: Vec<String>,
    /// Fields for servers by name, with the claim or the JSON pointer of each.
    pub headers: Vec<(HeaderName, String)>,
    /// The permitted difference of clocks: up to an hour.
    pub leeway: Duration,
    /// Set to pass the token on to servers.
    pub keep_authorization: bool,
    /// Set to keep WebSockets and other tunnels open after their token has expired.
    pub keep_tunnels: bool,
}

impl JwtAuth {
    /// The audience that accepts tokens for any audience.
    pub const ANYBODY: &str = "*";

    /// Tokens that these keys verify, with the defaults of the other keys.
    pub fn of(jwks: Jwks) -> Self {
        JwtAuth {
            jwks,
            issuer: None,
            audience: Vec::new(),
            headers: Vec::new(),
            leeway: Duration::from_secs(60),
            keep_authorization: false,
            keep_tunnels: false,
        }
    }
}

/// Parses an audience, which has a name.
pub(crate) fn audience(text: &str) -> Result<String, Problem> {
    if text.is_empty() {
        let problem = Problem::new("an audience has a name, and this one is empty");
        return Err(problem.help(ALL_AUDIENCES));
    }
    Ok(text.to_owned())
}

/// The remedy for a list of audiences that is meant to be open.
pub(crate) const ALL_AUDIENCES: &str =
    "leave it out to believe tokens without `aud`, or write \"*\" to believe tokens for anybody";

/// Names and passwords of users (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuthConfig {
    /// The file of users, with lines `name:hash`.
    pub file: FilePath,
    /// The realm shown to users: printable ASCII without quotes and backslashes.
    pub realm: HeaderValue,
    /// The field that carries the user's name to servers.
    pub header: HeaderName,
    /// Set to pass name and password on to servers.
    pub keep_authorization: bool,
}

impl BasicAuthConfig {
    /// The users of this file, with the defaults of the other keys.
    pub fn of(file: FilePath) -> Self {
        BasicAuthConfig {
            file,
            realm: HeaderValue::literal("restricted"),
            header: HeaderName::literal("remote-user"),
            keep_authorization: false,
        }
    }
}

/// Parses a realm, which is sent as a quoted string (RFC 9110 §5.6.4).
pub(crate) fn realm(text: &str) -> Result<HeaderValue, Problem> {
    if text.is_empty() || text.len() > 255 || text.contains(['"', '\\']) {
        let problem = Problem::new(format!("`{}` is not a realm", shown(text)));
        return Err(problem.help("write 1 to 255 letters, without quotes and backslashes"));
    }
    text.parse()
}

/// Parses the name of a field that may say who the client is.
pub(crate) fn identity(text: &str) -> Result<HeaderName, Problem> {
    let name: HeaderName = text.parse()?;
    match not_for_users(&name) {
        None => Ok(name),
        Some(why) => Err(Problem::new(format!("`{name}` cannot say who the client is")).help(why)),
    }
}

/// The reason for which a field cannot carry the user's name.
fn not_for_users(name: &HeaderName) -> Option<&'static str> {
    match name.folded().as_str() {
        "host" | "authorization" | "cookie" | "forwarded" | "x-request-id" | "via" | "expect"
        | "content-type" => Some("it says something else; write a name such as Remote-User"),
        "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto" | "x-forwarded-port" => {
            Some("it says something else; write a name such as Remote-User")
        }
        _ => refused(name, Act::Set),
    }
}

/// Parses a list of networks, one per line, surrounded by optional blanks. `#` and `;` start comments.
///
/// # Errors
/// Every invalid line with its number, from 1.
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
