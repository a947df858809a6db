//! Start, reload and shutdown: every change of the running process.
//!
//! [`Server::start`] puts a configuration in force: descriptors, AEADs, sockets, keys, user, workers,
//! in that order. [`Server::run`] then waits on its own event loop for signals, for requests of a
//! [`Handle`], and for periodic work: renewals of the local CA, ticket keys, host names.
//!
//! There is one contract for every change. The new configuration is read and built beside the current
//! one, and *all* faults are reported. Only if everything succeeds does it replace the current one.
//! Open connections do not change. Nothing here touches the bytes of a connection.
//!
//! | question | module |
//! | --- | --- |
//! | what does a configuration mean for a worker? | `build` |
//! | what was read from certificates, and when is it read again? | `certificates` |
//! | which sockets stay, come and go? | `plan` (pure), `listeners` |
//! | what happens at start, on reload, as time passes, at the end? | `server`, `reload`, `upkeep`, `drain` |
//! | who may change what, and how is it taken back? | `change` |
//! | who changed what, and when? | `history` |
//! | which open connections does a change touch, and who closed some? | `connections` |
//! | who may enter, by which files? | `access` |
//! | who has the keys of tokens, and when are they fetched? | `jwks` |
//! | what do others see of the process? | `view`, `notes` |
//! | what does an order to stop mean, and a second one? | `stopping` |
//! | which servers are alive? | `probes` |
//! | who obtains and renews certificates? | `acme` |
//! | how does the log store get its events? | `event_store` |
//! | how does another process take over? | `upgrade`, `inherited` |
//! | who may read the keys? | `privileges`, `state` |
//! | what does the process forbid itself, and who does it instead? | `sandbox`, `helper` |

mod access;
mod acme;
mod build;
mod certificates;
mod change;
mod config_watch;
mod connections;
mod descriptors;
mod drain;
mod emptied;
mod error;
mod event_store;
mod figures;
mod helper;
mod history;
mod inherited;
mod inventory;
mod jwks;
mod listeners;
mod metrics;
mod notes;
pub mod outputs;
mod phases;
mod plan;
mod privileges;
mod probes;
mod push;
mod reload;
mod resolve;
mod running;
mod sandbox;
mod server;
mod servers;
mod signals;
mod state;
mod stopping;
mod supervise;
mod unwritten;
mod upgrade;
mod upkeep;
mod view;
mod watchdog;
mod web;

pub use acme::{Issued, OneOrder, control_socket, order_once};
pub use build::{check, check_files};
pub use change::{Change, NotChanged, Report, Terms};
pub use drain::Exit;
pub use error::{Error, Error as StartError, Finding};
pub use event_store::{EventStore, OpenStore, StoreFigures};
pub use helper::Helper;
pub use history::{Applied, Closed, History, Kind as ChangeKind, Refused, Requester};
pub use inventory::{Inventory, Listed, certificates as inventory};
pub use offramp_proxy::NetworkSet;
pub use offramp_proxy::credentials::user_line;
pub use offramp_proxy::live::{Closing, Connections, Cursor, Filter, LiveConnection, Page, Unanswered};
pub use reload::Changes;
pub use sandbox::Reach;
pub use server::{Bound, Handle, Origin, Server, Socket, Start};
pub use stopping::Stopping;
pub use upgrade::{Carried, HANDOVER, Heir, Program, Refuser, Upgraded};
pub use view::{BackendView, CheckView, InForce, ServerView, View};
