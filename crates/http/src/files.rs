//! Semantics of requests for files, without the files: the path that a target names ([`path`]), conditions on
//! the client's copy ([`conditions`]), requested parts ([`range`]), and listings of directories
//! ([`listing`]).
//!
//! Nothing here accesses a file system. The code that opens a file must still confine it to the root, because
//! names can be symbolic links.

pub mod conditions;
pub mod listing;
pub mod path;
pub mod range;
