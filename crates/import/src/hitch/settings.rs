//! The syntax of hitch: `name = value`, where a value may be a block of the same.

use std::path::Path;
use std::sync::Arc;

use crate::source::{self, FoundAt, ImportError, SourceFiles};

/// A setting, or a block of settings.
#[derive(Debug)]
pub(super) struct Setting {
    /// The number, in the order of reading.
    pub(super) id: usize,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) block: Vec<Setting>,
    pub(super) at: FoundAt,
}

enum SettingToken {
    Word(String),
    Equals,
    Open,
    Close,
    End,
}

struct SettingTokens<'t> {
    file: Arc<str>,
    letters: std::iter::Peekable<std::str::Chars<'t>>,
    line: usize,
    column: usize,
    next: usize,
}

/// Reads the settings of files, in order.
pub(super) fn read(paths: &[impl AsRef<Path>], files: &dyn SourceFiles) -> Result<Vec<Setting>, ImportError> {
    let mut settings = Vec::new();
    let mut next = 0;
    for path in paths {
        let text = source::text(path.as_ref(), files)?;
        let file = path.as_ref().display().to_string().into();
        let mut tokens = SettingTokens { file, letters: text.chars().peekable(), line: 1, column: 1, next };
        settings.extend(tokens.block(None)?);
        next = tokens.next;
    }
    Ok(settings)
}

impl SettingTokens<'_> {
    /// The settings up to the end of a block, or of the file.
    fn block(&mut self, opened: Option<&FoundAt>) -> Result<Vec<Setting>, ImportError> {
        let mut settings = Vec::new();
        loop {
            let (token, at) = self.token()?;
            let name = match (token, opened) {
                (SettingToken::Word(name), _) => name,
                (SettingToken::End, None) | (SettingToken::Close, Some(_)) => return Ok(settings),
                (SettingToken::End, Some(at)) => {
                    return Err(ImportError::at(
                        at,
                        "a block without its `}`",
                        "add it at the end of the block",
                    ));
                }
                _ => return Err(ImportError::at(&at, "no name of a setting", "write `name = value`")),
            };
            let id = self.next;
            self.next += 1;
            let missing = |at: &FoundAt| {
                let short: String = name.chars().filter(|letter| !letter.is_control()).take(40).collect();
                ImportError::at(at, format!("`{short}` has no value"), "write `name = value`")
            };
            let (equals, _) = self.token()?;
            if !matches!(equals, SettingToken::Equals) {
                return Err(missing(&at));
            }
            let (value, here) = self.token()?;
            let (value, block) = match value {
                SettingToken::Word(value) => (value, Vec::new()),
                SettingToken::Open if opened.is_none() => (String::new(), self.block(Some(&here))?),
                _ => return Err(missing(&at)),
            };
            settings.push(Setting { id, name, value, block, at });
        }
    }

    fn take(&mut self) -> Option<char> {
        let letter = self.letters.next()?;
        if letter == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(letter)
    }

    fn token(&mut self) -> Result<(SettingToken, FoundAt), ImportError> {
        loop {
            match self.letters.peek() {
                Some(letter) if letter.is_whitespace() || *letter == ';' => {
                    self.take();
                }
                Some('#') => while self.take().is_some_and(|letter| letter != '\n') {},
                _ => break,
            }
        }
        let at = FoundAt { file: self.file.clone(), line: self.line, column: self.column };
        let token = match self.letters.peek() {
            None => return Ok((SettingToken::End, at)),
            Some('=') => SettingToken::Equals,
            Some('{') => SettingToken::Open,
            Some('}') => SettingToken::Close,
            Some('"') => {
                self.take();
                let mut word = String::new();
                loop {
                    match self.take() {
                        Some('"') => return Ok((SettingToken::Word(word), at)),
                        Some(letter) if letter != '\n' => word.push(letter),
                        _ => {
                            let help = "write `\"` at the end of the text, on the same line";
                            return Err(ImportError::at(&at, "a quote that is not closed", help));
                        }
                    }
                }
            }
            Some(_) => {
                let mut word = String::new();
                while let Some(letter) = self.letters.peek() {
                    if letter.is_whitespace() || "={}#;\"".contains(*letter) {
                        break;
                    }
                    word.extend(self.take());
                }
                // Versions of TLS are a list without commas: `tls-protos = TLSv1.2 TLSv1.3`.
                while word.starts_with("TLSv") || word.starts_with("SSLv") {
                    let mut ahead = self.letters.clone();
                    let blanks = ahead.by_ref().take_while(|letter| *letter == ' ').count();
                    let mut ahead = self.letters.clone();
                    ahead.by_ref().take(blanks).for_each(drop);
                    let more: String =
                        ahead.take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '.').collect();
                    if blanks == 0 || !(more.starts_with("TLSv") || more.starts_with("SSLv")) {
                        break;
                    }
                    for _ in 0..blanks + more.len() {
                        self.take();
                    }
                    word = format!("{word} {more}");
                }
                return Ok((SettingToken::Word(word), at));
            }
        };
        self.take();
        Ok((token, at))
    }
}
