//! The kernel: everything that calls the operating system.
//!
//! Sockets that the relay drives by hand ([`Socket`]), listening and accepting ([`listen`]),
//! connecting ([`connect`]), taking turns on a worker ([`turn`]), the process's limits ([`process`]), its user, the
//! cores it may use
//! ([`cores`]), files below a root ([`mod@file`]), descriptors for a new process ([`handover`]), changes of files ([`watch`]), and the notifications that systemd expects ([`notify`]). TCP and Unix sockets are
//! one type from here on. Through `rustix` and `nix` only the registration of descriptors with the
//! runtime, descriptors that are known by number, and the process beside this one ([`apart`]) need `unsafe`.

pub mod activation;
pub mod apart;
pub mod clock;
pub mod connect;
pub mod cores;
pub mod file;
pub mod handover;
pub mod listen;
pub mod notify;
pub mod ownership;
pub mod pace;
pub mod process;
pub mod sandbox;
pub mod splice;
pub mod turn;
pub mod watch;

mod address;
mod buffer;
mod socket;
mod stream;

pub use address::{Address, Peer};
pub use buffer::Buffer;
pub use socket::Socket;
