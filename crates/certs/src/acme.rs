//! Certificates of authorities that speak ACME (RFC 8555): everything that needs no network.
//!
//! | question | module |
//! | --- | --- |
//! | when is a certificate renewed, and when is a failed order tried again? | [`schedule`] |
//! | how often may the validation of a name fail? | [`validations`] |
//! | where are accounts, certificates and orders under way kept? | [`storage`] |
//! | what is sent to the authority to be signed? | [`request`] |
//! | which certificate answers the challenge tls-alpn-01? | [`challenge`] |
//! | which message sets a TXT record of dns-01? | [`dns_update`] |
//! | how fast are certificates ordered on demand, and how long kept? | [`on_demand`] |
//!
//! Time and randomness are arguments.

pub mod challenge;
pub mod dns_update;
pub mod on_demand;
pub mod request;
pub mod schedule;
pub mod storage;
pub mod validations;

pub use on_demand::UseMark;
pub use request::KeyType;
pub use storage::{Abandoned, Demanded, Kept, Lock, PendingOrder, Storage, Subject};
pub use validations::Validations;
