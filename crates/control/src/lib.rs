//! Changing the running house.
//!
//! [`Server::start`] puts a configuration in force: descriptors, AEADs, sockets, keys, user, workers,
//! in that order. [`Server::run`] then waits on an ordinary event loop of its own for signals, for what
//! a [`Handle`] asks, and for what falls due: renewals of the local CA, ticket keys, host names.
//!
//! There is one contract for every change, whoever asks for it: what is new is read and built beside
//! what runs, *all* faults are reported, and only a whole success is swapped in. Connections that are
//! open stay as they are. Nothing here is on the way of a connection's bytes.
//!
//! | question | module |
//! | --- | --- |
//! | what does a configuration mean for a worker? | `build` |
//! | which sockets stay, come and go? | `plan` (pure), `listeners` |
//! | what happens at start, on reload, as time passes, at the end? | `server`, `reload`, `upkeep`, `drain` |
//! | which servers are alive? | `probes` |
//! | where does the log store get its events? | `event_store` |
//! | who may read the keys? | `privileges`, `state` |

mod build;
mod drain;
mod error;
mod event_store;
mod figures;
mod house;
mod listeners;
mod metrics;
pub mod outputs;
mod plan;
mod privileges;
mod probes;
mod push;
mod reload;
mod resolve;
mod server;
mod servers;
mod signals;
mod state;
mod upkeep;

pub use build::{check, check_files};
pub use drain::Exit;
pub use error::{Error, Error as StartError, Finding};
pub use event_store::{EventStore, OpenStore, StoreFigures};
pub use reload::Changes;
pub use server::{Bound, Handle, Origin, Server, Start};
