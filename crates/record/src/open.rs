//! Opening: records in a buffer are decrypted to plaintext, in place.

use crate::aead::TAG;
use crate::alert::Alert;
use crate::block::MAX_PLAINTEXT;
use crate::event::{OpenedBatch, PlaintextSpan, RecordEvent, RecordFault};
use crate::expanded::ExpandedKey;
use crate::keys::{KeyMaterial, nonce, tls12_additional_data};
use crate::limits::exhausted;
use crate::measure::LibraryChoice;
use crate::posthandshake::{PostHandshake, PostHandshakeMessage, TicketCollector};
use crate::suite::{Format, Version};

/// Length of a record header, in bytes.
pub const HEADER: usize = 5;

/// Longest record of any version on the wire, in bytes: TLS 1.2 permits 2^14 + 2048 (RFC 5246 §6.2.3).
pub const MAX_RECORD: usize = HEADER + MAX_PLAINTEXT + 2048;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// Consecutive empty records that are tolerated, as in rustls.
const MOST_EMPTY: u8 = 32;
/// Key updates without data between them that are tolerated, as in BoringSSL and rustls.
const MOST_KEY_UPDATES: u8 = 32;
/// Maximum number of records per call, since empty ones use no span.
const MOST_RECORDS: usize = 256;
/// Warning alerts that are tolerated, as in BoringSSL and rustls.
const MOST_WARNINGS: u8 = 4;
/// Renegotiations that are declined before the connection is closed, as in rustls.
const MOST_RENEGOTIATIONS: u8 = 1;

/// Length of the record at the front of `buffer`, including its header; `None` while it is incomplete.
///
/// For use before the keys are handed over: only the length field is read.
#[must_use]
pub fn whole_record(buffer: &[u8]) -> Option<usize> {
    let length = buffer.get(3..HEADER)?;
    let total = HEADER + usize::from(u16::from_be_bytes([length[0], length[1]]));
    (buffer.len() >= total).then_some(total)
}

/// Decrypts the records of the peer.
pub struct Opener {
    key: ExpandedKey,
    iv: [u8; 12],
    sequence: u64,
    format: Format,
    message: PostHandshake,
    tolerance: Tolerance,
    /// Tickets received by a client; `None` in a server.
    tickets: Option<Box<TicketCollector>>,
}

/// Counts of events that the protocol permits and this crate bounds.
struct Tolerance {
    empty: u8,
    key_updates: u8,
    warnings: u8,
    renegotiations: u8,
}

/// Result of one record.
enum RecordStep {
    /// Application data; never empty.
    Data(PlaintextSpan),
    /// A record without effect for the caller.
    Nothing,
    /// An event that ends the batch.
    Stop(RecordEvent),
}

impl Opener {
    /// Takes the receiving keys of a handshake completed as a client: the server may send session tickets
    /// and, in TLS 1.2, request a renegotiation.
    #[must_use]
    pub fn of_client(keys: &KeyMaterial, choice: &LibraryChoice) -> Self {
        Self { tickets: Some(Box::default()), ..Self::new(keys, choice) }
    }

    /// Takes the received session tickets, each the body of a NewSessionTicket message (RFC 8446 §4.6.1).
    pub fn take_tickets(&mut self) -> Vec<Vec<u8>> {
        self.tickets.as_deref_mut().map(TicketCollector::take).unwrap_or_default()
    }

    /// Takes the receiving keys of a handshake completed as a server.
    #[must_use]
    pub fn new(keys: &KeyMaterial, choice: &LibraryChoice) -> Self {
        Self {
            key: ExpandedKey::new(keys, choice.library(keys.suite)),
            iv: keys.iv,
            sequence: keys.sequence,
            format: Format::of(keys.version, keys.suite),
            message: PostHandshake::new(keys.version),
            tolerance: Tolerance { empty: 0, key_updates: 0, warnings: 0, renegotiations: 0 },
            tickets: None,
        }
    }

    /// Switches to the keys that follow a [`RecordEvent::KeyUpdate`].
    pub fn rekey(&mut self, keys: &KeyMaterial) {
        self.key = ExpandedKey::new(keys, self.key.library());
        self.iv = keys.iv;
        self.sequence = keys.sequence;
    }

    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    /// Protocol version of the records.
    #[must_use]
    pub const fn version(&self) -> Version {
        match self.format {
            Format::Tls13 => Version::Tls13,
            Format::Tls12Explicit | Format::Tls12Implicit => Version::Tls12,
        }
    }

