//! Opening: records that lie in a buffer become plaintext, in place.

use crate::aead::TAG;
use crate::alert::Alert;
use crate::block::MAX_PLAINTEXT;
use crate::event::{Event, Fault, Opened, Span};
use crate::expanded::Key;
use crate::keys::{KeyMaterial, nonce};
use crate::limits::exhausted;
use crate::measure::Choice;
use crate::posthandshake::{Message, PostHandshake, Tickets};
use crate::seal::tls12_aad;
use crate::suite::{Format, Version};

/// Length of a record header, in bytes.
pub const HEADER: usize = 5;

/// The longest record of any version on the wire, in bytes: TLS 1.2 allows 2^14 + 2048
/// (RFC 5246 §6.2.3).
pub const MAX_RECORD: usize = HEADER + MAX_PLAINTEXT + 2048;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// Empty records in a row that are borne with, as rustls does.
const MOST_EMPTY: u8 = 32;
/// Key updates without data between them that are borne with, as BoringSSL and rustls do.
const MOST_KEY_UPDATES: u8 = 32;
/// The most records that one call opens: empty ones need no span.
const MOST_RECORDS: usize = 256;
/// Warnings that are borne with, as BoringSSL and rustls do.
const MOST_WARNINGS: u8 = 4;
/// Renegotiations that are declined before the connection is closed, as rustls does.
const MOST_RENEGOTIATIONS: u8 = 1;

/// Length of the record at the front of `buffer`, header included, where all of it is there.
///
/// For the time before the keys are handed over: only the length field is looked at.
#[must_use]
pub fn whole_record(buffer: &[u8]) -> Option<usize> {
    let length = buffer.get(3..HEADER)?;
    let total = HEADER + usize::from(u16::from_be_bytes([length[0], length[1]]));
    (buffer.len() >= total).then_some(total)
}

/// Opens what comes from the peer.
pub struct Opener {
    key: Key,
    iv: [u8; 12],
    sequence: u64,
    format: Format,
    message: PostHandshake,
    tolerance: Tolerance,
    /// Those that came; a server has none.
    tickets: Option<Box<Tickets>>,
}

/// What is allowed by the protocol but only so often.
struct Tolerance {
    empty: u8,
    key_updates: u8,
    warnings: u8,
    renegotiations: u8,
}

/// What one record came to.
enum RecordStep {
    /// Application data, possibly none.
    Data(Span),
    /// Nothing for the caller.
    Nothing,
    /// The batch ends here.
    Stop(Event),
}

impl Opener {
    /// Takes the receiving keys of a handshake that this side has finished as a client: the server may send session
    /// tickets, and in TLS 1.2 a request to renegotiate.
    #[must_use]
    pub fn of_client(keys: &KeyMaterial, choice: &Choice) -> Self {
        Self { tickets: Some(Box::default()), ..Self::new(keys, choice) }
    }

    /// The session tickets that have come, each the body of a NewSessionTicket message (RFC 8446 §4.6.1).
    pub fn take_tickets(&mut self) -> Vec<Vec<u8>> {
        self.tickets.as_deref_mut().map(Tickets::take).unwrap_or_default()
    }

    /// Takes the receiving keys of a handshake that this side has finished as a server.
    #[must_use]
    pub fn new(keys: &KeyMaterial, choice: &Choice) -> Self {
        Self {
            key: Key::new(keys, choice.library(keys.suite)),
            iv: keys.iv,
            sequence: keys.sequence,
            format: Format::of(keys.version, keys.suite),
            message: PostHandshake::new(keys.version),
            tolerance: Tolerance { empty: 0, key_updates: 0, warnings: 0, renegotiations: 0 },
            tickets: None,
        }
    }

    /// Changes to the keys that follow an [`Event::KeyUpdate`].
    pub fn rekey(&mut self, keys: &KeyMaterial) {
        self.key = Key::new(keys, self.key.library());
        self.iv = keys.iv;
        self.sequence = keys.sequence;
    }

    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    /// The version whose records these are.
    #[must_use]
    pub const fn version(&self) -> Version {
        match self.format {
            Format::Tls13 => Version::Tls13,
            Format::Tls12Explicit | Format::Tls12Implicit => Version::Tls12,
        }
    }

