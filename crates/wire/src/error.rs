//! Errors of the parsers.
//!
//! [`Error`] holds one enum per protocol. `Display` gives a sentence for logs; `name` a stable `snake_case`
//! word for events and counters.

use std::fmt;

/// Any parse error of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Error {
    /// A PROXY header from a trusted source is invalid.
    Proxy(ProxyFault),
    /// The ClientHello is malformed.
    ClientHello(HelloFault),
    /// The client's first packet is not a PostgreSQL one.
    Postgres(PostgresFault),
}

/// Faults of an inbound PROXY header, all of them errors of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyFault {
    /// The first bytes are neither the v1 nor the v2 signature.
    NotProxy,
    /// v1: no CRLF within 107 bytes.
    LineTooLong,
    /// v1: a line feed without a carriage return before it.
    BareLineFeed,
    /// v1: a carriage return without a line feed after it.
    BareCarriageReturn,
    /// v1: the family is not `TCP4`, `TCP6` or `UNKNOWN`.
    UnknownFamily,
    /// v1: not exactly two addresses and two ports, separated by single spaces.
    MalformedLine,
    /// v1: an address that is not one of the announced family in canonical form.
    BadAddress,
    /// v1: a port that is not a decimal from 0 to 65535 without leading zeros.
    BadPort,
    /// v2: the version (given) is not 2.
    BadVersion(u8),
    /// v2: the command (given) is neither LOCAL nor PROXY.
    BadCommand(u8),
    /// v2: the address family (given) is not assigned.
    BadFamily(u8),
    /// v2: the transport protocol (given) is not assigned.
    BadTransport(u8),
    /// v2: a datagram transport, although the header came over a stream.
    Datagram,
    /// v2: the announced length (given, bytes) exceeds [`MAX_HEADER`](crate::proxy::MAX_HEADER).
    TooLong(u16),
    /// v2: the announced length (given, bytes) is too small for the addresses of the family.
    AddressTruncated(u16),
    /// v2: a TLV reaches past the end of the header.
    TlvTruncated,
    /// v2: the CRC32c TLV is not 4 bytes long (length given).
    ChecksumLength(usize),
    /// v2: more than one CRC32c TLV.
    ChecksumRepeated,
    /// v2: the CRC32c over the header does not match.
    ChecksumMismatch,
    /// v2: the unique ID is longer than 128 bytes (length given).
    UniqueIdTooLong(usize),
    /// v2: the SSL TLV is shorter than its fixed part, or one of its sub-TLVs reaches past its end.
    SslMalformed,
}

/// Faults that keep [`peek`](crate::client_hello::peek) from reading a ClientHello.
///
/// They concern routing only: rustls still decides the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HelloFault {
    /// The first bytes are not a TLS record header.
    NotTls,
    /// A TLS record of a content type (given) other than handshake.
    UnexpectedRecord(u8),
    /// A handshake record without content (RFC 8446 §5.1 forbids it).
    EmptyRecord,
    /// A record length (given, bytes) that no version of TLS allows.
    RecordTooLarge(u16),
    /// The hello spans more records than [`MAX_RECORDS`](crate::client_hello::MAX_RECORDS).
    TooManyRecords,
    /// The first handshake message is of a type (given) other than client_hello.
    NotClientHello(u8),
    /// The hello's length (given, bytes) is above [`MAX_HELLO`](crate::client_hello::MAX_HELLO).
    TooLarge(u32),
    /// The named field overruns its container, leaves trailing bytes, or has an invalid length.
    Malformed(&'static str),
    /// An extension that is parsed (type given) occurs twice.
    DuplicateExtension(u16),
}

/// Faults of the first packet of a PostgreSQL client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PostgresFault {
    /// The first byte is not that of a PostgreSQL packet.
    NotPostgres,
    /// The packet length (given, bytes) is out of range.
    BadLength(u32),
    /// The packet's code (given) is neither a request nor a protocol version.
    UnknownCode(u32),
}

impl PostgresFault {
    /// A stable word for events and counters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotPostgres => "postgres_missing",
            Self::BadLength(_) => "postgres_bad_length",
            Self::UnknownCode(_) => "postgres_unknown_code",
        }
    }
}

impl fmt::Display for PostgresFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPostgres => f.write_str("the client does not speak the protocol of PostgreSQL"),
            Self::BadLength(length) => write!(f, "a first packet of {length} bytes is not possible"),
            Self::UnknownCode(code) => write!(f, "the first packet has the unknown code {code}"),
        }
    }
}

impl Error {
    /// A stable word for events and counters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Proxy(fault) => fault.name(),
            Self::ClientHello(fault) => fault.name(),
            Self::Postgres(fault) => fault.name(),
        }
    }
}

