//! Offramp: a TLS-terminating proxy.
fn main() {}
