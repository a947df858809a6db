//! The tests of the kit itself: its client against OpenSSL, its table against rustls, its servers and
//! its process harness; and the tiers of the workspace.

mod fuzz_seeds;
mod openssl;
mod oracle;
mod process;
mod servers;
mod tiers;
