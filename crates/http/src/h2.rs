//! The frames of HTTP/2 (RFC 9113 §4, §6): their heads, their flags, the settings, and the codes of errors.
//!
//! What the fields of a header block are is the business of [`hpack`](crate::hpack).

mod code;
mod frame;
mod settings;

pub use code::Code;
pub use frame::{FrameHeader, Framed, HEAD, Kind, PREFACE, flag};
pub use settings::{Setting, settings, write_settings};
