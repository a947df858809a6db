//! Fields, in every version of HTTP.
//!
//! Shared by heads, the parser of HTTP/1 and HPACK: well-known names by number ([`Known`]), the position of a
//! field among the bytes of a head ([`FieldLine`]), and the classes of HTTP/2 fields ([`FieldClass`]).

mod kind;
mod known;
mod line;

pub use kind::FieldClass;
pub use known::{Known, KnownSet};
pub use line::FieldLine;
pub(crate) use line::{COLON, END};

use crate::scan;

/// Returns true for valid field names: tokens (RFC 9110 §5.1).
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| scan::is_token(byte))
}

/// Returns true for valid field values: no control bytes except TAB (RFC 9110 §5.5).
#[must_use]
pub fn is_text(value: &[u8]) -> bool {
    scan::control(value, 0).is_none()
}
