//! Everything that Offramp counts and tells.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`facts`] | what is known of one finished connection, and the table of causes |
//! | [`counters`] | per-worker cells, written without locks, summed by whoever asks |
//! | [`names`] | every metric, once |
//! | [`prometheus`] | the text exposition of the counters, [`process`] included |
//! | [`mod@format`] | one event as JSON, logfmt or text |
//! | [`ring`], [`flusher`] | worker → flusher: bounded, never blocks, counts what it drops |
//! | [`sink`] | where bytes end: stdout, stderr, a file, nowhere |
//! | [`log`] | what the program says about itself |
//!
//! A connection's way through this crate: the worker builds one [`ConnectionFacts`] while it serves, counts
//! through its own [`WorkerCounters`], and at the end hands the facts to its [`EventSender`]. The
//! [`Flusher`]'s thread formats and writes. Nothing here is global, nothing here asks for a lock on a
//! worker's path, and nothing here decides what happens to a connection.

pub mod counters;
mod error;
pub mod facts;
pub mod flusher;
pub mod format;
pub mod log;
pub mod names;
pub mod process;
pub mod prometheus;
pub mod ring;
pub mod sink;
pub mod timestamp;

pub use counters::{Counters, WorkerCounters};
pub use error::Error;
pub use facts::{Cause, Close, ConnectionFacts, ConnectionId, Fault, IdSource};
pub use flusher::{Flusher, FlusherSettings};
pub use format::EventFormat;
pub use log::{Level, Log, LogFormat};
pub use prometheus::{Exposition, ExpositionFormat};
pub use ring::{EventMonitor, EventSender, Sent};
pub use sink::{Output, Sink};
