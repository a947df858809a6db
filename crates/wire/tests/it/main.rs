//! Properties of the crate's public interface: encoders round-trip, a verdict on a prefix never contradicts
//! the one on the whole, no input panics, and rustls reads every ClientHello the same way.

mod laws;
mod oracle;
mod proxy;
