//! Routes that answer with files.

use super::{FilePath, HeaderValue};
use crate::error::Problem;

/// The files below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticFiles {
    /// The directory.
    pub root: FilePath,
    /// What is served for a directory: the first of these names that exists; at least one.
    pub index: Vec<String>,
    /// The names that are looked for in turn; `{path}` stands for the path of the request, once in each. At least one.
    pub tries: Vec<String>,
    /// What is served where there is nothing else: a path that begins with `/`.
    pub fallback: Option<String>,
    /// Whether a directory without any of `index` is listed.
    pub listing: bool,
    /// Whether `NAME.br`, `NAME.zst` and `NAME.gz` are served in the place of `NAME` to clients that decode them.
    pub precompressed: bool,
    /// Whether names that begin with a dot are served.
    pub hidden: bool,
    /// Values of `Cache-Control` by patterns, the longest pattern first.
    pub cache_control: Vec<(String, HeaderValue)>,
}

impl StaticFiles {
    /// The files below `root`, as they are served where nothing else is said.
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

/// Reads the path of a file below a root, which begins with `/`.
///
/// # Errors
/// It is none.
pub fn fallback(text: &str) -> Result<String, Problem> {
    match text.strip_prefix('/') {
        Some(rest) if !rest.is_empty() && !rest.ends_with('/') && is_below(rest) => Ok(text.to_owned()),
        _ => {
            let problem = Problem::new("`fallback` is not the path of a file");
            Err(problem.help("write its path below `root`: \"/index.html\""))
        }
    }
}

/// Whether a path without its first slash leads to something below a root.
pub(crate) fn is_below(path: &str) -> bool {
    let whole = path.strip_suffix('/').unwrap_or(path);
    !path.contains('\0') && !whole.split('/').any(|segment| matches!(segment, "" | "." | ".."))
}
