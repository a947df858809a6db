//! The crate from outside: what it writes is read back by readers of our own.

mod docs;
mod exposition;
mod flusher;
mod formats;
mod journald;
mod nginx;
#[cfg(feature = "otlp")]
mod otlp;
mod python;
mod samples;
mod sockets;
mod taps;
