//! Parser of the ClientHello message: from bytes to the spans of its parts (RFC 8446 §4.1.2, §4.2).
//!
//! Lists are checked here, so that reading them later cannot fail. Extensions that this crate does not use
//! are skipped unread. Empty lists and extensions in any order pass, as in rustls.

use std::borrow::Cow;

use super::ClientHello;
use super::name::{self, SniContent};
use crate::HelloFault;

/// A range of the message, by offsets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MessageSpan {
    start: u32,
    end: u32,
}

impl MessageSpan {
    /// The bytes of the span; `message` must be the one that the span was read from.
    pub(super) fn of(self, message: &[u8]) -> &[u8] {
        &message[self.start as usize..self.end as usize]
    }
}

/// IANA numbers of the extensions that are parsed.
pub(super) mod extension {
    pub(in crate::client_hello) const SERVER_NAME: u16 = 0;
    pub(in crate::client_hello) const SUPPORTED_GROUPS: u16 = 10;
    pub(in crate::client_hello) const SIGNATURE_ALGORITHMS: u16 = 13;
    pub(in crate::client_hello) const ALPN: u16 = 16;
    pub(in crate::client_hello) const SESSION_TICKET: u16 = 35;
    pub(in crate::client_hello) const PRE_SHARED_KEY: u16 = 41;
    pub(in crate::client_hello) const EARLY_DATA: u16 = 42;
    pub(in crate::client_hello) const SUPPORTED_VERSIONS: u16 = 43;
    pub(in crate::client_hello) const KEY_SHARE: u16 = 51;
}

/// Longest session ID, in bytes (RFC 8446 §4.1.2).
const MAX_SESSION_ID: usize = 32;
const RANDOM: usize = 32;

/// Parses a ClientHello without its message header. The message is at most `MAX_HELLO` bytes.
pub(super) fn parse(message: Cow<'_, [u8]>) -> Result<ClientHello<'_>, HelloFault> {
    let mut found = HelloExtensions::default();
    let mut reader = ByteCursor::new(&message);
    let legacy_version = reader.u16("legacy_version")?;
    reader.take(RANDOM, "random")?;
    if reader.vec8("session_id")?.left() > MAX_SESSION_ID {
        return Err(HelloFault::Malformed("session_id"));
    }
    let suites = reader.vec16("cipher_suites")?.even("cipher_suites")?;
    reader.vec8("compression_methods")?;
    let mut extensions = MessageSpan::default();
    // Clients that predate extensions end here.
    if reader.left() > 0 {
        let list = reader.vec16("extensions")?;
        extensions = list.span();
        reader.end("extensions")?;
        read_extensions(list, &mut found)?;
    }
    Ok(ClientHello {
        legacy_version,
        suites,
        extensions,
        host: found.host.unwrap_or(SniContent::Absent),
        alpn: found.alpn,
        versions: found.versions,
        groups: found.groups,
        schemes: found.schemes,
        key_shares: found.key_shares,
        session_ticket: found.session_ticket,
        pre_shared_key: found.pre_shared_key,
        early_data: found.early_data.is_some(),
        message,
    })
}

/// Contents of the extensions; `None` for each that is absent.
#[derive(Default)]
struct HelloExtensions {
    host: Option<SniContent>,
    alpn: Option<MessageSpan>,
    versions: Option<MessageSpan>,
    groups: Option<MessageSpan>,
    schemes: Option<MessageSpan>,
    key_shares: Option<MessageSpan>,
    session_ticket: Option<MessageSpan>,
    pre_shared_key: Option<MessageSpan>,
    early_data: Option<()>,
}

fn read_extensions(mut list: ByteCursor<'_>, found: &mut HelloExtensions) -> Result<(), HelloFault> {
    while list.left() > 0 {
        let kind = list.u16("extension type")?;
        let body = list.vec16("extension")?;
        match kind {
            extension::SERVER_NAME => once(&mut found.host, kind, name::read(body)?)?,
            extension::SUPPORTED_GROUPS => {
                once(&mut found.groups, kind, code_list(body, "supported_groups")?)?;
            }
            extension::SIGNATURE_ALGORITHMS => {
                once(&mut found.schemes, kind, code_list(body, "signature_algorithms")?)?;
            }
            extension::ALPN => once(&mut found.alpn, kind, protocol_list(body)?)?,
            extension::SESSION_TICKET => once(&mut found.session_ticket, kind, body.span())?,
            extension::PRE_SHARED_KEY => once(&mut found.pre_shared_key, kind, body.span())?,
            extension::EARLY_DATA => once(&mut found.early_data, kind, ())?,
            extension::SUPPORTED_VERSIONS => once(&mut found.versions, kind, version_list(body)?)?,
            extension::KEY_SHARE => once(&mut found.key_shares, kind, share_list(body)?)?,
            _ => {}
        }
    }
    Ok(())
}

fn once<T>(slot: &mut Option<T>, kind: u16, value: T) -> Result<(), HelloFault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(HelloFault::DuplicateExtension(kind)),
    }
}

