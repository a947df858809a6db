//! What routes share, as it is written. A change of one item must mean the same in what is in force as in the file, and so
//! the text that such changes are made in has it too.

use std::sync::Arc;

use crate::error::At;

/// `[defaults.route]` and the policies, and what each route writes besides.
///
/// Two are equal if their sections are: what routes come to is in the routes.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// The sections, the defaults first.
    pub sections: Vec<SharedSection>,
    /// What each route writes, a line for each key, in the order of the routes. Empty where there are no sections.
    pub(crate) routes: Arc<[String]>,
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.sections == other.sections
    }
}

impl Eq for Shared {}

/// One section of keys that routes share. Two are equal if they say the same, wherever they are written.
#[derive(Clone, Debug)]
pub struct SharedSection {
    /// `None`: `[defaults.route]`; else the name of a policy.
    pub policy: Option<String>,
    /// Where it is written.
    pub at: At,
    /// A line for each key, with its value in TOML.
    pub(crate) keys: String,
}

impl PartialEq for SharedSection {
    fn eq(&self, other: &Self) -> bool {
        self.policy == other.policy && self.keys == other.keys
    }
}

impl Eq for SharedSection {}
