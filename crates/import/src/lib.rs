//! Configurations of other proxies, as configurations of Offramp.
//!
//! [`import`] reads the files of one [`ForeignLanguage`], and returns the text of an `offramp.toml` with a report in which
//! every directive is taken, changed or not taken. The stages are: tokens and a tree of directives with their places, one
//! parser for each language; a [`known`] table for each, which says how a name is handled; the lowering into a draft of
//! listeners, certificates, routes and backends; and the text, which `offramp-config` checks. What that refuses is left
//! out and reported, so that every result passes `offramp check`.
//!
//! Nothing here opens sockets or writes files. A rule about access that cannot be said closes its route: an import never
//! opens what was guarded.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::path::PathBuf;
//!
//! use offramp_import::{ForeignLanguage, import};
//!
//! let text = "server { listen 80; server_name example.org; location / { proxy_pass http://127.0.0.1:3000; } }";
//! let files = BTreeMap::from([(PathBuf::from("/etc/nginx/nginx.conf"), text.as_bytes().to_vec())]);
//! let imported = import(ForeignLanguage::Nginx, &["/etc/nginx/nginx.conf".into()], &files)?;
//! assert!(imported.toml.contains("server = \"127.0.0.1:3000\""));
//! # Ok::<(), offramp_import::ImportError>(())
//! ```
//!
//! # Modules
//!
//! - [`source`]: files, places and errors
//! - [`known`]: how each directive of a language is handled, as `offramp import --list` prints it
//! - [`report`]: the fate of each directive
//! - `draft`: listeners, certificates, routes and backends with the places that they came from, and their text
//! - `finish`: the check of the text
//! - `written`: values as Offramp writes them
//! - `nginx`, `haproxy`, `hitch`: the languages

pub use finish::Imported;
pub use known::{ForeignLanguage, Handling, KnownDirective};
pub use report::{Fate, Finding, ImportReport};
pub use source::{DiskFiles, FoundAt, ImportError, SourceFiles};

mod draft;
mod finish;
mod haproxy;
mod hitch;
pub mod known;
mod nginx;
pub mod report;
pub mod source;
mod written;

use std::path::PathBuf;

/// Imports files of a language.
///
/// # Errors
/// A file that cannot be read, is binary, has a mistake of syntax or includes itself; or files that lead to no route.
pub fn import(
    language: ForeignLanguage,
    paths: &[PathBuf],
    files: &dyn SourceFiles,
) -> Result<Imported, ImportError> {
    let (draft, findings) = match language {
        ForeignLanguage::Nginx => nginx::lower(paths, files)?,
        ForeignLanguage::Haproxy => haproxy::lower(paths, files)?,
        ForeignLanguage::Hitch => hitch::lower(paths, files)?,
    };
    finish::finish(language, paths, draft, findings)
}
