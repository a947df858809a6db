//! The process as the operating system sees it: its user and limits, its signals, the programs that it starts, and the
//! process that takes its place.
//!
//! The control plane decides when something happens; this crate knows how it is done. It reads the configuration for what
//! it names (files, ports, the user), and nothing of connections, snapshots or workers. System calls are those of
//! [`offramp_net`].
//!
//! The main types:
//!
//! - [`Helper`] is a small process, forked before there are keys or threads. It starts the two kinds of programs that
//!   Offramp starts: itself for an upgrade, and DNS hooks. The process itself then forbids itself to start any.
//! - [`Confinement`](sandbox::Confinement) is the sandbox that the process is in: what its first configuration needed, and
//!   no more ([`sandbox::enter`]). Later configurations are compared with it.
//! - [`Inherited`](inherited::Inherited) has the listening sockets that another process or the service manager has opened,
//!   until each is taken by what the configuration wants.
//! - [`Attempt`](upgrade::Attempt) starts the process that takes over, and [`Takeover`](upgrade::Takeover) is the same
//!   conversation at its other end.
//! - [`Error`] is a refusal with all of its [`Finding`]s, each with its place in the configuration: the error type of this
//!   crate and of those that prepare configurations above it.
//!
//! A start uses them in this order, since each step forbids what those before it need:
//!
//! ```no_run
//! use std::path::PathBuf;
//!
//! use offramp_config::{Config, Environment};
//! use offramp_observe::Log;
//! use offramp_process::sandbox::{self, Reach, Scope};
//! use offramp_process::{Error, Helper, Origin, Program, Source, descriptors, privileges};
//!
//! fn start(config: &Config, program: Program, log: &Log) -> Result<(), Error> {
//!     let helper = Helper::fork(program.clone()).ok();
//!     let source = Source {
//!         origin: Origin::File(PathBuf::from("/etc/offramp/offramp.toml")),
//!         environment: Environment::default(),
//!     };
//!     descriptors::raise(log);
//!     let user = privileges::find(config.process.user.as_ref(), &source.origin, log)?;
//!     // Here sockets are bound and keys are read. Then:
//!     if let Some(user) = &user {
//!         privileges::assume(user, config, &source.origin)?;
//!     }
//!     let scope = Scope { source: &source, program: Some(&program), also: &Reach::default() };
//!     let confinement = sandbox::enter(config, helper, scope, user.as_ref(), log)?;
//!     // Threads that begin from here on are restricted as this one is. A later configuration:
//!     let denied = sandbox::beyond(&confinement, config);
//!     assert!(denied.is_empty(), "the first one is within its own bounds");
//!     Ok(())
//! }
//! ```
//!
//! # Modules
//!
//! - `error`: findings about a configuration, and the refusal that has all of them
//! - `origin`: the file or command line that configurations come from
//! - `program`, `helper`: programs that Offramp starts, and the process that starts them
//! - [`sandbox`]: restrictions by Landlock, seccomp and capabilities; `needs` (pure) follows the configuration, `grants` the
//!   disk
//! - [`privileges`]: the user that root becomes; [`descriptors`]: the limit of open files
//! - [`state_dir`]: the state directory and its secrets; [`standard_stream`]: paths that lead to standard output or error
//! - [`inherited`]: sockets that came, and those that are offered; `service_manager`: what systemd gives
//! - [`upgrade`]: the conversation of a process with the one that takes its place
//! - [`signals`]: signals as events; [`watchdog`]: signs of life; [`supervise`]: tasks that begin anew after a panic

pub mod descriptors;
pub mod inherited;
pub mod privileges;
pub mod sandbox;
pub mod signals;
pub mod standard_stream;
pub mod state_dir;
pub mod supervise;
pub mod upgrade;
pub mod watchdog;

mod error;
mod helper;
mod origin;
mod program;
mod service_manager;

pub use error::{Error, Finding, Findings, log_warnings, none_or_refused};
pub use helper::{Helper, StartedProgram};
pub use origin::{Origin, Source};
pub use program::{HANDOVER, Program, challenge_record, dns_hook, receiver_program};
pub use service_manager::ServiceManager;
