//! What methods and fields mean, in every version of HTTP (RFC 9110).

pub mod accept;
pub mod accept_encoding;
pub mod hop_by_hop;
pub mod protected;
mod rules;
pub mod variables;

pub use protected::TrailerRules;
pub use rules::{FieldValue, HeaderRules};

use http::Method;

/// Whether a request may be repeated without changing more than the first one did (RFC 9110 §9.2.2), as far as
/// methods are known by name.
#[must_use]
pub fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}
