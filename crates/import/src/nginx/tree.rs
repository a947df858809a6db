//! The syntax of nginx: words, `;` and braces, as a tree of directives with their places.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::source::{self, FoundAt, ImportError, SourceFiles};

/// A directive with its block, if it has one.
#[derive(Debug)]
pub(super) struct Directive {
    /// The number, in the order of reading.
    pub(super) id: usize,
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) at: FoundAt,
    pub(super) block: Option<Vec<Directive>>,
}

impl Directive {
    /// The directives of the block.
    pub(super) fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// An argument, or nothing.
    pub(super) fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).map(String::as_str).unwrap_or_default()
    }

    /// Says that an argument is there.
    pub(super) fn has(&self, argument: &str) -> bool {
        self.arguments.iter().any(|one| one == argument)
    }
}

/// The most blocks in each other; nginx has no use for ten.
const DEPTH: usize = 50;
/// The most files that are read.
const FILES: usize = 100_000;

/// Includes that led nowhere, by the number of their directive.
pub(super) type MissingIncludes = Vec<(usize, String)>;

/// Reads files and those that they include.
pub(super) struct TreeReader<'f> {
    files: &'f dyn SourceFiles,
    /// The folder at which relative paths start: that of the first file.
    folder: PathBuf,
    /// The files that are being read, outermost first.
    open: Vec<PathBuf>,
    count: usize,
    next: usize,
    pub(super) missing: MissingIncludes,
}

impl<'f> TreeReader<'f> {
    pub(super) fn new(files: &'f dyn SourceFiles, folder: PathBuf) -> Self {
        TreeReader { files, folder, open: Vec::new(), count: 0, next: 0, missing: Vec::new() }
    }

    /// Reads a file as the inside of a block.
    pub(super) fn file(&mut self, path: &Path) -> Result<Vec<Directive>, ImportError> {
        self.count += 1;
        if self.count > FILES {
            return Err(ImportError::whole("more than 100,000 files", "import one site after the other"));
        }
        let text = source::text(path, self.files)?;
        self.open.push(self.files.identity(path));
        let mut tokens = Tokens::new(path, &text);
        let directives = self.block(&mut tokens, None, 0)?;
        self.open.pop();
        Ok(directives)
    }

    fn block(
        &mut self,
        tokens: &mut Tokens<'_>,
        opened: Option<(&str, FoundAt)>,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        let mut directives = Vec::new();
        loop {
            let (token, at) = tokens.next()?;
            match token {
                Token::End => {
                    return match opened {
                        None => Ok(directives),
                        Some((name, at)) => {
                            let message = format!("the block of `{}` has no `}}`", short(name));
                            Err(ImportError::at(&at, message, "add it at the end of the block"))
                        }
                    };
                }
                Token::Close if opened.is_some() => return Ok(directives),
                Token::Close => return Err(ImportError::at(&at, "a `}` without its `{`", "remove it")),
                Token::Open => {
                    let help = "write the name of a block before it, such as `server`";
                    return Err(ImportError::at(&at, "a `{` without a name", help));
                }
                Token::Semicolon => {
                    return Err(ImportError::at(&at, "a `;` without a directive", "remove it"));
                }
                Token::Word(name) => self.directive(tokens, name, at, depth, &mut directives)?,
            }
        }
    }

    fn directive(
        &mut self,
        tokens: &mut Tokens<'_>,
        name: String,
        at: FoundAt,
        depth: usize,
        directives: &mut Vec<Directive>,
    ) -> Result<(), ImportError> {
        let mut arguments = Vec::new();
        let id = self.next;
        self.next += 1;
        let block = loop {
            let (token, here) = tokens.next()?;
            match token {
                Token::Word(word) => arguments.push(word),
                Token::Semicolon => break None,
                Token::Open if name.ends_with("_by_lua_block") => {
                    tokens.skip_block(&name, &here)?;
                    break Some(Vec::new());
                }
                Token::Open if depth >= DEPTH => {
                    let help = "nginx nests three or four: http, server, location";
                    return Err(ImportError::at(&here, "more than 50 blocks in each other", help));
                }
                Token::Open => break Some(self.block(tokens, Some((&name, at.clone())), depth + 1)?),
                Token::Close | Token::End => return Err(unfinished(&name, &at, here.line)),
            }
        };
        if name == "include" && block.is_none() {
            let included = self.include(&arguments, id, &at, directives);
            return included;
        }
        directives.push(Directive { id, name, arguments, at, block });
        Ok(())
    }

