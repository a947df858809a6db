//! Requests over loopback to scripted servers, byte for byte.

mod health;
mod http1;
mod http2;
mod http2_hostile;
mod limits;
mod requests;
mod responses;
mod retry;
mod server;
mod world;
