//! Sources: what the configuration names and does not hold, how it is read, and when it is read again.
//!
//! Files of certificates, access lists and pages, keys of tokens, and addresses of host names come from disks and servers that
//! fail and change while Offramp runs. Each module here reads one kind, keeps what was read, and tells when to look again. The
//! control plane builds snapshots of it and decides whether a fault refuses a change. Nothing here knows of changes or
//! services.
//!
//! The main types:
//!
//! - [`Sources`](certificates::Sources) is everything that was read of certificates and trust. A
//!   [`Look`](certificates::Look) reads what may have changed since, and [`OnFault`](certificates::OnFault) says what becomes
//!   of a source that fails. [`Watcher`](certificates::watcher::Watcher) waits for the time of the next look.
//! - [`AccessFiles`](access::AccessFiles) is everything that was read for access rules: networks, passwords, keys of tokens.
//! - [`Contents`](contents::Contents) is everything that routes answer with from files.
//! - [`Provider`](jwks::Provider) and [`Names`](resolve::Names) are cells that workers read by an atomic pointer: keys of tokens
//!   that servers publish, and addresses of host names. [`Fetchers`](jwks::Fetchers) and [`Resolver`](resolve::Resolver) keep
//!   them fresh.
//!
//! A look at a certificate that is not there:
//!
//! ```
//! use std::time::SystemTime;
//!
//! use offramp_config::At;
//! use offramp_sources::certificates::{Found, Look, OnFault, Pair, Sources};
//!
//! let before = Sources::default();
//! let mut look = Look::new(&before, SystemTime::now(), OnFault::Refuse);
//! let pair = Pair::new("/nonexistent/site.pem".into(), None);
//! let found = look.pairs(vec![(pair, At::NOWHERE)]);
//! let (sources, _) = look.finish();
//!
//! let (Found::Nothing(fault), _) = &found[0] else { panic!("there is no such file") };
//! assert!(fault.contains("/nonexistent/site.pem"));
//! // It is watched all the same, and used once it is there.
//! assert!(sources.files().any(|file| file.ends_with("site.pem")));
//! ```
//!
//! # Modules
//!
//! - [`certificates`]: certificates, authorities and revocation lists; `watcher`, the time of the next look
//! - [`config_watch`]: the time of a reload, where `watch` is set
//! - [`access`]: access rules from files; `countries`, networks of countries
//! - [`contents`]: pages of errors, bodies of responses, maps of redirects
//! - [`jwks`]: keys of tokens from servers; [`web`]: the requests for them, and those to authorities
//! - [`resolve`]: host names of servers

pub mod access;
pub mod certificates;
pub mod config_watch;
pub mod contents;
pub mod jwks;
pub mod resolve;
pub mod web;
