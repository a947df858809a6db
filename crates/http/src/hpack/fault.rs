//! Why a header block is refused: always the fault of the peer that encoded it.

use std::fmt;

/// Why a header block could not be decoded. After any of these the connection cannot be used again, since the
/// tables of both sides may differ (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HpackFault {
    /// The block ends within a field (RFC 7541 §6).
    Truncated,
    /// A string is announced longer than what is left of the block (RFC 7541 §5.2).
    StringTooLong,
    /// An integer with more bytes than it needs, or above 2²⁸ (RFC 7541 §5.1).
    Integer,
    /// The index 0, which stands for nothing (RFC 7541 §6.1).
    IndexZero,
    /// An index behind both tables (RFC 7541 §2.3.3).
    IndexTooLarge,
    /// The size of the table changes behind the first field (RFC 7541 §4.2).
    SizeUpdateLate,
    /// The size of the table is to be above what was offered (RFC 7541 §6.3).
    SizeUpdateTooLarge,
    /// A Huffman coded string has the symbol that ends strings (RFC 7541 §5.2).
    HuffmanEnd,
    /// A Huffman coded string ends in more than 7 bits that are no symbol (RFC 7541 §5.2).
    HuffmanPaddingTooLong,
    /// A Huffman coded string ends in bits that are not ones (RFC 7541 §5.2).
    HuffmanPadding,
}

impl HpackFault {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 10] = [
        Self::Truncated,
        Self::StringTooLong,
        Self::Integer,
        Self::IndexZero,
        Self::IndexTooLarge,
        Self::SizeUpdateLate,
        Self::SizeUpdateTooLarge,
        Self::HuffmanEnd,
        Self::HuffmanPaddingTooLong,
        Self::HuffmanPadding,
    ];

    /// A stable word for events and counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncated => "hpack_truncated",
            Self::StringTooLong => "hpack_string_too_long",
            Self::Integer => "hpack_integer",
            Self::IndexZero => "hpack_index_zero",
            Self::IndexTooLarge => "hpack_index_too_large",
            Self::SizeUpdateLate => "hpack_size_update_late",
            Self::SizeUpdateTooLarge => "hpack_size_update_too_large",
            Self::HuffmanEnd => "hpack_huffman_end",
            Self::HuffmanPaddingTooLong => "hpack_huffman_padding_too_long",
            Self::HuffmanPadding => "hpack_huffman_padding",
        }
    }
}

impl fmt::Display for HpackFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the header block ends within a field",
            Self::StringTooLong => "a string is longer than the rest of the header block",
            Self::Integer => "an integer of the header block is too long or too large",
            Self::IndexZero => "a field has the index 0",
            Self::IndexTooLarge => "a field has an index behind the tables",
            Self::SizeUpdateLate => "the size of the table changes behind the first field",
            Self::SizeUpdateTooLarge => "the size of the table is set above what was offered",
            Self::HuffmanEnd => "a Huffman coded string has the symbol for its end",
            Self::HuffmanPaddingTooLong => "a Huffman coded string has more than 7 bits of padding",
            Self::HuffmanPadding => "a Huffman coded string is not padded with ones",
        })
    }
}

impl std::error::Error for HpackFault {}
