//! HTTP/2 without I/O (RFC 9113): a [`Connection`] in either role, and what it is made of: the heads of frames, the
//! settings, the codes of errors, and the count of frames that cost us more than their sender ([`flood`]).
//!
//! What the fields of a header block are is the business of [`hpack`](crate::hpack) and [`head`](crate::head).

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