    /// Opens the whole records at the front of `buffer` in place, until one ends the batch. Writes into `spans`, which
    /// must not be empty, where their plaintext lies. After a fault it opens nothing more.
    pub fn open(&mut self, buffer: &mut [u8], spans: &mut [Span]) -> Opened {
        let mut consumed = 0;
        let mut noted = 0;
        let mut records = 0;
        let event = loop {
            if noted == spans.len() || records == MOST_RECORDS {
                break Event::Full;
            }
            let length = match self.body_length(&buffer[consumed..]) {
                Ok(Ok(length)) => length,
                Ok(Err(missing)) => break Event::NeedMore(missing),
                Err(fault) => break self.broken(fault),
            };
            let record = &mut buffer[consumed..consumed + HEADER + length];
            let step = self.open_record(record);
            let start = consumed;
            consumed += HEADER + length;
            records += 1;
            match step {
                Ok(RecordStep::Data(span)) => {
                    spans[noted] = Span { start: start + span.start, len: span.len };
                    noted += 1;
                }
                Ok(RecordStep::Nothing) => {}
                Ok(RecordStep::Stop(event)) => break event,
                Err(fault) => break self.broken(fault),
            }
        };
        Opened { consumed, spans: noted, records, event }
    }

    /// A fault is final: a caller that goes on by mistake gets no data.
    #[cold]
    fn broken(&mut self, fault: Fault) -> Event {
        self.sequence = u64::MAX;
        Event::Fault(fault)
    }

