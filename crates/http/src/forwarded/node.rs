//! Nodes of Forwarded (RFC 7239 §6): an address, `unknown`, or an obfuscated identifier.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ForwardedFault;

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<'a> {
    /// An address, with the port unless it is absent or obfuscated.
    Address {
        /// IP address, without brackets.
        ip: IpAddr,
        /// Port in the clear.
        port: Option<u16>,
    },
    /// The identifier `unknown` (RFC 7239 §6.2).
    Unknown,
    /// An identifier that begins with an underscore (RFC 7239 §6.3), without its port.
    Obfuscated(Cow<'a, str>),
}

impl<'a> Node<'a> {
    /// Parses an unquoted node.
    ///
    /// # Errors
    /// [`ForwardedFault::Node`] for a syntax error.
    pub fn parse(text: Cow<'a, str>) -> Result<Self, ForwardedFault> {
        let (name, port) = split(&text).ok_or(ForwardedFault::Node)?;
        let port = port.map(read_port).transpose()?.flatten();
        if let Some(inside) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let ip = inside.parse::<Ipv6Addr>().map_err(|_| ForwardedFault::Node)?;
            return Ok(Self::Address { ip: IpAddr::V6(ip), port });
        }
        if name.eq_ignore_ascii_case("unknown") {
            return Ok(Self::Unknown);
        }
        if is_obfuscated(name) {
            let length = name.len();
            return Ok(Self::Obfuscated(match text {
                Cow::Borrowed(text) => Cow::Borrowed(&text[..length]),
                Cow::Owned(mut text) => {
                    text.truncate(length);
                    Cow::Owned(text)
                }
            }));
        }
        let ip = name.parse::<Ipv4Addr>().map_err(|_| ForwardedFault::Node)?;
        Ok(Self::Address { ip: IpAddr::V4(ip), port })
    }
}

/// Splits name and port at the colon outside of brackets.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let end = if text.starts_with('[') { text.find(']')? + 1 } else { text.find(':').unwrap_or(text.len()) };
    match text.split_at(end) {
        (name, "") => Some((name, None)),
        (name, rest) => rest.strip_prefix(':').map(|port| (name, Some(port))),
    }
}

/// Parses a port of one to five digits, or an obfuscated one.
fn read_port(text: &str) -> Result<Option<u16>, ForwardedFault> {
    if is_obfuscated(text) {
        return Ok(None);
    }
    let plain = matches!(text.len(), 1..=5) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain).map(Some).ok_or(ForwardedFault::Node)
}

fn is_obfuscated(text: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.len() > 1 && text.starts_with('_') && text.bytes().all(byte)
}

impl fmt::Display for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { ip: IpAddr::V6(ip), port: None } => write!(f, "[{ip}]"),
            Self::Address { ip: IpAddr::V6(ip), port: Some(port) } => write!(f, "[{ip}]:{port}"),
            Self::Address { ip, port: None } => write!(f, "{ip}"),
            Self::Address { ip, port: Some(port) } => write!(f, "{ip}:{port}"),
            Self::Unknown => f.write_str("unknown"),
            Self::Obfuscated(name) => f.write_str(name),
        }
    }
}