    /// Opens the whole records at the front of `buffer` in place, until one ends the batch. Writes the
    /// positions of their plaintext into `spans`, which must not be empty. After a fault no more records are
    /// opened.
    pub fn open(&mut self, buffer: &mut [u8], spans: &mut [PlaintextSpan]) -> OpenedBatch {
        let mut consumed = 0;
        let mut noted = 0;
        let mut records = 0;
        let event = loop {
            if noted == spans.len() || records == MOST_RECORDS {
                break RecordEvent::Full;
            }
            let length = match self.body_length(&buffer[consumed..]) {
                Ok(Ok(length)) => length,
                Ok(Err(missing)) => break RecordEvent::NeedMore(missing),
                Err(fault) => break self.broken(fault),
            };
            let record = &mut buffer[consumed..consumed + HEADER + length];
            let step = self.open_record(record);
            let start = consumed;
            consumed += HEADER + length;
            records += 1;
            match step {
                Ok(RecordStep::Data(span)) => {
                    spans[noted] = PlaintextSpan { start: start + span.start, len: span.len };
                    noted += 1;
                }
                Ok(RecordStep::Nothing) => {}
                Ok(RecordStep::Stop(event)) => break event,
                Err(fault) => break self.broken(fault),
            }
        };
        OpenedBatch { consumed, spans: noted, records, event }
    }

    /// Makes a fault final: a caller that goes on by mistake gets no data.
    #[cold]
    fn broken(&mut self, fault: RecordFault) -> RecordEvent {
        self.sequence = u64::MAX;
        RecordEvent::Fault(fault)
    }

