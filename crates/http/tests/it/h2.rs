//! Connections of HTTP/2 in both roles.

mod frames;
mod growth;
mod hostile;
mod rig;
mod rules;
mod server;
