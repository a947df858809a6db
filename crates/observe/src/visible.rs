//! Text of peers, made fit for terminals, mails and messages.
//!
//! Clients choose hosts and paths, and servers and authorities choose the text of errors. A control character would be
//! carried out by a terminal, which may be root's. A character that turns the direction of text (UAX #9) would show another
//! name than there is.

/// Puts a space in the place of each control character, and an escape such as `\u{202e}` in the place of each character
/// that turns the direction of text.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => out.push(' '),
            c if turns_text(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Returns true for characters that change the direction of others, or end a line unseen.
#[must_use]
pub fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_deceive_are_seen() {
        for (text, shown) in [
            ("grüße/日本 \u{1f9d1}\u{200d}\u{1f33e}", "grüße/日本 \u{1f9d1}\u{200d}\u{1f33e}"),
            ("a\u{1b}[2J\nb\u{9b}0m", "a [2J b 0m"),
            ("a\u{202e}gnp.exe\u{2066}\u{200f}\u{2028}", "a\\u{202e}gnp.exe\\u{2066}\\u{200f}\\u{2028}"),
        ] {
            assert_eq!(visible(text), shown, "{text:?}");
        }
    }
}
