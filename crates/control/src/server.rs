//! The server as other crates see it: from its start to its end.

mod begin;
mod given;

use std::os::fd::OwnedFd;

use offramp_config::{Config, Environment};
use offramp_net::{Address, listen};
use offramp_observe::prometheus::Build;
use offramp_observe::{Log, Panics};
use offramp_process::inherited::{Inherited, Purpose};
use offramp_process::sandbox::Reach;
use offramp_process::upgrade::Predecessor;
use offramp_process::{Error, Helper, Origin, Program, ServiceManager};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::drain::{Exit, drain};
use crate::event_store::OpenStore;
use crate::history::History;
use crate::outputs::Streams;
use crate::request::{Handle, RequestQueue};
use crate::running::Running;
use crate::services::Carried;
use crate::supervisor::Supervisor;
use crate::upgrade::Heir;
use crate::view::View;

/// The parts that a server is started with.
pub struct Start {
    /// The configuration, with what its absent keys imply filled in.
    pub config: Config,
    /// The origin of the next one.
    pub origin: Origin,
    /// The defaults of absent keys in the next one; the same as for `config`.
    pub environment: Environment,
    /// The log of the program itself, open as `config` has it; see [`crate::outputs::log`].
    pub log: Log,
    /// The standard streams.
    pub streams: Streams,
    /// The panics of the process, for the metrics.
    pub panics: Panics,
    /// Called with the names and addresses of the listeners once sockets are bound and keys are read: clients that
    /// connect from then on are served. What takes time comes afterwards.
    pub bound: Option<Bound>,
    /// The program, for the metrics.
    pub build: Build,
    /// Opens the log store of the configuration; without, a configuration that has one is refused.
    pub open_store: Option<OpenStore>,
    /// The program that an upgrade starts; without, it is refused.
    pub program: Option<Program>,
    /// The helper that starts programs for this process, which then forbids itself what it does not need, as the configuration
    /// has it. Without, nothing is forbidden: for servers in processes that have threads already.
    pub helper: Option<Helper>,
    /// The needs of the process beside those of its configuration: those of its log store.
    pub also: Reach,
    /// The configuration to start with.
    pub from: StartFrom,
    /// The service manager's part in the process.
    pub manager: ServiceManager,
    /// Set to obey SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2. Without, only a [`Handle`] commands.
    pub signals: bool,
}

/// The origin of the first configuration in force; [`Start::config`] is that of the file in any case.
#[derive(Debug)]
pub enum StartFrom {
    /// The file, or the command line.
    File,
    /// The configuration that was in force when the process before ended, where the file was not changed since.
    Autosave,
    /// The hand-over of the process that this one replaces.
    Predecessor(Box<Heir>),
}

impl StartFrom {
    /// The hand-over of the process that this one replaces.
    pub(crate) fn heir(&self) -> Option<&Heir> {
        match self {
            Self::Predecessor(heir) => Some(heir),
            Self::File | Self::Autosave => None,
        }
    }
}

/// The callback for the time when sockets are bound.
pub type Bound = Box<dyn FnOnce(&[(String, Address)])>;

/// A listening socket that another process has opened.
#[derive(Debug)]
pub struct Socket {
    /// The socket.
    pub fd: OwnedFd,
    /// Set where the service manager keeps it too: the file of a Unix socket is not ours then.
    pub foreign: bool,
}

/// A running proxy.
pub struct Server {
    runtime: Runtime,
    running: Running,
    queue: RequestQueue,
    handle: Handle,
    inherited: Inherited,
    /// The process that this one replaces.
    before: Option<Predecessor>,
}

impl Server {
    /// Starts everything. When it returns, connections are accepted.
    ///
    /// The order is: descriptor limit, sockets, keys, [`Start::bound`], AEADs, user, sandbox, logs, workers. It blocks
    /// until host names are looked up, at most five seconds.
    ///
    /// # Errors
    /// Everything that stands in the way of sockets and keys at once; else the first that does.
    pub fn start(start: Start) -> Result<Self, Error> {
        begin::begin(start)
    }

    /// The addresses that are listened on, ports that the kernel picked included, with the names of
    /// their listeners.
    #[must_use]
    pub fn addresses(&self) -> Vec<(String, Address)> {
        self.running.services.listeners.addresses()
    }

    /// The address of the metrics, if they are served.
    #[must_use]
    pub fn metrics_address(&self) -> Option<&Address> {
        self.running.services.metrics.address()
    }

    /// The socket at this address that the process before hands over, or that the service manager has opened there or
    /// under this name: for something to be [carried](Self::carry).
    #[must_use]
    pub fn inherited_socket(&mut self, name: &str, address: &Address) -> Option<Socket> {
        let set = self.inherited.for_address(Purpose::Carried, name, address)?;
        let foreign = set.label.foreign;
        Some(Socket { fd: listen::adopt(set.fds, 1).ok()?.pop()?, foreign })
    }

    /// Keeps something that listens on a socket of its own until the server ends, or another process takes the socket.
    pub fn carry(&mut self, carried: Box<dyn Carried>) {
        self.running.services.admin.carry(carried);
    }

    /// A handle that controls this server from any thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Its view, readable from any thread.
    #[must_use]
    pub fn view(&self) -> View {
        self.running.view.clone()
    }

    /// The latest changes of the configuration, readable from any thread.
    #[must_use]
    pub fn history(&self) -> History {
        self.running.ledger.history().clone()
    }

    /// Tells the service manager that everything is ready, and the process before if there is one; runs until a request
    /// to stop or until another process has taken over, drains, and returns how that went. Uses the calling thread. Open
    /// everything else that must exist from the start before this call.
    #[must_use]
    pub fn run(self) -> Exit {
        // Once this sender is dropped, the queue notices when the last handle is gone.
        let Self { runtime, running, mut queue, handle, inherited, before } = self;
        drop(handle);
        if let Some(before) = before {
            // The sockets that are left are closed here: the process before serves the clients in their queues.
            let left: Vec<usize> = inherited.left().collect();
            drop(inherited);
            before.take_over(&left);
            running.services.acme.begin();
        } else {
            for (name, address) in inherited.rest() {
                let fields = [("name", name.into()), ("address", address.into())];
                running.log.warn("a socket of the service manager belongs to no listener", &fields);
            }
            drop(inherited);
        }
        let checks =
            running.services.probes.checks(running.plane.shared.current.clone(), running.log.clone());
        let local = LocalSet::new();
        local.spawn_local(checks);
        let exit = runtime.block_on(local.run_until(async {
            let (running, cause) = Supervisor::new(running, &mut queue).run().await;
            drain(running, &mut queue, &cause).await
        }));
        // A look-up that hangs must not hold up the end.
        runtime.shutdown_background();
        exit
    }
}
