//! Sections with `mode tcp`: routes of connections, by server name or for all.

use offramp_config::model::HostPattern;

use super::HaproxyLowering;
use super::binds::BoundListener;
use super::conditions::AclTest;
use super::lines::Line;
use super::proxies::ProxySection;
use super::rules::RuleAct;
use crate::draft::{DraftKeys, DraftRoute, list, quoted};
use crate::report::Fate;

impl<'a> HaproxyLowering<'a> {
    /// The routes of a section that accepts connections.
    pub(super) fn connections(&mut self, section: &ProxySection<'a>, binds: &[BoundListener]) {
        let Some(access) = self.networks(section) else { return };
        for line in section.all("timeout server") {
            self.note(line, Fate::changed("`idle_timeout` of [limits] holds in both directions"));
        }
        let mut rest: Option<(&'a Line, String)> = None;
        for rule in &section.rules {
            let RuleAct::Backend(name) = &rule.act else { continue };
            let terms: Vec<_> = rule.condition.terms().collect();
            if terms.is_empty() {
                rest.get_or_insert((rule.line, name.clone()));
                continue;
            }
            let by_name = rule.condition.0.iter().map(|list| match &list[..] {
                [term] if !term.negated => match &term.test {
                    AclTest::Hosts(hosts) => Some(hosts.clone()),
                    _ => None,
                },
                _ => None,
            });
            let Some(hosts) = by_name.collect::<Option<Vec<_>>>() else {
                if rule.condition.unknown().is_none() {
                    self.refuse(
                        rule.line,
                        "connections are routed by server name alone",
                        "write a route by `host`",
                    );
                }
                continue;
            };
            let mut hosts = hosts.concat();
            if !hosts.iter().all(|host| host.parse::<HostPattern>().is_ok()) {
                self.refuse(rule.line, "hosts are names or `*.` and a name", "write the names");
                hosts.retain(|host| host.parse::<HostPattern>().is_ok());
            }
            if hosts.is_empty() {
                continue;
            }
            self.lead(rule.line, name, binds, &hosts, &access);
        }
        let own = section.has_servers.then(|| (section.head(), section.name().to_owned()));
        match rest.or(own) {
            Some((line, name)) => self.lead(line, &name, binds, &[], &access),
            None if section.rules.is_empty() => {
                self.refuse(section.head(), "it leads to no server", "write a route");
            }
            None => {}
        }
    }

    /// The networks of `tcp-request … reject`; nothing if they cannot be said.
    fn networks(&mut self, section: &ProxySection<'a>) -> Option<DraftKeys> {
        let mut keys = DraftKeys::new();
        for rule in section.rules.iter().filter(|rule| matches!(rule.act, RuleAct::Deny(_))) {
            for terms in &rule.condition.0 {
                let (key, networks) = match &terms[..] {
                    [term] => match &term.test {
                        AclTest::Clients(networks) => (if term.negated { "allow" } else { "deny" }, networks),
                        AclTest::Unknown { guards: false, .. } => continue,
                        _ => return self.unsayable(rule.line),
                    },
                    _ => return self.unsayable(rule.line),
                };
                if keys.iter().any(|(known, _)| known == key) {
                    return self.unsayable(rule.line);
                }
                keys.push((key.to_owned(), list(networks)));
            }
        }
        Some(keys)
    }

    fn unsayable(&mut self, line: &'a Line) -> Option<DraftKeys> {
        self.refuse(
            line,
            "connections are refused by network alone",
            "write `allow` or `deny` in the route; it is left out until then",
        );
        None
    }

    fn lead(
        &mut self,
        line: &'a Line,
        name: &str,
        binds: &[BoundListener],
        hosts: &[String],
        access: &DraftKeys,
    ) {
        for bind in binds {
            // A listener that reads names for other routes reads them for all.
            let alone = if hosts.is_empty() && !bind.tls && self.reads_hello(&bind.name) {
                self.single(name)
            } else {
                None
            };
            let mut keys = if let Some(server) = alone {
                vec![("passthrough".to_owned(), quoted(&server))]
            } else if hosts.is_empty() || bind.tls {
                let Some(keys) = self.backend(name, line) else { return };
                keys
            } else {
                self.read_hello(&bind.name);
                let Some(server) = self.single(name) else {
                    let remedy = "name its address in `passthrough`, or end TLS here with a [[certificate]]";
                    self.refuse(line, "`passthrough` leads to one server", remedy);
                    return;
                };
                vec![("passthrough".to_owned(), quoted(&server))]
            };
            keys.extend(access.iter().cloned());
            keys.extend(bind.route_keys.iter().cloned());
            let item = self.item(line, keys);
            let listeners = vec![bind.name.clone()];
            self.draft.add_route(DraftRoute { listeners, hosts: hosts.to_vec(), path: None, item });
        }
    }

    /// The only server of a backend.
    fn single(&mut self, name: &str) -> Option<String> {
        let section = self.backend_section(name)?;
        let servers = section.own("server");
        let [server] = servers[..] else { return None };
        self.take(server);
        self.take(section.head());
        Some(server.word(2).to_owned())
    }

    /// Has a listener read the ClientHello.
    fn read_hello(&mut self, listener: &str) {
        let name = ("name".to_owned(), quoted(listener));
        for item in self.draft.listeners.iter_mut().filter(|item| item.keys.contains(&name)) {
            item.keys.retain(|(key, _)| key != "tls");
        }
    }

    fn reads_hello(&self, listener: &str) -> bool {
        let name = ("name".to_owned(), quoted(listener));
        let mut found = self.draft.listeners.iter().filter(|item| item.keys.contains(&name));
        found.any(|item| !item.keys.iter().any(|(key, _)| key == "tls"))
    }
}
