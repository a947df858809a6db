//! What passes from a process to the one that takes its place, beside the sockets: as JSON, in memory that both see.
//!
//! A field that is not there has its default, and one that is not known is skipped. So a field may be added without
//! another version of the hand-over; a changed meaning needs another version.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use offramp_config::Config;
use offramp_observe::{Counters, KnownClients, Log};
use offramp_process::{Error, Source, none_or_refused};
use offramp_proxy::Snapshot;
use offramp_sources::access::AccessFiles;
use offramp_sources::jwks::KnownKeys;
use offramp_sources::resolve::{KnownName, Names};
use offramp_tls::TicketKeys;
use offramp_upstream::health::HealthHandover;
use serde::{Deserialize, Serialize};

use super::kept_changes::KeptChanges;
use crate::config_file::FileRead;
use crate::differences::{self, summary};
use crate::emptied;
use crate::notify::{KnownReceiver, NotifyRegistry};
use crate::running_config::RunningConfig;

/// All of it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// The keys of session tickets, and when the next key is due.
    pub(super) tickets: Option<Tickets>,
    /// The health of servers.
    pub(super) servers: Vec<Server>,
    /// The addresses of host names.
    pub(super) names: Vec<KnownName>,
    /// The keys of tokens that were fetched.
    pub(super) keys: Vec<KnownKeys>,
    /// Changes in force that the file does not have.
    #[serde(flatten)]
    pub(super) changes: KeptChanges,
    /// The numbers of routes and written listeners; see [`crate::emptied`].
    pub(super) numbers: [usize; 2],
    /// Set if the autosave has a configuration that is not in force.
    pub(crate) autosave_unused: bool,
    /// The heaviest clients.
    pub(super) clients: Clients,
    /// The knowledge of receivers of notifications.
    pub(super) receivers: Vec<KnownReceiver>,
}

/// The heaviest clients, as [`offramp_observe::KnownClients`] has them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Clients {
    anonymized: bool,
    floors: [u64; 4],
    /// In hexadecimal digits, with the figures of each.
    above: Vec<(String, [u64; 4])>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tickets {
    keys: String,
    rotate_in_ms: Option<u64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Server {
    backend: String,
    server: String,
    down: bool,
    against: u32,
    draining: bool,
    in_a_row: u32,
    ejection: Option<(u64, u64)>,
    returned: u64,
}

/// Everything that a new process is to know.
pub(crate) struct Known<'a> {
    pub(crate) tickets: &'a TicketKeys,
    /// The time until the next ticket key.
    pub(crate) rotate_in: Option<Duration>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) config: &'a Config,
    pub(crate) names: &'a Names,
    pub(crate) access: &'a AccessFiles,
    pub(crate) counters: &'a Counters,
    /// The changes that the file does not have.
    pub(crate) changes: KeptChanges,
    /// Set if the autosave has a configuration that is not in force.
    pub(crate) autosave_unused: bool,
    /// The receivers of notifications.
    pub(crate) registry: &'a NotifyRegistry,
}

impl State {
    /// The state of this process.
    pub(crate) fn of(known: Known<'_>) -> Self {
        let Known {
            tickets,
            rotate_in,
            snapshot,
            config,
            names,
            access,
            counters,
            changes,
            autosave_unused,
            registry,
        } = known;
        let rotate_in_ms = rotate_in.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        let tickets = tickets.hand_over().map(|keys| Tickets { keys: STANDARD.encode(&*keys), rotate_in_ms });
        let servers = snapshot.backends.iter().flat_map(|backend| {
            backend.health.iter().map(|health| {
                let HealthHandover { down, against, draining, in_a_row, ejection, returned } = health.known();
                let (backend, server) = (backend.name.to_string(), health.name().to_string());
                Server { backend, server, down, against, draining, in_a_row, ejection, returned }
            })
        });
        let (names, keys) = (names.known(), access.known_keys());
        let servers = servers.collect();
        let (numbers, clients) = (emptied::numbers(config), Clients::of(&counters.known_clients()));
        let receivers = registry.give();
        Self { tickets, servers, names, keys, changes, numbers, autosave_unused, clients, receivers }
    }

