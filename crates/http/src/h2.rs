//! HTTP/2 without I/O (RFC 9113): a [`Connection`] in either role, and its parts: frame headers, settings,
//! error codes, and the accounting of abusive frames ([`flood`]).
//!
//! Header blocks are decoded by [`hpack`](crate::hpack) and stored in [`head`](crate::head).

mod code;
pub mod connection;
pub mod flood;
mod frame;
mod output;
mod priority;
mod probe;
mod reader;
mod settings;
mod violation;

pub use code::Code;
pub use connection::{
    Admission, Asked, Config, Connection, Cost, Ends, Event, Faults, Handler, Reset, Role, Unopened,
};
pub use frame::{FrameHeader, Framed, HEAD, Kind, PREFACE, flag};
pub use output::Output;
pub use priority::{Priority, Rank, Updates, priority_update};
pub use settings::{Setting, settings, write_settings};
pub use violation::Violation;
