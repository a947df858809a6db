//! Health of servers, by active probes and by the outcome of requests.
//!
//! The decisions are pure and take the time as an argument, in milliseconds of any monotonic clock:
//! [`Probed`] counts probes up to `rise` and `fall`, [`FailureRecord`] counts failed requests up to an
//! ejection. [`ServerHealth`] publishes the result to all workers in a few atomics that are read without a
//! lock. It is written by the prober and when requests fail, never during normal operation.
//!
//! A server returns slowly: its share grows over [`Backend::slow_return`](crate::Backend) from the moment of
//! its return, which is computed from the time and needs no timer.

mod probed;
mod record;
mod state;

pub use probed::{CheckKind, HealthChange, ProbeSettings, Probed};
pub use record::{Ejection, FailureRecord};
pub use state::{Duty, HealthHandover, ProbeProgress, ServerHealth, ServerOutcome};

pub(crate) use state::locked;
