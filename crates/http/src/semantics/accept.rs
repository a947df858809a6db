//! Whether the reader of a short message wants JSON or text (RFC 9110 §12.5.1).
//!
//! Enough of Accept for the bodies of errors, which exist as plain text and as JSON. It refuses to negotiate
//! anything else, never fails, and looks at no more than [`MAX_RANGES`] ranges; what it cannot read, it skips.

/// How many media ranges are looked at.
pub const MAX_RANGES: usize = 32;

/// Whether JSON is preferred over text by the values of the Accept fields, in the order in which they came.
///
/// JSON must be wanted more than text, or as much and be named before it; wildcards for both mean text.
pub fn prefers_json<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut json = Wish::default();
    let mut text = Wish::default();
    let ranges = values.into_iter().flat_map(|value| value.split(|&byte| byte == b','));
    for (at, range) in ranges.take(MAX_RANGES).enumerate() {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let Some(quality) = quality(parts) else { continue };
        json.hear(specificity(name, &[b"application/json"], b"application/*"), quality, at);
        text.hear(specificity(name, &[b"text/plain", b"text/html"], b"text/*"), quality, at);
    }
    json.quality > text.quality || json.quality > 0 && json.quality == text.quality && json.at < text.at
}

/// What the most specific range says of one kind.
#[derive(Default)]
struct Wish {
    specificity: u8,
    /// From 0 to 1000.
    quality: u16,
    /// The place of the range.
    at: usize,
}

impl Wish {
    fn hear(&mut self, specificity: u8, quality: u16, at: usize) {
        let better =
            specificity > self.specificity || specificity == self.specificity && quality > self.quality;
        if specificity > 0 && better {
            *self = Self { specificity, quality, at };
        }
    }
}

/// 3 for the type itself, 2 for all of its kind, 1 for everything, 0 for something else.
fn specificity(range: &[u8], types: &[&[u8]], kind: &[u8]) -> u8 {
    if types.iter().any(|name| range.eq_ignore_ascii_case(name)) {
        3
    } else if range.eq_ignore_ascii_case(kind) {
        2
    } else {
        u8::from(range == b"*/*")
    }
}

/// The weight among the parameters (RFC 9110 §12.4.2), in thousandths; `None` where it is malformed.
fn quality<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> Option<u16> {
    for parameter in parameters {
        let [b'q' | b'Q', b'=', weight @ ..] = parameter else { continue };
        return match weight {
            [b'1'] => Some(1000),
            [b'1', b'.', zeros @ ..] => {
                (zeros.len() <= 3 && zeros.iter().all(|&digit| digit == b'0')).then_some(1000)
            }
            [b'0'] => Some(0),
            [b'0', b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => {
                let digit = |at: usize| digits.get(at).map_or(0, |digit| u16::from(digit - b'0'));
                Some(digit(0) * 100 + digit(1) * 10 + digit(2))
            }
            _ => None,
        };
    }
    Some(1000)
}

#[cfg(test)]
mod tests {
    use super::prefers_json;

    #[test]
    fn json_goes_to_those_who_want_it() {
        for (accept, json) in [
            ("", false),
            ("*/*", false),
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json;q=0", false),
            ("application/json, text/plain, */*", true),
            ("text/plain, application/json", false),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
            ("text/html;q=0.5, application/json;q=0.51", true),
            ("text/*;q=0.9, application/*;q=0.8", false),
            ("application/*", true),
            ("*/*;q=0.1, application/json;q=0.05", false),
            ("*/*, text/*;q=0", true),
            ("application/json;q=2", false),
            ("application/json;q=1.000", true),
            ("application/json;q=0.0001", false),
            ("image/png", false),
            (",,;;q=,", false),
        ] {
            assert_eq!(prefers_json([accept.as_bytes()]), json, "{accept}");
        }
        assert!(prefers_json([&b"image/png"[..], b"application/json"]));
        let far = format!("{}application/json", "a/b,".repeat(super::MAX_RANGES));
        assert!(!prefers_json([far.as_bytes()]));
    }
}
