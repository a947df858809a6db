//! The backends of a configuration. A server that is written in a route is a backend of one, which is
//! named by its address; routes to the same address share it.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use offramp_config::Config;
use offramp_config::model::{self, ServerAddress};
use offramp_net::Address;
use offramp_upstream::{Backend, Candidate, Picker, Server, Target};

use crate::resolve::Names;

/// Backends as they are collected: the named ones, then those of one server.
pub(super) struct Backends<'a> {
    list: Vec<Arc<Backend>>,
    named: HashMap<&'a str, usize>,
    inline: HashMap<ServerAddress, usize>,
    names: Names,
    known: &'a Names,
}

impl<'a> Backends<'a> {
    /// The named backends. `known` are the host names whose addresses are kept.
    pub(super) fn of(config: &'a Config, known: &'a Names) -> Self {
        let mut this = Self {
            list: Vec::new(),
            named: HashMap::new(),
            inline: HashMap::new(),
            names: Names::default(),
            known,
        };
        for backend in &config.backends {
            let place = this.add(backend.name.as_str(), &backend.servers);
            this.named.insert(backend.name.as_str(), place);
        }
        this
    }

    /// The place of a named backend.
    pub(super) fn named(&self, name: &model::Name) -> Option<usize> {
        self.named.get(name.as_str()).copied()
    }

    /// The place of the backend of this server alone.
    pub(super) fn inline(&mut self, address: &ServerAddress) -> usize {
        if let Some(place) = self.inline.get(address) {
            return *place;
        }
        let place = self.add(&address.to_string(), &[model::Server::new(address.clone())]);
        self.inline.insert(address.clone(), place);
        place
    }

    /// All of them, and the host names in them.
    pub(super) fn finish(self) -> (Vec<Arc<Backend>>, Names) {
        (self.list, self.names)
    }

    fn add(&mut self, name: &str, servers: &[model::Server]) -> usize {
        let candidate = |server: &model::Server| Candidate {
            // A weight is at least 1.
            weight: NonZeroU16::new(server.weight.get()).unwrap_or(NonZeroU16::MIN),
            backup: server.backup,
        };
        let picker = Arc::new(Picker::new(servers.iter().map(candidate)));
        let servers = servers
            .iter()
            .map(|server| Server {
                name: server.address.to_string().into(),
                target: self.target(&server.address),
            })
            .collect();
        self.list.push(Arc::new(Backend { name: name.into(), servers, picker }));
        self.list.len() - 1
    }

    fn target(&mut self, address: &ServerAddress) -> Target {
        match address {
            ServerAddress::Unix(path) => Target::Fixed(Address::Unix(path.clone())),
            ServerAddress::Ip(address) => Target::Fixed(Address::Tcp(*address)),
            ServerAddress::Name { host, port } => Target::Resolved(self.names.cell(self.known, host, *port)),
        }
    }
}
