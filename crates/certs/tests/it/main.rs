//! The crate from outside: real files, certificates made by `rcgen` and by the `openssl` command.

mod file;
mod fixtures;
mod local_ca;
mod store;
