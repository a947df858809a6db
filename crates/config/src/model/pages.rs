//! Error pages.

use std::time::Duration;

use super::{Cidr, FilePath, StatusRange};

/// Pages that replace Offramp's plain error responses; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPageFiles {
    /// The files by status: 400 to 599, single statuses before classes. One status may have several files of
    /// different types.
    pub files: Vec<(StatusRange, FilePath)>,
    /// Set to replace errors from servers too.
    pub intercept: bool,
}

/// Maintenance mode: requests get 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceMode {
    /// The value of `Retry-After`: 1 s to 30 d.
    pub retry_after: Duration,
    /// Clients that can use the route as usual.
    pub allow: Vec<Cidr>,
}

impl Default for MaintenanceMode {
    fn default() -> Self {
        MaintenanceMode { retry_after: Duration::from_secs(300), allow: Vec::new() }
    }
}
