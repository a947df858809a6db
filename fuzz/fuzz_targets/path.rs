//! Arbitrary text as a path: the normal form is a path without dot segments and empty ones, is its own normal form, and
//! stands for what a walk by the book comes to; every reading is one that a server could have; files and readings stay
//! below their roots.

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_http::files::path::decode;
use offramp_http::path::{Ambiguity, loosest, normalize, other_reading};

const LONGEST: usize = 4096;
/// Each reading costs at least 4 of the 32 Ki steps that all of them may take.
const MOST_READINGS: usize = 8 * 1024;

fuzz_target!(|data: &[u8]| {
    let Ok(rest) = std::str::from_utf8(data) else { return };
    if rest.len() > LONGEST || !rest.is_ascii() {
        return;
    }
    let path = format!("/{rest}");
    let normal = normalize(&path);
    let text = &*normal.text;
    assert!(text.starts_with('/') && text.is_ascii() && !text.contains("//"), "{text}");
    assert!(text.split('/').all(|segment| segment != "." && segment != ".."), "{text}");
    assert_eq!(normalize(text).text, text, "a normal form is its own");
    let segments: Vec<Vec<u8>> = text[1..].split('/').map(|segment| decoded(segment.as_bytes())).collect();
    assert_eq!(segments, walked(&path), "{text}");
    let mut readings = 0;
    let other = other_reading(&path, normal.spelling, usize::MAX, 0, |reading| {
        readings += 1;
        assert!(reading.starts_with('/') && reading.is_ascii(), "{reading}");
        assert!(!normal.spelling.is_single() || reading == text, "{reading}");
        false
    });
    assert!(
        matches!(other, Ok(None) | Err(Ambiguity::TooLong)) && (1..=MOST_READINGS).contains(&readings),
        "{readings}"
    );
    if let Some(reading) = loosest(&path) {
        assert_eq!(normalize(&reading).text, reading);
        assert!(!reading.contains(';') && !reading.split('/').any(|segment| matches!(segment, "." | "..")));
    }
    if let Ok(file) = decode(&path, false) {
        let hidden = |segment: &str| segment.starts_with('.') && segment != ".well-known";
        assert!(!file.starts_with('/') && !file.contains('\0') && !file.split('/').any(hidden), "{file}");
    }
});

/// Decodes escapes once.
fn decoded(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [byte, after @ ..] = rest {
        let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match value {
            Some(value) if *byte == b'%' => {
                out.push(value);
                rest = &after[2..];
            }
            _ => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

/// The segments that a path comes to, the last one empty behind a slash.
fn walked(path: &str) -> Vec<Vec<u8>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    let parts: Vec<&str> = path[1..].split('/').collect();
    for (at, part) in parts.iter().enumerate() {
        let segment = decoded(part.as_bytes());
        let is_last = at + 1 == parts.len();
        match &segment[..] {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            _ => {
                segments.push(segment);
                continue;
            }
        }
        if is_last {
            segments.push(Vec::new());
        }
    }
    segments
}
