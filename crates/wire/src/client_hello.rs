//! Reads the ClientHello at the front of a buffer before the handshake starts.
//!
//! [`peek`] extracts the fields that routing, certificate selection and the log of a failed handshake need:
//! the server name, the ALPN protocols, and the parameters that the client offers. It consumes nothing: the
//! same bytes then go to rustls, or to the server of a passthrough route.
//!
//! `peek` does not decide whether the handshake can succeed: compression, ordering and cross-checks between
//! extensions are left to rustls. A [`HelloFault`] names malformed input; the caller still hands the bytes to
//! rustls, whose alert is the right one. (A client that sends a warning alert first is
//! [`HelloFault::UnexpectedRecord`] here and is served by rustls.)
//!
//! [`ClientHello::ja4`] computes the JA4 fingerprint.
//!
//! Allocations: the message, if it spans several records (at most [`MAX_HELLO`] bytes), and the server name,
//! if it has capital letters (at most 253 bytes).

mod ja4;
mod name;
mod names;
mod parse;
mod records;
mod rewrite;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::str;

pub use ja4::Ja4;
pub use names::{
    RegistryName, group_name, is_grease, openssl_suite_name, scheme_name, suite_name, version_name,
};

pub use rewrite::{extract, in_records};

use crate::{HelloFault, ParseStep};
use name::SniContent;
use parse::MessageSpan;

/// Longest ClientHello accepted, in bytes of the message without its 4-byte header. rustls has the same
/// bound.
pub const MAX_HELLO: usize = 0xffff;
/// Maximum number of records that a ClientHello may span. Clients that fragment at all use a handful. The
/// bound admits one byte per record, which censorship circumvention tools send, for hellos with post-quantum
/// key shares (1,700 bytes), and limits the work per call.
pub const MAX_RECORDS: usize = 4096;
/// Maximum number of bytes at the front of the buffer that [`peek`] asks for.
pub const MAX_LOOK: usize = 4 + MAX_HELLO + 5 * MAX_RECORDS;

/// A parsed ClientHello. Lists keep the client's order and omit GREASE values (RFC 8701).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// The message without its header; every [`MessageSpan`] below indexes it.
    message: Cow<'a, [u8]>,
    legacy_version: u16,
    suites: MessageSpan,
    extensions: MessageSpan,
    host: SniContent,
    alpn: Option<MessageSpan>,
    versions: Option<MessageSpan>,
    groups: Option<MessageSpan>,
    schemes: Option<MessageSpan>,
    key_shares: Option<MessageSpan>,
    session_ticket: Option<MessageSpan>,
    pre_shared_key: Option<MessageSpan>,
    early_data: bool,
}

/// Content of the `server_name` extension (RFC 6066 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerName<'a> {
    /// The extension is absent.
    Absent,
    /// A valid host name, in lower case, without a trailing dot; at most 253 bytes.
    Host(&'a str),
    /// An IP address, which RFC 6066 forbids here; rustls serves the client as if there were no name.
    IpAddress,
    /// Not a host name; rustls rejects the handshake.
    Invalid,
}

impl<'a> ServerName<'a> {
    /// Returns the host name, if there is a valid one.
    #[must_use]
    pub fn host(self) -> Option<&'a str> {
        match self {
            Self::Host(name) => Some(name),
            Self::Absent | Self::IpAddress | Self::Invalid => None,
        }
    }
}

/// Parses the ClientHello in the TLS records at the front of `buf`.
///
/// A value comes with `consumed: 0`. Asks for at most [`MAX_LOOK`] bytes in all and ignores what follows the
/// ClientHello. The work is linear in the bytes read.
///
/// Rejects with the [`HelloFault`] that names the malformed part; the module documentation says what callers
/// do with it.
pub fn peek(buf: &[u8]) -> ParseStep<ClientHello<'_>, HelloFault> {
    match records::message(buf) {
        ParseStep::Need(more) => ParseStep::Need(more),
        ParseStep::Reject(fault) => ParseStep::Reject(fault),
        ParseStep::Done { value, .. } => match parse::parse(value) {
            Ok(value) => ParseStep::Done { value, consumed: 0 },
            Err(fault) => ParseStep::Reject(fault),
        },
    }
}

