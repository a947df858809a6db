//! The handshake of WebSocket in the role of the client (RFC 6455 §4.1), for clients that ask by HTTP/2: they send no key.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::resources::Resources;

/// Text that a server puts behind the key before it hashes both.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A key: 16 bytes in base64. It shows that the server understood, and needs to be no secret.
pub(crate) fn key(worker: &Resources) -> String {
    let bits = u128::from(worker.random()) << 64 | u128::from(worker.random());
    BASE64_STANDARD.encode(bits.to_be_bytes())
}

/// The value of `Sec-WebSocket-Accept` with which a server says that it understood.
pub(crate) fn accept(key: &[u8]) -> String {
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_accepts_as_the_rfc_shows() {
        // RFC 6455 §1.3.
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
