//! Parser of a field line (RFC 9112 §5), of a head or of trailers.

use crate::fault::Http1Fault;
use crate::field::Known;
use crate::scan;

/// A parsed field line.
pub(super) struct ParsedField<'a> {
    pub(super) name: Known,
    /// Value without surrounding whitespace.
    pub(super) value: &'a [u8],
    /// End of the name in the section.
    pub(super) name_end: usize,
    /// Start of the value in the section.
    pub(super) at: usize,
}

/// Parses the line at `start..end` of `section`, which has no control bytes except TAB. `first` is set for
/// the first line of the section.
#[inline(always)]
pub(super) fn read(
    section: &[u8],
    start: usize,
    end: usize,
    first: bool,
) -> Result<ParsedField<'_>, Http1Fault> {
    // May read up to 16 bytes beyond the line, which is cheaper than stopping at its end.
    let colon = scan::token(section, start);
    let line = &section[..end];
    if colon >= end || line[colon] != b':' || colon == start {
        return Err(unreadable(&line[start..], colon - start, first));
    }
    let name = Known::of(&line[start..colon]);
    let mut from = colon + 1;
    while line.get(from).is_some_and(|&byte| is_space(byte)) {
        from += 1;
    }
    let mut value = &line[from..];
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    Ok(ParsedField { name, value, name_end: colon, at: from })
}

/// Parses a line of a server: like [`read`], but whitespace between name and colon is dropped (RFC 9112
/// §5.1).
#[inline]
pub(super) fn read_of_server(
    section: &[u8],
    start: usize,
    end: usize,
    first: bool,
) -> Result<ParsedField<'_>, Http1Fault> {
    match read(section, start, end, first) {
        Err(Http1Fault::SpaceBeforeColon) => Ok(padded(&section[..end], start)),
        read => read,
    }
}

/// Parses the field at `start` of `line`, which has whitespace between its name and the colon.
#[cold]
fn padded(line: &[u8], start: usize) -> ParsedField<'_> {
    let name_end = scan::token(line, start);
    let blanks = |from: usize| line[from..].iter().take_while(|&&byte| is_space(byte)).count();
    let colon = name_end + blanks(name_end);
    let at = colon + 1 + blanks(colon + 1);
    ParsedField { name: Known::of(&line[start..name_end]), value: line[at..].trim_ascii_end(), name_end, at }
}

/// Fast path: parses the field at `start` of `section` and finds the end of its line, if the line is complete
/// and ordinary; [`read`] handles the rest. No byte is searched twice.
#[inline(always)]
pub(super) fn plain(section: &[u8], start: usize) -> Option<(ParsedField<'_>, usize)> {
    let name_end = scan::token(section, start);
    if name_end == start || section.get(name_end) != Some(&b':') {
        return None;
    }
    let end = scan::control(section, name_end + 1)?;
    if section[end] != b'\r' || section.get(end + 1) != Some(&b'\n') {
        return None;
    }
    let mut at = name_end + 1;
    while at < end && is_space(section[at]) {
        at += 1;
    }
    let mut value = &section[at..end];
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    Some((ParsedField { name: Known::of(&section[start..name_end]), value, name_end, at }, end))
}

/// Reason for which a line is no field; `end` is the end of its token.
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

/// Matches names that frame a message, with another byte in place of `-`: servers that expose fields as CGI
/// variables treat `Content_Length` and `Content.Length` as `Content-Length`.
#[inline]
pub(super) fn is_ambiguous(name: &[u8]) -> bool {
    let (front, back): (&[u8], &[u8]) = match name.len() {
        14 => (b"content", b"length"),
        17 => (b"transfer", b"encoding"),
        _ => return false,
    };
    let odd = name[front.len()];
    odd != b'-'
        && !odd.is_ascii_alphanumeric()
        && name[..front.len()].eq_ignore_ascii_case(front)
        && name[front.len() + 1..].eq_ignore_ascii_case(back)
}

#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
