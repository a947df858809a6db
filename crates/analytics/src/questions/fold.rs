//! Adding up what was read, by what a question is about.
//!
//! Sums by group are exact up to [`MOST_GROUPS`] groups; of more than that, the lightest half is forgotten each time.
//! [`Missing`] bounds what that and the rest of roll-ups, which has no names, may have taken from a group.

use std::collections::HashMap;
use std::ops::ControlFlow;

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::question::{Order, Top};
use crate::questions::missing::Missing;
use crate::questions::plan::Piece;
use crate::questions::scan::{Column, Values, scan};
use crate::questions::sieve::{Shape, Sieve};
use crate::rollup::tally::Sums;
use crate::rollup::{FIRST_HOUR, HOUR_US, Kind, REST};
use crate::store::Engine;
use crate::time::Steps;

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
    /// Status, cause and page of what failed.
    Error,
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
    const fn column(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::Host | Self::Status => None,
            Self::Page | Self::Error => Some("path"),
            Self::Referer => Some("referer"),
            Self::Agent => Some("agent"),
            Self::Client | Self::Network => Some("client"),
        }
    }

    /// Which list of heavy items has it.
    const fn kind(self) -> Option<Kind> {
        match self {
            Self::Nothing | Self::Host | Self::Status | Self::Error => None,
            Self::Page => Some(Kind::Path),
            Self::Referer => Some(Kind::Referer),
            Self::Agent => Some(Kind::Agent),
            Self::Client => Some(Kind::Client),
            Self::Network => Some(Kind::Network),
        }
    }
}

/// A group: an item (of pages with its host), and when its step begins; of errors what failed in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) bucket: i64,
    pub(crate) item: i64,
    pub(crate) host: i64,
}

/// Sums by group.
pub(crate) type Groups = HashMap<Key, Sums, RandomState>;

/// More groups than this are not kept: some 80 MiB.
const MOST_GROUPS: usize = 1 << 20;

/// What is being added up.
pub(crate) struct Fold {
    group: Group,
    steps: Option<Steps>,
    order: Order,
    most: usize,
    pub(crate) sums: Groups,
    /// Of networks: what was read by client, and is to be added up.
    pub(crate) by_client: Groups,
    pub(crate) missing: Missing,
    /// Whether groups were forgotten.
    pub(crate) forgot: bool,
}

impl Fold {
    pub(crate) fn new(group: Group, steps: Option<Steps>, order: Order) -> Self {
        let (sums, by_client) = (HashMap::default(), HashMap::default());
        let missing = Missing::default();
        Self { group, steps, order, most: MOST_GROUPS, sums, by_client, missing, forgot: false }
    }

    /// Whether roll-ups can answer: they tell hosts and bots apart, and either statuses, or items of one kind.
    pub(crate) fn is_in_rollups(&self, step_is_long: bool, sieve: &Sieve) -> bool {
        let kind = match self.group {
            Group::Network if sieve.is_by_client() => Some(Kind::Client),
            group => group.kind(),
        };
        let tells = |of: Kind, is_asked: bool| !is_asked || kind == Some(of);
        let tells_clients = match (&sieve.clients, &sieve.excluded) {
            (None, None) => true,
            _ if kind == Some(Kind::Client) => true,
            // What is excluded can be taken away where statuses do not matter.
            (None, Some(_)) => {
                matches!(self.group, Group::Nothing | Group::Host) && sieve.statuses.is_empty()
            }
            (Some(_), _) => false,
        };
        self.group != Group::Error
            && step_is_long
            && !sieve.by_method
            && (sieve.statuses.is_empty() || kind.is_none())
            && tells(Kind::Path, sieve.paths.is_some())
            && tells(Kind::Referer, sieve.referrers.is_some())
            && tells_clients
    }

    /// Whether an hour or a day lies in one step.
    pub(crate) fn is_one(&mut self, from_us: i64, to_us: i64) -> bool {
        self.steps.as_mut().is_none_or(|steps| steps.is_one(from_us, to_us))
    }

