//! Results of opening a batch of records, and what they demand of the caller.

use crate::alert::Alert;

/// Position of one record's plaintext in the buffer that was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaintextSpan {
    /// Offset of the first byte.
    pub start: usize,
    /// Number of bytes; never 0.
    pub len: usize,
}

impl PlaintextSpan {
    /// The bytes of the span.
    #[must_use]
    pub fn of<'b>(&self, buffer: &'b [u8]) -> &'b [u8] {
        &buffer[self.start..self.start + self.len]
    }
}

/// Result of one [`crate::Opener::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedBatch {
    /// Bytes of processed records at the front of the buffer; the spans are within them.
    pub consumed: usize,
    /// Number of spans written. Their plaintext precedes the event and must be delivered whatever the event
    /// is.
    pub spans: usize,
    /// Number of records opened, including those without content: the cost of the call.
    pub records: usize,
    /// The event that ended the batch.
    pub event: RecordEvent,
}

/// Event that ended a batch, which says what the caller must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEvent {
    /// Every whole record was opened: read more. The next record needs this many more bytes.
    NeedMore(usize),
    /// The list of spans is full, or the bound on records per call is reached: deliver, then open again.
    Full,
    /// The peer changes its keys (RFC 8446 §4.6.3): derive the next receiving keys and call
    /// [`crate::Opener::rekey`] before opening more. If `answer` is set and no earlier answer is still
    /// unsent, send a KeyUpdate and change the sending keys, too.
    KeyUpdate {
        /// The peer requests an update of our keys, too.
        answer: bool,
    },
    /// For clients only: the server sent session tickets; fetch them by [`crate::Opener::take_tickets`] and
    /// open more.
    Tickets,
    /// TLS 1.2: the peer requests a renegotiation; send a `no_renegotiation` warning and open more.
    RefuseRenegotiation,
    /// The peer ended its direction in order; ignore the rest of the buffer.
    CloseNotify,
    /// The peer aborted with this fatal alert; send nothing (RFC 8446 §6.2).
    PeerAlert(Alert),
    /// The peer violated the protocol: send the fault's alert and close.
    Fault(RecordFault),
}

/// A protocol violation in the peer's records. Each ends the connection with [`RecordFault::alert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordFault {
    /// A record did not authenticate.
    BadRecordMac,
    /// A record above the limits of RFC 8446 §5.1/§5.2 or RFC 5246 §6.2.1/§6.2.3.
    RecordOverflow,
    /// A record header with an unknown type, or a major version other than 3.
    BadHeader,
    /// A content type that is not permitted after the handshake, or not unprotected.
    UnexpectedType,
    /// A TLS 1.3 record without a content type: empty, or zeros only (RFC 8446 §5.4).
    NoContentType,
    /// An alert that is not two bytes long, or of a level that is not permitted for it.
    BadAlert,
    /// An alert level that does not exist.
    BadAlertLevel,
    /// A handshake message that may not arrive after the handshake.
    UnexpectedHandshake,
    /// A handshake message that cannot be parsed.
    BadHandshake,
    /// A KeyUpdate with a value other than 0 and 1 (RFC 8446 §4.6.3).
    BadKeyUpdate,
    /// Data behind a KeyUpdate in its record (RFC 8446 §5.1).
    StraddlesKeyChange,
    /// Another record within a fragmented handshake message (RFC 8446 §5.1).
    Interleaved,
    /// More than 32 consecutive records without content.
    TooManyEmpty,
    /// More than 32 key updates without data between them.
    TooManyKeyUpdates,
    /// More than 4 warning alerts.
    TooManyWarnings,
    /// A second request to renegotiate.
    TooManyRenegotiations,
    /// The sequence numbers of the key are exhausted.
    SequenceExhausted,
}

impl RecordFault {
    /// The alert to send before closing.
    #[must_use]
    pub const fn alert(self) -> Alert {
        match self {
            Self::BadRecordMac => Alert::BAD_RECORD_MAC,
            Self::RecordOverflow => Alert::RECORD_OVERFLOW,
            Self::BadHeader | Self::BadAlert | Self::BadHandshake => Alert::DECODE_ERROR,
            Self::BadAlertLevel | Self::BadKeyUpdate => Alert::ILLEGAL_PARAMETER,
            Self::SequenceExhausted => Alert::CLOSE_NOTIFY,
            Self::UnexpectedType
            | Self::NoContentType
            | Self::UnexpectedHandshake
            | Self::StraddlesKeyChange
            | Self::Interleaved
            | Self::TooManyEmpty
            | Self::TooManyKeyUpdates
            | Self::TooManyWarnings
            | Self::TooManyRenegotiations => Alert::UNEXPECTED_MESSAGE,
        }
    }
}

impl core::fmt::Display for RecordFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BadRecordMac => "a record did not authenticate",
            Self::RecordOverflow => "a record was longer than allowed",
            Self::BadHeader => "a record header was not TLS",
            Self::UnexpectedType => "a record of an unexpected type",
            Self::NoContentType => "a record without a content type",
            Self::BadAlert => "an alert that could not be parsed",
            Self::BadAlertLevel => "an alert of an unknown level",
            Self::UnexpectedHandshake => "a handshake message after the handshake",
            Self::BadHandshake => "a handshake message that could not be parsed",
            Self::BadKeyUpdate => "a KeyUpdate of an unknown value",
            Self::StraddlesKeyChange => "data behind a KeyUpdate in the same record",
            Self::Interleaved => "a record inside a fragmented handshake message",
            Self::TooManyEmpty => "too many empty records",
            Self::TooManyKeyUpdates => "too many key updates",
            Self::TooManyWarnings => "too many warning alerts",
            Self::TooManyRenegotiations => "a repeated request to renegotiate",
            Self::SequenceExhausted => "the sequence numbers are exhausted",
        })
    }
}
