//! The client's address as reported by proxies: Forwarded (RFC 7239) and X-Forwarded-For.
//!
//! Clients can forge these fields, so they are read from the right, where the nearest proxy appended, and
//! only as long as the writer is trusted: [`client`] and [`x_forwarded_for`]. An unreadable element ends the
//! chain there; it never fails a request. [`elements`] parses Forwarded strictly, and [`Element::write`]
//! writes it. Trust is decided by the caller's closure alone.

mod element;
mod node;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str;

pub use element::{Element, Elements, elements};
pub use node::Node;

/// Maximum number of proxies that are followed.
pub const MAX_HOPS: usize = 32;

/// The client at the end of the trusted chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginatingClient {
    /// Farthest address named by a trusted proxy; the peer's own if there is none.
    pub address: IpAddr,
    /// Number of trusted proxies; 0: the peer is the client.
    pub hops: usize,
}

/// Syntax errors of a Forwarded value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardedFault {
    /// Not `name=value` with tokens and quoted strings (RFC 7239 §4).
    Syntax,
    /// A parameter twice in one element (RFC 7239 §4).
    Repeated,
    /// `for` or `by` without a valid node (RFC 7239 §6).
    Node,
}

/// Finds the client by the values of X-Forwarded-For, in the order of arrival.
///
/// Reads at most [`MAX_HOPS`] elements.
pub fn x_forwarded_for<'a, I>(values: I, peer: IpAddr, trusted: impl Fn(IpAddr) -> bool) -> OriginatingClient
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: DoubleEndedIterator,
{
    let nearest_first = values.into_iter().rev().flat_map(|value| value.rsplit(|&byte| byte == b','));
    follow(nearest_first.take(MAX_HOPS).map(|text| x_forwarded_hop(text.trim_ascii())), peer, trusted)
}

/// Finds the client by the values of Forwarded, in the order of arrival. Of each value, the last [`MAX_HOPS`]
/// elements count; a syntax error ends the chain.
pub fn client<'a, I>(values: I, peer: IpAddr, trusted: impl Fn(IpAddr) -> bool) -> OriginatingClient
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: DoubleEndedIterator,
{
    let nearest_first = values.into_iter().rev().flat_map(|value| LastHops::read(value).nearest_first());
    follow(nearest_first.take(MAX_HOPS), peer, trusted)
}

/// Content of one element.
#[derive(Debug, Clone, Copy)]
enum Hop {
    Address(IpAddr),
    /// An empty list element, which has no meaning (RFC 9110 §5.6.1.2).
    Nothing,
    /// No address: `unknown`, obfuscated, or invalid.
    Hidden,
}

fn follow(
    nearest_first: impl Iterator<Item = Hop>,
    peer: IpAddr,
    trusted: impl Fn(IpAddr) -> bool,
) -> OriginatingClient {
    let mut client = OriginatingClient { address: peer.to_canonical(), hops: 0 };
    for hop in nearest_first {
        // The address was named by the hop before it.
        if !trusted(client.address) {
            break;
        }
        match hop {
            Hop::Address(address) => client = OriginatingClient { address, hops: client.hops + 1 },
            Hop::Nothing => {}
            Hop::Hidden => break,
        }
    }
    client
}

/// Parses an element of X-Forwarded-For: an address, which some proxies write with a port or in brackets.
fn x_forwarded_hop(text: &[u8]) -> Hop {
    let Ok(text) = str::from_utf8(text) else { return Hop::Hidden };
    if text.is_empty() {
        return Hop::Nothing;
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bare {
        Some(inside) => inside.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip())),
    };
    address.map_or(Hop::Hidden, |address| Hop::Address(address.to_canonical()))
}

/// The last hops of one Forwarded value, in a ring: quoted strings can only be parsed forwards.
struct LastHops {
    ring: [Hop; MAX_HOPS],
    count: usize,
}

impl LastHops {
    fn read(value: &[u8]) -> Self {
        let mut list = Self { ring: [Hop::Nothing; MAX_HOPS], count: 0 };
        for element in elements(value) {
            let hop = match element.map(|element| element.client) {
                Ok(Some(Node::Address { ip, .. })) => Hop::Address(ip.to_canonical()),
                Ok(_) => Hop::Hidden,
                // The boundary of the next element is unknown, so the whole value is discarded.
                Err(_) => {
                    let mut ring = [Hop::Nothing; MAX_HOPS];
                    ring[0] = Hop::Hidden;
                    return Self { ring, count: 1 };
                }
            };
            list.ring[list.count % MAX_HOPS] = hop;
            list.count += 1;
        }
        list
    }

    fn nearest_first(self) -> impl Iterator<Item = Hop> {
        let kept = self.count.min(MAX_HOPS);
        (1..=kept).map(move |back| self.ring[(self.count - back) % MAX_HOPS])
    }
}

impl ForwardedFault {
    /// Stable word for events and counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax => "forwarded_syntax",
            Self::Repeated => "forwarded_repeated",
            Self::Node => "forwarded_node",
        }
    }
}

impl fmt::Display for ForwardedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "Forwarded is malformed",
            Self::Repeated => "Forwarded has a parameter twice in one element",
            Self::Node => "Forwarded names no node",
        })
    }
}

impl std::error::Error for ForwardedFault {}

#[cfg(test)]
mod tests;
