//! Content negotiation for short messages (RFC 9110 §12.5.1).
//!
//! Supports just enough of Accept for error pages, which exist in the formats of [`MessageFormat`]. It never
//! fails, and reads at most [`MAX_RANGES`] ranges; invalid ones are skipped.

/// Maximum number of media ranges that are read.
pub const MAX_RANGES: usize = 32;

/// Format of a short message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageFormat {
    /// Plain text, the default.
    #[default]
    Text,
    /// A page for browsers.
    Html,
    /// JSON, as `application/json`.
    Json,
    /// Problem details (RFC 9457), as `application/problem+json`.
    Problem,
}

/// Formats with their media type and range; the first one is for clients without a preference.
const FORMS: [(MessageFormat, &[u8], &[u8]); 4] = [
    (MessageFormat::Text, b"text/plain", b"text/*"),
    (MessageFormat::Html, b"text/html", b"text/*"),
    (MessageFormat::Json, b"application/json", b"application/*"),
    (MessageFormat::Problem, b"application/problem+json", b"application/*"),
];

/// The format preferred by the values of the Accept fields, in order of arrival: the one with the highest
/// weight, and of several the one that is named first. A client that accepts none of them gets text.
pub fn form<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> MessageFormat {
    let mut preferences = [const { Preference::NONE }; FORMS.len()];
    let ranges = values.into_iter().flat_map(|value| value.split(|&byte| byte == b','));
    for (at, range) in ranges.take(MAX_RANGES).enumerate() {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let Some(quality) = quality(parts) else { continue };
        for (wish, (_, exact, kind)) in preferences.iter_mut().zip(FORMS) {
            wish.note(specificity(name, exact, kind), quality, at);
        }
    }
    let mut best = (MessageFormat::Text, &Preference::NONE);
    for (wish, (form, ..)) in preferences.iter().zip(FORMS) {
        let first = wish.quality == best.1.quality && wish.at < best.1.at;
        if wish.quality > best.1.quality || wish.quality > 0 && first {
            best = (form, wish);
        }
    }
    best.0
}

/// Preference for one format, by the most specific range.
struct Preference {
    specificity: u8,
    /// Weight in thousandths, at most 1000.
    quality: u16,
    /// Index of the range.
    at: usize,
}

impl Preference {
    const NONE: Self = Self { specificity: 0, quality: 0, at: usize::MAX };

    fn note(&mut self, specificity: u8, quality: u16, at: usize) {
        let better =
            specificity > self.specificity || specificity == self.specificity && quality > self.quality;
        if specificity > 0 && better {
            *self = Self { specificity, quality, at };
        }
    }
}

/// Specificity of a range: 3 for the type itself, 2 for its major type, 1 for `*/*`, 0 for no match.
fn specificity(range: &[u8], exact: &[u8], kind: &[u8]) -> u8 {
    if range.eq_ignore_ascii_case(exact) {
        3
    } else if range.eq_ignore_ascii_case(kind) {
        2
    } else {
        u8::from(range == b"*/*")
    }
}

/// Weight among the parameters (RFC 9110 §12.4.2), in thousandths; `None` if it is malformed.
pub(super) fn quality<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> Option<u16> {
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
    use super::{MAX_RANGES, MessageFormat, form};

    #[test]
    fn preferred_formats() {
        for (accept, expected) in [
            ("", MessageFormat::Text),
            ("*/*", MessageFormat::Text),
            ("text/*", MessageFormat::Text),
            ("text/html", MessageFormat::Html),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
                MessageFormat::Html,
            ),
            ("text/plain, text/html", MessageFormat::Text),
            ("text/html;q=0.9, text/plain", MessageFormat::Text),
            ("text/html, application/json", MessageFormat::Html),
            ("application/json", MessageFormat::Json),
            ("Application/JSON; charset=utf-8", MessageFormat::Json),
            ("application/json;q=0", MessageFormat::Text),
            ("application/json, text/plain, */*", MessageFormat::Json),
            ("text/plain, application/json", MessageFormat::Text),
            ("text/html;q=0.5, application/json;q=0.51", MessageFormat::Json),
            ("text/*;q=0.9, application/*;q=0.8", MessageFormat::Text),
            ("application/*", MessageFormat::Json),
            ("application/problem+json", MessageFormat::Problem),
            ("application/problem+json, application/json", MessageFormat::Problem),
            ("application/json;q=0.5, application/problem+json", MessageFormat::Problem),
            ("*/*;q=0.1, application/json;q=0.05", MessageFormat::Text),
            ("*/*, text/*;q=0", MessageFormat::Json),
            ("application/json;q=2", MessageFormat::Text),
            ("application/json;q=NaN", MessageFormat::Text),
            ("application/json;q=1.000", MessageFormat::Json),
            ("application/json;q=0.0001", MessageFormat::Text),
            ("image/png", MessageFormat::Text),
            (",,;;q=,", MessageFormat::Text),
        ] {
            assert_eq!(form([accept.as_bytes()]), expected, "{accept}");
        }
        assert_eq!(form([&b"image/png"[..], b"application/json"]), MessageFormat::Json);
        let far = format!("{}application/json", "a/b,".repeat(MAX_RANGES));
        assert_eq!(form([far.as_bytes()]), MessageFormat::Text);
    }
}
