//! Choosing and reaching a server.

pub mod pick;