    /// Reads one piece.
    pub(crate) fn read(&mut self, engine: &mut dyn Engine, sieve: &Sieve, piece: Piece) -> Result<(), Error> {
        match (piece, self.group) {
            (Piece::Facts(from, to), _) => self.read_facts(engine, sieve, (from, to)),
            (_, Group::Network) if sieve.is_by_client() => {
                self.read_heavy(engine, sieve, piece, Kind::Client)
            }
            (_, group) => match group.kind() {
                Some(kind) => self.read_heavy(engine, sieve, piece, kind),
                None => self.read_traffic(engine, sieve, piece),
            },
        }
    }

    fn read_facts(&mut self, engine: &mut dyn Engine, sieve: &Sieve, range: (i64, i64)) -> Result<(), Error> {
        let mut columns = Vec::new();
        columns.extend(self.group.column().map(Column::Of));
        columns.extend(self.steps.as_ref().map(|steps| Column::Time(steps.slice())));
        let has_item = self.group.column().is_some();
        scan(engine, sieve, range, &columns, &mut |shape, sums, values: Values| {
            let (item, time) = if has_item { (values[0], values[1]) } else { (0, values[0]) };
            let bucket = self.bucket(time);
            self.add(shape, item, bucket, sums);
        })
    }

    fn add(&mut self, shape: &Shape, item: i64, bucket: i64, sums: Sums) {
        let key = match self.group {
            Group::Nothing => Key { bucket, ..Key::default() },
            Group::Host => Key { item: shape.host, bucket, host: 0 },
            Group::Status => Key { item: shape.status, bucket, host: 0 },
            // What failed may have no path.
            Group::Error if shape.status < 400 && shape.cause == 0 => return,
            Group::Error => Key {
                item,
                host: shape.host,
                bucket: i64::from(shape.cause) << STATUS_BITS | shape.status & STATUS,
            },
            // Whoever sent no referrer, no agent, or has no address is not in these lists.
            _ if item == 0 => return,
            Group::Page => Key { item, host: shape.host, bucket },
            Group::Network => {
                self.by_client.entry(Key { item, ..Key::default() }).or_default().add(sums);
                return self.bound();
            }
            Group::Referer | Group::Agent | Group::Client => Key { item, bucket, host: 0 },
        };
        self.sums.entry(key).or_default().add(sums);
        self.bound();
    }

    /// Forgets the lighter half of the groups where they are too many.
    fn bound(&mut self) {
        let groups = if self.group == Group::Network { &mut self.by_client } else { &mut self.sums };
        if groups.len() <= self.most {
            return;
        }
        let order = self.order;
        let weight = |sums: &Sums| match order {
            Order::Requests => sums.requests,
            Order::Bytes => sums.bytes,
        };
        let mut weights: Vec<i64> = groups.values().map(weight).collect();
        let middle = weights.len() / 2;
        let (_, median, _) = weights.select_nth_unstable(middle);
        let bound = *median;
        let heavier = weights.iter().filter(|weight| **weight > bound).count();
        let mut room = (self.most / 2).saturating_sub(heavier);
        let (mut each, mut all) = (Sums::default(), Sums::default());
        groups.retain(|_, sums| {
            let weight = weight(sums);
            let as_heavy = weight == bound && room > 0;
            room -= usize::from(as_heavy);
            let stays = weight > bound || as_heavy;
            if !stays {
                each = Sums { requests: each.requests.max(sums.requests), bytes: each.bytes.max(sums.bytes) };
                all.add(*sums);
            }
            stays
        });
        self.missing.forget(each, all);
        self.forgot = true;
    }

    /// Where the step of a time begins.
    fn bucket(&mut self, time_us: i64) -> i64 {
        self.steps.as_mut().map_or(0, |steps| steps.of(time_us))
    }

    /// Where the step of a period begins, by its first hour.
    fn bucket_of(&mut self, hour: i64) -> i64 {
        self.bucket(hour.saturating_mul(HOUR_US))
    }

