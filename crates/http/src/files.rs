//! What requests for files mean, without the files: which path a target names ([`path`]), whether the client has the
//! file already ([`conditions`]), which parts of it are asked for ([`range`]), and what a directory has ([`listing`]).
//!
//! It refuses to touch a file system. Whoever opens a file must still keep within its root, because names can be
//! symbolic links.

pub mod conditions;
pub mod listing;
pub mod path;
pub mod range;
