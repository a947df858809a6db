//! What passes from a process to the one that takes its place, beside the sockets: as JSON, in memory that both see.
//!
//! A field that is not there has its default, and one that is not known is skipped. So a field may be added without
//! another version of the hand-over; one whose meaning changes needs another version.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use offramp_config::Config;
use offramp_observe::{Counters, KnownClients, Log};
use offramp_proxy::Snapshot;
use offramp_tls::TicketKeys;
use offramp_upstream::health::Known;
use serde::{Deserialize, Serialize};

use crate::access::AccessFiles;
use crate::emptied;
use crate::error::{Error, none_or_refused};
use crate::inherited::Label;
use crate::jwks::KnownKeys;
use crate::outputs;
use crate::resolve::{KnownName, Names};
use crate::running::{Ground, Source};
use crate::unwritten::{Unwritten, few};

/// All of it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// The sockets, in the order of their descriptors.
    pub(crate) sockets: Vec<Sockets>,
    /// The keys of session tickets, and when the next key is due.
    pub(super) tickets: Option<Tickets>,
    /// What is known of servers.
    pub(super) servers: Vec<Server>,
    /// The addresses of host names.
    pub(super) names: Vec<KnownName>,
    /// The keys of tokens that were fetched.
    pub(super) keys: Vec<KnownKeys>,
    /// Changes in force that the file does not have, as [`offramp_config::Edit::to_text`] has them.
    pub(super) unwritten: Vec<String>,
    /// How many routes and written listeners there are; see [`crate::emptied`].
    pub(super) numbers: [usize; 2],
    /// The heaviest clients.
    pub(super) clients: Clients,
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

/// The sockets of one address.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sockets {
    #[serde(flatten)]
    pub(crate) label: Label,
    /// How many descriptors it has.
    pub(crate) count: usize,
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

impl State {
    /// What this process knows.
    pub(crate) fn of(
        sockets: Vec<Sockets>,
        rotate_in: Option<Duration>,
        (snapshot, config): (&Snapshot, &Config),
        (ground, counters): (&Ground, &Counters),
        unwritten: Vec<String>,
    ) -> Self {
        let rotate_in_ms = rotate_in.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        let tickets =
            ground.tickets.hand_over().map(|keys| Tickets { keys: STANDARD.encode(&*keys), rotate_in_ms });
        let servers = snapshot.backends.iter().flat_map(|backend| {
            backend.health.iter().map(|health| {
                let Known { down, against, draining, in_a_row, ejection, returned } = health.known();
                let (backend, server) = (backend.name.to_string(), health.name().to_string());
                Server { backend, server, down, against, draining, in_a_row, ejection, returned }
            })
        });
        let (names, keys) = (ground.names.known(), ground.sources.access.known_keys());
        let servers = servers.collect();
        let (numbers, clients) = (emptied::numbers(config), Clients::of(&counters.known_clients()));
        Self { sockets, tickets, servers, names, keys, unwritten, numbers, clients }
    }

    /// Has an upgrade lose what the file does not have.
    pub(crate) fn forced(self) -> Self {
        Self { unwritten: Vec::new(), numbers: [0; 2], ..self }
    }

    /// The configuration of the file, with the changes that it does not have.
    ///
    /// # Errors
    /// It would take everything down, or such a change cannot be made to it.
    pub(crate) fn with_unwritten(
        &self,
        config: Config,
        source: &Source,
        log: &Log,
    ) -> Result<(Config, Unwritten), Error> {
        none_or_refused(emptied::look_at(self.numbers, &config))?;
        let read = (source.origin.path(), &source.environment);
        let (config, unwritten) = Unwritten::take_over(config, &self.unwritten, read)?;
        if unwritten.count() > 0 {
            let lines = few(unwritten.lines());
            let fields = [("changes", (&lines).into())];
            log.warn("changes that the file does not have were taken over; --persist writes them", &fields);
            log.set_level(outputs::log(&config.log, source.journal).2);
        }
        Ok((config, unwritten))
    }

    /// Has the heaviest clients of the process before go on here.
    pub(crate) fn recall_clients(&self, counters: &Counters) {
        counters.recall_clients(&self.clients.known());
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

    /// When the keys that came are due for a new one.
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
            // What nobody checks or counts any more would never change again.
            let (checked, counted) = (backend.check.is_some(), backend.ejection.is_some());
            health.recall(&Known {
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