fn code_list(mut body: ByteCursor<'_>, field: &'static str) -> Result<MessageSpan, HelloFault> {
    let list = body.vec16(field)?;
    body.end(field)?;
    list.even(field)
}

fn version_list(mut body: ByteCursor<'_>) -> Result<MessageSpan, HelloFault> {
    let list = body.vec8("supported_versions")?;
    body.end("supported_versions")?;
    list.even("supported_versions")
}

fn protocol_list(mut body: ByteCursor<'_>) -> Result<MessageSpan, HelloFault> {
    const FIELD: &str = "application_layer_protocol_negotiation";
    let mut list = body.vec16(FIELD)?;
    body.end(FIELD)?;
    let span = list.span();
    while list.left() > 0 {
        // "Empty strings MUST NOT be included" (RFC 7301 §3.1).
        if list.vec8(FIELD)?.left() == 0 {
            return Err(HelloFault::Malformed(FIELD));
        }
    }
    Ok(span)
}

fn share_list(mut body: ByteCursor<'_>) -> Result<MessageSpan, HelloFault> {
    let mut list = body.vec16("key_share")?;
    body.end("key_share")?;
    let span = list.span();
    while list.left() > 0 {
        list.u16("key_share")?;
        list.vec16("key_share")?;
    }
    Ok(span)
}

/// A cursor over a range of the message.
#[derive(Clone, Copy)]
pub(super) struct ByteCursor<'a> {
    message: &'a [u8],
    start: usize,
    end: usize,
}

impl<'a> ByteCursor<'a> {
    fn new(message: &'a [u8]) -> Self {
        Self { message, start: 0, end: message.len() }
    }

    /// Number of unread bytes.
    pub(super) fn left(self) -> usize {
        self.end - self.start
    }

    /// The bytes that are not read yet.
    pub(super) fn bytes(self) -> &'a [u8] {
        &self.message[self.start..self.end]
    }

    /// The range of the unread bytes in the message.
    pub(super) fn span(self) -> MessageSpan {
        // A message has at most `MAX_HELLO` bytes, so the offsets fit 32 bits.
        MessageSpan { start: self.start as u32, end: self.end as u32 }
    }

    /// Drops the last unread byte.
    pub(super) fn without_last(self) -> Self {
        Self { end: self.end.saturating_sub(1).max(self.start), ..self }
    }

    /// Splits off the next `length` bytes.
    pub(super) fn take(&mut self, length: usize, field: &'static str) -> Result<ByteCursor<'a>, HelloFault> {
        if length > self.left() {
            return Err(HelloFault::Malformed(field));
        }
        let part = Self { end: self.start + length, ..*self };
        self.start += length;
        Ok(part)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, HelloFault> {
        Ok(self.take(1, field)?.bytes()[0])
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, HelloFault> {
        let bytes = self.take(2, field)?.bytes();
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Splits off a vector with a one-byte length prefix.
    pub(super) fn vec8(&mut self, field: &'static str) -> Result<ByteCursor<'a>, HelloFault> {
        let length = self.u8(field)?;
        self.take(usize::from(length), field)
    }

    /// Splits off a vector with a two-byte length prefix.
    pub(super) fn vec16(&mut self, field: &'static str) -> Result<ByteCursor<'a>, HelloFault> {
        let length = self.u16(field)?;
        self.take(usize::from(length), field)
    }

    /// Fails if unread bytes are left.
    pub(super) fn end(self, field: &'static str) -> Result<(), HelloFault> {
        if self.left() == 0 { Ok(()) } else { Err(HelloFault::Malformed(field)) }
    }

    /// The unread span; fails unless it consists of two-byte values.
    fn even(self, field: &'static str) -> Result<MessageSpan, HelloFault> {
        if self.left().is_multiple_of(2) { Ok(self.span()) } else { Err(HelloFault::Malformed(field)) }
    }
}
