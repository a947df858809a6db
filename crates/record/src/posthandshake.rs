//! Post-handshake messages: KeyUpdate in TLS 1.3, declined renegotiation in TLS 1.2, and the session tickets
//! of TLS 1.3 that a client receives.
//!
//! Messages may be fragmented over records, so a header and the one byte of a KeyUpdate are kept here; a
//! ClientHello of TLS 1.2 is only counted, never stored. Tickets are collected in [`TicketCollector`], which only a
//! client has.

use crate::event::RecordFault;
use crate::suite::Version;

const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const MESSAGE_HEADER: usize = 4;
/// Longest handshake message that is accepted, in bytes, as in rustls.
const MOST_MESSAGE: usize = 0xffff;
/// Longest ticket that is kept, in bytes. A server that embeds a client's certificate chain needs a few KiB.
const MOST_TICKET: usize = 16 * 1024;
/// Maximum number of tickets kept per connection: two are usual, and each new connection uses one.
const MOST_TICKETS: u8 = 8;

/// Result of a record with handshake content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PostHandshakeMessage {
    Incomplete,
    KeyUpdate {
        answer: bool,
    },
    Renegotiation,
    /// At least one session ticket is whole.
    Tickets,
}

/// Session tickets that a client receives after the handshake (RFC 8446 §4.6.1).
#[derive(Default)]
pub(crate) struct TicketCollector {
    /// Received part of a message, without its header.
    part: Vec<u8>,
    /// Whole messages, without their headers.
    whole: Vec<Vec<u8>>,
    /// Number of tickets kept on this connection.
    kept: u8,
}

impl TicketCollector {
    /// Takes the whole messages.
    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.whole)
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.kept < MOST_TICKETS {
            self.part.extend_from_slice(bytes);
        }
    }

    /// Ends a message, and keeps it within the bounds.
    fn finish(&mut self) {
        if self.kept < MOST_TICKETS {
            self.kept += 1;
            self.whole.push(std::mem::take(&mut self.part));
        }
    }
}

/// Parser state of a message that may be fragmented.
pub(crate) struct PostHandshake {
    version: Version,
    header: [u8; MESSAGE_HEADER],
    have: u8,
    /// Body bytes still missing once the header is whole.
    body: u32,
}

impl PostHandshake {
    pub(crate) const fn new(version: Version) -> Self {
        Self { version, header: [0; MESSAGE_HEADER], have: 0, body: 0 }
    }

    /// Returns true between messages.
    #[inline]
    pub(crate) const fn aligned(&self) -> bool {
        self.have == 0
    }

    /// Consumes the content of one handshake record; `tickets` is set for a client.
    pub(crate) fn take(
        &mut self,
        content: &[u8],
        mut tickets: Option<&mut TicketCollector>,
    ) -> Result<PostHandshakeMessage, RecordFault> {
        if content.is_empty() {
            // RFC 8446 §5.1, RFC 5246 §6.2.1: no zero-length fragments of handshake messages.
            return Err(RecordFault::UnexpectedType);
        }
        let mut rest = content;
        let mut outcome = PostHandshakeMessage::Incomplete;
        while let Some((&byte, after)) = rest.split_first() {
            if matches!(outcome, PostHandshakeMessage::KeyUpdate { .. }) {
                return Err(RecordFault::StraddlesKeyChange);
            }
            if usize::from(self.have) < MESSAGE_HEADER {
                self.header[usize::from(self.have)] = byte;
                self.have += 1;
                rest = after;
                if usize::from(self.have) == MESSAGE_HEADER {
                    self.check_header(tickets.is_some())?;
                }
            } else {
                let take = rest.len().min(self.body as usize);
                // At most the body.
                self.body -= take as u32;
                match (self.header[0], tickets.as_deref_mut()) {
                    (NEW_SESSION_TICKET, Some(tickets)) => {
                        tickets.add(&rest[..take]);
                        if self.body == 0 {
                            tickets.finish();
                            outcome = PostHandshakeMessage::Tickets;
                        }
                    }
                    (KEY_UPDATE, _) => outcome = key_update(rest[take - 1])?,
                    _ => {}
                }
                rest = &rest[take..];
            }
            if usize::from(self.have) == MESSAGE_HEADER && self.body == 0 {
                self.have = 0;
                if self.version == Version::Tls12 {
                    if outcome == PostHandshakeMessage::Renegotiation {
                        return Err(RecordFault::TooManyRenegotiations);
                    }
                    outcome = PostHandshakeMessage::Renegotiation;
                }
            }
        }
        Ok(outcome)
    }

    /// Validates type and length: few types are permitted after the handshake.
    fn check_header(&mut self, client: bool) -> Result<(), RecordFault> {
        let [typ, a, b, c] = self.header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match (self.version, typ, length) {
            (Version::Tls13, KEY_UPDATE, 1) => {}
            (Version::Tls13, KEY_UPDATE, _) => return Err(RecordFault::BadHandshake),
            (Version::Tls13, NEW_SESSION_TICKET, 1..=MOST_TICKET) if client => {}
            (Version::Tls13, NEW_SESSION_TICKET, _) if client => return Err(RecordFault::BadHandshake),
            (Version::Tls12, HELLO_REQUEST, 0) if client => {}
            (Version::Tls12, CLIENT_HELLO, 0..=MOST_MESSAGE) if !client => {}
            (Version::Tls12, CLIENT_HELLO, _) if !client => return Err(RecordFault::BadHandshake),
            _ => return Err(RecordFault::UnexpectedHandshake),
        }
        // A length of three bytes.
        self.body = length as u32;
        Ok(())
    }
}

