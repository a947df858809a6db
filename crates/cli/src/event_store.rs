//! The log store of a running proxy: `analytics` plugged into what `control` feeds events to.

use std::collections::HashSet;
use std::sync::Arc;

use offramp_analytics::{Background, BackgroundSettings};
use offramp_config::model::{Anonymize, HostPattern, StoreUrl};
use offramp_config::{At, Config};
use offramp_control::{Error, EventStore, Finding, OpenStore, Reach, StoreFigures};
use offramp_observe::{Log, Sampled, Tap, names};
use rustix::fs::{Access, access};

use crate::logs::place::Place;

/// In the state directory: events that the store does not take for now.
const SPOOL: &str = "log-store.spool";

/// Opens the store that a configuration has.
pub(crate) fn opener() -> OpenStore {
    Box::new(open)
}

/// What the store of a configuration needs. A URL that is none is refused when it is opened.
pub(crate) fn reach(config: &Config) -> Reach {
    let needs = config.log_store.url.as_ref().and_then(|url| offramp_analytics::needs(&url.to_string()).ok());
    let (files, port) = needs.unwrap_or_default();
    Reach { files, ports: port.into_iter().collect(), ..Reach::default() }
}

struct Open {
    background: Background,
    spool_limit: u64,
}

impl EventStore for Open {
    fn tap(&self, config: &Config) -> Box<dyn Tap> {
        let tap = self.background.tap(config.access_log.anonymize == Anonymize::Ip);
        Box::new(match Named::of(config) {
            Some(named) => tap.keeping_hosts(move |host| named.has(host)),
            None => tap,
        })
    }

    fn figures(&self) -> StoreFigures {
        let (monitor, limit) = (self.background.monitor(), self.spool_limit);
        Arc::new(move || {
            let figures = monitor.figures();
            let outcome = |outcome: &str, events: u64| Sampled {
                metric: &names::LOG_STORE_EVENTS,
                labels: vec![outcome.into()],
                value: events as f64,
            };
            let single = |metric, value| Sampled { metric, labels: Vec::new(), value };
            vec![
                single(&names::LOG_STORE_UP, f64::from(figures.is_well)),
                outcome("stored", figures.stored),
                outcome("dropped", figures.dropped),
                single(&names::LOG_STORE_SPOOL, figures.waiting as f64),
                single(&names::LOG_STORE_SPOOL_LIMIT, limit as f64),
            ]
        })
    }

    fn stop(self: Box<Self>) -> u64 {
        self.background.stop().dropped
    }
}

/// The hosts that routes name. Clients can request any number of others.
struct Named {
    exact: HashSet<Vec<u8>>,
    /// What follows the first label of a wildcard.
    parents: HashSet<Vec<u8>>,
}

impl Named {
    /// `None` if no route names a host: then every host counts.
    fn of(config: &Config) -> Option<Self> {
        let mut named = Self { exact: HashSet::new(), parents: HashSet::new() };
        for host in config.routes.iter().flat_map(|route| &route.hosts) {
            match host {
                HostPattern::Exact(name) => named.exact.insert(name.to_string().to_ascii_lowercase().into()),
                HostPattern::Wildcard(name) => {
                    named.parents.insert(name.to_string().to_ascii_lowercase().into())
                }
            };
        }
        (!named.exact.is_empty() || !named.parents.is_empty()).then_some(named)
    }

    fn has(&self, host: &[u8]) -> bool {
        let host = host.to_ascii_lowercase();
        let parent = host.iter().position(|byte| *byte == b'.').map(|dot| &host[dot + 1..]);
        self.exact.contains(&host) || parent.is_some_and(|parent| self.parents.contains(parent))
    }
}

fn open(config: &Config, log: &Log) -> Result<Option<Box<dyn EventStore>>, Error> {
    let (Some(url), Some(place)) = (&config.log_store.url, Place::of(config)) else { return Ok(None) };
    let refused =
        |text: String| Error::from(vec![Finding { at: At::NOWHERE, text: format!("[log_store] {text}") }]);
    if let StoreUrl::Sqlite(file) = url
        && let Some(folder) = file.path.parent()
        && let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK)
    {
        // It would never come right by itself, as it does where the store is locked, full or away.
        return Err(refused(format!(
            "cannot be used: the user that Offramp runs as cannot make files in {}: {error}",
            folder.display()
        )));
    }
    let teller = log.clone();
    let settings = BackgroundSettings {
        url: place.url,
        options: place.options,
        spool: config.state_dir.join(SPOOL),
        spool_limit: config.log_store.spool.bytes(),
        notify: Box::new(move |notice| {
            let fields = [("state", notice.into())];
            if notice.is_problem() {
                teller.warn("log store", &fields);
            } else {
                teller.info("log store", &fields);
            }
        }),
    };
    log.info("log store", &[("where", (&shown(url)).into())]);
    let background =
        Background::start(settings).map_err(|error| refused(format!("cannot be used: {error}")))?;
    Ok(Some(Box::new(Open { background, spool_limit: config.log_store.spool.bytes() })))
}

/// The URL of the store without user and password.
fn shown(url: &StoreUrl) -> String {
    match url {
        StoreUrl::Sqlite(file) => file.path.display().to_string(),
        StoreUrl::Postgres(url) => {
            let place = url.split_once('?').map_or(url.as_str(), |(place, _)| place);
            let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
            format!("PostgreSQL at {}", place.split_once("://").map_or(place, |(_, place)| place))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_known_as_routes_name_them() {
        let config = |hosts: &[&str]| {
            let routes = hosts.iter().map(|host| format!("[[route]]\n{host}server = \"127.0.0.1:1\"\n"));
            let text = format!(
                "[[certificate]]\nlocal = true\nnames = [\"a.test\"]\n[[listener]]\naddress = \"127.0.0.1:0\"\n{}",
                routes.collect::<String>()
            );
            let environment = offramp_config::Environment::default();
            offramp_config::parse(&text, "/offramp.toml", &environment).unwrap().0
        };
        assert!(Named::of(&config(&[""])).is_none(), "any host is meant");
        let hosts = ["host = \"a.test\"\n", "host = \"*.b.test\"\n", ""];
        let named = Named::of(&config(&hosts)).unwrap();
        for host in ["a.test", "A.TEST", "any.b.test"] {
            assert!(named.has(host.as_bytes()), "{host}");
        }
        for host in ["b.test", "made.up.b.test", "x.a.test", "", "."] {
            assert!(!named.has(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        for url in
            ["postgres://log:secret@db.test/access", "postgres://db.test/access?user=log&password=secret"]
        {
            assert_eq!(shown(&StoreUrl::Postgres(url.to_owned())), "PostgreSQL at db.test/access");
        }
    }
}