    /// Validates the header at the front of `buffer`: `Ok(Ok)` is the length of the record's body, `Ok(Err)`
    /// the number of bytes missing from the record.
    #[inline]
    fn body_length(&self, buffer: &[u8]) -> Result<Result<usize, usize>, RecordFault> {
        let Some(header) = buffer.first_chunk::<HEADER>() else {
            return Ok(Err(HEADER - buffer.len()));
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        let most = match self.format {
            Format::Tls13 => MAX_PLAINTEXT + 256,
            Format::Tls12Explicit | Format::Tls12Implicit => MAX_PLAINTEXT + 2048,
        };
        if header[1] != 3 {
            return Err(RecordFault::BadHeader);
        }
        // After the handshake TLS 1.3 has one outer type (RFC 8446 §5, D.4); TLS 1.2 protects alerts and
        // handshake messages under their own.
        match (header[0], self.format) {
            (APPLICATION_DATA, _) => {}
            (ALERT | HANDSHAKE, Format::Tls12Explicit | Format::Tls12Implicit) => {}
            (CHANGE_CIPHER_SPEC | ALERT | HANDSHAKE, _) => return Err(RecordFault::UnexpectedType),
            _ => return Err(RecordFault::BadHeader),
        }
        if length > most {
            return Err(RecordFault::RecordOverflow);
        }
        let total = HEADER + length;
        Ok(if buffer.len() < total { Err(total - buffer.len()) } else { Ok(length) })
    }

    /// Opens one whole record.
    #[inline]
    fn open_record(&mut self, record: &mut [u8]) -> Result<RecordStep, RecordFault> {
        if exhausted(self.sequence) {
            return Err(RecordFault::SequenceExhausted);
        }
        let (typ, span) = match self.format {
            Format::Tls13 => self.unprotect13(record)?,
            Format::Tls12Explicit | Format::Tls12Implicit => self.unprotect12(record)?,
        };
        self.sequence += 1;
        if typ == APPLICATION_DATA && span.len > 0 && self.message.aligned() {
            self.tolerance.empty = 0;
            self.tolerance.key_updates = 0;
            return Ok(RecordStep::Data(span));
        }
        self.other(typ, &record[span.start..span.start + span.len])
    }

    /// RFC 8446 §5.2: decrypts, strips padding, finds the inner type.
    #[inline]
    fn unprotect13(&mut self, record: &mut [u8]) -> Result<(u8, PlaintextSpan), RecordFault> {
        let (head, body) = record.split_at_mut(HEADER);
        let inner = body.len().checked_sub(TAG).ok_or(RecordFault::BadRecordMac)?;
        // The legacy version is ignored (RFC 8446 §5.1), so the associated data has the fixed value.
        let aad = [APPLICATION_DATA, 3, 3, head[3], head[4]];
        self.key.open(nonce(&self.iv, self.sequence), &aad, body).map_err(|_| RecordFault::BadRecordMac)?;
        if inner > MAX_PLAINTEXT + 1 {
            return Err(RecordFault::RecordOverflow);
        }
        let end = body[..inner].iter().rposition(|&byte| byte != 0).ok_or(RecordFault::NoContentType)?;
        Ok((body[end], PlaintextSpan { start: HEADER, len: end }))
    }

    /// RFC 5246 §6.2.3.3: decrypts under the nonce of RFC 5288 or RFC 7905.
    #[inline]
    fn unprotect12(&mut self, record: &mut [u8]) -> Result<(u8, PlaintextSpan), RecordFault> {
        let (head, body) = record.split_at_mut(HEADER);
        let explicit = if self.format == Format::Tls12Explicit { 8 } else { 0 };
        let plain = body.len().checked_sub(explicit + TAG).ok_or(RecordFault::BadRecordMac)?;
        if plain > MAX_PLAINTEXT {
            return Err(RecordFault::RecordOverflow);
        }
        let nonce = match body.first_chunk::<8>() {
            Some(sent) if explicit == 8 => {
                let mut nonce = self.iv;
                nonce[4..].copy_from_slice(sent);
                nonce
            }
            _ => nonce(&self.iv, self.sequence),
        };
        let aad = tls12_additional_data(self.sequence, [head[0], head[1], head[2]], plain);
        self.key.open(nonce, &aad, &mut body[explicit..]).map_err(|_| RecordFault::BadRecordMac)?;
        Ok((head[0], PlaintextSpan { start: HEADER + explicit, len: plain }))
    }

    /// Handles empty data, alerts and handshake messages.
    #[cold]
    fn other(&mut self, typ: u8, content: &[u8]) -> Result<RecordStep, RecordFault> {
        if typ != HANDSHAKE && !self.message.aligned() {
            return Err(RecordFault::Interleaved);
        }
        match typ {
            APPLICATION_DATA => {
                self.tolerance.empty += 1;
                if self.tolerance.empty > MOST_EMPTY {
                    Err(RecordFault::TooManyEmpty)
                } else {
                    Ok(RecordStep::Nothing)
                }
            }
            ALERT => self.alert(content),
            HANDSHAKE => self.handshake(content),
            _ => Err(RecordFault::UnexpectedType),
        }
    }

    fn alert(&mut self, content: &[u8]) -> Result<RecordStep, RecordFault> {
        let &[level, description] = content else {
            return Err(RecordFault::BadAlert);
        };
        let alert = Alert(description);
        match level {
            1 | 2 if alert == Alert::CLOSE_NOTIFY => return Ok(RecordStep::Stop(RecordEvent::CloseNotify)),
            2 => return Ok(RecordStep::Stop(RecordEvent::PeerAlert(alert))),
            1 => {}
            _ => return Err(RecordFault::BadAlertLevel),
        }
        // TLS 1.3 has no warnings except close_notify and user_canceled (RFC 8446 §6).
        if self.format == Format::Tls13 && alert != Alert::USER_CANCELED {
            return Err(RecordFault::BadAlert);
        }
        self.tolerance.warnings += 1;
        if self.tolerance.warnings > MOST_WARNINGS {
            Err(RecordFault::TooManyWarnings)
        } else {
            Ok(RecordStep::Nothing)
        }
    }

    fn handshake(&mut self, content: &[u8]) -> Result<RecordStep, RecordFault> {
        match self.message.take(content, self.tickets.as_deref_mut())? {
            PostHandshakeMessage::Incomplete => Ok(RecordStep::Nothing),
            PostHandshakeMessage::Tickets => Ok(RecordStep::Stop(RecordEvent::Tickets)),
            PostHandshakeMessage::KeyUpdate { answer } => {
                self.tolerance.key_updates += 1;
                if self.tolerance.key_updates > MOST_KEY_UPDATES {
                    return Err(RecordFault::TooManyKeyUpdates);
                }
                Ok(RecordStep::Stop(RecordEvent::KeyUpdate { answer }))
            }
            PostHandshakeMessage::Renegotiation => {
                self.tolerance.renegotiations += 1;
                if self.tolerance.renegotiations > MOST_RENEGOTIATIONS {
                    return Err(RecordFault::TooManyRenegotiations);
                }
                Ok(RecordStep::Stop(RecordEvent::RefuseRenegotiation))
            }
        }
    }
}