fn key_update(value: u8) -> Result<PostHandshakeMessage, RecordFault> {
    match value {
        0 => Ok(PostHandshakeMessage::KeyUpdate { answer: false }),
        1 => Ok(PostHandshakeMessage::KeyUpdate { answer: true }),
        _ => Err(RecordFault::BadKeyUpdate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_update_in_any_fragments() {
        for split in 0..4 {
            let mut state = PostHandshake::new(Version::Tls13);
            let message = [24, 0, 0, 1, 1];
            if split > 0 {
                assert_eq!(state.take(&message[..split], None), Ok(PostHandshakeMessage::Incomplete));
                assert!(!state.aligned());
            }
            assert_eq!(
                state.take(&message[split..], None),
                Ok(PostHandshakeMessage::KeyUpdate { answer: true })
            );
            assert!(state.aligned());
        }
    }

    #[test]
    fn rejected_messages_of_tls13() {
        let take = |bytes: &[u8]| PostHandshake::new(Version::Tls13).take(bytes, None);
        assert_eq!(take(&[]), Err(RecordFault::UnexpectedType));
        assert_eq!(take(&[24, 0, 0, 1, 2]), Err(RecordFault::BadKeyUpdate));
        assert_eq!(take(&[24, 0, 0, 0]), Err(RecordFault::BadHandshake));
        assert_eq!(take(&[24, 0, 0, 2, 0, 0]), Err(RecordFault::BadHandshake));
        assert_eq!(take(&[24, 0, 0, 1, 0, 24]), Err(RecordFault::StraddlesKeyChange));
        assert_eq!(take(&[24, 0, 0, 1, 0, 24, 0, 0, 1, 0]), Err(RecordFault::StraddlesKeyChange));
        assert_eq!(take(&[1, 0, 0, 1]), Err(RecordFault::UnexpectedHandshake));
    }

    #[test]
    fn a_client_hello_of_tls12_is_skipped() {
        let mut state = PostHandshake::new(Version::Tls12);
        assert_eq!(state.take(&[1, 0, 1, 0, 9], None), Ok(PostHandshakeMessage::Incomplete));
        assert_eq!(state.take(&[0; 254], None), Ok(PostHandshakeMessage::Incomplete));
        assert_eq!(state.take(&[0; 1], None), Ok(PostHandshakeMessage::Renegotiation));
        assert_eq!(state.take(&[20, 0, 0, 1], None), Err(RecordFault::UnexpectedHandshake));
        assert_eq!(
            PostHandshake::new(Version::Tls12).take(&[1, 1, 0, 0], None),
            Err(RecordFault::BadHandshake)
        );
        assert_eq!(
            PostHandshake::new(Version::Tls12).take(&[1, 0, 0, 0], None),
            Ok(PostHandshakeMessage::Renegotiation)
        );
    }

    #[test]
    fn tickets_of_a_client_in_any_fragments() {
        let message = [&[4, 0, 0, 3, 7, 8, 9][..], &[4, 0, 0, 1, 5], &[24, 0, 0, 1, 0]].concat();
        for split in 1..12 {
            let (mut state, mut tickets) = (PostHandshake::new(Version::Tls13), TicketCollector::default());
            let first = state.take(&message[..split], Some(&mut tickets)).unwrap();
            assert_eq!(
                first,
                if split < 7 { PostHandshakeMessage::Incomplete } else { PostHandshakeMessage::Tickets }
            );
            assert_eq!(state.aligned(), split == 7);
            let second = state.take(&message[split..], Some(&mut tickets));
            assert_eq!(second, Ok(PostHandshakeMessage::KeyUpdate { answer: false }));
            assert_eq!(tickets.take(), [&[7, 8, 9][..], &[5]]);
            assert!(state.aligned() && tickets.take().is_empty());
        }
    }

    #[test]
    fn tickets_are_bounded_in_number_and_length() {
        let (mut state, mut tickets) = (PostHandshake::new(Version::Tls13), TicketCollector::default());
        for _ in 0..100 {
            assert_eq!(state.take(&[4, 0, 0, 1, 5], Some(&mut tickets)), Ok(PostHandshakeMessage::Tickets));
        }
        assert_eq!(tickets.take().len(), usize::from(MOST_TICKETS));
        assert!(tickets.part.capacity() <= MOST_TICKET);
        assert_eq!(state.take(&[4, 0, 64, 1], Some(&mut tickets)), Err(RecordFault::BadHandshake));
        assert_eq!(
            PostHandshake::new(Version::Tls13).take(&[4, 0, 0, 0], Some(&mut TicketCollector::default())),
            Err(RecordFault::BadHandshake)
        );
        assert_eq!(
            PostHandshake::new(Version::Tls13).take(&[4, 0, 0, 1, 0], None),
            Err(RecordFault::UnexpectedHandshake)
        );
    }

    #[test]
    fn a_server_of_tls12_may_request_a_renegotiation() {
        let take = |bytes: &[u8]| {
            PostHandshake::new(Version::Tls12).take(bytes, Some(&mut TicketCollector::default()))
        };
        assert_eq!(take(&[0, 0, 0, 0]), Ok(PostHandshakeMessage::Renegotiation));
        assert_eq!(take(&[0, 0, 0, 1, 0]), Err(RecordFault::UnexpectedHandshake));
        assert_eq!(take(&[1, 0, 0, 0]), Err(RecordFault::UnexpectedHandshake));
        assert_eq!(take(&[0, 0, 0, 0, 0, 0, 0, 0]), Err(RecordFault::TooManyRenegotiations));
    }
}
