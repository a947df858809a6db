//! Whether a server is alive: what probes say of it, and what requests do.
//!
//! The decisions are pure and take the time as an argument, in milliseconds of any steady clock:
//! [`Probed`] counts probes up to `rise` and `fall`, [`Record`] counts failed requests up to an
//! ejection. [`ServerHealth`] publishes what they decided to all workers in a few atomics that are read
//! without a lock. It is written by the prober and when requests fail, never while all is well.
//!
//! A server returns slowly: its share grows over [`Backend::slow_return`](crate::Backend) from the
//! moment at which it came back, which needs no timer since it follows from the time.

mod probed;
mod record;
mod state;

pub use probed::{Change, Check, CheckKind, Probed};
pub use record::{Ejection, Record};
pub use state::{Duty, Known, Outcome, Progress, ServerHealth};

pub(crate) use state::{locked, note, note_returns};
