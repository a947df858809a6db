//! Adding up what was read, by what a question is about.
//!
//! SQLite streams facts one by one, which is faster than its own grouping by sorting; PostgreSQL groups them
//! first, so that little has to be sent. Either way they pass through the same [`Sieve`].

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::question::{Bots, Filter, Top};
use crate::questions::is_among;
use crate::questions::plan::{Grain, Piece};
use crate::rollup::tally::Sums;
use crate::rollup::{FIRST_HOUR, HOUR_US, Kind, Shapes};
use crate::store::{Dialect, Engine, SEQUENCE_BITS};

/// Which requests count, in numbers of the store.
pub(crate) struct Sieve {
    shapes: Shapes,
    hosts: Option<HashSet<i64>>,
    excluded: HashSet<i64, RandomState>,
    bots: Bots,
}

impl Sieve {
    /// Looks up what a filter names.
    pub(crate) fn of(engine: &mut dyn Engine, filter: &Filter) -> Result<Self, Error> {
        let hosts = match filter.hosts.as_slice() {
            [] => None,
            names => {
                let mut hosts = HashSet::new();
                for name in names {
                    engine.rows("SELECT id FROM host WHERE text = $1", &[name], &mut |row| {
                        hosts.insert(row.int(0));
                        ControlFlow::Continue(())
                    })?;
                }
                Some(hosts)
            }
        };
        let mut excluded: HashSet<i64, RandomState> = HashSet::default();
        if !filter.exclude.is_empty() {
            engine.rows("SELECT id, text FROM client", &[], &mut |row| {
                if row.text(1).parse().is_ok_and(|address| is_among(&filter.exclude, address)) {
                    excluded.insert(row.int(0));
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(Self { shapes: Shapes::read(engine)?, hosts, excluded, bots: filter.bots })
    }

    /// Whether nothing can pass.
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.as_ref().is_some_and(HashSet::is_empty)
    }

    fn admits_host(&self, host: i64) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.contains(&host))
    }

    /// Host and status of a fact that counts.
    pub(crate) fn admits(&self, shape: i64, bot: bool, client: i64) -> Option<(i64, i64)> {
        let (host, status) = self.shapes.of(shape);
        let counts = self.bots.admits(bot)
            && self.admits_host(host)
            && (self.excluded.is_empty() || !self.excluded.contains(&client));
        counts.then_some((host, status))
    }
}

/// What is added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Nothing,
    Host,
    Status,
    Page,
    Referer,
    Agent,
    Client,
    Network,
}

impl Group {
    /// What a list is added up by; places are added up from clients.
    pub(crate) const fn of(top: Top) -> Self {
        match top {
            Top::Pages => Self::Page,
            Top::Referrers => Self::Referer,
            Top::Hosts => Self::Host,
            Top::Clients | Top::Countries | Top::Cities => Self::Client,
            Top::Status => Self::Status,
            Top::Agents => Self::Agent,
            Top::Networks => Self::Network,
        }
    }

    /// The column of facts that has the item.
    const fn column(self) -> &'static str {
        match self {
            Self::Nothing | Self::Host | Self::Status => NOTHING,
            Self::Page => "path",
            Self::Referer => "referer",
            Self::Agent => "agent",
            Self::Client | Self::Network => "client",
        }
    }

    /// Which list of heavy items has it.
    const fn kind(self) -> Option<Kind> {
        match self {
            Self::Nothing | Self::Host | Self::Status => None,
            Self::Page => Some(Kind::Path),
            Self::Referer => Some(Kind::Referer),
            Self::Agent => Some(Kind::Agent),
            Self::Client => Some(Kind::Client),
            Self::Network => Some(Kind::Network),
        }
    }
}

/// The column of groups that have no item of their own.
const NOTHING: &str = "";

/// A group: an item (of pages with its host), and an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) item: i64,
    pub(crate) host: i64,
    pub(crate) bucket: i64,
}

/// Sums by group.
pub(crate) struct Fold {
    group: Group,
    /// The length of an interval, in microseconds.
    width: Option<i64>,
    pub(crate) sums: HashMap<Key, Sums, RandomState>,
    /// Of networks: what was read by client, and is to be added up.
    pub(crate) by_client: HashMap<i64, Sums, RandomState>,
}

impl Fold {
    pub(crate) fn new(group: Group, width: Option<i64>) -> Self {
        Self { group, width, sums: HashMap::default(), by_client: HashMap::default() }
    }

    /// From what this can be added up, where clients are excluded or not.
    pub(crate) fn grain(&self, excludes: bool) -> Grain {
        let knows_clients =
            !matches!(self.group, Group::Page | Group::Referer | Group::Agent | Group::Status);
        match self.width {
            _ if excludes && !knows_clients => Grain::Facts,
            None => Grain::Days,
            Some(width) if width % (24 * HOUR_US) == 0 => Grain::Days,
            Some(width) if width % HOUR_US == 0 => Grain::Hours,
            Some(_) => Grain::Facts,
        }
    }

    /// Reads one piece.
    pub(crate) fn read(&mut self, engine: &mut dyn Engine, sieve: &Sieve, piece: Piece) -> Result<(), Error> {
        match (piece, self.group) {
            (Piece::Facts(from, to), _) => self.read_facts(engine, sieve, from, to),
            (_, Group::Network) if !sieve.excluded.is_empty() => {
                self.read_heavy(engine, sieve, piece, Kind::Client)
            }
            (_, group) => match group.kind() {
                Some(kind) => self.read_heavy(engine, sieve, piece, kind),
                None => self.read_traffic(engine, sieve, piece),
            },
        }
    }

