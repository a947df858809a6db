//! What opening a batch of records came to, and what the caller must do next.

use crate::alert::Alert;

/// Where the plaintext of one record lies in the buffer that was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Number of bytes; never 0.
    pub len: usize,
}

impl Span {
    /// The bytes of the span.
    #[must_use]
    pub fn of<'b>(&self, buffer: &'b [u8]) -> &'b [u8] {
        &buffer[self.start..self.start + self.len]
    }
}

/// The outcome of one [`crate::Opener::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Bytes at the front of the buffer whose records are done with; the spans lie within.
    pub consumed: usize,
    /// How many spans were noted. Their plaintext comes before the event and is to be delivered
    /// whatever the event is.
    pub spans: usize,
    /// How many records were opened, those that carried nothing included: what the call has cost.
    pub records: usize,
    /// Why the batch ended.
    pub event: Event,
}

/// Why a batch ended: what the caller must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Every whole record was opened: read more. The next record needs this many more bytes.
    NeedMore(usize),
    /// The list of spans is full, or many records were opened: deliver, then open again.
    Full,
    /// The peer changes its keys (RFC 8446 §4.6.3): fetch the next receiving keys and call
    /// [`crate::Opener::rekey`] before opening on. Where `answer` is set, and no answer is still
    /// unsent, send a KeyUpdate of our own and change the sending keys too.
    KeyUpdate {
        /// The peer asks that we update too.
        answer: bool,
    },
    /// For a client alone: the server sent session tickets, which [`crate::Opener::take_tickets`] hands over. Open on.
    Tickets,
    /// TLS 1.2: the peer asks to renegotiate; send a `no_renegotiation` warning and open on.
    RefuseRenegotiation,
    /// The peer finished its direction in order; what follows in the buffer is to be ignored.
    CloseNotify,
    /// The peer gave up with this fatal alert; nothing is to be answered (RFC 8446 §6.2).
    PeerAlert(Alert),
    /// The peer broke the rules: send the fault's alert and close.
    Fault(Fault),
}

/// A fault of the peer in its records. Each ends the connection with [`Fault::alert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The record did not authenticate.
    BadRecordMac,
    /// Longer than RFC 8446 §5.1/§5.2 or RFC 5246 §6.2.1/§6.2.3 allow.
    RecordOverflow,
    /// A record header that is no TLS.
    BadHeader,
    /// A content type that may not arrive here, or not in the clear.
    UnexpectedType,
    /// A TLS 1.3 record without a content type: empty, or zeros only (RFC 8446 §5.4).
    NoContentType,
    /// An alert that is not two bytes long or whose level may not be.
    BadAlert,
    /// An alert level that does not exist.
    BadAlertLevel,
    /// A handshake message that may not arrive after the handshake.
    UnexpectedHandshake,
    /// A handshake message that cannot be parsed.
    BadHandshake,
    /// A KeyUpdate whose value is neither 0 nor 1 (RFC 8446 §4.6.3).
    BadKeyUpdate,
    /// Something follows a KeyUpdate in its record (RFC 8446 §5.1).
    StraddlesKeyChange,
    /// Another record in the middle of a fragmented handshake message (RFC 8446 §5.1).
    Interleaved,
    /// More than 32 records in a row that carried nothing.
    TooManyEmpty,
    /// More than 32 key updates without data between them.
    TooManyKeyUpdates,
    /// More than 4 warnings.
    TooManyWarnings,
    /// A second request to renegotiate.
    TooManyRenegotiations,
    /// The sequence number is used up.
    SequenceExhausted,
}

impl Fault {
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

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BadRecordMac => "a record did not authenticate",
            Self::RecordOverflow => "a record was longer than allowed",
            Self::BadHeader => "a record header was not TLS",
            Self::UnexpectedType => "a record of a type that has no place here",
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
            Self::SequenceExhausted => "the sequence numbers are used up",
        })
    }
}
