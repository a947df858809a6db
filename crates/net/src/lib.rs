//! Everything that calls the operating system: sockets, files, the process and its restrictions.
//!
//! This is the only crate with `unsafe` code: `rustix` and `nix` cover most system calls, but the
//! registration of descriptors with the runtime, descriptors known by number, the fork of the helper process
//! ([`apart`]) and the filter of system calls ([`sandbox`]) need it. Nothing here knows TLS or HTTP.
//!
//! The main types:
//!
//! - [`Socket`], a connected stream over TCP or a Unix socket, driven by readiness: `poll_read`,
//!   `poll_writev` and the like make one system call and detect an empty or full socket from a short
//!   transfer;
//! - [`Buffer`], filled from a socket at the back and consumed from the front;
//! - [`listen::Acceptor`], a listening socket of one worker; [`listen::open`] opens one per worker and
//!   address;
//! - [`turn::Turn`], which bounds the work of a task before its worker serves the others;
//! - [`Address`] and [`PeerAddress`], the addresses of both ends.
//!
//! ```
//! use offramp_net::listen::{self, Acceptor};
//! use offramp_net::{Address, Buffer, Socket, connect};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let fds = listen::open(&Address::Tcp(([127, 0, 0, 1], 0).into()), 1)?;
//! let address = listen::address_of(&fds[0]).expect("the address of a listening socket");
//! let acceptor = Acceptor::new(fds.into_iter().next().expect("one socket for one worker"))?;
//!
//! let client = connect::connect_to(&address).await?;
//! let (fd, _peer) = acceptor.accept().await.expect("a connection in the backlog");
//! let server = Socket::tcp(fd)?;
//!
//! client.write_all(b"hello").await?;
//! client.shutdown_write()?;
//! let mut received = Buffer::with_capacity(16);
//! while received.read_from(&server, 16).await? > 0 {}
//! assert_eq!(received.filled(), b"hello");
//! # std::io::Result::Ok(())
//! # })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! The modules:
//!
//! - `socket`: readiness by hand; `stream`, the same as `AsyncRead` and `AsyncWrite`; `buffer`; `address`
//! - [`listen`], and its `reserve`: listening sockets that may be needed again
//! - [`connect`]: outgoing connections
//! - [`port_holder`]: processes that listen on a port; [`tcp_table`], the users of connections within this machine
//! - [`splice`]: bytes from socket to socket within the kernel, and the pipes of a worker
//! - [`turn`]: the work of a task before readiness is checked
//! - [`pace`]: bandwidth limits that sockets and bodies share
//! - [`clock`]: cheap clocks
//! - [`mod@file`]: files below a root, without blocking on a disk; `links`, the resolution of symbolic links
//! - [`watch`]: changes of files
//! - [`ownership`]: files of root's that another user gets
//! - [`process`]: descriptor limit, capabilities, user; [`program_text`], the pages of the program itself
//! - [`replacement`]: replacing a file, with its attributes
//! - [`cores`]: CPU affinity and caches
//! - [`apart`]: the helper process, forked at the start; [`child`]: settings of programs that are started
//! - [`sandbox`]: the files and ports that the process may use (`bounds`), the system calls that it may make
//!   (`calls`), and a `trial` of forbidden ones
//! - [`activation`]: sockets of the service manager; [`notify`]: notifications to systemd
//! - [`handover`]: messages with descriptors between processes

pub mod activation;
pub mod apart;
pub mod child;
pub mod clock;
pub mod connect;
pub mod cores;
pub mod file;
pub mod handover;
pub mod listen;
pub mod notify;
pub mod ownership;
pub mod pace;
pub mod port_holder;
pub mod process;
pub mod program_text;
pub mod replacement;
pub mod sandbox;
pub mod splice;
pub mod tcp_table;
pub mod turn;
pub mod watch;

mod address;
mod buffer;
mod socket;
mod stream;

pub use address::{Address, PeerAddress};
pub use buffer::Buffer;
pub use socket::Socket;
