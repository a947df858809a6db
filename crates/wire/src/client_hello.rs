//! A look at the ClientHello at the front of a buffer, before anything is decided.
//!
//! [`peek`] reads what routing, choice of certificate and the record of a failed handshake need: the name,
//! the protocols, and what the client offers. It consumes nothing: the same bytes then go to rustls, or to the
//! server of a passthrough route.
//!
//! It is a look and not a verdict. It refuses to judge whether the handshake can succeed: compression,
//! ordering and cross-checks between extensions are for rustls. Where the bytes are odd it says how, by
//! [`HelloFault`], and the caller still hands them to rustls, whose alert is the right one. (A client that
//! sends a warning alert first, say, is [`HelloFault::UnexpectedRecord`] here and served by rustls.)
//!
//! [`ClientHello::ja4`] is a fingerprint of all that.
//!
//! It allocates in two cases only: the message once, where it is spread over several records (at most
//! [`MAX_HELLO`] bytes), and the name once, where it has capital letters (at most 253 bytes).

mod ja4;
mod name;
mod names;
mod parse;
mod records;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::str;

pub use ja4::Ja4;
pub use names::{Name, group_name, is_grease, openssl_suite_name, scheme_name, suite_name, version_name};

use crate::{HelloFault, Step};
use name::HostName;
use parse::Span;

/// The longest ClientHello that is read, in bytes of the message without its 4-byte header; as rustls.
pub const MAX_HELLO: usize = 0xffff;
/// The most records over which a ClientHello may be spread. Clients that fragment at all use a handful; this
/// leaves room for one byte per record, which some evade censors with, also where the hello has post-quantum key
/// shares (1,700 bytes), and bounds the work of a look.
pub const MAX_RECORDS: usize = 4096;
/// No look asks for more bytes at the front of the buffer than this.
pub const MAX_LOOK: usize = 4 + MAX_HELLO + 5 * MAX_RECORDS;

/// What a client offers. Lists come in the client's order, without GREASE values (RFC 8701).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// The message without its header; the spans below index it.
    message: Cow<'a, [u8]>,
    legacy_version: u16,
    suites: Span,
    extensions: Span,
    host: HostName,
    alpn: Option<Span>,
    versions: Option<Span>,
    groups: Option<Span>,
    schemes: Option<Span>,
    key_shares: Option<Span>,
    session_ticket: Option<Span>,
    pre_shared_key: Option<Span>,
    early_data: bool,
}

/// What the `server_name` extension says (RFC 6066 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerName<'a> {
    /// The client sent no such extension.
    Absent,
    /// A valid host name, in lower case, without a trailing dot; at most 253 bytes.
    Host(&'a str),
    /// An IP address, which RFC 6066 forbids here; rustls serves the client as if there were no name.
    IpAddress,
    /// Nothing that is a host name; rustls refuses the client.
    Invalid,
}

impl<'a> ServerName<'a> {
    /// The host name, if there is a valid one.
    #[must_use]
    pub fn host(self) -> Option<&'a str> {
        match self {
            Self::Host(name) => Some(name),
            Self::Absent | Self::IpAddress | Self::Invalid => None,
        }
    }
}

/// Looks at the TLS records at the front of `buf` for a whole ClientHello.
///
/// A value comes with `consumed: 0`. Never asks for more than [`MAX_LOOK`] bytes in all; what follows the
/// ClientHello is not looked at. The work is linear in the bytes looked at.
///
/// Rejects with the [`HelloFault`] that names what is odd; see the module on what that means.
pub fn peek(buf: &[u8]) -> Step<ClientHello<'_>, HelloFault> {
    match records::message(buf) {
        Step::Need(more) => Step::Need(more),
        Step::Reject(fault) => Step::Reject(fault),
        Step::Done { value, .. } => match parse::parse(value) {
            Ok(value) => Step::Done { value, consumed: 0 },
            Err(fault) => Step::Reject(fault),
        },
    }
}

/// Whether the TLS records at the front of `buf` hold a whole ClientHello, as [`peek`] would see it, but without a
/// look at what it says: for a caller that waits for it, and looks once.
pub fn arrived(buf: &[u8]) -> Step<(), HelloFault> {
    records::extent(buf).map(|_| ())
}

