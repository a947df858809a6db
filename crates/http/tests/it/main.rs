//! Properties of the crate's public interface: only requests with a single reading pass, header blocks
//! round-trip, and both roles of HTTP/2 interoperate and tolerate peers that violate the protocol.

mod h1;
mod h2;
mod hpack;
