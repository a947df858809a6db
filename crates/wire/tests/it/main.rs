//! The laws of the crate, from outside: what is written is read back, a prefix never contradicts the whole,
//! no bytes panic, and rustls reads every ClientHello the same way.

mod laws;
mod oracle;
mod proxy;
