//! Keys and certificates: files, the local CA, choice by name, and what client certificates say.
//!
//! | question | module |
//! | --- | --- |
//! | what is in these PEM files? | [`mod@file`] |
//! | which pairs are in this directory? | [`directory`] |
//! | which certificate does this client get? | [`store`] |
//! | where does a certificate for `localhost` come from? | [`local_ca`] |
//! | when is a certificate of an ACME authority due, and where is it kept? | [`acme`] |
//! | may this client in? | [`client_auth`] |
//! | is this certificate one of those that are trusted? | [`anchors`] |
//! | what does an error of rustls mean? | [`explain`] |
//! | which OCSP response is stapled? | [`staple`] |
//! | what is wrong with this chain? | [`inspect`] |
//! | what does the PROXY protocol say about a certificate? | [`describe`] |
//!
//! Time is always an argument, nothing here logs, waits for the network or starts a thread. What an
//! operator should know but what stops nothing comes back as [`Warning`] values beside the result.
//!
//! The crate refuses to guess: two different keys, a key without its certificate, an encrypted key or
//! a damaged local CA are errors that name the file and the remedy.

mod certificate;
mod chain;
mod clock;
mod disk;
mod error;
mod name;
mod pem;
mod stamp;
mod warning;
mod x509;

pub mod acme;
pub mod anchors;
pub mod client_auth;
pub mod describe;
pub mod directory;
pub mod explain;
pub mod file;
pub mod inspect;
pub mod local_ca;
pub mod staple;
pub mod store;

pub use certificate::{Certificate, KeyKind, Source};
pub use error::{CaFault, ContentFault, Error, NameFault, PairFault, PatternFault};
pub use name::DnsPattern;
pub use pem::read_secret;
pub use stamp::Stamp;
pub use warning::{Concern, Warning};
