//! Semantics of methods and fields, in every version of HTTP (RFC 9110).

pub mod accept;
pub mod accept_encoding;
pub mod hop_by_hop;
pub mod protected;
mod rules;
pub mod variables;

pub use protected::TrailerRules;
pub use rules::{FieldValue, HeaderRules};

use http::Method;

/// Returns true for idempotent requests, which may be repeated (RFC 9110 §9.2.2); unknown methods count as
/// not idempotent.
#[must_use]
pub fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}
