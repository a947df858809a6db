//! Text from the network, made fit for a terminal. Clients choose hosts, paths and agents, and servers choose the text of
//! errors; an escape sequence in one of them would be carried out by the terminal, which may be root's.

use std::borrow::Cow;

use offramp_observe::turns_text;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Maximum number of characters that are kept of a text. No screen shows more.
const MAX_TEXT: usize = 512;

/// Replaces by U+FFFD control characters and those that turn the direction of their neighbours (UAX #9), and leaves out other
/// characters without a width (zero-width and tag characters).
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
    if text.len() <= MAX_TEXT && text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let is_harmful = |c: char| c.is_control() || turns_text(c);
    let shown = text.chars().filter(|c| is_harmful(*c) || !is_invisible(*c)).take(MAX_TEXT);
    Cow::Owned(shown.map(|c| if is_harmful(c) { '\u{fffd}' } else { c }).collect())
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Cuts a clean text to `width` columns; an ellipsis stands for what is left out.
pub(super) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if text.width() <= width {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        out.push(c);
    }
    if width > 0 {
        out.push('…');
    }
    Cow::Owned(out)
}

/// Pads a text to `width` columns, cut if it is wider.
pub(super) fn padded(text: &str, width: usize, right: bool) -> String {
    let text = fit(text, width);
    let gap = " ".repeat(width.saturating_sub(text.width()));
    if right { format!("{gap}{text}") } else { format!("{text}{gap}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_the_network_is_carried_out_by_the_terminal() {
        let cases = [
            ("/plain?q=1", "/plain?q=1"),
            ("\x1b[2J\x1b]0;owned\x07", "\u{fffd}[2J\u{fffd}]0;owned\u{fffd}"),
            ("a\r\nb\tc\0\x7f", "a\u{fffd}\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}"),
            // CSI of eight bits (ECMA-48 §5.3).
            ("\u{9b}31m", "\u{fffd}31m"),
            ("a\u{202e}gnp.exe\u{2066}", "a\u{fffd}gnp.exe\u{fffd}"),
            ("pay\u{200b}pal\u{feff}", "paypal"),
            ("grüße/日本", "grüße/日本"),
            ("line\u{2028}end", "line\u{fffd}end"),
        ];
        for (text, shown) in cases {
            assert_eq!(clean(text), shown, "{text:?}");
        }
        assert_eq!(clean(&"ä".repeat(9_000)).chars().count(), MAX_TEXT);
        assert_eq!(clean(&"a".repeat(9_000)).len(), MAX_TEXT);
    }

    #[test]
    fn texts_fit_by_their_width_on_a_screen() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdef", 5), "abcd…");
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(padded("日本語", 6, false), "日本語");
        assert_eq!(padded("日本語", 4, false), "日… ");
        assert_eq!(padded("12", 4, true), "  12");
    }
}
