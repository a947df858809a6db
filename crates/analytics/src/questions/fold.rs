//! Aggregation by the subject of a query.
//!
//! Sums per group are exact up to [`MOST_GROUPS`] groups; beyond that, the lighter half is dropped each time.
//! [`Missing`] bounds the effect of that, and of the nameless rest in roll-ups.

use std::collections::HashMap;
use std::ops::ControlFlow;

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::question::{SortOrder, Top};
use crate::questions::missing::Missing;
use crate::questions::plan::PlanPiece;
use crate::questions::scan::{Column, Values, scan};
use crate::questions::sieve::{ShapeColumns, Sieve};
use crate::rollup::tally::Sums;
use crate::rollup::{FIRST_HOUR, HOUR_US, REST, RollupKind};
use crate::store::{Engine, FactRange};
use crate::time::TimeSteps;

/// The key of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupBy {
    Nothing,
    Host,
    Status,
    Page,
    Referer,
    Agent,
    Client,
    Network,
    /// Status, cause and page of failures.
    Error,
}

impl GroupBy {
    /// The key of a list; places are aggregated from clients.
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

    /// The column of facts with the item.
    const fn column(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::Host | Self::Status => None,
            Self::Page | Self::Error => Some("path"),
            Self::Referer => Some("referer"),
            Self::Agent => Some("agent"),
            Self::Client | Self::Network => Some("client"),
        }
    }

    /// The kind of roll-up with the item.
    const fn kind(self) -> Option<RollupKind> {
        match self {
            Self::Nothing | Self::Host | Self::Status | Self::Error => None,
            Self::Page => Some(RollupKind::Path),
            Self::Referer => Some(RollupKind::Referer),
            Self::Agent => Some(RollupKind::Agent),
            Self::Client => Some(RollupKind::Client),
            Self::Network => Some(RollupKind::Network),
        }
    }
}

/// A group: an item (of pages with its host), and the start of its step; of errors, status and cause in place
/// of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) bucket: i64,
    pub(crate) item: i64,
    pub(crate) host: i64,
}

pub(crate) type Groups = HashMap<GroupKey, Sums, RandomState>;

/// The maximum number of groups: some 80 MiB.
const MOST_GROUPS: usize = 1 << 20;

/// An aggregation in progress.
pub(crate) struct Fold {
    group: GroupBy,
    steps: Option<TimeSteps>,
    order: SortOrder,
    most: usize,
    pub(crate) sums: Groups,
    /// Of networks: sums by client that are still to be aggregated.
    pub(crate) by_client: Groups,
    pub(crate) missing: Missing,
    /// Set once groups were dropped.
    pub(crate) forgot: bool,
}

impl Fold {
    pub(crate) fn new(group: GroupBy, steps: Option<TimeSteps>, order: SortOrder) -> Self {
        let (sums, by_client) = (HashMap::default(), HashMap::default());
        let missing = Missing::default();
        Self { group, steps, order, most: MOST_GROUPS, sums, by_client, missing, forgot: false }
    }

    /// Returns `true` if roll-ups can answer: they separate hosts and bots, and either statuses, or items of
    /// one kind.
    pub(crate) fn is_in_rollups(&self, step_is_long: bool, sieve: &Sieve) -> bool {
        let kind = match self.group {
            GroupBy::Network if sieve.is_by_client() => Some(RollupKind::Client),
            group => group.kind(),
        };
        let tells = |of: RollupKind, is_asked: bool| !is_asked || kind == Some(of);
        let tells_clients = match (&sieve.clients, &sieve.excluded) {
            (None, None) => true,
            _ if kind == Some(RollupKind::Client) => true,
            // Excluded clients can be subtracted if statuses do not matter.
            (None, Some(_)) => {
                matches!(self.group, GroupBy::Nothing | GroupBy::Host) && sieve.statuses.is_empty()
            }
            (Some(_), _) => false,
        };
        self.group != GroupBy::Error
            && step_is_long
            && !sieve.by_method
            && (sieve.statuses.is_empty() || kind.is_none())
            && tells(RollupKind::Path, sieve.paths.is_some())
            && tells(RollupKind::Referer, sieve.referrers.is_some())
            && tells_clients
    }

