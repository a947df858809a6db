//! Reasons for rejecting an HTTP/1 request, and the status of the response.
//!
//! All of them are errors of the client. Each has a stable word for events and counters, the status of the
//! response (RFC 9110 §15), and a sentence for logs, which never goes into a response.

use std::fmt;

/// Reason for rejecting the bytes of an HTTP/1 client. The connection cannot be used afterwards, since it is
/// unknown where the next request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Http1Fault {
    /// More than one empty line before a request (RFC 9112 §2.2 tolerates one).
    LeadingLines,
    /// The request line is not `method SP target SP version` (RFC 9112 §3).
    RequestLine,
    /// Tabs, or more than one space, in the request line (RFC 9112 §3).
    RequestLineSpace,
    /// The method is empty or no token (RFC 9110 §9.1).
    Method,
    /// The method is longer than [`MAX_METHOD`](crate::target::MAX_METHOD) (RFC 9112 §3).
    MethodTooLong,
    /// CONNECT, where it is not served (RFC 9110 §9.3.6).
    Connect,
    /// CONNECT with content (RFC 9110 §9.3.6).
    ConnectWithBody,
    /// The target has none of the four forms, or not the one that its method requires (RFC 9112 §3.2).
    TargetForm,
    /// A byte that is not permitted in a target: control, non-ASCII, markup delimiters (RFC 3986 §2).
    TargetByte,
    /// A target with a fragment (RFC 9112 §3.2).
    TargetFragment,
    /// The target is longer than [`HeadLimits::target`](crate::h1::HeadLimits::target) (RFC 9112 §3).
    TargetTooLong,
    /// The version is not `HTTP/DIGIT.DIGIT` (RFC 9112 §2.3).
    VersionMalformed,
    /// A version other than 1.0 and 1.1 (RFC 9110 §15.6.6).
    Version,
    /// A line feed without a carriage return (RFC 9112 §2.2).
    BareLineFeed,
    /// A carriage return without a line feed (RFC 9112 §2.2).
    BareCarriageReturn,
    /// A control byte, including NUL (RFC 9110 §5.5).
    ControlByte,
    /// The first field begins with whitespace (RFC 9112 §2.2).
    LeadingSpace,
    /// A field continues on the next line (RFC 9112 §5.2).
    ObsFold,
    /// Whitespace between a name and its colon (RFC 9112 §5.1).
    SpaceBeforeColon,
    /// A field without a name (RFC 9112 §5).
    EmptyName,
    /// A line without a colon (RFC 9112 §5).
    NoColon,
    /// A name that is no token (RFC 9110 §5.1).
    Name,
    /// A name that some servers treat as one that frames the message, such as `Content_Length` (RFC 3875
    /// §4.1.18).
    AmbiguousName,
    /// The head is longer than [`HeadLimits::head`](crate::h1::HeadLimits::head) (RFC 6585 §5).
    HeadTooLong,
    /// More fields than [`HeadLimits::fields`](crate::h1::HeadLimits::fields) (RFC 6585 §5).
    TooManyFields,
    /// No Host in HTTP/1.1 (RFC 9112 §3.2).
    HostMissing,
    /// More than one Host (RFC 9112 §3.2).
    HostRepeated,
    /// A Host that names no host (RFC 9112 §3.2, RFC 3986 §3.2.2).
    HostMalformed,
    /// Host and an absolute target name different hosts (RFC 9112 §3.2.2).
    HostContradicts,
    /// Both Content-Length and Transfer-Encoding (RFC 9112 §6.1, §6.3).
    BothLengths,
    /// Content-Length is empty, signed or anything but digits (RFC 9110 §8.6).
    ContentLength,
    /// Content-Length is a list (RFC 9110 §8.6).
    ContentLengthList,
    /// Content-Length with leading zeros, which some servers parse as octal (RFC 9110 §8.6).
    ContentLengthZeros,
    /// Content-Length above 2⁶³−1 (RFC 9110 §8.6).
    ContentLengthTooLarge,
    /// Content-Length twice with equal values (RFC 9112 §6.3).
    ContentLengthRepeated,
    /// Content-Length twice with different values (RFC 9112 §6.3).
    ContentLengthConflict,
    /// Transfer-Encoding in HTTP/1.0 (RFC 9112 §6.1).
    TransferEncodingInHttp10,
    /// Transfer-Encoding is empty, quoted, has parameters, or is no list of tokens (RFC 9112 §6.1, §7.1).
    TransferEncoding,
    /// A second Transfer-Encoding, or chunked twice (RFC 9112 §6.1).
    TransferEncodingRepeated,
    /// chunked is not the final coding (RFC 9112 §6.3).
    ChunkedNotLast,
    /// A transfer coding other than chunked (RFC 9112 §6.1).
    TransferCodingUnknown,
    /// Connection lists Host, Content-Length or Transfer-Encoding, so that a proxy would remove it (RFC 9110
    /// §7.6.1).
    ConnectionOption,
    /// A chunk size that is not hexadecimal digits (RFC 9112 §7.1).
    ChunkSize,
    /// Whitespace around a chunk size (RFC 9112 §7.1).
    ChunkSizeSpace,
    /// A chunk size above 2⁶³−1, or of more than 16 digits (RFC 9112 §7.1).
    ChunkSizeTooLarge,
    /// Chunk data that is longer than its size, or not followed by CRLF (RFC 9112 §7.1).
    ChunkEnd,
    /// A chunk extension that breaks the grammar (RFC 9112 §7.1.1).
    ChunkExtension,
    /// Chunk extensions over [`MAX_CHUNK_LINE`](crate::h1::MAX_CHUNK_LINE) or
    /// [`MAX_EXTENSIONS`](crate::h1::MAX_EXTENSIONS) (RFC 9112 §7.1.1).
    ChunkExtensionTooLong,
    /// A trailer field that frames or routes the message (RFC 9110 §6.5.1).
    TrailerForbidden,
    /// The trailers are longer than [`HeadLimits::head`](crate::h1::HeadLimits::head) (RFC 9112 §7.1.2).
    TrailersTooLong,
    /// More trailers than [`HeadLimits::fields`](crate::h1::HeadLimits::fields) (RFC 9112 §7.1.2).
    TooManyTrailers,
}

