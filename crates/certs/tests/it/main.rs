//! The crate from outside: real files, certificates made by `rcgen` and by the `openssl` command.

mod client_auth;
mod file;
mod fixtures;
mod local_ca;
mod store;
