//! Handshake messages after the handshake: KeyUpdate in TLS 1.3, refused renegotiation in TLS 1.2, and for a client the
//! session tickets of TLS 1.3.
//!
//! Messages may be fragmented over records, so a header and the one byte of a KeyUpdate are kept
//! here; a ClientHello of TLS 1.2 is only counted through, never stored. A ticket is collected in [`Tickets`], which
//! only a client has.

use crate::event::Fault;
use crate::suite::Version;

const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const MESSAGE_HEADER: usize = 4;
/// The longest handshake message that is waited for, as rustls bounds it.
const MOST_MESSAGE: usize = 0xffff;
/// The longest ticket that is kept. A server that puts a client's certificate chain into it needs a few KiB.
const MOST_TICKET: usize = 16 * 1024;
/// The most tickets of one connection that are kept: two are usual, and one connection uses one.
const MOST_TICKETS: u8 = 8;

/// What a record of handshake content came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Incomplete,
    KeyUpdate {
        answer: bool,
    },
    Renegotiation,
    /// At least one session ticket is whole.
    Tickets,
}

/// The session tickets that a client gets after the handshake (RFC 8446 §4.6.1).
#[derive(Default)]
pub(crate) struct Tickets {
    /// What has arrived of a message, without its header.
    part: Vec<u8>,
    /// Whole messages, without their headers.
    whole: Vec<Vec<u8>>,
    /// How many of this connection were kept.
    kept: u8,
}

impl Tickets {
    /// The messages that are whole.
    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.whole)
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.kept < MOST_TICKETS {
            self.part.extend_from_slice(bytes);
        }
    }

    /// The message has ended.
    fn finish(&mut self) {
        if self.kept < MOST_TICKETS {
            self.kept += 1;
            self.whole.push(std::mem::take(&mut self.part));
        }
    }
}

/// The part of a message that has arrived.
pub(crate) struct PostHandshake {
    version: Version,
    header: [u8; MESSAGE_HEADER],
    have: u8,
    /// Body bytes still to come once the header is whole.
    body: u32,
}

impl PostHandshake {
    pub(crate) const fn new(version: Version) -> Self {
        Self { version, header: [0; MESSAGE_HEADER], have: 0, body: 0 }
    }

    /// Whether no message is half arrived.
    #[inline]
    pub(crate) const fn aligned(&self) -> bool {
        self.have == 0
    }

    /// Takes the content of one handshake record; `tickets` are those of a client.
    pub(crate) fn take(
        &mut self,
        content: &[u8],
        mut tickets: Option<&mut Tickets>,
    ) -> Result<Message, Fault> {
        if content.is_empty() {
            // RFC 8446 §5.1, RFC 5246 §6.2.1: no zero-length fragments of handshake messages.
            return Err(Fault::UnexpectedType);
        }
        let mut rest = content;
        let mut outcome = Message::Incomplete;
        while let Some((&byte, after)) = rest.split_first() {
            if matches!(outcome, Message::KeyUpdate { .. }) {
                return Err(Fault::StraddlesKeyChange);
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
                // Not more than the body.
                self.body -= take as u32;
                match (self.header[0], tickets.as_deref_mut()) {
                    (NEW_SESSION_TICKET, Some(tickets)) => {
                        tickets.add(&rest[..take]);
                        if self.body == 0 {
                            tickets.finish();
                            outcome = Message::Tickets;
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
                    if outcome == Message::Renegotiation {
                        return Err(Fault::TooManyRenegotiations);
                    }
                    outcome = Message::Renegotiation;
                }
            }
        }
        Ok(outcome)
    }

    /// Few messages may come after the handshake, and their kind is known from their header.
    fn check_header(&mut self, client: bool) -> Result<(), Fault> {
        let [typ, a, b, c] = self.header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match (self.version, typ, length) {
            (Version::Tls13, KEY_UPDATE, 1) => {}
            (Version::Tls13, KEY_UPDATE, _) => return Err(Fault::BadHandshake),
            (Version::Tls13, NEW_SESSION_TICKET, 1..=MOST_TICKET) if client => {}
            (Version::Tls13, NEW_SESSION_TICKET, _) if client => return Err(Fault::BadHandshake),
            (Version::Tls12, HELLO_REQUEST, 0) if client => {}
            (Version::Tls12, CLIENT_HELLO, 0..=MOST_MESSAGE) if !client => {}
            (Version::Tls12, CLIENT_HELLO, _) if !client => return Err(Fault::BadHandshake),
            _ => return Err(Fault::UnexpectedHandshake),
        }
        // At most three bytes.
        self.body = length as u32;
        Ok(())
    }
}

fn key_update(value: u8) -> Result<Message, Fault> {
    match value {
        0 => Ok(Message::KeyUpdate { answer: false }),
        1 => Ok(Message::KeyUpdate { answer: true }),
        _ => Err(Fault::BadKeyUpdate),
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
                assert_eq!(state.take(&message[..split], None), Ok(Message::Incomplete));
                assert!(!state.aligned());
            }
            assert_eq!(state.take(&message[split..], None), Ok(Message::KeyUpdate { answer: true }));
            assert!(state.aligned());
        }
    }