/// Checks that the TLS records at the front of `buf` hold a whole ClientHello, without parsing it.
///
/// Agrees with [`peek`] on [`ParseStep::Need`] and on faults of the record framing. A caller that waits for the
/// hello calls this per read and `peek` once.
pub fn arrived(buf: &[u8]) -> ParseStep<(), HelloFault> {
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
            SniContent::Absent => ServerName::Absent,
            // Validation admits only ASCII.
            SniContent::AsSent(span) => {
                str::from_utf8(span.of(&self.message)).map_or(ServerName::Invalid, ServerName::Host)
            }
            SniContent::Lowered(name) => ServerName::Host(name),
            SniContent::IpAddress => ServerName::IpAddress,
            SniContent::Invalid => ServerName::Invalid,
        }
    }

    /// The protocols offered by ALPN (RFC 7301), none of them empty.
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut rest = self.list(self.alpn);
        std::iter::from_fn(move || {
            let (&length, tail) = rest.split_first()?;
            // `parse` has checked that the names fill the list.
            let (name, tail) = tail.split_at_checked(usize::from(length))?;
            rest = tail;
            Some(name)
        })
    }

    /// Returns true if ALPN offers `protocol`.
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

    /// Returns true if the client supports `version`. Without `supported_versions`, a client supports every
    /// version up to its legacy one.
    #[must_use]
    pub fn offers_version(&self, version: u16) -> bool {
        match self.versions {
            Some(span) => codes(span.of(&self.message)).any(|offered| offered == version),
            None => version <= self.legacy_version.min(TLS12),
        }
    }

    /// The cipher suites offered, including signalling values (SCSV).
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

    /// Returns true for a client that sends a TLS 1.2 session ticket (RFC 5077); an empty extension, which
    /// only asks for a ticket, does not count.
    #[must_use]
    pub fn has_session_ticket(&self) -> bool {
        !self.list(self.session_ticket).is_empty()
    }

    /// Returns true for a client that offers resumption by a TLS 1.3 pre-shared key.
    #[must_use]
    pub fn has_pre_shared_key(&self) -> bool {
        self.pre_shared_key.is_some()
    }

    /// The ticket that the client offers for resumption: the first identity of its pre-shared keys (RFC 8446
    /// §4.2.11), or a TLS 1.2 session ticket (RFC 5077).
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

    /// Returns true for a client that sends TLS 1.3 early data.
    #[must_use]
    pub fn has_early_data(&self) -> bool {
        self.early_data
    }

    fn list(&self, span: Option<MessageSpan>) -> &[u8] {
        span.map_or(&[], |span| span.of(&self.message))
    }
}

const TLS12: u16 = 0x0303;

/// Two-byte values without GREASE. `parse` has checked that the length is even.
fn codes(list: &[u8]) -> impl Iterator<Item = u16> + Clone {
    list.as_chunks::<2>().0.iter().map(|&code| u16::from_be_bytes(code)).filter(|&code| !is_grease(code))
}

/// The two-byte tags, without GREASE, of items that consist of a tag, a two-byte length and that many bytes.
/// `parse` has checked that the items fill the list.
fn tagged(mut rest: &[u8]) -> impl Iterator<Item = u16> + Clone {
    std::iter::from_fn(move || {
        let (&[tag_high, tag_low, high, low], tail) = rest.split_first_chunk()?;
        rest = tail.get(usize::from(u16::from_be_bytes([high, low]))..)?;
        Some(u16::from_be_bytes([tag_high, tag_low]))
    })
    .filter(|&tag| !is_grease(tag))
}