impl ClientHello<'_> {
    /// The `legacy_version` field: the highest version of clients before TLS 1.3.
    #[must_use]
    pub fn legacy_version(&self) -> u16 {
        self.legacy_version
    }

    /// The server name that the client requests.
    #[must_use]
    pub fn server_name(&self) -> ServerName<'_> {
        match &self.host {
            HostName::Absent => ServerName::Absent,
            // Only ASCII passes the validation of names.
            HostName::AsSent(span) => {
                str::from_utf8(span.of(&self.message)).map_or(ServerName::Invalid, ServerName::Host)
            }
            HostName::Lowered(name) => ServerName::Host(name),
            HostName::IpAddress => ServerName::IpAddress,
            HostName::Invalid => ServerName::Invalid,
        }
    }

    /// The protocols offered by ALPN (RFC 7301), none of them empty.
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut rest = self.list(self.alpn);
        std::iter::from_fn(move || {
            let (&length, tail) = rest.split_first()?;
            // Parsing has checked that the names fill the list.
            let (name, tail) = tail.split_at_checked(usize::from(length))?;
            rest = tail;
            Some(name)
        })
    }

    /// Whether this protocol is offered by ALPN.
    #[must_use]
    pub fn offers_alpn(&self, protocol: &[u8]) -> bool {
        self.alpn().any(|offered| offered == protocol)
    }

    /// The versions offered: those of `supported_versions`, or, without that extension, the legacy version
    /// but at most TLS 1.2 (RFC 8446 §4.2.1).
    pub fn versions(&self) -> impl Iterator<Item = u16> + Clone {
        let legacy = self.versions.is_none().then_some(self.legacy_version.min(TLS12));
        codes(self.list(self.versions)).chain(legacy)
    }

    /// Whether the client can speak this version. Without `supported_versions` it can speak every version up
    /// to its legacy one.
    #[must_use]
    pub fn offers_version(&self, version: u16) -> bool {
        match self.versions {
            Some(span) => codes(span.of(&self.message)).any(|offered| offered == version),
            None => version <= self.legacy_version.min(TLS12),
        }
    }

    /// The cipher suites offered, signalling values among them.
    pub fn suites(&self) -> impl Iterator<Item = u16> + Clone {
        codes(self.suites.of(&self.message))
    }

    /// The key exchange groups offered (`supported_groups`).
    pub fn groups(&self) -> impl Iterator<Item = u16> + Clone {
        codes(self.list(self.groups))
    }

    /// The signature schemes offered (`signature_algorithms`).
    pub fn schemes(&self) -> impl Iterator<Item = u16> + Clone {
        codes(self.list(self.schemes))
    }

    /// The groups for which the client sent a key share.
    pub fn key_shares(&self) -> impl Iterator<Item = u16> + Clone {
        tagged(self.list(self.key_shares))
    }

    /// The types of the extensions, in order.
    pub fn extensions(&self) -> impl Iterator<Item = u16> + Clone {
        tagged(self.extensions.of(&self.message))
    }

    /// Whether the client brings a TLS 1.2 session ticket (RFC 5077); asking for one does not count.
    #[must_use]
    pub fn has_session_ticket(&self) -> bool {
        !self.list(self.session_ticket).is_empty()
    }

    /// Whether the client offers to resume by a TLS 1.3 pre-shared key.
    #[must_use]
    pub fn has_pre_shared_key(&self) -> bool {
        self.pre_shared_key.is_some()
    }

    /// The ticket by which the client offers to resume a session: the first identity of its pre-shared keys (RFC 8446
    /// §4.2.11), or what a TLS 1.2 server has given it (RFC 5077).
    #[must_use]
    pub fn ticket(&self) -> Option<&[u8]> {
        let Some(keys) = self.pre_shared_key else {
            return self
                .session_ticket
                .map(|ticket| ticket.of(&self.message))
                .filter(|ticket| !ticket.is_empty());
        };
        // The length of all identities, then that of the first.
        let ([_, _, high, low], rest) = keys.of(&self.message).split_first_chunk()?;
        rest.get(..usize::from(u16::from_be_bytes([*high, *low])))
    }

    /// Whether the client wants to send, or has sent, early data.
    #[must_use]
    pub fn has_early_data(&self) -> bool {
        self.early_data
    }

    fn list(&self, span: Option<Span>) -> &[u8] {
        span.map_or(&[], |span| span.of(&self.message))
    }
}

const TLS12: u16 = 0x0303;

/// Two-byte values, GREASE left out. Parsing has checked that the length is even.
fn codes(list: &[u8]) -> impl Iterator<Item = u16> + Clone {
    list.as_chunks::<2>().0.iter().map(|&code| u16::from_be_bytes(code)).filter(|&code| !is_grease(code))
}

/// The two-byte tags, GREASE left out, of items that are a tag and a two-byte length with as many bytes.
/// Parsing has checked that the items fill the list.
fn tagged(mut rest: &[u8]) -> impl Iterator<Item = u16> + Clone {
    std::iter::from_fn(move || {
        let (&[tag_high, tag_low, high, low], tail) = rest.split_first_chunk()?;
        rest = tail.get(usize::from(u16::from_be_bytes([high, low]))..)?;
        Some(u16::from_be_bytes([tag_high, tag_low]))
    })
    .filter(|&tag| !is_grease(tag))
}
