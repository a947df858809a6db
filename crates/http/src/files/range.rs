//! Range requests for a file (RFC 9110 §14).
//!
//! A single field can ask for ten thousand parts. So the number of parts is bounded, and the whole file is
//! sent if the parts exceed its length in total, as RFC 9110 §14.2 permits.

use std::ops::Range;

/// Maximum number of parts of a response. Requests for more get the whole file.
pub const MOST_PARTS: usize = 32;

/// Parts of a file to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeSelection {
    /// The whole file: no range was requested, or none that is valid.
    Whole,
    /// These parts, none of them empty, in the requested order: 1 to [`MOST_PARTS`].
    Parts(Vec<Range<u64>>),
    /// No requested part exists: 416.
    Unsatisfiable,
}

/// Parses the value of a `Range` field for a file of `length` bytes.
#[must_use]
pub fn select(value: &[u8], length: u64) -> RangeSelection {
    let Some((unit, set)) = std::str::from_utf8(value).ok().and_then(|text| text.split_once('=')) else {
        return RangeSelection::Whole;
    };
    if !unit.eq_ignore_ascii_case("bytes") {
        return RangeSelection::Whole;
    }
    // An empty file has no part that `Content-Range` could name; a request from its begin or for its end gets
    // all of it.
    let is_all = |spec: &str| spec.trim_start_matches([' ', '\t', '0']).starts_with('-');
    if length == 0 && set.split(',').any(is_all) {
        return RangeSelection::Whole;
    }
    let mut parts = Vec::new();
    let (mut asked, mut total) = (0, 0_u64);
    for spec in set.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty()) {
        asked += 1;
        if asked > MOST_PARTS {
            return RangeSelection::Whole;
        }
        // A single invalid part invalidates the whole field.
        let Some(part) = part(spec, length) else { return RangeSelection::Whole };
        if !part.is_empty() {
            total = total.saturating_add(part.end - part.start);
            parts.push(part);
        }
    }
    match parts.len() {
        _ if asked == 0 => RangeSelection::Whole,
        0 => RangeSelection::Unsatisfiable,
        1 => RangeSelection::Parts(parts),
        // The parts overlap, or omit little.
        _ if total > length => RangeSelection::Whole,
        _ => RangeSelection::Parts(parts),
    }
}

/// Parses one part; the range is empty if the part is beyond the file, and `None` if it is invalid.
fn part(spec: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let suffix = number(last)?;
        return Some(length.saturating_sub(suffix)..length);
    }
    let first = number(first)?;
    let end = if last.is_empty() { length } else { number(last)?.saturating_add(1).min(length) };
    if !last.is_empty() && number(last)? < first {
        return None;
    }
    Some(if first < length { first..end } else { 0..0 })
}

/// Parses digits; saturates at the largest number.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parts of a file of ten bytes.
    #[test]
    #[allow(clippy::single_range_in_vec_init)] // One range is meant, not its numbers.
    fn ranges() {
        let parts = |parts: &[Range<u64>]| RangeSelection::Parts(parts.to_vec());
        for (value, expected) in [
            ("bytes=0-0", parts(&[0..1])),
            ("bytes=0-9", parts(&[0..10])),
            ("Bytes=2-", parts(&[2..10])),
            ("bytes=8-99", parts(&[8..10])),
            ("bytes=-3", parts(&[7..10])),
            ("bytes=-99", parts(&[0..10])),
            ("bytes=9-", parts(&[9..10])),
            ("bytes= 0-1 , 4-5", parts(&[0..2, 4..6])),
            ("bytes=4-5,0-1", parts(&[4..6, 0..2])),
            ("bytes=0-1,,-1", parts(&[0..2, 9..10])),
            ("bytes=0-1,50-60", parts(&[0..2])),
            ("bytes=0-18446744073709551615", parts(&[0..10])),
            ("bytes=0-99999999999999999999999", parts(&[0..10])),
            ("bytes=10-", RangeSelection::Unsatisfiable),
            ("bytes=10-11,99-", RangeSelection::Unsatisfiable),
            ("bytes=-0", RangeSelection::Unsatisfiable),
            ("bytes=99999999999999999999999-", RangeSelection::Unsatisfiable),
            ("bytes=0-9,0-9", RangeSelection::Whole),
            ("bytes=0-,5-", RangeSelection::Whole),
            ("bytes=5-4", RangeSelection::Whole),
            ("bytes=", RangeSelection::Whole),
            ("bytes=,", RangeSelection::Whole),
            ("bytes", RangeSelection::Whole),
            ("bytes=a-b", RangeSelection::Whole),
            ("bytes=1", RangeSelection::Whole),
            ("bytes=-", RangeSelection::Whole),
            ("bytes=+1-2", RangeSelection::Whole),
            ("bytes=1-2-3", RangeSelection::Whole),
            ("bytes=0-1,x", RangeSelection::Whole),
            ("lines=0-1", RangeSelection::Whole),
            ("", RangeSelection::Whole),
        ] {
            assert_eq!(select(value.as_bytes(), 10), expected, "{value}");
        }
        assert_eq!(select(b"bytes=0-", 0), RangeSelection::Whole);
        assert_eq!(select(b"bytes=-1", 0), RangeSelection::Whole);
        assert_eq!(select(b"bytes=1-", 0), RangeSelection::Unsatisfiable);
        assert_eq!(select(b"bytes=5-6, 0-0", 0), RangeSelection::Whole);
        assert_eq!(select(b"bytes=\xff-1", 10), RangeSelection::Whole);
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let many = |count: usize| {
            let specs: Vec<_> = (0..count).map(|at| format!("{}-{}", at * 2, at * 2)).collect();
            select(format!("bytes={}", specs.join(",")).as_bytes(), 1 << 20)
        };
        assert!(matches!(many(MOST_PARTS), RangeSelection::Parts(parts) if parts.len() == MOST_PARTS));
        assert_eq!(many(MOST_PARTS + 1), RangeSelection::Whole);
        assert_eq!(many(10_000), RangeSelection::Whole);
    }

    proptest! {
        #[test]
        fn parts_are_within_the_file(value in "bytes=([0-9]{0,3}-[0-9]{0,3},?){1,40}", length in 0_u64..300) {
            if let RangeSelection::Parts(parts) = select(value.as_bytes(), length) {
                prop_assert!((1..=MOST_PARTS).contains(&parts.len()));
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
                prop_assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= length);
            }
        }
    }
}
