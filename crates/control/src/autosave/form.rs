//! The form of the autosave: the text in force between lines for the next start, and the file that it differs from.
//!
//! It is TOML. The number of bytes of the text tells a whole file from one that was cut off or edited, whatever the text
//! contains.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A saved configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saved<'a> {
    /// The digest of the configuration's file when it was last read or written, if it is known.
    pub(crate) digest: Option<u64>,
    /// The number of differences in force that the file did not have.
    pub(crate) changes: usize,
    /// The text of the configuration, in TOML.
    pub(crate) text: Cow<'a, str>,
    /// The configuration of the file, printed, where the one in force differs from it.
    pub(crate) base: Option<Cow<'a, str>>,
}

const TITLE: &str =
    "# The configuration in force, written by Offramp after each change. Changes made here are lost.";
const FILE: &str = "# file = ";
const HEAD_LINES: usize = 5;
const BASE: &str = "# The configuration of the file, which the one above differs from:\n";
/// The beginning of each line of the base.
const BASE_LINE: &str = "#|";
const END: &str = "# end";
const END_LINE: &str = "# end\n";
const UNKNOWN: &str = "unknown";

impl<'a> Saved<'a> {
    /// The content of the autosave; `file` is the configuration's file, where relative paths of the text start.
    pub(crate) fn form(&self, file: &Path) -> String {
        let Self { changes, text, base, .. } = self;
        let digest = self.digest.map_or_else(|| UNKNOWN.to_owned(), |digest| format!("{digest:016x}"));
        let length = text.len();
        let mut form = format!(
            "{TITLE}\n{FILE}{}\n# digest = {digest}\n# changes = {changes}\n# length = {length}\n{text}",
            quoted(file)
        );
        if !form.ends_with('\n') {
            form.push('\n');
        }
        if let Some(base) = base {
            form.push_str(BASE);
            base.lines().for_each(|line| form.extend([BASE_LINE, line, "\n"]));
        }
        form + END_LINE
    }

    /// Parses what [`Saved::form`] has made.
    ///
    /// # Errors
    /// The line that is wrong.
    pub(crate) fn parse(content: &'a str) -> Result<Self, String> {
        let mut lines = content.splitn(HEAD_LINES + 1, '\n').skip(2);
        let mut value = |number: usize, key: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(&format!("# {key} = ")));
            line.ok_or_else(|| format!("line {number} is not `# {key} = …`"))
        };
        let (digest, changes, length) = (value(3, "digest")?, value(4, "changes")?, value(5, "length")?);
        let digest = match digest {
            UNKNOWN => None,
            digest => Some(u64::from_str_radix(digest, 16).map_err(|_| "line 3 has no digest".to_owned())?),
        };
        let changes = changes.parse().map_err(|_| "line 4 has no number".to_owned())?;
        let length: usize = length.parse().map_err(|_| "line 5 has no number".to_owned())?;
        let cut = || format!("line {}: it ends before its last line, `{END}`", content.lines().count());
        let rest = lines.next().and_then(|rest| rest.strip_suffix(END_LINE)).ok_or_else(cut)?;
        let other = || "it was cut off or edited: its text has another length than line 5 says".to_owned();
        let (text, rest) = rest.split_at_checked(length).ok_or_else(other)?;
        let rest = match text.is_empty() || text.ends_with('\n') {
            true => rest,
            false => rest.strip_prefix('\n').ok_or_else(other)?,
        };
        let base = match rest.strip_prefix(BASE) {
            Some(base) => Some(Cow::Owned(uncommented(base)?)),
            None if rest.is_empty() => None,
            None => return Err(other()),
        };
        Ok(Self { digest, changes, text: Cow::Borrowed(text), base })
    }
}

/// The text of an autosave, and the file where its relative paths start; `None` for any other text.
#[must_use]
pub fn saved_document(content: &str) -> Option<(String, Option<PathBuf>)> {
    let rest = content.strip_prefix(TITLE)?;
    let file = rest.lines().nth(1)?.strip_prefix(FILE)?;
    let saved = Saved::parse(content).ok()?;
    let file = serde_json::from_str::<String>(file).ok().map(PathBuf::from);
    Some((saved.text.into_owned(), file))
}

/// A path on one line, as a string of JSON.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    // TOML allows no such character in a comment, and JSON leaves it as it is.
    serde_json::to_string(&path).unwrap_or_default().replace('\x7f', "\\u007f")
}

fn uncommented(lines: &str) -> Result<String, String> {
    let mut text = String::with_capacity(lines.len());
    for line in lines.lines() {
        let line =
            line.strip_prefix(BASE_LINE).ok_or("it was edited: a line of the file's part is no comment")?;
        text.extend([line, "\n"]);
    }
    Ok(text)
}