impl Http1Fault {
    /// Every variant, in the order of declaration.
    pub const ALL: [Self; 51] = [
        Self::LeadingLines,
        Self::RequestLine,
        Self::RequestLineSpace,
        Self::Method,
        Self::MethodTooLong,
        Self::Connect,
        Self::ConnectWithBody,
        Self::TargetForm,
        Self::TargetByte,
        Self::TargetFragment,
        Self::TargetTooLong,
        Self::VersionMalformed,
        Self::Version,
        Self::BareLineFeed,
        Self::BareCarriageReturn,
        Self::ControlByte,
        Self::LeadingSpace,
        Self::ObsFold,
        Self::SpaceBeforeColon,
        Self::EmptyName,
        Self::NoColon,
        Self::Name,
        Self::AmbiguousName,
        Self::HeadTooLong,
        Self::TooManyFields,
        Self::HostMissing,
        Self::HostRepeated,
        Self::HostMalformed,
        Self::HostContradicts,
        Self::BothLengths,
        Self::ContentLength,
        Self::ContentLengthList,
        Self::ContentLengthZeros,
        Self::ContentLengthTooLarge,
        Self::ContentLengthRepeated,
        Self::ContentLengthConflict,
        Self::TransferEncodingInHttp10,
        Self::TransferEncoding,
        Self::TransferEncodingRepeated,
        Self::ChunkedNotLast,
        Self::TransferCodingUnknown,
        Self::ConnectionOption,
        Self::ChunkSize,
        Self::ChunkSizeSpace,
        Self::ChunkSizeTooLarge,
        Self::ChunkEnd,
        Self::ChunkExtension,
        Self::ChunkExtensionTooLong,
        Self::TrailerForbidden,
        Self::TrailersTooLong,
        Self::TooManyTrailers,
    ];

    /// Stable word for events and counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LeadingLines => "http1_leading_lines",
            Self::RequestLine => "http1_request_line",
            Self::RequestLineSpace => "http1_request_line_space",
            Self::Method => "http1_method",
            Self::MethodTooLong => "http1_method_too_long",
            Self::Connect => "http1_connect",
            Self::ConnectWithBody => "http1_connect_with_body",
            Self::TargetForm => "http1_target_form",
            Self::TargetByte => "http1_target_byte",
            Self::TargetFragment => "http1_target_fragment",
            Self::TargetTooLong => "http1_target_too_long",
            Self::VersionMalformed => "http1_version_malformed",
            Self::Version => "http1_version",
            Self::BareLineFeed => "http1_bare_line_feed",
            Self::BareCarriageReturn => "http1_bare_carriage_return",
            Self::ControlByte => "http1_control_byte",
            Self::LeadingSpace => "http1_leading_space",
            Self::ObsFold => "http1_obs_fold",
            Self::SpaceBeforeColon => "http1_space_before_colon",
            Self::EmptyName => "http1_empty_name",
            Self::NoColon => "http1_no_colon",
            Self::Name => "http1_name",
            Self::AmbiguousName => "http1_ambiguous_name",
            Self::HeadTooLong => "http1_head_too_long",
            Self::TooManyFields => "http1_too_many_fields",
            Self::HostMissing => "http1_host_missing",
            Self::HostRepeated => "http1_host_repeated",
            Self::HostMalformed => "http1_host_malformed",
            Self::HostContradicts => "http1_host_contradicts",
            Self::BothLengths => "http1_both_lengths",
            Self::ContentLength => "http1_content_length",
            Self::ContentLengthList => "http1_content_length_list",
            Self::ContentLengthZeros => "http1_content_length_zeros",
            Self::ContentLengthTooLarge => "http1_content_length_too_large",
            Self::ContentLengthRepeated => "http1_content_length_repeated",
            Self::ContentLengthConflict => "http1_content_length_conflict",
            Self::TransferEncodingInHttp10 => "http1_transfer_encoding_in_http10",
            Self::TransferEncoding => "http1_transfer_encoding",
            Self::TransferEncodingRepeated => "http1_transfer_encoding_repeated",
            Self::ChunkedNotLast => "http1_chunked_not_last",
            Self::TransferCodingUnknown => "http1_transfer_coding_unknown",
            Self::ConnectionOption => "http1_connection_option",
            Self::ChunkSize => "http1_chunk_size",
            Self::ChunkSizeSpace => "http1_chunk_size_space",
            Self::ChunkSizeTooLarge => "http1_chunk_size_too_large",
            Self::ChunkEnd => "http1_chunk_end",
            Self::ChunkExtension => "http1_chunk_extension",
            Self::ChunkExtensionTooLong => "http1_chunk_extension_too_long",
            Self::TrailerForbidden => "http1_trailer_forbidden",
            Self::TrailersTooLong => "http1_trailers_too_long",
            Self::TooManyTrailers => "http1_too_many_trailers",
        }
    }

    /// Status of the response.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::TargetTooLong => 414,
            Self::HeadTooLong | Self::TooManyFields | Self::TrailersTooLong | Self::TooManyTrailers => 431,
            Self::MethodTooLong | Self::Connect | Self::TransferCodingUnknown => 501,
            Self::Version => 505,
            _ => 400,
        }
    }
}

