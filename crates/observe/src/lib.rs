//! Everything that Offramp counts and tells.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`facts`] | what is known of one finished connection or request, and the table of causes |
//! | [`event`] | either of the two, and its consumers |
//! | [`counters`] | per-worker cells, written without locks, summed by the reader |
//! | [`series`], [`clients`], [`tls_mix`] | what is counted by route and server, by client, and of TLS |
//! | [`sketch`] | the heaviest of many in bounded memory |
//! | [`names`] | every metric, once |
//! | [`exposition`], [`prometheus`], [`graphite`] | every figure in one walk, [`process`] included; and as text |
//! | `otlp` | figures and spans for OpenTelemetry, with the feature of that name |
//! | [`mod@format`] | one event as JSON, logfmt, text, or as nginx writes it |
//! | [`ring`], [`flusher`] | worker → flusher: bounded, never blocks, counts what it drops |
//! | [`sink`] | where messages end: stdout, stderr, a file, syslog, journald, nowhere |
//! | [`log`] | what the program says about itself |
//! | [`panics`] | faults of Offramp's own: counted, logged once, and what goes on after one |
//!
//! A connection's way through this crate: the worker builds one [`ConnectionFacts`] while it serves, counts
//! through its own [`WorkerCounters`], and at the end hands the facts to its [`EventSender`]. The
//! [`Flusher`]'s thread formats and writes. Nothing here is global, no worker
//! waits for a lock here, and nothing here decides what happens to a connection.

pub mod clients;
pub mod counters;
mod encoder;
mod error;
pub mod event;
pub mod exposition;
pub mod facts;
pub mod flusher;
pub mod format;
pub mod graphite;
mod histogram;
pub mod log;
pub mod names;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod panics;
pub mod process;
pub mod prometheus;
pub mod ring;
pub mod series;
pub mod sink;
pub mod sketch;
pub mod timestamp;
pub mod tls_mix;

pub use clients::{ClientSettings, KnownClients};
pub use counters::{Counters, WorkerCounters};
pub use error::Error;
pub use event::{Event, Tap};
pub use exposition::{Exposition, Sampled, Sampler};
pub use facts::{
    Cause, Close, ConnectionBrief, ConnectionFacts, ConnectionId, Fault, IdSource, RequestFacts,
};
pub use flusher::{Flusher, FlusherSettings};
pub use format::{EventFormat, EventStyle, Field, HashKey, Selection};
pub use log::{Detail, Level, Log, LogField, LogFormat, Notice, NoticeKind, Notices};
pub use panics::Panics;
pub use prometheus::ExpositionFormat;
pub use ring::{EventMonitor, EventSender, Sent};
pub use sink::{Output, Rotation, Sink, SyslogTarget};
