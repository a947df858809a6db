//! The snapshot: the configuration as workers read it, and the parts that outlive one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::store::CertificateStore;
use offramp_config::Config;
use offramp_config::model::{self, ServerState};
use offramp_process::{Error, Finding};
use offramp_proxy::{Current, Snapshot};
use offramp_record::LibraryChoice;
use offramp_record::aead::Library;
use offramp_sources::certificates::Sources;
use offramp_sources::contents::Contents;
use offramp_sources::resolve::Names;
use offramp_tls::TicketKeys;
use offramp_upstream::Duty;

use crate::acme::Want;
use crate::build::{Built, Inputs, Material, build_with, rebuild};
use crate::data_plane::DataPlane;
use crate::service::{Service, Way};

/// The snapshot in force.
pub(crate) struct Snapshots {
    current: Current,
    pub(crate) carryover: Carryover,
}

/// The parts that outlive a snapshot and go into the next one.
pub(crate) struct Carryover {
    generation: u64,
    /// The AEAD library for each suite.
    choice: LibraryChoice,
    pub(crate) store: Arc<CertificateStore>,
    /// Everything that was read from the sources of certificates.
    pub(crate) sources: Sources,
    pub(crate) names: Names,
    /// The files that routes answer with.
    pub(crate) contents: Contents,
    /// The warnings of the certificates in use.
    pub(crate) warnings: Vec<Finding>,
}

/// The snapshot that a change wants.
pub(crate) struct SnapshotWanted<'a> {
    pub(crate) config: &'a Config,
    /// Everything that was read from the sources of its certificates.
    pub(crate) material: Material,
    /// The files that routes answer with, as they were read before; `None`: they are read.
    pub(crate) contents: Option<&'a Contents>,
    /// The time by which certificates are judged.
    pub(crate) now: SystemTime,
    /// Set where the local CA may issue; without, nothing is written.
    pub(crate) mint: bool,
    pub(crate) tickets: &'a Arc<TicketKeys>,
}

/// A snapshot that was built.
pub(crate) struct SnapshotStep {
    pub(crate) built: Built,
    duties: Duties,
}

/// The outcome of a change of certificates alone.
pub(crate) struct Swapped {
    /// The number of certificates that were not in use before.
    pub(crate) new_certificates: usize,
    /// The certificates that authorities are to issue.
    pub(crate) wants: Vec<Want>,
}

impl Snapshots {
    /// Nothing is served yet.
    pub(crate) fn new(current: Current) -> Self {
        let carryover = Carryover {
            generation: 0,
            // Until it is measured.
            choice: LibraryChoice::always(Library::AwsLc),
            store: Arc::default(),
            sources: Sources::default(),
            names: Names::default(),
            contents: Contents::default(),
            warnings: Vec::new(),
        };
        Self { current, carryover }
    }

    /// The number of certificates of a step that are not in use yet.
    pub(crate) fn new_certificates(&self, step: &SnapshotStep) -> usize {
        new_certificates(&self.carryover.store, &step.built.store)
    }

    /// Uses these AEAD libraries, from `step` on.
    pub(crate) fn choose(&mut self, choice: LibraryChoice, step: &mut SnapshotStep) {
        self.carryover.choice = choice;
        step.built.snapshot.choose(choice);
    }

    /// Replaces the snapshot by one that differs by its certificates alone.
    ///
    /// # Errors
    /// They cannot be used.
    pub(crate) fn swap_certificates(
        &mut self,
        config: &Config,
        tickets: &Arc<TicketKeys>,
        material: Material,
        now: SystemTime,
    ) -> Result<Swapped, Error> {
        let current = self.current.load_full();
        let contents = Some(&self.carryover.contents);
        let inputs = self.inputs(&current, tickets, contents, Reading { now, mint: true });
        let Built { mut snapshot, store, sources, wants, .. } = rebuild(config, &inputs, material)?;
        // The configuration is the same, so that each is in its place. Only those with changed TLS are replaced:
        // the others keep their connections, their sessions and all that they have learnt.
        for (built, current) in snapshot.backends.iter_mut().zip(&current.backends) {
            if built.has_connectors_of(current) {
                built.clone_from(current);
            }
        }
        for (socket, served) in &current.sockets {
            if let Some(listener) = snapshot.listeners.get(&served.name).cloned() {
                snapshot.sockets.insert(*socket, listener);
            }
        }
        let new_certificates = new_certificates(&self.carryover.store, &store);
        self.carryover.generation = snapshot.generation;
        self.current.replace(snapshot);
        (self.carryover.store, self.carryover.sources) = (store, sources);
        Ok(Swapped { new_certificates, wants })
    }

