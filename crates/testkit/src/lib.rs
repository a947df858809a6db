//! Development only: what the tests of every crate share.
//!
//! | module | for |
//! | --- | --- |
//! | [`process`] | child processes with captured output, readiness and a bounded life |
//! | [`postgres`] | a PostgreSQL of the test's own |
//! | [`server`] | small applications on threads, correct and broken ones, over TCP and Unix sockets |
//! | [`ca`] | certificates of every key type and shape, as files |
//! | [`tls_client`] | a record-level TLS client that can say anything |
//! | [`cases`] | the table of malformed input, and the comparison of two servers over it |
//! | [`geoip`] | databases of the countries of addresses |
//! | [`oracle`] | a plain rustls echo server, whose verdicts are the least that Offramp gives |
//!
//! Everything is blocking, on threads, with bounded waits, on loopback addresses and ports that the
//! system picks. Nothing here is fit for use outside tests: it panics, it leaks secrets, it trusts.

pub mod ca;
pub mod cases;
mod error;
pub mod geoip;
pub mod oracle;
pub mod postgres;
pub mod process;
pub mod server;
pub mod tls_client;

pub use error::Error;