    #[test]
    fn what_is_refused_in_tls13() {
        let take = |bytes: &[u8]| PostHandshake::new(Version::Tls13).take(bytes, None);
        assert_eq!(take(&[]), Err(Fault::UnexpectedType));
        assert_eq!(take(&[24, 0, 0, 1, 2]), Err(Fault::BadKeyUpdate));
        assert_eq!(take(&[24, 0, 0, 0]), Err(Fault::BadHandshake));
        assert_eq!(take(&[24, 0, 0, 2, 0, 0]), Err(Fault::BadHandshake));
        assert_eq!(take(&[24, 0, 0, 1, 0, 24]), Err(Fault::StraddlesKeyChange));
        assert_eq!(take(&[24, 0, 0, 1, 0, 24, 0, 0, 1, 0]), Err(Fault::StraddlesKeyChange));
        assert_eq!(take(&[1, 0, 0, 1]), Err(Fault::UnexpectedHandshake));
    }

    #[test]
    fn a_client_hello_of_tls12_is_counted_through() {
        let mut state = PostHandshake::new(Version::Tls12);
        assert_eq!(state.take(&[1, 0, 1, 0, 9], None), Ok(Message::Incomplete));
        assert_eq!(state.take(&[0; 254], None), Ok(Message::Incomplete));
        assert_eq!(state.take(&[0; 1], None), Ok(Message::Renegotiation));
        assert_eq!(state.take(&[20, 0, 0, 1], None), Err(Fault::UnexpectedHandshake));
        assert_eq!(PostHandshake::new(Version::Tls12).take(&[1, 1, 0, 0], None), Err(Fault::BadHandshake));
        assert_eq!(PostHandshake::new(Version::Tls12).take(&[1, 0, 0, 0], None), Ok(Message::Renegotiation));
    }

    #[test]
    fn tickets_of_a_client_in_any_fragments() {
        let message = [&[4, 0, 0, 3, 7, 8, 9][..], &[4, 0, 0, 1, 5], &[24, 0, 0, 1, 0]].concat();
        for split in 1..12 {
            let (mut state, mut tickets) = (PostHandshake::new(Version::Tls13), Tickets::default());
            let first = state.take(&message[..split], Some(&mut tickets)).unwrap();
            assert_eq!(first, if split < 7 { Message::Incomplete } else { Message::Tickets });
            assert_eq!(state.aligned(), split == 7);
            let second = state.take(&message[split..], Some(&mut tickets));
            assert_eq!(second, Ok(Message::KeyUpdate { answer: false }));
            assert_eq!(tickets.take(), [&[7, 8, 9][..], &[5]]);
            assert!(state.aligned() && tickets.take().is_empty());
        }
    }

    #[test]
    fn few_tickets_are_kept_and_none_that_is_too_long() {
        let (mut state, mut tickets) = (PostHandshake::new(Version::Tls13), Tickets::default());
        for _ in 0..100 {
            assert_eq!(state.take(&[4, 0, 0, 1, 5], Some(&mut tickets)), Ok(Message::Tickets));
        }
        assert_eq!(tickets.take().len(), usize::from(MOST_TICKETS));
        assert!(tickets.part.capacity() <= MOST_TICKET);
        assert_eq!(state.take(&[4, 0, 64, 1], Some(&mut tickets)), Err(Fault::BadHandshake));
        assert_eq!(
            PostHandshake::new(Version::Tls13).take(&[4, 0, 0, 0], Some(&mut Tickets::default())),
            Err(Fault::BadHandshake)
        );
        assert_eq!(
            PostHandshake::new(Version::Tls13).take(&[4, 0, 0, 1, 0], None),
            Err(Fault::UnexpectedHandshake)
        );
    }

    #[test]
    fn a_server_of_tls12_may_ask_for_a_renegotiation() {
        let take =
            |bytes: &[u8]| PostHandshake::new(Version::Tls12).take(bytes, Some(&mut Tickets::default()));
        assert_eq!(take(&[0, 0, 0, 0]), Ok(Message::Renegotiation));
        assert_eq!(take(&[0, 0, 0, 1, 0]), Err(Fault::UnexpectedHandshake));
        assert_eq!(take(&[1, 0, 0, 0]), Err(Fault::UnexpectedHandshake));
        assert_eq!(take(&[0, 0, 0, 0, 0, 0, 0, 0]), Err(Fault::TooManyRenegotiations));
    }
}