    fn read_facts(
        &mut self,
        engine: &mut dyn Engine,
        sieve: &Sieve,
        from: i64,
        to: i64,
    ) -> Result<(), Error> {
        let bucket = self.width.map(|width| format!("(id >> {SEQUENCE_BITS}) / {width}"));
        let wanted = [
            (self.group.column() != NOTHING).then(|| self.group.column().to_owned()),
            bucket,
            (!sieve.excluded.is_empty()).then(|| "client".to_owned()),
            (sieve.bots != Bots::Included).then(|| "coalesce(agent, 0) & 1".to_owned()),
        ];
        // Every column costs time for each of millions of rows: only those are read that are needed.
        let columns: Vec<String> = wanted.iter().flatten().cloned().collect();
        let mut place = 3;
        let [item_at, bucket_at, client_at, bot_at] = wanted.each_ref().map(|column| {
            column.as_ref().map(|_| {
                place += 1;
                place - 1
            })
        });
        let mut listed: String = columns.iter().map(|column| format!(", {column}")).collect();
        let sums = match engine.dialect() {
            Dialect::Sqlite => "1, bytes",
            Dialect::Postgres => "count(*), CAST(sum(bytes) AS BIGINT)",
        };
        listed += &format!(" FROM fact WHERE id >= {from} AND id < {to}");
        if engine.dialect() == Dialect::Postgres {
            let places: Vec<String> =
                std::iter::once(3).chain(4..place + 1).map(|at| at.to_string()).collect();
            listed += &format!(" GROUP BY {}", places.join(", "));
        }
        let sql = format!("SELECT {sums}, shape{listed}");
        engine.rows(&sql, &[], &mut |row| {
            let int = |at: Option<usize>| at.map_or(0, |at| row.int(at));
            if let Some((host, status)) = sieve.admits(row.int(2), int(bot_at) == 1, int(client_at)) {
                let sums = Sums { requests: row.int(0), bytes: row.int(1) };
                self.add(host, status, int(item_at), int(bucket_at), sums);
            }
            ControlFlow::Continue(())
        })
    }

    fn add(&mut self, host: i64, status: i64, item: i64, bucket: i64, sums: Sums) {
        let key = match self.group {
            Group::Nothing => Key { bucket, ..Key::default() },
            Group::Host => Key { item: host, bucket, host: 0 },
            Group::Status => Key { item: status, bucket, host: 0 },
            // Whoever sent no referrer, no agent, or has no address is not in these lists.
            _ if item == 0 => return,
            Group::Page => Key { item, host, bucket },
            Group::Network => {
                self.by_client.entry(item).or_default().add(sums);
                return;
            }
            Group::Referer | Group::Agent | Group::Client => Key { item, bucket, host: 0 },
        };
        self.sums.entry(key).or_default().add(sums);
    }

    /// The interval that a period is in, by its first hour.
    fn bucket(&self, hour: i64) -> i64 {
        self.width.map_or(0, |width| hour.saturating_mul(HOUR_US) / width)
    }

    fn read_traffic(&mut self, engine: &mut dyn Engine, sieve: &Sieve, piece: Piece) -> Result<(), Error> {
        let periods = piece.periods();
        let sql =
            format!("SELECT {FIRST_HOUR}, host, status, bot, requests, bytes FROM traffic WHERE {periods}");
        engine.rows(&sql, &[], &mut |row| {
            let (host, bot) = (row.int(1), row.int(3) == 1);
            if sieve.admits_host(host) && sieve.bots.admits(bot) {
                let sums = Sums { requests: row.int(4), bytes: row.int(5) };
                self.add(host, row.int(2), 0, self.bucket(row.int(0)), sums);
            }
            ControlFlow::Continue(())
        })?;
        if sieve.excluded.is_empty() {
            return Ok(());
        }
        // What is excluded is taken away again, as far as it is known by client.
        let sql = heavy(Kind::Client, &periods);
        engine.rows(&sql, &[], &mut |row| {
            let (host, bot) = (row.int(1), row.int(2) == 1);
            if sieve.excluded.contains(&row.int(3)) && sieve.admits_host(host) && sieve.bots.admits(bot) {
                let item = if self.group == Group::Host { host } else { 0 };
                let key = Key { item, host: 0, bucket: self.bucket(row.int(0)) };
                let sums = Sums { requests: row.int(4), bytes: row.int(5) };
                self.sums.entry(key).or_default().take(sums);
            }
            ControlFlow::Continue(())
        })
    }

    fn read_heavy(
        &mut self,
        engine: &mut dyn Engine,
        sieve: &Sieve,
        piece: Piece,
        kind: Kind,
    ) -> Result<(), Error> {
        let sql = heavy(kind, &piece.periods());
        engine.rows(&sql, &[], &mut |row| {
            let (host, bot, item) = (row.int(1), row.int(2) == 1, row.int(3));
            let excluded = kind == Kind::Client && sieve.excluded.contains(&item);
            if sieve.admits_host(host) && sieve.bots.admits(bot) && !excluded {
                let sums = Sums { requests: row.int(4), bytes: row.int(5) };
                let bucket = self.bucket(row.int(0));
                if kind == Kind::Network {
                    self.sums.entry(Key { item, host: 0, bucket }).or_default().add(sums);
                } else {
                    self.add(host, 0, item, bucket, sums);
                }
            }
            ControlFlow::Continue(())
        })
    }
}

fn heavy(kind: Kind, periods: &str) -> String {
    let kind = kind as i64;
    format!(
        "SELECT {FIRST_HOUR}, host, bot, item, requests, bytes FROM heavy WHERE kind = {kind} AND {periods}"
    )
}
