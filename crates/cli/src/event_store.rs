//! The log store of a running proxy: adapter from `analytics` to the event sink of `control`.

use std::collections::HashSet;
use std::sync::Arc;

use offramp_analytics::{Background, BackgroundSettings};
use offramp_config::model::{Anonymize, HostPattern, StoreUrl};
use offramp_config::{At, Config};
use offramp_control::{EventStore, OpenStore, StoreFigures};
use offramp_observe::{Log, Sampled, Tap, names};
use offramp_process::sandbox::Reach;
use offramp_process::{Error, Finding};
use rustix::fs::{Access, access};

use crate::log_store::StoreTarget;

/// File in the state directory with events that the store cannot take at the moment.
const SPOOL: &str = "log-store.spool";

/// Callback that opens the store of a configuration.
pub(crate) fn opener() -> OpenStore {
    Box::new(open)
}

/// Files and ports that the configured store needs inside the sandbox. An invalid URL needs nothing here;
/// opening it reports the error.
pub(crate) fn reach(config: &Config) -> Reach {
    let needs = config
        .telemetry
        .log_store
        .url
        .as_ref()
        .and_then(|url| offramp_analytics::needs(&url.to_string()).ok());
    let (files, port) = needs.unwrap_or_default();
    Reach { files, ports: port.into_iter().collect(), ..Reach::default() }
}

struct PreparedStore {
    background: Background,
    spool_limit: u64,
}

impl EventStore for PreparedStore {
    fn tap(&self, config: &Config) -> Box<dyn Tap> {
        let tap = self.background.tap(config.telemetry.access_log.anonymize == Anonymize::Ip);
        Box::new(match RoutedHosts::of(config) {
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

/// Hosts that routes name. Other hosts are not kept, since clients can request any number of them.
struct RoutedHosts {
    exact: HashSet<Vec<u8>>,
    /// Domains of wildcards, without the first label.
    parents: HashSet<Vec<u8>>,
}

impl RoutedHosts {
    /// Collects the hosts of all routes; `None` if no route names a host, so that every host is kept.
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
    let (Some(url), Some(place)) = (&config.telemetry.log_store.url, StoreTarget::of(config)) else {
        return Ok(None);
    };
    let refused =
        |text: String| Error::from(vec![Finding { at: At::NOWHERE, text: format!("[log_store] {text}") }]);
    if let StoreUrl::Sqlite(file) = url
        && let Some(folder) = file.path.parent()
        && let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK)
    {
        // This never recovers by itself, unlike a store that is locked, full or unreachable.
        return Err(refused(format!(
            "cannot be used: the user that Offramp runs as cannot make files in {}: {error}",
            folder.display()
        )));
    }
    let notice_log = log.clone();
    let settings = BackgroundSettings {
        url: place.url,
        options: place.options,
        spool: config.process.state_dir.join(SPOOL),
        spool_limit: config.telemetry.log_store.spool.bytes(),
        notify: Box::new(move |notice| {
            let fields = [("state", notice.into())];
            if notice.is_problem() {
                notice_log.warn("log store", &fields);
            } else {
                notice_log.info("log store", &fields);
            }
        }),
    };
    log.info("log store", &[("where", (&shown(url)).into())]);
    let background =
        Background::start(settings).map_err(|error| refused(format!("cannot be used: {error}")))?;
    Ok(Some(Box::new(PreparedStore { background, spool_limit: config.telemetry.log_store.spool.bytes() })))
}

/// Location of the store without user and password, for the log.
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
        assert!(RoutedHosts::of(&config(&[""])).is_none(), "any host is meant");
        let hosts = ["host = \"a.test\"\n", "host = \"*.b.test\"\n", ""];
        let named = RoutedHosts::of(&config(&hosts)).unwrap();
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
