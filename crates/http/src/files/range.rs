//! Which parts of a file a request asks for (RFC 9110 §14).
//!
//! A client can ask for ten thousand parts in one field. So the number of parts is bounded, and parts that come to more
//! than the whole are not sent: the whole is, as RFC 9110 §14.2 allows.

use std::ops::Range;

/// The most parts of one response. What asks for more gets the whole file.
pub const MOST_PARTS: usize = 32;

/// What is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The whole file: nothing else is asked for, or nothing that is understood.
    Whole,
    /// These parts, none of them empty, in the order in which they are asked for: 1 to [`MOST_PARTS`].
    Parts(Vec<Range<u64>>),
    /// No part that is asked for exists: 416.
    Unsatisfiable,
}

/// Reads the value of a `Range` field for a file of `length` bytes.
#[must_use]
pub fn select(value: &[u8], length: u64) -> Selection {
    let Some((unit, set)) = std::str::from_utf8(value).ok().and_then(|text| text.split_once('=')) else {
        return Selection::Whole;
    };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Selection::Whole;
    }
    // It has no part that `Content-Range` could name, and whoever asks from its begin or for its end gets all that there is.
    let is_all = |spec: &str| spec.trim_start_matches([' ', '\t', '0']).starts_with('-');
    if length == 0 && set.split(',').any(is_all) {
        return Selection::Whole;
    }
    let mut parts = Vec::new();
    let (mut asked, mut total) = (0, 0_u64);
    for spec in set.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty()) {
        asked += 1;
        if asked > MOST_PARTS {
            return Selection::Whole;
        }
        // One that breaks the rules makes the field none.
        let Some(part) = part(spec, length) else { return Selection::Whole };
        if !part.is_empty() {
            total = total.saturating_add(part.end - part.start);
            parts.push(part);
        }
    }
    match parts.len() {
        _ if asked == 0 => Selection::Whole,
        0 => Selection::Unsatisfiable,
        1 => Selection::Parts(parts),
        // They overlap, or there is little that they leave out.
        _ if total > length => Selection::Whole,
        _ => Selection::Parts(parts),
    }
}

/// One part; empty where there is none in the file. `None` where it breaks the rules.
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

/// Digits alone; what is too large is as good as the largest.
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

    /// As parts of a file of ten bytes.
    #[test]
    #[allow(clippy::single_range_in_vec_init)] // One range is meant, not its numbers.
    fn ranges() {
        let parts = |parts: &[Range<u64>]| Selection::Parts(parts.to_vec());
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
            ("bytes=10-", Selection::Unsatisfiable),
            ("bytes=10-11,99-", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=99999999999999999999999-", Selection::Unsatisfiable),
            ("bytes=0-9,0-9", Selection::Whole),
            ("bytes=0-,5-", Selection::Whole),
            ("bytes=5-4", Selection::Whole),
            ("bytes=", Selection::Whole),
            ("bytes=,", Selection::Whole),
            ("bytes", Selection::Whole),
            ("bytes=a-b", Selection::Whole),
            ("bytes=1", Selection::Whole),
            ("bytes=-", Selection::Whole),
            ("bytes=+1-2", Selection::Whole),
            ("bytes=1-2-3", Selection::Whole),
            ("bytes=0-1,x", Selection::Whole),
            ("lines=0-1", Selection::Whole),
            ("", Selection::Whole),
        ] {
            assert_eq!(select(value.as_bytes(), 10), expected, "{value}");
        }
        assert_eq!(select(b"bytes=0-", 0), Selection::Whole);
        assert_eq!(select(b"bytes=-1", 0), Selection::Whole);
        assert_eq!(select(b"bytes=1-", 0), Selection::Unsatisfiable);
        assert_eq!(select(b"bytes=5-6, 0-0", 0), Selection::Whole);
        assert_eq!(select(b"bytes=\xff-1", 10), Selection::Whole);
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let many = |count: usize| {
            let specs: Vec<_> = (0..count).map(|at| format!("{}-{}", at * 2, at * 2)).collect();
            select(format!("bytes={}", specs.join(",")).as_bytes(), 1 << 20)
        };
        assert!(matches!(many(MOST_PARTS), Selection::Parts(parts) if parts.len() == MOST_PARTS));
        assert_eq!(many(MOST_PARTS + 1), Selection::Whole);
        assert_eq!(many(10_000), Selection::Whole);
    }

    proptest! {
        #[test]
        fn parts_are_within_the_file(value in "bytes=([0-9]{0,3}-[0-9]{0,3},?){1,40}", length in 0_u64..300) {
            if let Selection::Parts(parts) = select(value.as_bytes(), length) {
                prop_assert!((1..=MOST_PARTS).contains(&parts.len()));
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
                prop_assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= length);
            }
        }
    }
}