    /// Returns `true` if an hour or a day lies in one step.
    pub(crate) fn is_one(&mut self, from_us: i64, to_us: i64) -> bool {
        self.steps.as_mut().is_none_or(|steps| steps.is_one(from_us, to_us))
    }

    /// Adds one piece of the plan.
    pub(crate) fn read(
        &mut self,
        engine: &mut dyn Engine,
        sieve: &Sieve,
        piece: PlanPiece,
    ) -> Result<(), Error> {
        match (piece, self.group) {
            (PlanPiece::Facts(range), _) => self.read_facts(engine, sieve, range),
            (_, GroupBy::Network) if sieve.is_by_client() => {
                self.read_heavy(engine, sieve, piece, RollupKind::Client)
            }
            (_, group) => match group.kind() {
                Some(kind) => self.read_heavy(engine, sieve, piece, kind),
                None => self.read_traffic(engine, sieve, piece),
            },
        }
    }

    fn read_facts(&mut self, engine: &mut dyn Engine, sieve: &Sieve, range: FactRange) -> Result<(), Error> {
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

    fn add(&mut self, shape: &ShapeColumns, item: i64, bucket: i64, sums: Sums) {
        let key = match self.group {
            GroupBy::Nothing => GroupKey { bucket, ..GroupKey::default() },
            GroupBy::Host => GroupKey { item: shape.host, bucket, host: 0 },
            GroupBy::Status => GroupKey { item: shape.status, bucket, host: 0 },
            // A failed request may have no path.
            GroupBy::Error if shape.status < 400 && shape.cause == 0 => return,
            GroupBy::Error => GroupKey {
                item,
                host: shape.host,
                bucket: i64::from(shape.cause) << STATUS_BITS | shape.status & STATUS,
            },
            // Clients without a referrer, agent or address are not in these lists.
            _ if item == 0 => return,
            GroupBy::Page => GroupKey { item, host: shape.host, bucket },
            GroupBy::Network => {
                self.by_client.entry(GroupKey { item, ..GroupKey::default() }).or_default().add(sums);
                return self.bound();
            }
            GroupBy::Referer | GroupBy::Agent | GroupBy::Client => GroupKey { item, bucket, host: 0 },
        };
        self.sums.entry(key).or_default().add(sums);
        self.bound();
    }

    /// Drops the lighter half of the groups if there are too many.
    fn bound(&mut self) {
        let groups = if self.group == GroupBy::Network { &mut self.by_client } else { &mut self.sums };
        if groups.len() <= self.most {
            return;
        }
        let order = self.order;
        let weight = |sums: &Sums| match order {
            SortOrder::Requests => sums.requests,
            SortOrder::Bytes => sums.bytes,
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

    /// The start of the step of a time.
    fn bucket(&mut self, time_us: i64) -> i64 {
        self.steps.as_mut().map_or(0, |steps| steps.of(time_us))
    }

    /// The start of the step of a period, given its first hour.
    fn bucket_of(&mut self, hour: i64) -> i64 {
        self.bucket(hour.saturating_mul(HOUR_US))
    }

    fn read_traffic(
        &mut self,
        engine: &mut dyn Engine,
        sieve: &Sieve,
        piece: PlanPiece,
    ) -> Result<(), Error> {
        let periods = piece.periods();
        let sql =
            format!("SELECT {FIRST_HOUR}, host, status, bot, requests, bytes FROM traffic WHERE {periods}");
        engine.rows(&sql, &[], &mut |row| {
            let (host, status, bot) = (row.int(1), row.int(2), row.int(3) == 1);
            let sums = Sums { requests: row.int(4), bytes: row.int(5) };
            if !sieve.admits_status(status) || !sieve.bots.admits(bot) {
                return ControlFlow::Continue(());
            }
            if host == REST && (sieve.hosts.is_some() || self.group == GroupBy::Host) {
                self.missing.add(REST, sums);
            }
            if sieve.admits_host(host) {
                let bucket = self.bucket_of(row.int(0));
                self.add(&ShapeColumns { host, status, ..ShapeColumns::default() }, 0, bucket, sums);
            }
            ControlFlow::Continue(())
        })?;
        let Some(excluded) = &sieve.excluded else { return Ok(()) };
        // Subtracts excluded clients, as far as they are known by name.
        let sql = heavy(RollupKind::Client, &periods);
        engine.rows(&sql, &[], &mut |row| {
            let (host, bot, client) = (row.int(1), row.int(2) == 1, row.int(3));
            let sums = Sums { requests: row.int(4), bytes: row.int(5) };
            if !sieve.bots.admits(bot) {
                return ControlFlow::Continue(());
            }
            if sieve.admits_host(host) && excluded.has(client) {
                let item = if self.group == GroupBy::Host { host } else { 0 };
                let key = GroupKey { item, host: 0, bucket: self.bucket_of(row.int(0)) };
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
        piece: PlanPiece,
        kind: RollupKind,
    ) -> Result<(), Error> {
        let sql = heavy(kind, &piece.periods());
        // Pages are per host.
        let needs_host = sieve.hosts.is_some() || self.group == GroupBy::Page;
        engine.rows(&sql, &[], &mut |row| {
            let (host, bot, item) = (row.int(1), row.int(2) == 1, row.int(3));
            let sums = Sums { requests: row.int(4), bytes: row.int(5) };
            let counts = match kind {
                _ if item == REST => true,
                RollupKind::Path => sieve.admits_path(item),
                RollupKind::Referer => sieve.admits_referrer(item),
                RollupKind::Client => sieve.admits_client(item),
                RollupKind::Agent | RollupKind::Network => true,
            };
            if !counts || !sieve.bots.admits(bot) || host != REST && !sieve.admits_host(host) {
                return ControlFlow::Continue(());
            }
            if item == REST || host == REST && needs_host {
                self.missing.add(host, sums);
                return ControlFlow::Continue(());
            }
            let bucket = self.bucket_of(row.int(0));
            if kind == RollupKind::Network {
                self.sums.entry(GroupKey { item, host: 0, bucket }).or_default().add(sums);
            } else {
                self.add(&ShapeColumns { host, ..ShapeColumns::default() }, item, bucket, sums);
            }
            ControlFlow::Continue(())
        })
    }
}

/// The bits of the status in a group of errors; the number of the cause is above them.
const STATUS_BITS: u32 = 16;
const STATUS: i64 = (1 << STATUS_BITS) - 1;

/// Status and cause of a group of errors.
pub(crate) fn failure_of(key: &GroupKey) -> (i64, usize) {
    (key.bucket & STATUS, usize::try_from(key.bucket >> STATUS_BITS).unwrap_or(0))
}

fn heavy(kind: RollupKind, periods: &str) -> String {
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
        let mut fold = Fold::new(GroupBy::Page, None, SortOrder::Bytes);
        fold.most = 1000;
        let shape = ShapeColumns { host: 1, ..ShapeColumns::default() };
        for item in 1..=100_000 {
            fold.add(&shape, item, 0, Sums { requests: 1, bytes: 1 });
            fold.add(&shape, 7, 0, Sums { requests: 1, bytes: 10 });
            assert!(fold.sums.len() <= 1000);
        }
        let seven = fold.sums[&GroupKey { item: 7, host: 1, bucket: 0 }];
        assert_eq!((seven.bytes, fold.forgot), (1_000_001, true));
        // The other groups had a single request each, which was dropped at most once.
        let each = fold.missing.of_any();
        assert!((1..=1_000).contains(&each.requests) && each.bytes == each.requests, "{each:?}");
        assert_eq!(
            fold.missing.of_several().requests,
            200_000 - fold.sums.values().map(|sums| sums.requests).sum::<i64>()
        );
    }
}
