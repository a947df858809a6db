//! `include`: the files whose text is read behind that of the first one.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::error::{Problem, Source, Span, shown};
use crate::{FILE_MAX, read_text};

/// The most files that are included. A pattern that matches more is a mistake, such as one for a folder of logs.
const FILES_MAX: usize = 10_000;

/// Adds the files to the source that its first one includes. `folder` is how the folder of that file is written in
/// messages. Gives what is wrong, and where it is asked for.
///
/// What is read is bounded: 10,000 files, and 16 MiB in all.
pub(crate) fn read(source: &mut Source, folder: &Path) -> Vec<(Span, Problem)> {
    let mut problems = Vec::new();
    let mut budget = Budget { files: FILES_MAX, bytes: FILE_MAX };
    let mut taken = HashSet::new();
    for (pattern, span) in patterns(source) {
        if let Err(problem) = add(source, folder, &pattern, &mut budget, &mut taken) {
            problems.push((span, problem));
        }
    }
    problems
}

/// The mistakes of a text that is in no file, and so includes none.
pub(crate) fn refuse(source: &Source) -> Vec<(Span, Problem)> {
    let problem = || Problem::new("only a configuration in a file can include others").help("leave it out");
    patterns(source).into_iter().map(|(_, span)| (span, problem())).collect()
}

/// The files of a configuration, and where others may come up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The file itself, and those that it includes now.
    pub files: Vec<PathBuf>,
    /// The folders in which its patterns look.
    pub folders: Vec<PathBuf>,
    /// A hash of the names and texts of all files, the same for as long as the process runs.
    pub hash: u64,
}

/// Finds the files of a configuration without understanding them. A file that cannot be read is one with another text.
#[must_use]
pub fn sources(path: &Path) -> Sources {
    let mut hasher = DefaultHasher::new();
    let mut found = Sources { files: vec![path.to_owned()], ..Sources::default() };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let text = read_text(path, "", FILE_MAX).unwrap_or_else(|problem| problem.to_string());
    let source = Source::new("", folder, &text);
    for (pattern, _) in patterns(&source) {
        let named = pattern.split('/').take_while(|part| !part.contains(MARKS));
        if pattern.contains(MARKS) {
            let within = named.collect::<Vec<_>>().join("/");
            found.folders.push(folder.join(if within.is_empty() && pattern.starts_with('/') {
                "/"
            } else {
                &within
            }));
        }
        let files = matching(folder, &pattern).unwrap_or_default();
        let folders = files.iter().filter_map(|file| file.parent()).map(Path::to_owned);
        found.folders.extend(folders.filter(|_| pattern.contains(MARKS)));
        found.files.extend(files);
    }
    text.hash(&mut hasher);
    found.folders.sort();
    found.folders.dedup();
    let mut rest = FILE_MAX;
    for file in found.files.iter().skip(1).take(FILES_MAX) {
        file.hash(&mut hasher);
        if std::fs::metadata(file).is_ok_and(|found| found.is_file()) {
            let text = read_text(file, "", rest).unwrap_or_else(|problem| problem.to_string());
            text.hash(&mut hasher);
            rest = rest.saturating_sub(text.len() as u64);
        }
    }
    found.hash = hasher.finish();
    found
}

/// Every string of the key, where it is written as it should be. The table of keys reports anything else.
fn patterns(source: &Source) -> Vec<(String, Span)> {
    let Some((_, text)) = source.files().next() else { return Vec::new() };
    if !text.contains("include") {
        return Vec::new();
    }
    let (root, _) = DeTable::parse_recoverable(text);
    let Some(value) = root.get_ref().get("include") else { return Vec::new() };
    let one = |value: &toml::Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Some((text.to_string(), value.span())),
        _ => None,
    };
    match value.get_ref() {
        DeValue::Array(array) => array.iter().filter_map(one).collect(),
        _ => one(value).into_iter().collect(),
    }
}

/// What makes a name a pattern.
const MARKS: [char; 3] = ['*', '?', '['];

/// What may still be read.
struct Budget {
    files: usize,
    bytes: u64,
}

/// Adds the files of one pattern, in the order of their names.
fn add(
    source: &mut Source,
    folder: &Path,
    pattern: &str,
    budget: &mut Budget,
    taken: &mut HashSet<PathBuf>,
) -> Result<(), Problem> {
    for name in matching(source.folder(0), pattern)? {
        // Two patterns may match one file.
        if taken.contains(&name) {
            continue;
        }
        let within =
            name.strip_prefix(source.folder(0)).map_or_else(|_| name.clone(), |rest| folder.join(rest));
        let within = within.display().to_string();
        let Some(files) = budget.files.checked_sub(1) else {
            let problem = Problem::new(format!("`{}` is one file too many", shown(&within)));
            return Err(problem.help(format!("include at most {FILES_MAX} files")));
        };
        budget.files = files;
        // Opening a named pipe would wait for whoever writes to it.
        if std::fs::metadata(&name).is_ok_and(|found| !found.is_file()) {
            let problem = Problem::new(format!("`{}` is not a regular file", shown(&within)));
            return Err(problem.help("remove it, or include files by another pattern"));
        }
        let text = read_text(&name, &within, budget.bytes)?;
        budget.bytes -= text.len() as u64;
        source.add(&within, name.parent().unwrap_or(Path::new("/")), &text);
        taken.insert(name);
    }
    Ok(())
}

/// The files of a pattern. A name without `*` must exist.
fn matching(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, Problem> {
    let wrong =
        |why: &str| Problem::new(format!("`{}` is not a pattern for files", shown(pattern))).help(why);
    if pattern.is_empty() || pattern.contains('\0') {
        return Err(wrong("write a path such as \"sites.d/*.toml\""));
    }
    if !pattern.contains(MARKS) {
        return Ok(vec![folder.join(pattern)]);
    }
    if pattern.contains("**") {
        return Err(wrong("`*` stands for any text within one name; `**` is not supported"));
    }
    let whole = match folder.to_str() {
        _ if pattern.starts_with('/') => pattern.to_owned(),
        Some(folder) => format!("{}/{pattern}", glob::Pattern::escape(folder)),
        None => return Err(wrong("write it as an absolute path: the folder's name is not UTF-8")),
    };
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        // As shells do it: what editors leave behind is often hidden.
        require_literal_leading_dot: true,
    };
    let found = glob::glob_with(&whole, options).map_err(|error| wrong(&format!("mend it: {error}")))?;
    let mut names = Vec::new();
    for name in found.take(FILES_MAX + 1) {
        names.push(name.map_err(|error| {
            let problem = Problem::new(format!("cannot look for `{}`: {error}", shown(pattern)));
            problem.help("check that the folder may be read")
        })?);
    }
    names.sort();
    Ok(names)
}