impl fmt::Display for Http1Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeadingLines => "more than one empty line before the request",
            Self::RequestLine => "the request line is not a method, a target and a version",
            Self::RequestLineSpace => "the request line has tabs or several spaces",
            Self::Method => "the method is not a token",
            Self::MethodTooLong => "the method is too long",
            Self::Connect => "CONNECT is not served here",
            Self::ConnectWithBody => "CONNECT came with content",
            Self::TargetForm => "the target does not have the form that the method requires",
            Self::TargetByte => "the target has an invalid byte",
            Self::TargetFragment => "the target has a fragment",
            Self::TargetTooLong => "the target is too long",
            Self::VersionMalformed => "the version is malformed",
            Self::Version => "the version is neither HTTP/1.0 nor HTTP/1.1",
            Self::BareLineFeed => "a line ends in LF without CR",
            Self::BareCarriageReturn => "a CR without LF",
            Self::ControlByte => "a control byte in the head",
            Self::LeadingSpace => "whitespace before the first field",
            Self::ObsFold => "a field is folded over lines",
            Self::SpaceBeforeColon => "whitespace before a colon",
            Self::EmptyName => "a field has no name",
            Self::NoColon => "a field has no colon",
            Self::Name => "a field name is not a token",
            Self::AmbiguousName => "a field name can be mistaken for one that frames the message",
            Self::HeadTooLong => "the head is too long",
            Self::TooManyFields => "the head has too many fields",
            Self::HostMissing => "Host is missing",
            Self::HostRepeated => "Host occurs twice",
            Self::HostMalformed => "Host names no host",
            Self::HostContradicts => "Host and target name different hosts",
            Self::BothLengths => "both Content-Length and Transfer-Encoding",
            Self::ContentLength => "Content-Length is not a number",
            Self::ContentLengthList => "Content-Length is a list",
            Self::ContentLengthZeros => "Content-Length has leading zeros",
            Self::ContentLengthTooLarge => "Content-Length is too large",
            Self::ContentLengthRepeated => "Content-Length occurs twice",
            Self::ContentLengthConflict => "Content-Length occurs twice with different values",
            Self::TransferEncodingInHttp10 => "Transfer-Encoding in HTTP/1.0",
            Self::TransferEncoding => "Transfer-Encoding is malformed",
            Self::TransferEncodingRepeated => "Transfer-Encoding or chunked occurs twice",
            Self::ChunkedNotLast => "chunked is not the last transfer coding",
            Self::TransferCodingUnknown => "a transfer coding other than chunked",
            Self::ConnectionOption => "Connection names a field that frames or routes the message",
            Self::ChunkSize => "a chunk size is not hexadecimal",
            Self::ChunkSizeSpace => "whitespace around a chunk size",
            Self::ChunkSizeTooLarge => "a chunk size is too large",
            Self::ChunkEnd => "a chunk does not end in CRLF",
            Self::ChunkExtension => "a chunk extension is malformed",
            Self::ChunkExtensionTooLong => "chunk extensions are too long",
            Self::TrailerForbidden => "a trailer frames or routes the message",
            Self::TrailersTooLong => "the trailers are too long",
            Self::TooManyTrailers => "there are too many trailers",
        })
    }
}

impl std::error::Error for Http1Fault {}
