//! What clients get in place of the plain errors of Offramp.

use super::{FilePath, StatusRange};

/// The pages of errors; the default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages {
    /// The files by status: 400 to 599, single statuses before classes. One status may have several files, of different types.
    pub files: Vec<(StatusRange, FilePath)>,
    /// Whether errors of servers get them too.
    pub intercept: bool,
}
