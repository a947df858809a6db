//! `include`: files that are read after the main file.

use std::collections::HashSet;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;
use toml::de::{DeTable, DeValue};

use crate::error::{Problem, SourceText, Span, shown};
use crate::folder::{absolute, joined};
use crate::{FILE_MAX, read_text};

/// The maximum number of included files. A pattern with more matches is a mistake, such as one for a
/// directory of logs.
const FILES_MAX: usize = 10_000;

/// Adds the files included by the main file to the source. `folder` is the directory of that file in
/// messages. Returns the problems with the places of their patterns.
///
/// Bounded: 10,000 files, and 16 MiB in total.
pub(crate) fn read(source: &mut SourceText, folder: &Path) -> Vec<(Span, Problem)> {
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

/// Reports `include` in a text without a file.
pub(crate) fn refuse(source: &SourceText) -> Vec<(Span, Problem)> {
    let problem = || Problem::new("only a configuration in a file can include others").help("leave it out");
    patterns(source).into_iter().map(|(_, span)| (span, problem())).collect()
}

/// The files of a configuration, and the directories where further ones may appear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncludedSources {
    /// The main file, and the files that it includes at present.
    pub files: Vec<PathBuf>,
    /// The directories of its patterns.
    pub folders: Vec<PathBuf>,
    /// A digest of the names and contents of all files, the same in every version of the program: it is stored.
    pub digest: u64,
}

/// Finds the files of a configuration without parsing it fully. An unreadable file counts as one with other
/// content.
#[must_use]
pub fn sources(path: &Path) -> IncludedSources {
    let text = read_text(path, "", FILE_MAX).unwrap_or_else(|problem| problem.to_string());
    sources_with(path, &text)
}

/// Finds the files of a configuration whose main file has `text`, or is about to have it.
#[must_use]
pub fn sources_with(path: &Path, text: &str) -> IncludedSources {
    let mut hasher = SipHasher13::new();
    // The length keeps two texts apart.
    let mut feed = |bytes: &[u8]| {
        hasher.write_u64(bytes.len() as u64);
        hasher.write(bytes);
    };
    let mut found = IncludedSources { files: vec![path.to_owned()], ..IncludedSources::default() };
    let whole = absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = whole.parent().unwrap_or(Path::new("/"));
    let source = SourceText::new("", folder, text);
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
    feed(text.as_bytes());
    found.folders.sort();
    found.folders.dedup();
    let mut rest = FILE_MAX;
    for file in found.files.iter().skip(1).take(FILES_MAX) {
        feed(file.as_os_str().as_encoded_bytes());
        if std::fs::metadata(file).is_ok_and(|found| found.is_file()) {
            let text = read_text(file, "", rest).unwrap_or_else(|problem| problem.to_string());
            feed(text.as_bytes());
            rest = rest.saturating_sub(text.len() as u64);
        }
    }
    found.digest = hasher.finish();
    found
}

/// Returns `true` if the text includes other files.
#[must_use]
pub fn includes_files(text: &str) -> bool {
    !patterns(&SourceText::new("", Path::new(""), text)).is_empty()
}

/// Every valid string of the key. The table of keys reports others.
fn patterns(source: &SourceText) -> Vec<(String, Span)> {
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

/// The characters that make a name a pattern.
const MARKS: [char; 3] = ['*', '?', '['];

/// The remaining files and bytes.
struct Budget {
    files: usize,
    bytes: u64,
}

/// Adds the files of one pattern, ordered by name.
fn add(
    source: &mut SourceText,
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
        // Opening a named pipe would wait for its writer.
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
        return Ok(vec![joined(folder, pattern)]);
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
        // As in shells: editors leave hidden files behind.
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