    fn inputs<'a>(
        &'a self,
        current: &'a Snapshot,
        tickets: &'a Arc<TicketKeys>,
        contents: Option<&'a Contents>,
        Reading { now, mint }: Reading,
    ) -> Inputs<'a> {
        let Carryover { generation, choice, sources, names, .. } = &self.carryover;
        Inputs {
            now,
            generation: generation + 1,
            choice: *choice,
            tickets,
            names,
            backends: &current.backends,
            bandwidths: &current.bandwidths,
            sources,
            contents,
            mint,
        }
    }
}

/// The circumstances under which files are read.
struct Reading {
    now: SystemTime,
    mint: bool,
}

impl Carryover {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Service for Snapshots {
    type Wanted<'a> = SnapshotWanted<'a>;
    type Step = SnapshotStep;

    fn prepare(&self, wanted: SnapshotWanted<'_>, _: Way) -> Result<SnapshotStep, Vec<Finding>> {
        let SnapshotWanted { config, material, contents, now, mint, tickets } = wanted;
        let current = self.current.load();
        let inputs = self.inputs(&current, tickets, contents, Reading { now, mint });
        let built = build_with(config, &inputs, material).map_err(|error| error.findings().to_vec())?;
        Ok(SnapshotStep { built, duties: Duties::of(&config.backends) })
    }

    /// The snapshot must have its sockets.
    fn commit(&mut self, step: SnapshotStep, _: &DataPlane) {
        let SnapshotStep { built, duties } = step;
        let Built { snapshot, store, sources, names, contents, warnings, .. } = built;
        duties.settle(&snapshot);
        let (generation, choice) = (snapshot.generation, snapshot.choice);
        self.current.replace(snapshot);
        self.carryover = Carryover { generation, choice, store, sources, names, contents, warnings };
    }
}

/// The servers of each backend that leave it, or have left it.
struct Duties(HashMap<String, Vec<(String, Duty)>>);

impl Duties {
    fn of(backends: &[model::BackendConfig]) -> Self {
        let mut leaving: HashMap<String, Vec<(String, Duty)>> = HashMap::new();
        for backend in backends {
            for server in &backend.servers {
                let duty = match server.state {
                    ServerState::Enabled => continue,
                    ServerState::Drain => Duty::Drains,
                    ServerState::Disabled => Duty::Disabled,
                };
                let servers = leaving.entry(backend.name.to_string()).or_default();
                servers.push((server.address.to_string(), duty));
            }
        }
        Self(leaving)
    }

    /// Has the servers of a snapshot that comes into use serve, drain, or do nothing.
    fn settle(&self, snapshot: &Snapshot) {
        for backend in &snapshot.backends {
            let leaving = self.0.get(&*backend.name).map_or(&[][..], Vec::as_slice);
            backend.settle(|server| {
                leaving.iter().find(|(name, _)| name == server).map_or(Duty::Serves, |(_, duty)| *duty)
            });
        }
    }
}

/// The number of certificates of `new` that are not in `old`.
fn new_certificates(old: &CertificateStore, new: &CertificateStore) -> usize {
    let known: HashSet<&[u8]> =
        old.certificates().filter_map(|one| one.certified_key.cert.first().map(AsRef::as_ref)).collect();
    let is_new = |der: &&[u8]| !known.contains(der);
    new.certificates()
        .filter_map(|one| one.certified_key.cert.first().map(AsRef::as_ref))
        .filter(is_new)
        .count()
}