    /// Checks the header at the front of `buffer`: the length of the record's body, or how many
    /// bytes are missing until the record is whole.
    #[inline]
    fn body_length(&self, buffer: &[u8]) -> Result<Result<usize, usize>, Fault> {
        let Some(header) = buffer.first_chunk::<HEADER>() else {
            return Ok(Err(HEADER - buffer.len()));
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        let most = match self.format {
            Format::Tls13 => MAX_PLAINTEXT + 256,
            Format::Tls12Explicit | Format::Tls12Implicit => MAX_PLAINTEXT + 2048,
        };
        if header[1] != 3 {
            return Err(Fault::BadHeader);
        }
        // After the handshake TLS 1.3 knows one outer type (RFC 8446 §5, D.4); TLS 1.2 protects
        // alerts and handshake messages under their own.
        match (header[0], self.format) {
            (APPLICATION_DATA, _) => {}
            (ALERT | HANDSHAKE, Format::Tls12Explicit | Format::Tls12Implicit) => {}
            (CHANGE_CIPHER_SPEC | ALERT | HANDSHAKE, _) => return Err(Fault::UnexpectedType),
            _ => return Err(Fault::BadHeader),
        }
        if length > most {
            return Err(Fault::RecordOverflow);
        }
        let total = HEADER + length;
        Ok(if buffer.len() < total { Err(total - buffer.len()) } else { Ok(length) })
    }

    /// Opens one whole record.
    #[inline]
    fn open_record(&mut self, record: &mut [u8]) -> Result<RecordStep, Fault> {
        if exhausted(self.sequence) {
            return Err(Fault::SequenceExhausted);
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
    fn unprotect13(&mut self, record: &mut [u8]) -> Result<(u8, Span), Fault> {
        let (head, body) = record.split_at_mut(HEADER);
        let inner = body.len().checked_sub(TAG).ok_or(Fault::BadRecordMac)?;
        // The legacy version is not looked at (RFC 8446 §5.1), so what was sealed is what it must be.
        let aad = [APPLICATION_DATA, 3, 3, head[3], head[4]];
        self.key.open(nonce(&self.iv, self.sequence), &aad, body).map_err(|_| Fault::BadRecordMac)?;
        if inner > MAX_PLAINTEXT + 1 {
            return Err(Fault::RecordOverflow);
        }
        let end = body[..inner].iter().rposition(|&byte| byte != 0).ok_or(Fault::NoContentType)?;
        Ok((body[end], Span { start: HEADER, len: end }))
    }

    /// RFC 5246 §6.2.3.3: decrypts under the nonce of RFC 5288 or RFC 7905.
    #[inline]
    fn unprotect12(&mut self, record: &mut [u8]) -> Result<(u8, Span), Fault> {
        let (head, body) = record.split_at_mut(HEADER);
        let explicit = if self.format == Format::Tls12Explicit { 8 } else { 0 };
        let plain = body.len().checked_sub(explicit + TAG).ok_or(Fault::BadRecordMac)?;
        if plain > MAX_PLAINTEXT {
            return Err(Fault::RecordOverflow);
        }
        let nonce = match body.first_chunk::<8>() {
            Some(sent) if explicit == 8 => {
                let mut nonce = self.iv;
                nonce[4..].copy_from_slice(sent);
                nonce
            }
            _ => nonce(&self.iv, self.sequence),
        };
        let aad = tls12_aad(self.sequence, [head[0], head[1], head[2]], plain);
        self.key.open(nonce, &aad, &mut body[explicit..]).map_err(|_| Fault::BadRecordMac)?;
        Ok((head[0], Span { start: HEADER + explicit, len: plain }))
    }

    /// Everything that is not plain progress: empty data, alerts, handshake messages.
    #[cold]
    fn other(&mut self, typ: u8, content: &[u8]) -> Result<RecordStep, Fault> {
        if typ != HANDSHAKE && !self.message.aligned() {
            return Err(Fault::Interleaved);
        }
        match typ {
            APPLICATION_DATA => {
                self.tolerance.empty += 1;
                if self.tolerance.empty > MOST_EMPTY {
                    Err(Fault::TooManyEmpty)
                } else {
                    Ok(RecordStep::Nothing)
                }
            }
            ALERT => self.alert(content),
            HANDSHAKE => self.handshake(content),
            _ => Err(Fault::UnexpectedType),
        }
    }

    fn alert(&mut self, content: &[u8]) -> Result<RecordStep, Fault> {
        let &[level, description] = content else {
            return Err(Fault::BadAlert);
        };
        let alert = Alert(description);
        match level {
            1 | 2 if alert == Alert::CLOSE_NOTIFY => return Ok(RecordStep::Stop(Event::CloseNotify)),
            2 => return Ok(RecordStep::Stop(Event::PeerAlert(alert))),
            1 => {}
            _ => return Err(Fault::BadAlertLevel),
        }
        // TLS 1.3 knows no warnings but close_notify and user_canceled (RFC 8446 §6).
        if self.format == Format::Tls13 && alert != Alert::USER_CANCELED {
            return Err(Fault::BadAlert);
        }
        self.tolerance.warnings += 1;
        if self.tolerance.warnings > MOST_WARNINGS {
            Err(Fault::TooManyWarnings)
        } else {
            Ok(RecordStep::Nothing)
        }
    }

    fn handshake(&mut self, content: &[u8]) -> Result<RecordStep, Fault> {
        match self.message.take(content, self.tickets.as_deref_mut())? {
            Message::Incomplete => Ok(RecordStep::Nothing),
            Message::Tickets => Ok(RecordStep::Stop(Event::Tickets)),
            Message::KeyUpdate { answer } => {
                self.tolerance.key_updates += 1;
                if self.tolerance.key_updates > MOST_KEY_UPDATES {
                    return Err(Fault::TooManyKeyUpdates);
                }
                Ok(RecordStep::Stop(Event::KeyUpdate { answer }))
            }
            Message::Renegotiation => {
                self.tolerance.renegotiations += 1;
                if self.tolerance.renegotiations > MOST_RENEGOTIATIONS {
                    return Err(Fault::TooManyRenegotiations);
                }
                Ok(RecordStep::Stop(Event::RefuseRenegotiation))
            }
        }
    }
}