    /// Has an upgrade lose what the file does not have.
    pub(crate) fn forced(self) -> Self {
        Self { changes: KeptChanges::default(), numbers: [0; 2], ..self }
    }

    /// The configuration to start with: `base`, which was read from the file, with the changes that it does not have.
    ///
    /// # Errors
    /// It would take everything down, or such a change cannot be made to it.
    pub(crate) fn take_over_changes(
        &self,
        base: RunningConfig,
        read: &FileRead,
        source: &Source,
        log: &Log,
    ) -> Result<RunningConfig, Error> {
        none_or_refused(emptied::look_at(self.numbers, &read.config))?;
        let running = self.changes.take_over(base, read, source)?;
        let lines = differences::lines(&read.config, &running.config);
        if !lines.is_empty() {
            let lines = summary(&lines);
            let fields = [("changes", (&lines).into())];
            log.warn("changes that the file does not have were taken over; --persist writes them", &fields);
        }
        Ok(running)
    }

    /// Has the heaviest clients of the process before go on here.
    pub(crate) fn recall_clients(&self, counters: &Counters) {
        counters.recall_clients(&self.clients.known());
    }

    /// Has the receivers of notifications told nothing that the process before has told.
    pub(crate) fn recall_receivers(&self, registry: &NotifyRegistry) {
        registry.recall(&self.receivers);
    }

    /// The keys of session tickets: those of the process before, if there are any.
    pub(crate) fn ticket_keys(&self, config: &Config, log: &Log) -> Result<TicketKeys, Error> {
        let rotation = config.tls.ticket_rotation;
        if let Some(tickets) = &self.tickets {
            let keys = STANDARD.decode(&tickets.keys).ok();
            match keys.and_then(|keys| TicketKeys::inherit(rotation, &keys)) {
                Some(keys) => return Ok(keys),
                None => log.warn(
                    "the ticket keys of the process before cannot be used: clients make full handshakes",
                    &[],
                ),
            }
        }
        TicketKeys::new(rotation).map_err(|error| Error::one(error.to_string()))
    }

    /// The time until the keys that came need a new one.
    pub(crate) fn rotate_in(&self) -> Option<Duration> {
        self.tickets.as_ref().and_then(|tickets| tickets.rotate_in_ms).map(Duration::from_millis)
    }

    /// Tells the backends of the first snapshot what is known of their servers, and routes the keys of tokens.
    pub(crate) fn recall(&self, snapshot: &Snapshot, names: &Names, access: &AccessFiles) {
        for known in &self.servers {
            let backend = snapshot.backends.iter().find(|backend| *backend.name == *known.backend);
            let named = |backend: &Arc<offramp_upstream::Backend>| {
                backend.health.iter().find(|health| **health.name() == *known.server).cloned()
            };
            let Some((backend, health)) = backend.and_then(|backend| Some((backend, named(backend)?))) else {
                continue;
            };
            // A state that is not checked or counted any more would never change again.
            let (checked, counted) = (backend.check.is_some(), backend.ejection.is_some());
            health.recall(&HealthHandover {
                down: checked && known.down,
                against: if checked { known.against } else { 0 },
                draining: known.draining,
                in_a_row: if counted { known.in_a_row } else { 0 },
                ejection: known.ejection.filter(|_| counted),
                returned: known.returned,
            });
        }
        names.recall(&self.names);
        access.recall(&self.keys);
    }
}

impl Clients {
    fn of(known: &KnownClients) -> Self {
        let above = known.above.iter().map(|(client, figures)| (format!("{client:x}"), *figures));
        Self { anonymized: known.anonymized, floors: known.floors, above: above.collect() }
    }

    fn known(&self) -> KnownClients {
        let client = |(text, figures): &(String, [u64; 4])| {
            u128::from_str_radix(text, 16).ok().map(|client| (client, *figures))
        };
        KnownClients {
            anonymized: self.anonymized,
            floors: self.floors,
            above: self.above.iter().filter_map(client).collect(),
        }
    }
}
