//! The laws of the crate, from outside: only requests with one reading pass, and header blocks are read as they were
//! written, and both roles of HTTP/2 understand each other and bear peers that break rules.

mod h1;
mod h2;
mod hpack;
