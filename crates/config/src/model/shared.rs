//! Shared settings of routes as written. An edit of one item must mean the same to the configuration in force
//! as to the file, so the text that is edited has them too.

use std::sync::Arc;

use crate::error::At;

/// `[defaults.route]` and the policies, and the own keys of each route.
///
/// Two are equal if their sections are: the result is in the routes.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// The sections, the defaults first.
    pub sections: Vec<SharedSection>,
    /// The own keys of each route, one per line, in the order of the routes. Empty without sections.
    pub(crate) routes: Arc<[String]>,
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.sections == other.sections
    }
}

impl Eq for Shared {}

/// One section of shared keys. Two are equal if their content is, wherever they are written.
#[derive(Clone, Debug)]
pub struct SharedSection {
    /// The name of the policy; `None` for `[defaults.route]`.
    pub policy: Option<String>,
    /// The place in the configuration.
    pub at: At,
    /// The keys, one per line, with values in TOML.
    pub(crate) keys: String,
}

impl PartialEq for SharedSection {
    fn eq(&self, other: &Self) -> bool {
        self.policy == other.policy && self.keys == other.keys
    }
}

impl Eq for SharedSection {}
