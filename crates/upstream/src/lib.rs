//! Choosing and reaching a server.
//!
//! [`pick`] decides, without sockets or clocks, which server a connection tries first and which
//! after; [`connect()`] does the trying. A [`Backend`] is a part of a snapshot and never changes.

mod backend;
mod connect;
pub mod pick;

pub use backend::{Backend, Server, Target};
pub use connect::{Connected, Reason, Unreachable, connect};
pub use pick::{Candidate, Picker, RoundRobin};
