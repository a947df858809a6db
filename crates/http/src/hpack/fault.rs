//! Faults of header blocks, all of them errors of the peer's encoder.

use std::fmt;

/// Reason for which a header block could not be decoded. The connection cannot be used afterwards, since the
/// tables of both sides may differ (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HpackFault {
    /// The block ends within a field (RFC 7541 §6).
    Truncated,
    /// A string is announced longer than the rest of the block (RFC 7541 §5.2).
    StringTooLong,
    /// An integer with redundant bytes, or above 2²⁸ (RFC 7541 §5.1).
    Integer,
    /// The index 0, which is unused (RFC 7541 §6.1).
    IndexZero,
    /// An index beyond both tables (RFC 7541 §2.3.3).
    IndexTooLarge,
    /// A table size update behind the first field (RFC 7541 §4.2).
    SizeUpdateLate,
    /// A table size update above the offered maximum (RFC 7541 §6.3).
    SizeUpdateTooLarge,
    /// A Huffman coded string contains the EOS symbol (RFC 7541 §5.2).
    HuffmanEnd,
    /// A Huffman coded string ends in more than 7 bits of padding (RFC 7541 §5.2).
    HuffmanPaddingTooLong,
    /// A Huffman coded string is padded with bits other than ones (RFC 7541 §5.2).
    HuffmanPadding,
}

impl HpackFault {
    /// Every variant, in the order of declaration.
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

    /// Stable word for events and counters.
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
            Self::IndexTooLarge => "a field has an index beyond the tables",
            Self::SizeUpdateLate => "a table size update behind the first field",
            Self::SizeUpdateTooLarge => "a table size update above the offered size",
            Self::HuffmanEnd => "a Huffman coded string has the symbol for its end",
            Self::HuffmanPaddingTooLong => "a Huffman coded string has more than 7 bits of padding",
            Self::HuffmanPadding => "a Huffman coded string is not padded with ones",
        })
    }
}

impl std::error::Error for HpackFault {}
