//! Upgrade: another process takes the place of this one, with the sockets that it listens on.
//!
//! The new process is the program as it is on disk now. It gets every listening socket, so that no client that waits in a
//! queue is lost, and a state that only its control plane reads. Until it says that it accepts connections nothing is given
//! up here. One that ends, takes too long, refuses the configuration or says what is not known here is killed, and this
//! process serves on.
//!
//! - [`Attempt`] starts the new process, and gives a [`Successor`] that accepts connections;
//! - [`Takeover`] is the same conversation as the new process sees it, which ends it with [`Predecessor::take_over`] or
//!   [`Refuser::refuse`].

mod message;
mod successor;
mod takeover;

pub use successor::{Attempt, Successor};
pub use takeover::{Predecessor, Refuser, Takeover};