    fn include(
        &mut self,
        arguments: &[String],
        id: usize,
        at: &FoundAt,
        directives: &mut Vec<Directive>,
    ) -> Result<(), ImportError> {
        let pattern = arguments.first().cloned().unwrap_or_default();
        let name = "include".to_owned();
        directives.push(Directive { id, name, arguments: arguments.to_vec(), at: at.clone(), block: None });
        // Media types and the parameters of FastCGI say nothing about what Offramp does.
        let last = pattern.rsplit('/').next().unwrap_or_default();
        if last.ends_with("mime.types") || last.ends_with("_params") || pattern.contains("modules-enabled") {
            return Ok(());
        }
        let path = self.folder.join(&pattern);
        let found = if pattern.contains(['*', '?', '[']) {
            self.files.matching(&path.to_string_lossy())
        } else {
            vec![path]
        };
        for path in found {
            if self.open.contains(&self.files.identity(&path)) {
                let message = format!("{} includes itself", path.display());
                return Err(ImportError::at(at, message, "remove one of the includes of the circle"));
            }
            match self.file(&path) {
                Ok(read) => directives.extend(read),
                Err(error) if error.at.is_none() && error.message.starts_with("cannot read") => {
                    self.missing.push((id, error.message));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn unfinished(name: &str, at: &FoundAt, line: usize) -> ImportError {
    let message = format!("`{}` has no `;` before line {line} ends its block", short(name));
    ImportError::at(at, message, "add `;` at the end of the directive")
}

/// The beginning of a word, for messages.
fn short(word: &str) -> String {
    word.chars().filter(|letter| !letter.is_control()).take(40).collect()
}

enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

struct Tokens<'t> {
    file: Arc<str>,
    letters: std::iter::Peekable<std::str::Chars<'t>>,
    line: usize,
    column: usize,
}

impl<'t> Tokens<'t> {
    fn new(path: &Path, text: &'t str) -> Self {
        let file = path.display().to_string().into();
        Tokens { file, letters: text.chars().peekable(), line: 1, column: 1 }
    }

    fn here(&self) -> FoundAt {
        FoundAt { file: self.file.clone(), line: self.line, column: self.column }
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

    fn next(&mut self) -> Result<(Token, FoundAt), ImportError> {
        loop {
            match self.letters.peek() {
                Some(letter) if letter.is_whitespace() => {
                    self.take();
                }
                Some('#') => while self.take().is_some_and(|letter| letter != '\n') {},
                _ => break,
            }
        }
        let at = self.here();
        let token = match self.letters.peek() {
            None => Token::End,
            Some(';') => Token::Semicolon,
            Some('{') => Token::Open,
            Some('}') => Token::Close,
            Some('"' | '\'') => return Ok((Token::Word(self.quoted(&at)?), at)),
            Some(_) => return Ok((Token::Word(self.word()), at)),
        };
        self.take();
        Ok((token, at))
    }

    fn quoted(&mut self, at: &FoundAt) -> Result<String, ImportError> {
        let quote = self.take();
        let mut word = String::new();
        loop {
            let letter = self.take();
            match letter {
                None => {
                    let help = "write the same quote at the end of the text";
                    return Err(ImportError::at(at, "a quote that is not closed", help));
                }
                Some('\\') => match self.take() {
                    Some('t') => word.push('\t'),
                    Some('r') => word.push('\r'),
                    Some('n') => word.push('\n'),
                    Some(letter @ ('"' | '\'' | '\\')) => word.push(letter),
                    Some(letter) => word.extend(['\\', letter]),
                    None => {}
                },
                letter if letter == quote => return Ok(word),
                Some(letter) => word.push(letter),
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(&letter) = self.letters.peek() {
            let is_brace_of_variable = letter == '{' && word.ends_with('$');
            if letter.is_whitespace() || letter == ';' || letter == '{' && !is_brace_of_variable {
                break;
            }
            // A brace closes a block only where a word could begin.
            self.take();
            word.push(letter);
            if letter == '\\' {
                word.extend(self.take());
            }
        }
        word
    }

    /// Skips a block of another language.
    fn skip_block(&mut self, name: &str, at: &FoundAt) -> Result<(), ImportError> {
        let mut depth = 1;
        while depth > 0 {
            match self.take() {
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some(_) => {}
                None => {
                    let message = format!("the block of `{}` has no `}}`", short(name));
                    return Err(ImportError::at(at, message, "add it at the end of the block"));
                }
            }
        }
        Ok(())
    }
}
