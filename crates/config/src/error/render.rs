//! One line of a file with carets under the faulty part.
//!
//! Control characters are replaced, so that a hostile file cannot control the terminal; long lines are cut to
//! a window; and passwords of databases are not shown: such lines end up in logs.

use std::fmt;
use std::ops::Range;

use super::{Place, SourceText, Span};

/// The maximum width of the shown part of a line, in characters.
const WINDOW: usize = 110;

/// The number of characters before the caret in a line that is longer than the window.
const LEAD: usize = 40;

/// A line and its faulty part, in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) place: Place,
    /// The column after the faulty part.
    pub(super) end_column: usize,
    line: String,
    caret: usize,
    width: usize,
}

impl Excerpt {
    pub(super) fn new(source: &SourceText, span: &Span) -> Self {
        let place = source.place(span.start);
        let text = &masked(source.line_at(span.start));
        let start = place.column - 1;
        let marked = source.slice(span).lines().next().map_or(0, |line| line.chars().count());
        let skipped = if start > LEAD && text.chars().nth(WINDOW).is_some() { start - LEAD } else { 0 };
        let mut line: String = text.chars().skip(skipped).take(WINDOW).map(visible).collect();
        if skipped > 0 {
            line.replace_range(..line.chars().next().map_or(0, char::len_utf8), "…");
        }
        if text.chars().nth(skipped + WINDOW).is_some() {
            line.push('…');
        }
        let caret = start - skipped;
        let end_column = place.column + marked.max(1);
        Excerpt {
            place,
            end_column,
            line,
            caret,
            width: marked.clamp(1, WINDOW.saturating_sub(caret).max(1)),
        }
    }

    pub(super) fn render(&self, f: &mut fmt::Formatter<'_>, help: Option<&str>) -> fmt::Result {
        let number = self.place.line.to_string();
        let gutter = " ".repeat(number.len());
        writeln!(f, "{gutter}--> {}", self.place)?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.line)?;
        write!(f, "{gutter} | {}{}", " ".repeat(self.caret), "^".repeat(self.width))?;
        if let Some(help) = help {
            write!(f, "\n{gutter} = help: {help}")?;
        }
        Ok(())
    }
}

/// A line with `*` for each character of the passwords in it.
fn masked(text: &str) -> String {
    let mut hidden: Vec<Range<usize>> = Vec::new();
    for (at, scheme) in text.match_indices("://") {
        if let Some(path) = path_of_receiver(text, at) {
            hidden.push(path);
            continue;
        }
        if !["postgres", "postgresql"].iter().any(|name| text[..at].ends_with(name)) {
            continue;
        }
        let begin = at + scheme.len();
        let end = text[begin..].find(['"', '\'']).map_or(text.len(), |length| begin + length);
        if let (Some(colon), Some(host)) = (text[begin..end].find(':'), text[begin..end].rfind('@')) {
            hidden.push(begin + colon + 1..begin + host);
        }
        for (parameter, name) in text[begin..end].match_indices("password=") {
            let value = begin + parameter + name.len();
            let end = text[value..end].find('&').map_or(end, |length| value + length);
            hidden.push(value..end);
        }
    }
    let shown = |(at, c)| if hidden.iter().any(|range| range.contains(&at)) { '*' } else { c };
    text.char_indices().map(shown).collect()
}

/// The path and query of the URL of a receiver of notifications whose scheme ends at `at`: the value of a key `url`.
fn path_of_receiver(text: &str, at: usize) -> Option<Range<usize>> {
    let before = text[..at].strip_suffix("https").or_else(|| text[..at].strip_suffix("http"))?;
    let key = before.trim_end_matches(['"', '\'']).trim_end().strip_suffix('=')?.trim_end();
    if !key.trim_end_matches(['"', '\'']).ends_with("url") {
        return None;
    }
    let host = at + "://".len();
    let end = text[host..].find(['"', '\'']).map_or(text.len(), |length| host + length);
    let begin = text[host..end].find(['/', '?']).map_or(end, |length| host + length + 1);
    Some(begin.min(end)..end)
}

fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        // Invisible marks of direction can make a line look like another one.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Problem, ProblemCollector};
    use super::*;

    fn render(text: &str, span: Span) -> String {
        let source = SourceText::new("f.toml", Path::new(""), text);
        let mut report = ProblemCollector::new(&source);
        report.local(&span, Problem::new("wrong").help("mend it"));
        report.finish(()).unwrap_err().problems()[0].to_string()
    }

    #[test]
    fn a_caret_stands_under_what_is_meant() {
        let expected = "error: wrong\n --> f.toml:2:5\n  |\n2 | b = xyz\n  |     ^^^\n  = help: mend it";
        assert_eq!(render("a = 1\r\nb = xyz\r\n", 11..14), expected);
    }

    #[test]
    fn passwords_are_not_shown() {
        for (line, shown) in [
            ("url = \"postgres://u:p@ss/ö@h/db\" # c", "url = \"postgres://u:******@h/db\" # c"),
            ("url = 'postgresql://u@h/d?password=x&a=b'", "url = 'postgresql://u@h/d?password=*&a=b'"),
            ("url = \"postgres://h:1/db?password_file=/x\"", "url = \"postgres://h:1/db?password_file=/x\""),
            ("server = \"tls://a:1\"", "server = \"tls://a:1\""),
            ("url = \"https://a.test/s3cret?x\" # c", "url = \"https://a.test/********\" # c"),
            ("[{ url='http://a.test:1/s', on = 1 }]", "[{ url='http://a.test:1/*', on = 1 }]"),
            ("url = \"https://a.test\"", "url = \"https://a.test\""),
            ("to = \"https://a.test/path\"", "to = \"https://a.test/path\""),
        ] {
            assert_eq!(masked(line), shown);
        }
        assert!(!render("url = \"postgres://u:s3cret@h/a b\"", 6..9).contains("s3cret"));
    }

    #[test]
    fn columns_count_characters() {
        assert!(render("ü = ö", 5..7).contains(":1:5\n"));
    }

    #[test]
    fn any_span_of_any_text_renders() {
        for text in ["", "\n", "é", "a\u{1b}[31m\tb", &"ü".repeat(500)] {
            for start in 0..=text.len() + 1 {
                for end in [start, start + 1, text.len(), text.len() + 9] {
                    let shown = render(text, start..end);
                    assert!(!shown.contains('\u{1b}'));
                    assert!(shown.lines().all(|line| line.chars().count() < 130), "{shown}");
                }
            }
        }
    }

    #[test]
    fn long_lines_are_shown_around_the_caret() {
        let text = format!("{}here{}", "a".repeat(300), "b".repeat(300));
        let shown = render(&text, 300..304);
        assert!(shown.contains("aahere") && shown.contains("^^^^\n") && shown.contains('…'), "{shown}");
    }
}
