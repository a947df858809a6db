//! In which form the reader of a short message wants it (RFC 9110 §12.5.1).
//!
//! Enough of Accept for the bodies of errors, which exist in the forms of [`Form`]. It refuses to negotiate anything
//! else, never fails, and looks at no more than [`MAX_RANGES`] ranges; what it cannot read, it skips.

/// How many media ranges are looked at.
pub const MAX_RANGES: usize = 32;

/// The forms of a short message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Plain text, for whoever says nothing.
    #[default]
    Text,
    /// A page for browsers.
    Html,
    /// JSON.
    Json,
    /// JSON as RFC 9457 describes problems.
    Problem,
}

/// The forms with their media types and ranges; the first is for clients to which all are the same.
const FORMS: [(Form, &[u8], &[u8]); 4] = [
    (Form::Text, b"text/plain", b"text/*"),
    (Form::Html, b"text/html", b"text/*"),
    (Form::Json, b"application/json", b"application/*"),
    (Form::Problem, b"application/problem+json", b"application/*"),
];

/// The form that the values of the Accept fields prefer, in the order in which they came: that with the greatest
/// weight, of several the one that is named first. Who wants none of them gets text.
pub fn form<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Form {
    let mut wishes = [const { Wish::NONE }; FORMS.len()];
    let ranges = values.into_iter().flat_map(|value| value.split(|&byte| byte == b','));
    for (at, range) in ranges.take(MAX_RANGES).enumerate() {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let Some(quality) = quality(parts) else { continue };
        for (wish, (_, exact, kind)) in wishes.iter_mut().zip(FORMS) {
            wish.note(specificity(name, exact, kind), quality, at);
        }
    }
    let mut best = (Form::Text, &Wish::NONE);
    for (wish, (form, ..)) in wishes.iter().zip(FORMS) {
        let first = wish.quality == best.1.quality && wish.at < best.1.at;
        if wish.quality > best.1.quality || wish.quality > 0 && first {
            best = (form, wish);
        }
    }
    best.0
}

/// What the most specific range says of one form.
struct Wish {
    specificity: u8,
    /// From 0 to 1000.
    quality: u16,
    /// The place of the range.
    at: usize,
}

impl Wish {
    const NONE: Self = Self { specificity: 0, quality: 0, at: usize::MAX };

    fn note(&mut self, specificity: u8, quality: u16, at: usize) {
        let better =
            specificity > self.specificity || specificity == self.specificity && quality > self.quality;
        if specificity > 0 && better {
            *self = Self { specificity, quality, at };
        }
    }
}

/// 3 for the type itself, 2 for all of its kind, 1 for everything, 0 for something else.
fn specificity(range: &[u8], exact: &[u8], kind: &[u8]) -> u8 {
    if range.eq_ignore_ascii_case(exact) {
        3
    } else if range.eq_ignore_ascii_case(kind) {
        2
    } else {
        u8::from(range == b"*/*")
    }
}

/// The weight among the parameters (RFC 9110 §12.4.2), in thousandths; `None` where it is malformed.
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
    use super::{Form, MAX_RANGES, form};

    #[test]
    fn everybody_gets_the_form_that_is_asked_for() {
        for (accept, expected) in [
            ("", Form::Text),
            ("*/*", Form::Text),
            ("text/*", Form::Text),
            ("text/html", Form::Html),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", Form::Html),
            ("text/plain, text/html", Form::Text),
            ("text/html;q=0.9, text/plain", Form::Text),
            ("text/html, application/json", Form::Html),
            ("application/json", Form::Json),
            ("Application/JSON; charset=utf-8", Form::Json),
            ("application/json;q=0", Form::Text),
            ("application/json, text/plain, */*", Form::Json),
            ("text/plain, application/json", Form::Text),
            ("text/html;q=0.5, application/json;q=0.51", Form::Json),
            ("text/*;q=0.9, application/*;q=0.8", Form::Text),
            ("application/*", Form::Json),
            ("application/problem+json", Form::Problem),
            ("application/problem+json, application/json", Form::Problem),
            ("application/json;q=0.5, application/problem+json", Form::Problem),
            ("*/*;q=0.1, application/json;q=0.05", Form::Text),
            ("*/*, text/*;q=0", Form::Json),
            ("application/json;q=2", Form::Text),
            ("application/json;q=NaN", Form::Text),
            ("application/json;q=1.000", Form::Json),
            ("application/json;q=0.0001", Form::Text),
            ("image/png", Form::Text),
            (",,;;q=,", Form::Text),
        ] {
            assert_eq!(form([accept.as_bytes()]), expected, "{accept}");
        }
        assert_eq!(form([&b"image/png"[..], b"application/json"]), Form::Json);
        let far = format!("{}application/json", "a/b,".repeat(MAX_RANGES));
        assert_eq!(form([far.as_bytes()]), Form::Text);
    }
}
