//! What the server says: records taken apart, opened and named, down to how the connection ended.

use std::io::{ErrorKind, Read, Write};

use super::suite::Version;
use super::wire::{HEADER, content, handshake, message};
use super::{Client, Seal};
use crate::error::{Alert, End, Error};

/// One thing that the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Application data, of one record.
    Data(Vec<u8>),
    /// One whole handshake message.
    Handshake {
        /// Its type.
        kind: u8,
        /// Its body, without type and length.
        body: Vec<u8>,
    },
    /// An alert.
    Alert(Alert),
    /// A change_cipher_spec.
    ChangeCipherSpec,
}

/// An event, or the end of all events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The server said something.
    Event(Event),
    /// The server says no more.
    End(End),
}

/// Bytes that arrived and were not consumed yet.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Bytes of the stream.
    stream: Vec<u8>,
    /// Bytes of handshake messages, out of their records.
    handshake: Vec<u8>,
    /// The last whole record, as it came.
    last: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    /// The next thing that the server says. Key updates of the server are followed (and answered where
    /// an answer is requested), and reported as well.
    ///
    /// # Errors
    /// [`Error::Peer`] for records that do not open or have no known type, [`Error::NotTls`] for an
    /// answer in another language.
    pub fn receive(&mut self) -> Result<Received, Error> {
        loop {
            if let Some(event) = self.take_handshake()? {
                return Ok(Received::Event(event));
            }
            if let Some(end) = self.read_record()? {
                return Ok(Received::End(end));
            }
            let (content_type, body, protected) = self.open_last()?;
            match (content_type, &body[..]) {
                (content::HANDSHAKE, bytes) => self.inbox.handshake.extend_from_slice(bytes),
                (content::ALERT, &[level, description]) => {
                    return Ok(Received::Event(Event::Alert(Alert { level, description, protected })));
                }
                (content::APPLICATION_DATA, _) if protected => return Ok(Received::Event(Event::Data(body))),
                (content::CHANGE_CIPHER_SPEC, [1]) => {
                    self.on_change_cipher_spec();
                    return Ok(Received::Event(Event::ChangeCipherSpec));
                }
                _ => return Err(Error::peer(format!("a record of type {content_type}: {body:02x?}"))),
            }
        }
    }

    /// The last record of the server, as it came from the stream.
    #[must_use]
    pub fn last_record(&self) -> &[u8] {
        &self.inbox.last
    }

    /// A whole handshake message out of the bytes so far.
    fn take_handshake(&mut self) -> Result<Option<Event>, Error> {
        let Some((&[kind, a, b, c], rest)) = self.inbox.handshake.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some(body) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.inbox.handshake.drain(..4 + length);
        if kind == message::KEY_UPDATE && self.is_ready() {
            self.follow_key_update(&body)?;
        }
        Ok(Some(Event::Handshake { kind, body }))
    }

    fn follow_key_update(&mut self, body: &[u8]) -> Result<(), Error> {
        if !self.inbox.handshake.is_empty() {
            return Err(Error::peer("bytes of handshake messages across a key update"));
        }
        self.read = self.read.as_ref().map(super::Protection::next);
        self.read_updates += 1;
        match body {
            [0] => Ok(()),
            [1] => {
                self.send(&Seal::handshake(&handshake(message::KEY_UPDATE, &[0])))?;
                self.update_write_keys();
                Ok(())
            }
            _ => Err(Error::peer(format!("a KeyUpdate with the body {body:02x?}"))),
        }
    }

    /// Content type, content, and whether it was sealed.
    fn open_last(&mut self) -> Result<(u8, Vec<u8>, bool), Error> {
        let content_type = self.inbox.last[0];
        let sealed = match self.options.suite.version {
            Version::Tls13 => content_type == content::APPLICATION_DATA,
            Version::Tls12 => true,
        };
        match &mut self.read {
            Some(read) if sealed => {
                let (content_type, body) =
                    read.open(&self.inbox.last).ok_or_else(|| Error::peer("a record that does not open"))?;
                Ok((content_type, body, true))
            }
            _ => Ok((content_type, self.inbox.last[HEADER..].to_vec(), false)),
        }
    }

    /// Reads one whole record into `inbox.last`, or tells the end.
    fn read_record(&mut self) -> Result<Option<End>, Error> {
        loop {
            let bytes = &self.inbox.stream;
            if let Some(&first) = bytes.first()
                && !(content::CHANGE_CIPHER_SPEC..=content::HEARTBEAT).contains(&first)
            {
                return Err(self.read_foreign());
            }
            if let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER>() {
                let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
                if bytes.len() >= length {
                    self.inbox.last = self.inbox.stream.drain(..length).collect();
                    return Ok(None);
                }
            }
            match self.read_some() {
                Some(End::Eof) if !self.inbox.stream.is_empty() => {
                    return Err(Error::peer("the stream ends inside of a record"));
                }
                Some(end) => return Ok(Some(end)),
                None => {}
            }
        }
    }

    /// All that an answer which is not TLS says, up to its end.
    fn read_foreign(&mut self) -> Error {
        while self.inbox.stream.len() < FOREIGN_LIMIT && self.read_some().is_none() {}
        Error::NotTls(std::mem::take(&mut self.inbox.stream))
    }

    fn read_some(&mut self) -> Option<End> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Some(End::Eof),
                Ok(length) => {
                    self.inbox.stream.extend_from_slice(&chunk[..length]);
                    return None;
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Some(End::StillOpen),
                    _ => return Some(End::Reset),
                },
            }
        }
    }
}

/// The most that is kept of an answer that is not TLS, in bytes.
const FOREIGN_LIMIT: usize = 64 * 1024;
