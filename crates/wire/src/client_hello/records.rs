//! Reassembly of one handshake message from TLS records.
//!
//! The record header rules are those of rustls: any version 3.x, a length below 2^14 + 2048, no empty
//! handshake records (RFC 8446 §5.1). A message within one record is borrowed; one that spans several is
//! joined, once all of it has arrived.

use std::borrow::Cow;

use super::{MAX_HELLO, MAX_RECORDS};
use crate::{HelloFault, ParseStep};

/// Type, version and length of a record, in bytes.
const RECORD_HEAD: usize = 5;
/// Type and length of a handshake message, in bytes.
const MESSAGE_HEAD: usize = 4;
/// Lengths from here on are rejected (RFC 5246 §6.2.3: 2^14 + 2048).
const RECORD_LIMIT: u16 = (1 << 14) + 2048;

const HANDSHAKE: u8 = 22;
/// The other record types, change_cipher_spec to heartbeat.
const OTHER_RECORDS: std::ops::RangeInclusive<u8> = 20..=24;
const VERSION_MAJOR: u8 = 3;
const CLIENT_HELLO: u8 = 1;

/// Length of a message that has arrived.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Bytes of the message, including its header.
    whole: usize,
    /// Set if the whole message is in the first record.
    in_one: bool,
}

/// The ClientHello at the front of `buf`, without its message header.
pub(super) fn message(buf: &[u8]) -> ParseStep<Cow<'_, [u8]>, HelloFault> {
    extent(buf).map(|Extent { whole, in_one }| match in_one {
        true => Cow::Borrowed(&buf[RECORD_HEAD + MESSAGE_HEAD..RECORD_HEAD + whole]),
        false => Cow::Owned(join(buf, whole)),
    })
}

/// Measures the ClientHello at the front of `buf`.
pub(super) fn extent(buf: &[u8]) -> ParseStep<Extent, HelloFault> {
    let mut rest = buf;
    let mut progress = Reassembly::default();
    for index in 0..MAX_RECORDS {
        let length = match read_head(rest, index == 0) {
            Ok(Some(length)) => length,
            Ok(None) => return ParseStep::Need(RECORD_HEAD - rest.len() + progress.missing()),
            Err(fault) => return ParseStep::Reject(fault),
        };
        let body = &rest[RECORD_HEAD..];
        let here = &body[..body.len().min(length)];
        if let Err(fault) = progress.take(here) {
            return ParseStep::Reject(fault);
        }
        let missing = progress.missing();
        if missing == 0 {
            let value = Extent { whole: progress.whole, in_one: index == 0 };
            return ParseStep::Done { value, consumed: 0 };
        }
        let to_come = length - here.len();
        if to_come > 0 {
            let next_head = if missing > to_come { RECORD_HEAD } else { 0 };
            return ParseStep::Need(missing + next_head);
        }
        rest = &body[length..];
    }
    ParseStep::Reject(HelloFault::TooManyRecords)
}

/// Handshake bytes counted so far, including the message header.
struct Reassembly {
    head: [u8; MESSAGE_HEAD],
    seen: usize,
    /// Lower bound of the message length; exact once the header was read.
    whole: usize,
}

impl Default for Reassembly {
    fn default() -> Self {
        Self { head: [0; MESSAGE_HEAD], seen: 0, whole: MESSAGE_HEAD }
    }
}

impl Reassembly {
    /// Lower bound of the bytes still missing.
    fn missing(&self) -> usize {
        self.whole.saturating_sub(self.seen)
    }

    /// Counts the content of a record and reads the message header when it is whole.
    fn take(&mut self, bytes: &[u8]) -> Result<(), HelloFault> {
        let had_head = self.seen >= MESSAGE_HEAD;
        for (slot, &byte) in self.head.iter_mut().skip(self.seen).zip(bytes) {
            *slot = byte;
        }
        self.seen += bytes.len();
        if self.seen > 0 && self.head[0] != CLIENT_HELLO {
            return Err(HelloFault::NotClientHello(self.head[0]));
        }
        if !had_head && self.seen >= MESSAGE_HEAD {
            let [_, high, middle, low] = self.head;
            let length = u32::from_be_bytes([0, high, middle, low]);
            // 24 bits fit a `usize` on Linux.
            self.whole = MESSAGE_HEAD + length as usize;
            if self.whole > MESSAGE_HEAD + MAX_HELLO {
                return Err(HelloFault::TooLarge(length));
            }
        }
        Ok(())
    }
}

/// Length of the record at the front of `bytes`; `None` while its header is incomplete.
fn read_head(bytes: &[u8], first: bool) -> Result<Option<usize>, HelloFault> {
    let Some(&kind) = bytes.first() else { return Ok(None) };
    if first && !OTHER_RECORDS.contains(&kind) {
        return Err(HelloFault::NotTls);
    }
    let Some(&major) = bytes.get(1) else { return Ok(None) };
    if major != VERSION_MAJOR {
        return Err(HelloFault::NotTls);
    }
    if kind != HANDSHAKE {
        return Err(HelloFault::UnexpectedRecord(kind));
    }
    let Some(&[high, low]) = bytes.get(3..RECORD_HEAD).and_then(<[u8]>::first_chunk) else {
        return Ok(None);
    };
    match u16::from_be_bytes([high, low]) {
        0 => Err(HelloFault::EmptyRecord),
        length if length >= RECORD_LIMIT => Err(HelloFault::RecordTooLarge(length)),
        length => Ok(Some(usize::from(length))),
    }
}

/// Joins a message of `whole` bytes, including its header, from records known to hold all of it.
fn join(buf: &[u8], whole: usize) -> Vec<u8> {
    let mut message = Vec::with_capacity(whole);
    let mut rest = buf;
    while message.len() < whole {
        let Ok(Some(length)) = read_head(rest, false) else { break };
        let body = &rest[RECORD_HEAD..];
        let wanted = length.min(whole - message.len()).min(body.len());
        message.extend_from_slice(&body[..wanted]);
        rest = &body[length.min(body.len())..];
    }
    message.drain(..MESSAGE_HEAD.min(message.len()));
    message
}
