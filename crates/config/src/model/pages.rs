//! What clients get in place of the plain errors of Offramp.

use std::time::Duration;

use super::{Cidr, FilePath, StatusRange};

/// The pages of errors; the default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages {
    /// The files by status: 400 to 599, single statuses before classes. One status may have several files, of different types.
    pub files: Vec<(StatusRange, FilePath)>,
    /// Whether errors of servers get them too.
    pub intercept: bool,
}

/// A route that is closed for a while: requests get 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// When clients may try again: 1 s to 30 d.
    pub retry_after: Duration,
    /// Clients to whom the route works as usual.
    pub allow: Vec<Cidr>,
}

impl Default for Maintenance {
    fn default() -> Self {
        Maintenance { retry_after: Duration::from_secs(300), allow: Vec::new() }
    }
}
