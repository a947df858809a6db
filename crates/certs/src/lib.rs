//! Certificates and keys: loading, the local CA, selection by server name, and admission of client certificates.
//!
//! Time is always an argument. Nothing here logs, waits for the network or starts a thread. Problems that an operator
//! should know about but that do not prevent the use of a file come back as [`Warning`] values beside the result.
//!
//! The crate does not guess: two different keys, a key without its certificate, an encrypted key or a damaged local CA
//! are errors that name the file and the remedy.
//!
//! The main types:
//!
//! - [`Certificate`] is a chain with its key, ready for rustls, and the facts needed to choose it. [`file::load`] makes
//!   it from PEM files, [`local_ca::LocalCa`] issues it, and [`acme::storage::Storage`] keeps those of ACME authorities.
//! - [`store::CertificateStore`] is the immutable index of a configuration's certificates; a handshake picks
//!   one by server name and signature schemes.
//! - [`client_auth::Trust`] is the set of authorities and revocation lists that client certificates are verified
//!   against, and [`client_auth::AllowList`] the list of admitted names.
//! - [`Error`] and [`Warning`] state the fault, the file and the remedy.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::SystemTime;
//!
//! use offramp_certs::local_ca::LocalCa;
//! use offramp_certs::store::{StoreEntry, Pick, CertificateStore};
//! use rustls::SignatureScheme;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let state = tempfile::tempdir()?;
//! # let state_dir = state.path();
//! let now = SystemTime::now();
//! let certificate = LocalCa::open_or_create(state_dir, now)?.issue(&["localhost", "*.home.arpa"], now)?;
//! let store = CertificateStore::new([StoreEntry { certificate: Arc::new(certificate), default: false }], now);
//!
//! let offered = [SignatureScheme::ECDSA_NISTP256_SHA256];
//! assert!(matches!(store.pick(Some("nas.home.arpa"), &offered), Pick::Found { .. }));
//! assert!(matches!(store.pick(Some("example.org"), &offered), Pick::NoneForName));
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! - [`mod@file`] over `pem` and `chain`: certificates from PEM files, in any order
//! - [`directory`]: the pairs in a directory
//! - [`store`]: selection of a certificate for a client
//! - [`local_ca`]: the authority of this installation
//! - [`acme`]: schedules, storage and messages for ACME authorities; pure, except for the storage
//! - [`client_auth`]: trust, revocation and admission of client certificates, and their form in header fields
//! - [`anchors`]: trusted certificates, as authorities and as themselves
//! - [`server_verifier`]: rustls's verifier of servers around a rule for chains
//! - [`staple`]: OCSP responses for stapling
//! - [`describe`]: descriptions of certificates for the PROXY protocol
//! - [`inspect`]: the fields of certificates, and the faults of chains, for people
//! - [`explain`]: errors of rustls and webpki in words, with remedies
//! - `certificate`, `name`, `x509`, `clock`: certificates, DNS names, and parsing
//! - `stamp`: detection of changed files
//! - `disk`: private directories and atomic writes
//! - `error` and `warning`: faults, and problems that prevent nothing

mod certificate;
mod chain;
mod clock;
mod disk;
mod error;
mod facts;
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
pub mod server_verifier;
pub mod staple;
pub mod store;

pub use certificate::{Certificate, CertificateOrigin, KeyKind};
pub use error::{CaFault, ContentFault, Error, NameFault, PairFault, PatternFault};
pub use name::DnsPattern;
pub use pem::{MAX_FILE_SIZE, read_secret};
pub use stamp::Stamp;
pub use warning::{Concern, Warning};
