//! The laws of the crate, from outside: only requests with one reading pass, and header blocks are read as they were
//! written.

mod h1;
mod hpack;
