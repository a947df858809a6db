//! The log store: requests of Offramp and of other servers' logs, and queries about them.
//!
//! A store is a SQLite file or a PostgreSQL database. It holds requests one by one for as long as they are retained,
//! and sums per hour and day for longer. Offramp writes its own requests in the background, and imports the access
//! logs of other servers.
//!
//! The main types:
//!
//! - [`LogEntry`] is one request on its way into the store. A [`format::Parser`] makes entries of log lines,
//!   [`mod@record`] makes them of Offramp's own events.
//! - [`Writer`] stores entries in batches. [`StoreSink`] is a writer that waits for an unavailable store and never
//!   stores a batch twice; [`ingest::LogImport`] reads whole logs into it, and [`mod@follow`] growing ones.
//! - [`Background`] runs a store inside the proxy, with a spool for the time in which the store is unavailable.
//! - [`Questions`] answers queries. A [`RequestFilter`] selects requests, a [`QueryResult`] is a table of
//!   [`SqlValue`]s, and [`mod@render`] prints it.
//!
//! ```
//! use offramp_analytics::format::InputFormat;
//! use offramp_analytics::{Options, RequestFilter, Top, SqlValue, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let log = br#"192.0.2.1 - - [22/Nov/2026:01:02:03 +0000] "GET /blog HTTP/1.1" 200 512 "-" "Firefox""#;
//! let mut parser = InputFormat::named("combined")?.parser(0);
//! let mut writer = Writer::open("sqlite::memory:", &Options::default())?;
//! if let Some(entry) = parser.parse(log)? {
//!     writer.add(&entry)?;
//! }
//! writer.commit()?;
//!
//! let pages = writer.into_questions()?.top(Top::Pages, &RequestFilter::default())?;
//! assert_eq!(pages.rows[0][0], SqlValue::Text("/blog".to_owned()));
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! - [`entry`]: a request on its way into the store
//! - [`record`]: conversion of Offramp's events to entries
//! - [`mod@format`]: compiled formats of access logs; [`parse_error`], the reason for rejecting a line
//! - [`ingest`] and [`follow`]: import of logs, without losing or duplicating a line
//! - [`writer`]: batches of entries into the store, with dictionaries, shapes and roll-ups
//! - [`sink`]: the writer that waits, reconnects, and stores each batch once
//! - [`background`]: the store inside the proxy: `keeper` with the spool, `storing` with the store
//! - `pack` and `spool`: the binary form of entries, and the file in which they wait
//! - `store`: the interface to SQLite and PostgreSQL, and the schema
//! - `rollup` and [`upkeep`]: sums per hour and day, retention, and removal of unused texts
//! - [`question`] and [`questions`]: queries and their answers; `search`, the index of words
//! - [`render`]: answers as tables, JSON and CSV
//! - [`time`]: time zones, and days, weeks and months in them
//! - [`when`]: times and durations as people type them
//! - [`network`], [`robot`] and `geo`: networks, bots, and locations of clients
//! - `text`: arbitrary bytes as text that any database accepts

pub mod background;
mod batch;
pub mod entry;
pub mod error;
pub mod follow;
pub mod format;
mod geo;
pub mod ingest;
pub mod network;
mod pack;
pub mod parse_error;
mod pattern;
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
pub mod when;
pub mod writer;

pub use background::{Background, BackgroundSettings, StoreNotice, StoreTap};
pub use entry::LogEntry;
pub use error::Error;
pub use network::AddressRange;
pub use question::{QueryResult, RequestFilter, SqlValue, Top};
pub use questions::{QuerySettings, Questions, RequestFeed};
pub use sink::StoreSink;
pub use time::{TimeStep, Zone};
pub use upkeep::Upkeep;
pub use when::When;
pub use writer::{Options, Writer};

/// Checks the URL of a store without opening it.
///
/// # Errors
/// [`Error::Url`], which states the fault and never a password.
pub fn check_url(url: &str) -> Result<(), Error> {
    store::location::Location::parse(url).map(drop)
}

/// The files that are read to connect to a store, and the TCP port of its server, if it has one.
///
/// # Errors
/// [`Error::Url`], like [`check_url`].
pub fn needs(url: &str) -> Result<(Vec<std::path::PathBuf>, Option<u16>), Error> {
    store::location::needs(url)
}

/// Adds a password to the URL of a PostgreSQL store that has neither a password nor a file with one.
#[must_use]
pub fn with_password(url: &str, password: &str) -> String {
    store::location::with_password(url, password)
}

/// Checks that a GeoIP file is usable.
///
/// # Errors
/// The file cannot be read, or has another format.
pub fn check_geoip(path: &std::path::Path) -> Result<(), Error> {
    geo::Geo::open(path).map(drop)
}
