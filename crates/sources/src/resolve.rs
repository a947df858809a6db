//! The host names of servers and what they stand for: looked up at start, then every half minute.
//!
//! The answers are put into cells that the snapshot shares, so that workers never wait for DNS. A name
//! that stops resolving keeps the addresses that it had: an old answer is better than none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use offramp_config::model::HostName;
use offramp_observe::Log;
use offramp_process::supervise;
use serde::{Deserialize, Serialize};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The interval between look-ups: the system's resolver tells no time to live.
const EVERY: Duration = Duration::from_secs(30);

/// The time limit of one look-up. A start or reload waits for new names no longer than this.
const LIMIT: Duration = Duration::from_secs(5);

/// The addresses of a name; empty while it does not resolve.
pub type Addresses = Arc<ArcSwap<Vec<SocketAddr>>>;

/// The addresses of a name, as one process tells another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownName {
    host: String,
    port: u16,
    addresses: Vec<SocketAddr>,
}

/// The names of one configuration.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<(HostName, u16), Addresses>);

impl Names {
    /// The cell of a name. One that `before` knows keeps its cell, and with it the last answer.
    pub fn cell(&mut self, before: &Self, host: &HostName, port: u16) -> Addresses {
        let key = (host.clone(), port);
        let known = before.0.get(&key).cloned();
        Arc::clone(self.0.entry(key).or_insert_with(|| known.unwrap_or_default()))
    }

    /// Looks up the names that have no addresses yet, all at once.
    pub async fn look_up_new(&self, log: &Log) {
        let mut entries = self.entries();
        entries.retain(|entry| entry.addresses.load().is_empty());
        refresh(&mut entries, log).await;
    }

    /// The addresses of all names, for the process that takes the place of this one.
    pub fn known(&self) -> Vec<KnownName> {
        let name = |((host, port), addresses): (&(HostName, u16), &Addresses)| KnownName {
            host: host.as_str().to_owned(),
            port: *port,
            addresses: addresses.load().to_vec(),
        };
        self.0.iter().map(name).collect()
    }

    /// Takes over what the process before knew. It is as fresh as its last look.
    pub fn recall(&self, known: &[KnownName]) {
        for ((host, port), addresses) in &self.0 {
            let same = |name: &&KnownName| name.host == host.as_str() && name.port == *port;
            if let Some(name) = known.iter().find(same) {
                addresses.store(Arc::new(name.addresses.clone()));
            }
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |((host, port), addresses): (&(HostName, u16), &Addresses)| Entry {
            host: host.clone(),
            port: *port,
            addresses: Arc::clone(addresses),
            failing: false,
        };
        self.0.iter().map(entry).collect()
    }
}

/// Keeps names fresh until it is dropped. Without names it does nothing at all.
pub struct Resolver(Option<AbortHandle>);

impl Resolver {
    /// A resolver without names.
    pub fn idle() -> Self {
        Self(None)
    }

    /// Begins half a minute from now; must be called within a tokio runtime.
    pub fn start(names: &Names, log: &Log) -> Self {
        let mut entries = names.entries();
        if entries.is_empty() {
            return Self(None);
        }
        // What could not be resolved at first was reported then.
        for entry in &mut entries {
            entry.failing = entry.addresses.load().is_empty();
        }
        let task_log = log.clone();
        let task = supervise::spawn("look-ups of names", log, move || {
            let (mut entries, log) = (entries.clone(), task_log.clone());
            async move {
                let mut turns = interval(EVERY);
                turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
                turns.tick().await;
                loop {
                    turns.tick().await;
                    refresh(&mut entries, &log).await;
                }
            }
        });
        Self(Some(task))
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[derive(Clone)]
struct Entry {
    host: HostName,
    port: u16,
    addresses: Addresses,
    /// Set if the last look-up failed, so that a failure is logged once.
    failing: bool,
}

async fn refresh(entries: &mut [Entry], log: &Log) {
    let mut lookups = JoinSet::new();
    for (index, entry) in entries.iter().enumerate() {
        let (host, port) = (entry.host.as_str().to_owned(), entry.port);
        lookups.spawn(async move { (index, look_up(&host, port).await) });
    }
    // A look-up that panicked would be a fault of the runtime; the name keeps what it has.
    while let Some(done) = lookups.join_next().await {
        if let Ok((index, answer)) = done {
            entries[index].take(answer, log);
        }
    }
}

async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = match timeout(LIMIT, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer within {} s", LIMIT.as_secs())),
    };
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err("it has no addresses".to_owned()) } else { Ok(addresses) }
}

impl Entry {
    fn take(&mut self, answer: Result<Vec<SocketAddr>, String>, log: &Log) {
        let name = format!("{}:{}", self.host, self.port);
        match answer {
            Ok(addresses) => {
                if std::mem::take(&mut self.failing) {
                    log.info("a server's name resolves again", &[("server", (&name).into())]);
                }
                if **self.addresses.load() != addresses {
                    self.addresses.store(Arc::new(addresses));
                }
            }
            Err(reason) if !std::mem::replace(&mut self.failing, true) => {
                let kept = self.addresses.load().len();
                let fields = [
                    ("server", (&name).into()),
                    ("reason", (&reason).into()),
                    ("kept_addresses", kept.into()),
                ];
                log.warn("a server's name does not resolve", &fields);
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    #[test]
    fn a_name_keeps_its_cell_and_an_answer_outlives_failures() {
        let (mut before, none) = (Names::default(), Names::default());
        let cell = before.cell(&none, &host("app.test"), 80);
        let mut after = Names::default();
        assert!(Arc::ptr_eq(&cell, &after.cell(&before, &host("app.test"), 80)));
        assert!(!Arc::ptr_eq(&cell, &after.cell(&before, &host("app.test"), 81)));

        let log = Log::silent();
        let mut entries = before.entries();
        let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
        entries[0].take(Ok(vec![address]), &log);
        entries[0].take(Err("gone".to_owned()), &log);
        assert!(entries[0].failing);
        assert_eq!(**cell.load(), vec![address]);
    }

    #[test]
    fn localhost_resolves() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut names = Names::default();
        let cell = names.cell(&Names::default(), &host("localhost"), 80);
        runtime.block_on(names.look_up_new(&Log::silent()));
        assert!(cell.load().iter().any(|address| address.ip().is_loopback()));
    }
}
