//! Static files.

use super::{FilePath, HeaderValue};
use crate::error::Problem;

/// The files below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticFiles {
    /// The path of the directory.
    pub root: FilePath,
    /// The index files of a directory: the first that exists is served; at least one.
    pub index: Vec<String>,
    /// The names to try in order, each with `{path}` once for the request's path. At least one.
    pub tries: Vec<String>,
    /// The file to serve if no other exists: a path that begins with `/`.
    pub fallback: Option<String>,
    /// Set to list directories without an index file.
    pub listing: bool,
    /// Set to serve `NAME.br`, `NAME.zst` and `NAME.gz` for `NAME` to clients that accept the coding.
    pub precompressed: bool,
    /// Set to serve names with a leading dot.
    pub hidden: bool,
    /// Values of `Cache-Control` by pattern, longest pattern first.
    pub cache_control: Vec<(String, HeaderValue)>,
}

impl StaticFiles {
    /// The files below `root` with default settings.
    pub fn new(root: FilePath) -> Self {
        Self {
            root,
            index: vec!["index.html".to_owned()],
            tries: vec!["{path}".to_owned()],
            fallback: None,
            listing: false,
            precompressed: false,
            hidden: false,
            cache_control: Vec::new(),
        }
    }
}

/// Parses the path of a file below a root, which begins with `/`.
///
/// # Errors
/// The path is invalid.
pub fn fallback(text: &str) -> Result<String, Problem> {
    match text.strip_prefix('/') {
        Some(rest) if !rest.is_empty() && !rest.ends_with('/') && is_below(rest) => Ok(text.to_owned()),
        _ => {
            let problem = Problem::new("`fallback` is not the path of a file");
            Err(problem.help("write its path below `root`: \"/index.html\""))
        }
    }
}

/// Returns `true` if a path without its leading slash stays below a root.
pub(crate) fn is_below(path: &str) -> bool {
    let whole = path.strip_suffix('/').unwrap_or(path);
    !path.contains('\0') && !whole.split('/').any(|segment| matches!(segment, "" | "." | ".."))
}

/// Parses the name of a file in a directory.
pub(crate) fn name(text: &str) -> Result<String, Problem> {
    let sound = !text.is_empty() && !text.contains(['/', '\0']) && text != "." && text != "..";
    let wrong = || Problem::new("this is not the name of a file").help("write a name without `/`");
    if sound { Ok(text.to_owned()) } else { Err(wrong()) }
}

/// Parses a name to try, with `{path}` for the path of the request.
pub(crate) fn attempt(text: &str) -> Result<String, Problem> {
    let rest = text.strip_prefix('/').unwrap_or(text);
    let once = rest.matches("{path}").count() == 1;
    if once && is_below(rest) && !rest.replacen("{path}", "", 1).contains(['{', '}']) {
        return Ok(rest.to_owned());
    }
    let problem = Problem::new("this names no file for a request");
    Err(problem.help("write `{path}` once, such as \"{path}.html\"; for a fixed file there is `fallback`"))
}
