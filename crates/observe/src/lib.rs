//! Counters, events and logs: everything that Offramp records about itself and its traffic.
//!
//! A worker serves connections and must not wait for any of this. It counts in cells of its own, collects the facts
//! of a connection or request while it serves, and hands them to a bounded ring at the end. Formatting, writing and
//! exporting happen on other threads. Nothing here is global, and nothing here decides what happens to a connection.
//!
//! The main types:
//!
//! - [`Counters`] is the reader's side of all counters, and [`WorkerCounters`] the writing side of one worker.
//! - [`ConnectionFacts`] and [`RequestFacts`] are the record of a finished connection or request. A record ends with a
//!   [`Close`]: a [`Cause`] from one table, and the [`Fault`], the party to blame.
//! - [`Flusher`] runs the thread that writes records as lines to an [`Output`], in an [`EventFormat`]. Each worker
//!   sends to it through its [`EventSender`], which never blocks and counts what it drops. A [`Tap`] sees every record
//!   as well, such as the log store.
//! - [`Log`] is the program's own log, and [`Exposition`] a page of all metrics.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::time::{Duration, SystemTime};
//!
//! use offramp_observe::{
//!     Cause, ConnectionFacts, Counters, EventFormat, Flusher, FlusherSettings, IdSource, Log, Output,
//!     SendOutcome,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("access.log");
//! let (counters, mut workers) = Counters::new(1);
//! let output = Output::File(path.clone());
//! let settings = FlusherSettings::new(1, output, EventFormat::Logfmt, Log::silent());
//! let (flusher, mut senders) = Flusher::start(settings)?;
//! let (worker, mut sender) = (workers.remove(0), senders.remove(0));
//!
//! // On the worker: count, collect facts, send them once.
//! let now = SystemTime::now();
//! let client: SocketAddr = "192.0.2.1:51234".parse()?;
//! let id = IdSource::new(0, 0).next(now);
//! let mut facts = ConnectionFacts::new(id, 0, "public".into(), now, client.into());
//! worker.connection_accepted();
//! facts.close = Cause::ClientClosed.into();
//! worker.connection_ended(&facts);
//! assert_eq!(sender.send(Box::new(facts)), SendOutcome::Queued);
//!
//! // Anywhere: read the sums, and the file.
//! assert_eq!(counters.totals().accepted(), 1);
//! assert_eq!(flusher.stop(Duration::from_secs(60)).written, 1);
//! assert!(std::fs::read_to_string(path)?.contains("cause=client_closed"));
//! # Ok(())
//! # }
//! ```
//!
//! # Add a counter
//!
//! 1. `counters`: a method of [`WorkerCounters`], its cell, and its line in the test that compares the two.
//! 2. `counters::totals`: the sum over workers.
//! 3. [`names`]: name, kind, labels and help; [`exposition`] writes its samples. `docs/reference/metrics.md` follows
//!    (`OFFRAMP_BLESS=1 cargo test -p offramp-observe`).
//! 4. The call, where `proxy` knows the outcome: beside the end of the request or connection, not in the part that caused
//!    it, which has no counters (an answer from the file cache is counted in `proxy::l7::files`, not in its `cache`).
//!
//! A cause is a row of the table in [`facts`]; logs, metrics and documentation follow. Faults of servers are kinds of
//! `upstream::fault`, raised where a request is sent and answered (`upstream::http`); `proxy::failure` and
//! `proxy::l7::upstream_failure` map them to a cause and a status.
//!
//! # Modules
//!
//! - [`facts`]: the record of a finished connection or request, with the table of causes
//! - [`event`]: either record on its way to the flusher, and its consumers
//! - [`counters`]: cells per worker, written without locks, summed by the reader
//! - [`series`]: cells by route, backend and server
//! - [`clients`] over [`sketch`]: the heaviest clients, in bounded memory
//! - [`tls_mix`]: negotiated TLS parameters of a group of sessions
//! - [`names`]: the table of metrics
//! - [`exposition`]: every figure in one walk, [`process`] included, with its writers [`prometheus`], [`graphite`] and,
//!   with the feature of that name, `otlp`
//! - [`mod@format`]: the table of event fields, their selection, and the forms of a line
//! - [`ring`] and [`flusher`]: from worker to output, bounded and never blocking
//! - `encoder`: events in the framing of an output
//! - [`sink`]: streams, rotated files, syslog, journald
//! - [`log`]: the program's own log, and the latest notices of process-wide events
//! - [`panics`]: bugs of Offramp itself: counted, logged once per place, and the restart after one
//! - [`timestamp`]: points in time as text
//! - [`fn@visible`]: text of peers, fit for terminals and messages

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
mod visible;

pub use clients::{ClientSettings, KnownClients};
pub use counters::{Counters, WorkerCounters};
pub use error::OutputError;
pub use event::{Event, Tap};
pub use exposition::{Exposition, Sampled, Sampler};
pub use facts::{
    Cause, Close, ConnectionBrief, ConnectionFacts, ConnectionId, Fault, IdSource, RequestFacts,
};
pub use flusher::{Flusher, FlusherSettings};
pub use format::{EventFormat, EventStyle, Field, FieldHashKey, FieldSelection};
pub use histogram::DurationCounts;
pub use log::{Detail, Level, Log, LogField, LogFormat, Notice, NoticeKind, Notices};
pub use panics::Panics;
pub use prometheus::ExpositionFormat;
pub use ring::{EventMonitor, EventSender, SendOutcome};
pub use sink::{Output, Rotation, Sink, SyslogTarget};
pub use visible::{turns_text, visible};
