//! Remembering requests, and answering questions about them.
//!
//! [`Entry`] is one request as it goes into the log store, whoever saw it: Offramp itself, or another server
//! whose log is read.

pub mod background;
pub mod entry;
pub mod error;
pub mod follow;
pub mod format;
mod geo;
pub mod ingest;
pub mod network;
mod pack;
pub mod parse_error;
pub mod question;
pub mod questions;
pub mod record;
pub mod render;
pub mod robot;
mod rollup;
mod search;
pub mod sink;
mod spool;
mod store;
mod text;
pub mod time;
pub mod upkeep;
pub mod writer;

pub use background::{Background, BackgroundSettings, Notice, StoreTap};
pub use entry::Entry;
pub use error::Error;
pub use network::Network;
pub use question::{Answer, Filter, Top, Value};
pub use questions::{Questions, Settings, Tail};
pub use sink::StoreSink;
pub use time::{TimeStep, Zone};
pub use upkeep::Upkeep;
pub use writer::{Options, Writer};

/// Whether this is the URL of a store; nothing is opened.
///
/// # Errors
/// [`Error::Url`], which says what is wrong and never names a password.
pub fn check_url(url: &str) -> Result<(), Error> {
    store::location::Location::parse(url).map(drop)
}

/// The files that are read to connect to the store of a URL, and the TCP port that is connected if it is a server's.
///
/// # Errors
/// [`Error::Url`], as of [`check_url`].
pub fn needs(url: &str) -> Result<(Vec<std::path::PathBuf>, Option<u16>), Error> {
    store::location::needs(url)
}

/// The URL with this password, where it is one of PostgreSQL's and names none, nor a file that has it.
#[must_use]
pub fn with_password(url: &str, password: &str) -> String {
    store::location::with_password(url, password)
}

/// Whether this is a GeoIP file that can be used.
///
/// # Errors
/// It cannot be read, or is of another format.
pub fn check_geoip(path: &std::path::Path) -> Result<(), Error> {
    geo::Geo::open(path).map(drop)
}
