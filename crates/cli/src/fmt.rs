//! `offramp fmt`: the canonical layout of configurations, printed, compared, or written to their files.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use offramp_config::{formatted, read_file, read_stream};
use offramp_control::{ReplaceError, replace_text};
use rustix::process::geteuid;
use similar::TextDiff;

use crate::check;
use crate::failure::Failure;
use crate::flags::{ConfigFile, Fmt};
use crate::surroundings::{print, say};

/// Runs `offramp fmt`. A file that fails keeps no other from its turn.
///
/// # Errors
/// The first failure of the gravest kind; the others are printed.
pub(crate) fn run(arguments: Fmt) -> Result<(), Failure> {
    let Fmt { mut files, overwrite, diff, check } = arguments;
    if files.is_empty() {
        files.push(check::find(ConfigFile { path: None })?);
    }
    let mut worst: Option<Failure> = None;
    for file in &files {
        let outcome = match (overwrite, diff, check) {
            (true, ..) => write(file),
            (_, true, _) => compare(file, check),
            (_, _, true) => ConfigText::read(file).and_then(|text| text.refuse_other()),
            _ => ConfigText::read(file).and_then(|text| print(text.after.as_bytes())),
        };
        let Err(failure) = outcome else { continue };
        match &mut worst {
            None => worst = Some(failure),
            Some(first) if failure.code() > first.code() => {
                say(&std::mem::replace(first, failure).to_string());
            }
            Some(_) => say(&failure.to_string()),
        }
    }
    worst.map_or(Ok(()), Err)
}

/// A text before and after its layout.
struct ConfigText {
    name: String,
    before: String,
    after: String,
}

impl ConfigText {
    /// Reads a file, or standard input for `-`, and lays its text out.
    fn read(file: &Path) -> Result<Self, Failure> {
        let (name, before) = if is_standard_input(file) {
            let text = read_stream(io::stdin().lock(), STANDARD_INPUT).map_err(Failure::usage)?;
            (STANDARD_INPUT.to_owned(), text)
        } else {
            (file.display().to_string(), read_file(file).map_err(Failure::usage)?)
        };
        let after = formatted(&before, &name).map_err(Failure::usage)?;
        Ok(Self { name, before, after })
    }

    /// Names the first line that has another layout.
    fn refuse_other(&self) -> Result<(), Failure> {
        if self.before == self.after {
            return Ok(());
        }
        let (line, what) = first_difference(&self.before, &self.after);
        let Self { name, .. } = self;
        let advice = match name.as_str() {
            STANDARD_INPUT => String::new(),
            file => format!("\nTo lay it out: offramp fmt --overwrite {file}; to see the difference: --diff"),
        };
        Err(Failure::runtime(format_args!("{name}:{line}: {what}{advice}")))
    }
}

/// The name of standard input in messages.
const STANDARD_INPUT: &str = "standard input";

fn is_standard_input(file: &Path) -> bool {
    file == Path::new("-")
}

/// The line that differs first, from 1, and the difference in words.
fn first_difference(before: &str, after: &str) -> (usize, String) {
    if before.starts_with('\u{feff}') {
        return (1, "it begins with a byte order mark (BOM)".to_owned());
    }
    let mut lines = before.split_inclusive('\n').zip(after.split_inclusive('\n'));
    let same = lines.by_ref().take_while(|(before, after)| before == after).count();
    let old = before.split_inclusive('\n').nth(same);
    let new = after.split_inclusive('\n').nth(same);
    let what = match (old, new) {
        (Some(old), Some(new)) if old.trim_end_matches(['\r', '\n']) == new.trim_end_matches('\n') => {
            if old.ends_with("\r\n") {
                "the line ends with a carriage return".to_owned()
            } else {
                "the last line has no end".to_owned()
            }
        }
        (_, Some("\n")) => "a blank line is missing".to_owned(),
        (Some(old), _) if old.trim().is_empty() => "there is a blank line too many".to_owned(),
        (_, Some(new)) => format!("the line would be: {}", new.trim_end()),
        _ => "the line would be gone".to_owned(),
    };
    (same + 1, what)
}

/// The longest search for the shortest difference; after it a longer one will do.
const SEARCH: Duration = Duration::from_secs(2);

/// Prints the difference; with `check`, one is a failure.
fn compare(file: &Path, check: bool) -> Result<(), Failure> {
    let text = ConfigText::read(file)?;
    let lines = TextDiff::configure().timeout(SEARCH).diff_lines(&text.before, &text.after);
    let diff = lines.unified_diff().header(&format!("{}.orig", text.name), &text.name).to_string();
    print(diff.as_bytes())?;
    if check { text.refuse_other() } else { Ok(()) }
}

/// Replaces the text of a file, if its layout differs.
fn write(file: &Path) -> Result<(), Failure> {
    if is_standard_input(file) {
        return Err(Failure::usage("error: standard input cannot be overwritten; name the file"));
    }
    let text = ConfigText::read(file)?;
    if text.before == text.after {
        return Ok(());
    }
    let found = std::fs::metadata(file).map_err(|error| unwritable(file, &error))?;
    writable(file, &found)?;
    replace_text(file, &text.before, &text.after).map_err(|error| match error {
        ReplaceError::Unfit(why) => Failure::runtime(format_args!("error: {why}")),
        ReplaceError::Changed => Failure::runtime(format_args!(
            "error: {} was changed meanwhile, and is left as it is; run the command again",
            file.display()
        )),
        ReplaceError::Unwritable(error) => unwritable(file, &error),
    })?;
    let others = found.nlink() - 1;
    if others > 0 {
        let file = file.display();
        say(&format!(
            "warning: {file} is a new file now; its {others} other names (hard links) keep the old text"
        ));
    }
    Ok(())
}

fn unwritable(file: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; a new file takes its place, for which its directory must be writable"
        }
        _ => "",
    };
    Failure::runtime(format_args!("error: cannot write {}: {error}{advice}", file.display()))
}

/// Refuses files that a new one cannot replace as they are.
fn writable(file: &Path, found: &Metadata) -> Result<(), Failure> {
    let file = file.display();
    if !found.is_file() {
        return Err(Failure::usage(format_args!(
            "error: {file} is not a regular file; without --overwrite its text is printed"
        )));
    }
    let user = geteuid();
    if !user.is_root() && user.as_raw() != found.uid() {
        return Err(Failure::runtime(format_args!(
            "error: cannot write {file}: it belongs to another user and would not any more; run this as that user or as root"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        for (before, line, what) in [
            ("a = 1\nb=2\n", 2, "the line would be: b = 2"),
            ("a = 1\r\nb = 2\r\n", 1, "the line ends with a carriage return"),
            ("\u{feff}a = 1\n", 1, "it begins with a byte order mark (BOM)"),
            ("a = 1\nb = 2", 2, "the last line has no end"),
            ("a = 1\n[b]\n", 2, "a blank line is missing"),
            ("a = 1\n\n\nb = 2\n", 3, "there is a blank line too many"),
            ("a = 1\n\n", 2, "there is a blank line too many"),
            ("\n", 1, "there is a blank line too many"),
            ("a = [1,\n2]\n", 1, "the line would be: a = [1, 2]"),
        ] {
            let after = formatted(before, "f.toml").unwrap();
            assert_eq!(first_difference(before, &after), (line, what.to_owned()), "{before:?}");
        }
    }
}
