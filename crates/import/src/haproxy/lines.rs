//! The syntax of HAProxy: words on lines, in sections that a word at the front begins.

use std::path::Path;
use std::sync::Arc;

use crate::source::{self, FoundAt, ImportError, SourceFiles};

/// A line with its words.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The number, in the order of reading.
    pub(super) id: usize,
    pub(super) words: Vec<String>,
    pub(super) at: FoundAt,
}

impl Line {
    /// A word, or nothing.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map(String::as_str).unwrap_or_default()
    }

    /// Says that the line begins with these words.
    pub(super) fn is(&self, words: &str) -> bool {
        let mut here = self.words.iter();
        words.split(' ').all(|word| here.next().is_some_and(|one| one == word))
    }

    /// The words from an index on.
    pub(super) fn rest(&self, index: usize) -> &[String] {
        self.words.get(index..).unwrap_or_default()
    }
}

/// A section: the line that begins it, and what follows.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) head: Line,
    pub(super) lines: Vec<Line>,
}

impl Section {
    /// The word that begins it.
    pub(super) fn kind(&self) -> &str {
        self.head.word(0)
    }

    /// The name; `defaults` may have none.
    pub(super) fn name(&self) -> &str {
        match self.head.word(1) {
            "from" if self.kind() == "defaults" => "",
            name => name,
        }
    }
}

/// The words that begin a section.
const SECTIONS: [&str; 18] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "resolvers",
    "mailers",
    "cache",
    "program",
    "http-errors",
    "ring",
    "log-forward",
    "crt-store",
    "fcgi-app",
    "traces",
    "acme",
];

/// Reads the sections of files, in order.
pub(super) fn read(paths: &[impl AsRef<Path>], files: &dyn SourceFiles) -> Result<Vec<Section>, ImportError> {
    let mut sections: Vec<Section> = Vec::new();
    let mut next = 0;
    for path in paths {
        let path = path.as_ref();
        let text = source::text(path, files)?;
        let file: Arc<str> = path.display().to_string().into();
        for (number, text) in text.lines().enumerate() {
            let at = |column: usize| FoundAt { file: file.clone(), line: number + 1, column };
            let (words, column) = words(text).map_err(|column| {
                let help = "write the same quote at the end of the text, on the same line";
                ImportError::at(&at(column), "a quote that is not closed", help)
            })?;
            let Some(first) = words.first() else { continue };
            let is_head = SECTIONS.contains(&first.as_str());
            let line = Line { id: next, at: at(column), words };
            next += 1;
            match sections.last_mut() {
                _ if is_head => sections.push(Section { head: line, lines: Vec::new() }),
                Some(section) => section.lines.push(line),
                None => {
                    let word: String = line.word(0).chars().filter(|c| !c.is_control()).take(40).collect();
                    let message = format!("`{word}` stands before any section");
                    let help = "begin with `global`, `defaults` or `frontend NAME`";
                    return Err(ImportError::at(&line.at, message, help));
                }
            }
        }
    }
    Ok(sections)
}

/// The words of a line with the column of the first; an error has the column of a quote that is not closed.
fn words(text: &str) -> Result<(Vec<String>, usize), usize> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut column = 0;
    let mut quote: Option<(char, usize)> = None;
    let mut letters = text.chars().enumerate();
    while let Some((at, letter)) = letters.next() {
        let is_word = quote.is_some() || !(letter.is_whitespace() || letter == '#');
        if is_word && column == 0 {
            column = at + 1;
        }
        match (letter, quote) {
            ('#', None) => break,
            (letter, None) if letter.is_whitespace() => found.extend(word.take()),
            ('\\', None | Some(('"', _))) => {
                let escaped = letters.next().map(|(_, letter)| letter);
                let word = word.get_or_insert_default();
                match escaped {
                    Some('n') => word.push('\n'),
                    Some('r') => word.push('\r'),
                    Some('t') => word.push('\t'),
                    Some(letter @ (' ' | '#' | '\\' | '"' | '\'' | '$')) => word.push(letter),
                    // Others keep it: groups of patterns are `\1`.
                    Some(letter) => word.extend(['\\', letter]),
                    None => {}
                }
            }
            ('"' | '\'', None) => {
                quote = Some((letter, at + 1));
                word.get_or_insert_default();
            }
            (letter, Some((open, _))) if letter == open => quote = None,
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    if let Some((_, at)) = quote {
        return Err(at);
    }
    found.extend(word);
    Ok((found, column.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_haproxy() {
        let of = |text: &str| words(text).map(|(words, _)| words);
        assert_eq!(of("  bind :80 # all").unwrap(), ["bind", ":80"]);
        assert_eq!(of(r#"a "b c"'d "e' f\ g \#h"#).unwrap(), ["a", "b cd \"e", "f g", "#h"]);
        assert_eq!(of(r#"x '\' "\"" """#).unwrap(), ["x", "\\", "\"", ""]);
        assert_eq!(of("x \"y").unwrap_err(), 3);
        assert_eq!(of(r"/x/(.*) /\1").unwrap(), ["/x/(.*)", r"/\1"]);
        assert!(of("# only").unwrap().is_empty());
    }
}