    fn read_traffic(&mut self, engine: &mut dyn Engine, sieve: &Sieve, piece: Piece) -> Result<(), Error> {
        let periods = piece.periods();
        let sql =
            format!("SELECT {FIRST_HOUR}, host, status, bot, requests, bytes FROM traffic WHERE {periods}");
        engine.rows(&sql, &[], &mut |row| {
            let (host, status, bot) = (row.int(1), row.int(2), row.int(3) == 1);
            let sums = Sums { requests: row.int(4), bytes: row.int(5) };
            if !sieve.admits_status(status) || !sieve.bots.admits(bot) {
                return ControlFlow::Continue(());
            }
            if host == REST && (sieve.hosts.is_some() || self.group == Group::Host) {
                self.missing.add(REST, sums);
            }
            if sieve.admits_host(host) {
                let bucket = self.bucket_of(row.int(0));
                self.add(&Shape { host, status, ..Shape::default() }, 0, bucket, sums);
            }
            ControlFlow::Continue(())
        })?;
        let Some(excluded) = &sieve.excluded else { return Ok(()) };
        // What is excluded is taken away again, as far as it is known by client.
        let sql = heavy(Kind::Client, &periods);
        engine.rows(&sql, &[], &mut |row| {
            let (host, bot, client) = (row.int(1), row.int(2) == 1, row.int(3));
            let sums = Sums { requests: row.int(4), bytes: row.int(5) };
            if !sieve.bots.admits(bot) {
                return ControlFlow::Continue(());
            }
            if sieve.admits_host(host) && excluded.has(client) {
                let item = if self.group == Group::Host { host } else { 0 };
                let key = Key { item, host: 0, bucket: self.bucket_of(row.int(0)) };
                self.sums.entry(key).or_default().take(sums);
            } else if client == REST && sieve.admits_host(host) {
                self.missing.add_surplus(sums);
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
        // Pages are told apart by host.
        let needs_host = sieve.hosts.is_some() || self.group == Group::Page;
        engine.rows(&sql, &[], &mut |row| {
            let (host, bot, item) = (row.int(1), row.int(2) == 1, row.int(3));
            let sums = Sums { requests: row.int(4), bytes: row.int(5) };
            let counts = match kind {
                _ if item == REST => true,
                Kind::Path => sieve.admits_path(item),
                Kind::Referer => sieve.admits_referrer(item),
                Kind::Client => sieve.admits_client(item),
                Kind::Agent | Kind::Network => true,
            };
            if !counts || !sieve.bots.admits(bot) || host != REST && !sieve.admits_host(host) {
                return ControlFlow::Continue(());
            }
            if item == REST || host == REST && needs_host {
                self.missing.add(host, sums);
                return ControlFlow::Continue(());
            }
            let bucket = self.bucket_of(row.int(0));
            if kind == Kind::Network {
                self.sums.entry(Key { item, host: 0, bucket }).or_default().add(sums);
            } else {
                self.add(&Shape { host, ..Shape::default() }, item, bucket, sums);
            }
            ControlFlow::Continue(())
        })
    }
}

/// The bits of a status in a group of errors; the number of the cause is above them.
const STATUS_BITS: u32 = 16;
const STATUS: i64 = (1 << STATUS_BITS) - 1;

/// Status and cause of a group of errors.
pub(crate) fn failure_of(key: &Key) -> (i64, usize) {
    (key.bucket & STATUS, usize::try_from(key.bucket >> STATUS_BITS).unwrap_or(0))
}

fn heavy(kind: Kind, periods: &str) -> String {
    let kind = kind as i64;
    format!(
        "SELECT {FIRST_HOUR}, host, bot, item, requests, bytes FROM heavy WHERE kind = {kind} AND {periods}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_bounded_and_the_heavy_stay_exact() {
        let mut fold = Fold::new(Group::Page, None, Order::Bytes);
        fold.most = 1000;
        let shape = Shape { host: 1, ..Shape::default() };
        for item in 1..=100_000 {
            fold.add(&shape, item, 0, Sums { requests: 1, bytes: 1 });
            fold.add(&shape, 7, 0, Sums { requests: 1, bytes: 10 });
            assert!(fold.sums.len() <= 1000);
        }
        let seven = fold.sums[&Key { item: 7, host: 1, bucket: 0 }];
        assert_eq!((seven.bytes, fold.forgot), (1_000_001, true));
        // Of the others each had a single request, which was forgotten at most once.
        let each = fold.missing.of_any();
        assert!((1..=1_000).contains(&each.requests) && each.bytes == each.requests, "{each:?}");
        assert_eq!(
            fold.missing.of_several().requests,
            200_000 - fold.sums.values().map(|sums| sums.requests).sum::<i64>()
        );
    }
}
