//! Connections of HTTP/2 in both roles.

mod frames;
mod hostile;
mod rig;
mod rules;
mod server;
