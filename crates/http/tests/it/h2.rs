//! HTTP/2 connections in both roles.

mod frames;
mod growth;
mod hostile;
mod rig;
mod rules;
mod server;
mod states;
