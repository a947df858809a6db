//! URLs of servers that Offramp itself asks: `http` or `https`, a host, and a port if needed.

use std::net::IpAddr;

/// A URL taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WebUrl<'t> {
    pub(super) is_https: bool,
    /// A name, or an address without brackets.
    pub(super) host: &'t str,
    pub(super) port: u16,
}

impl<'t> WebUrl<'t> {
    /// Takes a URL apart; the error says what is wrong with it.
    pub(super) fn read(text: &'t str) -> Result<Self, &'static str> {
        let (rest, is_https) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => return Err("it must begin with https://"),
        };
        if !text.chars().all(|c| c.is_ascii_graphic())
            || text.contains(['#', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
        {
            return Err("it has a character that a URL cannot have");
        }
        if text.len() > LONGEST {
            return Err("it is longer than 2,048 characters");
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (host, port) = host_and_port(authority)?;
        Ok(Self { is_https, host, port: port.unwrap_or(if is_https { 443 } else { 80 }) })
    }
}

/// Takes a host, with a port if one is written, apart; an address loses its brackets.
pub(super) fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|address| address.parse::<IpAddr>().is_ok()),
        None => Some(host).filter(|host| !host.is_empty() && host.chars().all(is_name)),
    };
    let host = bare.ok_or("it names no host")?;
    let number = |port: &str| port.parse().ok().filter(|port| *port > 0);
    let port = port.map(|port| number(port).ok_or("its port is no number from 1 to 65535")).transpose()?;
    Ok((host, port))
}

/// The maximum length of a URL, in bytes.
const LONGEST: usize = 2048;
