//! The tests of the kit itself: its client against OpenSSL, its table against rustls, its servers and
//! its process harness; the arrows between crates (tiers) and between modules (circles) of the workspace; and the links
//! and the contents of the book; shell scripts.

mod book;
mod circles;
mod openssl;
mod oracle;
mod process;
mod scripts;
mod servers;
mod tiers;