impl ProxyFault {
    /// A stable word for events and counters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotProxy => "proxy_missing",
            Self::LineTooLong => "proxy_line_too_long",
            Self::BareLineFeed => "proxy_bare_line_feed",
            Self::BareCarriageReturn => "proxy_bare_carriage_return",
            Self::UnknownFamily => "proxy_unknown_family",
            Self::MalformedLine => "proxy_malformed_line",
            Self::BadAddress => "proxy_bad_address",
            Self::BadPort => "proxy_bad_port",
            Self::BadVersion(_) => "proxy_bad_version",
            Self::BadCommand(_) => "proxy_bad_command",
            Self::BadFamily(_) => "proxy_bad_family",
            Self::BadTransport(_) => "proxy_bad_transport",
            Self::Datagram => "proxy_datagram",
            Self::TooLong(_) => "proxy_too_long",
            Self::AddressTruncated(_) => "proxy_address_truncated",
            Self::TlvTruncated => "proxy_tlv_truncated",
            Self::ChecksumLength(_) => "proxy_checksum_length",
            Self::ChecksumRepeated => "proxy_checksum_repeated",
            Self::ChecksumMismatch => "proxy_checksum_mismatch",
            Self::UniqueIdTooLong(_) => "proxy_unique_id_too_long",
            Self::SslMalformed => "proxy_ssl_malformed",
        }
    }
}

impl HelloFault {
    /// A stable word for events and counters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotTls => "hello_not_tls",
            Self::UnexpectedRecord(_) => "hello_unexpected_record",
            Self::EmptyRecord => "hello_empty_record",
            Self::RecordTooLarge(_) => "hello_record_too_large",
            Self::TooManyRecords => "hello_too_many_records",
            Self::NotClientHello(_) => "hello_other_message",
            Self::TooLarge(_) => "hello_too_large",
            Self::Malformed(_) => "hello_malformed",
            Self::DuplicateExtension(_) => "hello_duplicate_extension",
        }
    }
}

impl fmt::Display for ProxyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotProxy => f.write_str("no PROXY header at the start of the connection"),
            Self::LineTooLong => f.write_str("PROXY v1 line does not end within 107 bytes"),
            Self::BareLineFeed => f.write_str("PROXY v1 line ends in LF without CR"),
            Self::BareCarriageReturn => f.write_str("PROXY v1 line has a CR without LF"),
            Self::UnknownFamily => f.write_str("PROXY v1 family is not TCP4, TCP6 or UNKNOWN"),
            Self::MalformedLine => {
                f.write_str("PROXY v1 line is not two addresses and two ports separated by single spaces")
            }
            Self::BadAddress => f.write_str("PROXY v1 address is not valid for its family"),
            Self::BadPort => f.write_str("PROXY v1 port is not a plain number from 0 to 65535"),
            Self::BadVersion(version) => write!(f, "PROXY v2 header says version {version}"),
            Self::BadCommand(command) => write!(f, "PROXY v2 command {command} is not assigned"),
            Self::BadFamily(family) => write!(f, "PROXY v2 address family {family} is not assigned"),
            Self::BadTransport(transport) => write!(f, "PROXY v2 transport {transport} is not assigned"),
            Self::Datagram => f.write_str("PROXY v2 header announces a datagram transport on a stream"),
            Self::TooLong(length) => write!(f, "PROXY v2 header of {length} bytes is over the limit"),
            Self::AddressTruncated(length) => {
                write!(f, "PROXY v2 header of {length} bytes is too short for its addresses")
            }
            Self::TlvTruncated => f.write_str("PROXY v2 TLV reaches past the end of the header"),
            Self::ChecksumLength(length) => write!(f, "PROXY v2 CRC32c TLV has {length} bytes instead of 4"),
            Self::ChecksumRepeated => f.write_str("PROXY v2 header has more than one CRC32c TLV"),
            Self::ChecksumMismatch => f.write_str("PROXY v2 CRC32c does not match the header"),
            Self::UniqueIdTooLong(length) => {
                write!(f, "PROXY v2 unique ID has {length} bytes, more than 128")
            }
            Self::SslMalformed => f.write_str("PROXY v2 SSL TLV is malformed"),
        }
    }
}

impl fmt::Display for HelloFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTls => f.write_str("the client does not speak TLS"),
            Self::UnexpectedRecord(kind) => {
                write!(f, "a TLS record of type {kind} came where the ClientHello belongs")
            }
            Self::EmptyRecord => {
                f.write_str("an empty handshake record came before the ClientHello was whole")
            }
            Self::RecordTooLarge(length) => write!(f, "a TLS record of {length} bytes is over the limit"),
            Self::TooManyRecords => f.write_str("the ClientHello is spread over too many records"),
            Self::NotClientHello(kind) => {
                write!(f, "a handshake message of type {kind} came where the ClientHello belongs")
            }
            Self::TooLarge(length) => write!(f, "a ClientHello of {length} bytes is over the limit"),
            Self::Malformed(field) => write!(f, "the ClientHello is malformed at {field}"),
            Self::DuplicateExtension(kind) => {
                write!(f, "the ClientHello has extension {kind} twice")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy(fault) => fault.fmt(f),
            Self::ClientHello(fault) => fault.fmt(f),
            Self::Postgres(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
impl std::error::Error for ProxyFault {}
impl std::error::Error for HelloFault {}
impl std::error::Error for PostgresFault {}

impl From<ProxyFault> for Error {
    fn from(fault: ProxyFault) -> Self {
        Self::Proxy(fault)
    }
}

impl From<HelloFault> for Error {
    fn from(fault: HelloFault) -> Self {
        Self::ClientHello(fault)
    }
}

impl From<PostgresFault> for Error {
    fn from(fault: PostgresFault) -> Self {
        Self::Postgres(fault)
    }
}
