//! One line of fields (RFC 9112 §5), of a head or of trailers.

use super::{Http1Fault, scan};

/// A field line in its two parts.
pub(super) struct Field<'a> {
    pub(super) name: Name,
    /// Without the whitespace around it.
    pub(super) value: &'a [u8],
    /// Where the name ends in the section.
    pub(super) name_end: usize,
    /// Where the value stands in the section.
    pub(super) at: usize,
}

/// The names that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    Upgrade,
    Expect,
    /// One of those that frame the message, with `_` in the place of `-`.
    Ambiguous,
    Other,
}

/// Reads the line at `start..end` of `section`, which has no control bytes but TABs. `first`: it is the first
/// of its section.
#[inline(always)]
pub(super) fn read(section: &[u8], start: usize, end: usize, first: bool) -> Result<Field<'_>, Http1Fault> {
    // Looks at up to 16 bytes behind the line, which costs less than to stop before.
    let colon = scan::token(section, start);
    let line = &section[..end];
    if colon >= end || line[colon] != b':' || colon == start {
        return Err(unreadable(&line[start..], colon - start, first));
    }
    let name = name(&line[start..colon]);
    let mut from = colon + 1;
    while line.get(from).is_some_and(|&byte| is_space(byte)) {
        from += 1;
    }
    let mut value = &line[from..];
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    Ok(Field { name, value, name_end: colon, at: from })
}

/// The reason for which a line is no field; `end` is where its token ends.
#[cold]
fn unreadable(line: &[u8], end: usize, first: bool) -> Http1Fault {
    match line.get(end) {
        None => Http1Fault::NoColon,
        Some(b':') => Http1Fault::EmptyName,
        Some(b' ' | b'\t') if end == 0 && first => Http1Fault::LeadingSpace,
        Some(b' ' | b'\t') if end == 0 => Http1Fault::ObsFold,
        Some(b' ' | b'\t') => match line[end..].iter().find(|&&byte| !is_space(byte)) {
            Some(b':') => Http1Fault::SpaceBeforeColon,
            _ => Http1Fault::Name,
        },
        Some(_) => Http1Fault::Name,
    }
}

#[inline]
fn name(name: &[u8]) -> Name {
    let (known, meant): (&[u8], Name) = match name.len() {
        4 => (b"host", Name::Host),
        6 => (b"expect", Name::Expect),
        7 => (b"upgrade", Name::Upgrade),
        10 => (b"connection", Name::Connection),
        14 => (b"content-length", Name::ContentLength),
        17 => (b"transfer-encoding", Name::TransferEncoding),
        _ => return Name::Other,
    };
    // Most names of a known length are others, and differ in the first letter.
    if name[0] | 0x20 != known[0] {
        return Name::Other;
    }
    if name.eq_ignore_ascii_case(known) {
        return meant;
    }
    let like = |(&byte, &wanted): (&u8, &u8)| {
        byte.to_ascii_lowercase() == if wanted == b'-' { b'_' } else { wanted }
    };
    if name.len() >= 14 && name.iter().zip(known).all(like) {
        return Name::Ambiguous;
    }
    Name::Other
}

/// Whether it is a name that frames the message, with `_` in the place of `-`.
pub(super) fn is_ambiguous(text: &[u8]) -> bool {
    name(text) == Name::Ambiguous
}

#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
