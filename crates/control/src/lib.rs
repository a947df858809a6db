//! The control plane: every change of the running process, from its start to its end.
//!
//! A [`Server`] runs one event loop on the thread that calls [`Server::run`] (`supervisor`). Signals, `watch`, the admin
//! API and `offramp ctl` send the same requests to it ([`Handle`], `request`), one at a time. There is one contract for
//! every change of the configuration (`transact`): it is read beside the one in force (`draft`), each service prepares a
//! step (`plan`), all mistakes are reported together, and only then every step is put in force, in one order (`commit`).
//! The start is the first change, made to services that serve nothing. Open connections do not change. Nothing here
//! touches the bytes of a connection.
//!
//! A part of the process that follows the configuration is a `Service` in a file of `services`: it sees its own part of
//! the configuration, prepares without changing anything, and commits without failing. The `ledger` has the
//! configuration in force, the changes that led to it, and the one that waits to be confirmed.
//!
//! | to find | look at |
//! | --- | --- |
//! | the meaning of a configuration for workers | `build` |
//! | files, certificates, keys of tokens and host names that are read | the crate [`offramp_sources`] |
//! | new certificates, when a source has changed | `refresh` |
//! | the sockets that stay, come and go | `socket_plan` (pure), `listeners` |
//! | the way back from a change | `confirmation` |
//! | the configuration in force after a crash | `autosave`, `resume` |
//! | what the file has | `config_file`, `differences` |
//! | the change of a single item of the text | `edits` |
//! | the process as other threads see it | `view`, `history`, `notes` |
//! | the end, and a second order to stop | `drain`, `stopping` |
//! | another process that takes over | `upgrade` |
//! | certificates of authorities | `acme` |
//! | notifications for operators | `notify` |
//! | the programs of the operator | `operator_program` |
//! | the operating system's view of the process | the crate [`offramp_process`] |
//!
//! A server in a process of its own takes a configuration, and runs until an order to stop:
//!
//! ```no_run
//! # fn example(start: offramp_control::Start) -> Result<(), offramp_process::Error> {
//! let server = offramp_control::Server::start(start)?;
//! let handle = server.handle();
//! std::thread::spawn(move || handle.reload());
//! let exit = server.run();
//! assert_eq!(exit.panicked, 0);
//! # Ok(())
//! # }
//! ```

mod acme;
mod autosave;
mod build;
mod change;
mod changes;
mod commit;
mod config_file;
mod confirmation;
mod connections;
mod data_plane;
mod differences;
mod draft;
mod drain;
mod edits;
mod emptied;
mod event_store;
mod figures;
mod heartbeat;
mod history;
mod inventory;
mod ledger;
mod listeners;
mod metrics;
mod notes;
mod notify;
mod operator_program;
pub mod outputs;
mod persist;
mod phases;
mod plan;
mod probes;
mod push;
mod refresh;
mod request;
mod resume;
mod running;
mod running_config;
mod server;
mod servers;
mod service;
mod services;
mod socket_plan;
mod stopping;
mod supervisor;
mod transact;
mod upgrade;
mod view;
mod warnings;

pub use acme::{
    AuthorityOrder, CaaFinding, CertificateOrder, DemandOrder, NameOrders, NameReach, ReachedAddress,
};
pub use acme::{CertificateOutlook, FailedOrder, Issued, OneOrder, control_socket, order_once};
pub use autosave::saved_document;
pub use build::{BuiltRoutes, ChosenRoute, check, check_files};
pub use change::{Change, NotChanged, Report, Terms};
pub use changes::Changes;
pub use drain::Exit;
pub use event_store::{EventStore, OpenStore, StoreFigures};
pub use history::{Applied, Closed, History, Kind as ChangeKind, Refused, Requester};
pub use inventory::{Inventory, Listed, certificates as inventory};
pub use notify::{ReceiverView, TrialOutcome};
pub use offramp_proxy::NetworkSet;
pub use offramp_proxy::credentials::user_line;
pub use offramp_proxy::live::{Filter, LiveConnection};
pub use offramp_proxy::{CloseReport, ConnectionPage, Connections, Cursor, StuckWorker};
pub use offramp_proxy::{DemandOutcome, DemandRefusal, DemandStanding};
pub use persist::{ReplaceError, replace_text};
pub use request::Handle;
pub use server::{Bound, Server, Socket, Start, StartFrom};
pub use services::Carried;
pub use stopping::Stopping;
pub use upgrade::{Heir, Upgraded};
pub use view::{BackendView, CheckView, InForce, ServerView, View};
