//! Handshake messages after the handshake: KeyUpdate in TLS 1.3, refused renegotiation in TLS 1.2.
//!
//! Messages may be fragmented over records, so a header and the one byte of a KeyUpdate are kept
//! here; a ClientHello of TLS 1.2 is only counted through, never stored.

use crate::event::Fault;
use crate::suite::Version;

const CLIENT_HELLO: u8 = 1;
const KEY_UPDATE: u8 = 24;
const MESSAGE_HEADER: usize = 4;
/// The longest handshake message that is waited for, as rustls bounds it.
const MOST_MESSAGE: usize = 0xffff;

/// What a record of handshake content came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Incomplete,
    KeyUpdate { answer: bool },
    Renegotiation,
}

/// The part of a message that has arrived.
pub(crate) struct PostHandshake {
    version: Version,
    header: [u8; MESSAGE_HEADER],
    have: u8,
    /// Body bytes still to come once the header is whole.
    body: usize,
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

    /// Takes the content of one handshake record.
    pub(crate) fn take(&mut self, content: &[u8]) -> Result<Message, Fault> {
        if content.is_empty() {
            // RFC 8446 §5.1, RFC 5246 §6.2.1: no zero-length fragments of handshake messages.
            return Err(Fault::UnexpectedType);
        }
        let mut rest = content;
        let mut outcome = Message::Incomplete;
        while let Some((&byte, after)) = rest.split_first() {
            if outcome != Message::Incomplete && self.version == Version::Tls13 {
                return Err(Fault::StraddlesKeyChange);
            }
            if usize::from(self.have) < MESSAGE_HEADER {
                self.header[usize::from(self.have)] = byte;
                self.have += 1;
                rest = after;
                if usize::from(self.have) == MESSAGE_HEADER {
                    self.check_header()?;
                }
            } else {
                let take = rest.len().min(self.body);
                self.body -= take;
                if self.body == 0 && self.version == Version::Tls13 {
                    outcome = key_update(rest[take - 1])?;
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

    /// Only one message may come after the handshake, and its kind is known from its header.
    fn check_header(&mut self) -> Result<(), Fault> {
        let [typ, a, b, c] = self.header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match (self.version, typ, length) {
            (Version::Tls13, KEY_UPDATE, 1) => {}
            (Version::Tls13, KEY_UPDATE, _) => return Err(Fault::BadHandshake),
            (Version::Tls12, CLIENT_HELLO, 0..=MOST_MESSAGE) => {}
            (Version::Tls12, CLIENT_HELLO, _) => return Err(Fault::BadHandshake),
            _ => return Err(Fault::UnexpectedHandshake),
        }
        self.body = length;
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
                assert_eq!(state.take(&message[..split]), Ok(Message::Incomplete));
                assert!(!state.aligned());
            }
            assert_eq!(state.take(&message[split..]), Ok(Message::KeyUpdate { answer: true }));
            assert!(state.aligned());
        }
    }

    #[test]
    fn what_is_refused_in_tls13() {
        let take = |bytes: &[u8]| PostHandshake::new(Version::Tls13).take(bytes);
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
        assert_eq!(state.take(&[1, 0, 1, 0, 9]), Ok(Message::Incomplete));
        assert_eq!(state.take(&[0; 254]), Ok(Message::Incomplete));
        assert_eq!(state.take(&[0; 1]), Ok(Message::Renegotiation));
        assert_eq!(state.take(&[20, 0, 0, 1]), Err(Fault::UnexpectedHandshake));
        assert_eq!(PostHandshake::new(Version::Tls12).take(&[1, 1, 0, 0]), Err(Fault::BadHandshake));
        assert_eq!(PostHandshake::new(Version::Tls12).take(&[1, 0, 0, 0]), Ok(Message::Renegotiation));
    }
}
