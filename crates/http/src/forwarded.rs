//! Who the client was, as the proxies before us tell it: Forwarded (RFC 7239) and X-Forwarded-For.
//!
//! Anybody can write these fields, so they are read from the right, where the nearest proxy wrote, and only
//! as long as the writer is trusted: [`client`] and [`x_forwarded_for`]. Whatever cannot be read ends the way
//! there; it never fails a request. [`elements`] reads Forwarded by the letter, and [`Element::write`] writes
//! it. It refuses to believe anything by itself: trust is the caller's closure.

mod element;
mod node;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str;

pub use element::{Element, Elements, elements};
pub use node::Node;

/// How many proxies are followed at most; who is farther away is not asked for.
pub const MAX_HOPS: usize = 32;

/// The client as far as the trust reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The farthest address that a trusted proxy has named; the peer's own where none has.
    pub address: IpAddr,
    /// How many proxies were believed; 0: the peer is the client.
    pub hops: usize,
}

/// Why a Forwarded value cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardedFault {
    /// Not `name=value` with tokens and quoted strings (RFC 7239 §4).
    Syntax,
    /// A parameter twice in one element (RFC 7239 §4).
    Repeated,
    /// `for` or `by` name no node (RFC 7239 §6).
    Node,
}

/// Finds the client by the values of X-Forwarded-For, in the order in which they came.
///
/// Looks at [`MAX_HOPS`] elements at most.
pub fn x_forwarded_for<'a, I>(values: I, peer: IpAddr, trusted: impl Fn(IpAddr) -> bool) -> Client
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: DoubleEndedIterator,
{
    let nearest_first = values.into_iter().rev().flat_map(|value| value.rsplit(|&byte| byte == b','));
    follow(nearest_first.take(MAX_HOPS).map(|text| listed(text.trim_ascii())), peer, trusted)
}

/// Finds the client by the values of Forwarded, in the order in which they came. Of each value that is looked
/// at, the last [`MAX_HOPS`] elements count; a value that breaks the grammar ends the way.
pub fn client<'a, I>(values: I, peer: IpAddr, trusted: impl Fn(IpAddr) -> bool) -> Client
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: DoubleEndedIterator,
{
    let nearest_first = values.into_iter().rev().flat_map(|value| Told::read(value).nearest_first());
    follow(nearest_first.take(MAX_HOPS), peer, trusted)
}

/// What one element tells.
#[derive(Debug, Clone, Copy)]
enum Hop {
    Address(IpAddr),
    /// An empty element of a list, which means nothing (RFC 9110 §5.6.1.2).
    Nothing,
    /// No address: `unknown`, obfuscated, or junk.
    Hidden,
}

fn follow(
    nearest_first: impl Iterator<Item = Hop>,
    peer: IpAddr,
    trusted: impl Fn(IpAddr) -> bool,
) -> Client {
    let mut client = Client { address: peer.to_canonical(), hops: 0 };
    for hop in nearest_first {
        // Each is named by the one before.
        if !trusted(client.address) {
            break;
        }
        match hop {
            Hop::Address(address) => client = Client { address, hops: client.hops + 1 },
            Hop::Nothing => {}
            Hop::Hidden => break,
        }
    }
    client
}

/// One element of X-Forwarded-For: an address, which some proxies write with a port or in brackets.
fn listed(text: &[u8]) -> Hop {
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

/// The last hops of one value of Forwarded. They are kept because quoted strings can only be read forwards.
struct Told {
    ring: [Hop; MAX_HOPS],
    count: usize,
}

impl Told {
    fn read(value: &[u8]) -> Self {
        let mut list = Self { ring: [Hop::Nothing; MAX_HOPS], count: 0 };
        for element in elements(value) {
            let hop = match element.map(|element| element.client) {
                Ok(Some(Node::Address { ip, .. })) => Hop::Address(ip.to_canonical()),
                Ok(_) => Hop::Hidden,
                // Where one element ends and the next begins is unknown: nothing of the value counts.
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
    /// A stable word for events and counters.
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
