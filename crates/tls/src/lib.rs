//! The handshake driver around rustls, and the TLS stream over the record layer.
