//! Routes that answer with files.

use super::{FilePath, HeaderValue};

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
            hidden: false,
            cache_control: Vec::new(),
        }
    }
}
