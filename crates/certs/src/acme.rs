//! ACME certificates (RFC 8555): everything that needs no network.
//!
//! - [`schedule`]: renewal times, and pauses after failed orders
//! - [`validations`]: the budget of failed validations per name
//! - [`storage`]: accounts, certificates and pending orders on disk
//! - [`request`]: keys and certificate signing requests
//! - [`challenge`]: the certificate for tls-alpn-01
//! - [`dns_update`]: the DNS message that sets a TXT record for dns-01
//! - [`caa`]: the DNS messages that ask which authorities may issue for a name
//! - [`on_demand`]: the rate of orders on demand, and the retention of their certificates
//!
//! Time and randomness are arguments.

pub mod caa;
pub mod challenge;
pub mod dns_update;
pub mod on_demand;
pub mod request;
pub mod schedule;
pub mod storage;
pub mod validations;

pub use crate::certificate::UseMark;
pub use request::KeyType;
pub use storage::{Abandoned, Demanded, Lock, PendingOrder, Storage, StoredPath, Subject};
pub use validations::Validations;
