//! Aggregation by host, bot and item in bounded memory.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::rollup::REST;

/// The maximum number of cells during aggregation: beyond it the lightest half joins the rest, at a cost
/// shared by as many additions.
const MOST_CELLS: usize = 65_536;

/// The maximum number of named hosts per period.
const MOST_HOSTS: usize = 1000;

/// The requests of a host per named item.
const REQUESTS_PER_ITEM: i64 = 32;

/// Requests and bytes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) requests: i64,
    pub(crate) bytes: i64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Subtracts down to zero.
    pub(crate) fn take(&mut self, other: Self) {
        self.requests = (self.requests - other.requests).max(0);
        self.bytes = (self.bytes - other.bytes).max(0);
    }
}

/// The key of aggregation: host, bot and item in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell(u64);

impl Cell {
    /// Numbers of dictionary rows, statuses and [`REST`] have 31 bits and a sign.
    pub(crate) const fn new(host: i64, bot: bool, item: i64) -> Self {
        Self(((host as u64 & 0x7fff_ffff) << 33) | ((bot as u64) << 32) | (item as u64 & 0xffff_ffff))
    }

    /// The host's number, or [`REST`].
    pub(crate) const fn host(self) -> i64 {
        // Sign-extends the upper 31 bits.
        (self.0 as i64) >> 33
    }

    pub(crate) const fn bot(self) -> bool {
        self.0 >> 32 & 1 == 1
    }

    /// The item's number, or [`REST`].
    pub(crate) const fn item(self) -> i64 {
        self.0 as i32 as i64
    }
}

#[derive(Default)]
pub(crate) struct RollupTally {
    cells: HashMap<u64, Sums, RandomState>,
    /// Set if items keep their names: they are few, and only hosts are many.
    exact_by_item: bool,
    /// Cells visited to make room.
    work: usize,
}

/// The number of named items per host.
pub(crate) struct ItemShare<'a> {
    pub(crate) hosts: &'a HashSet<i64>,
    pub(crate) most: usize,
    /// The number for a single host, whatever its requests. Several hosts share [`MOST_SHARED`] times as
    /// many.
    pub(crate) least: usize,
}

impl ItemShare<'_> {
    /// The number for each host, whatever its requests: a host with few items is exact.
    fn least(&self) -> usize {
        (self.least * MOST_SHARED / self.hosts.len().max(1)).clamp(self.least / MOST_SHARED, self.least)
    }
}

/// From one host to many, the total number of items grows by this factor, and the number per host shrinks as
/// much.
const MOST_SHARED: usize = 8;

impl RollupTally {
    /// A tally with exact sums by item: to make room, the lightest hosts lose their names.
    pub(crate) fn exact_by_item() -> Self {
        Self { exact_by_item: true, ..Self::default() }
    }

    pub(crate) fn add(&mut self, cell: Cell, sums: Sums) {
        self.cells.entry(cell.0).or_default().add(sums);
        if self.cells.len() > MOST_CELLS {
            self.prune();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Cell, Sums)> + '_ {
        self.cells.iter().map(|(cell, sums)| (Cell(*cell), *sums))
    }

    /// Makes room: first items lose their names, then hosts. A rest per host may take as many cells as there
    /// were.
    fn prune(&mut self) {
        if !self.exact_by_item {
            self.fold_items();
        }
        if self.cells.len() > MOST_CELLS / 4 * 3 {
            self.fold_hosts();
        }
    }

    /// Keeps the names of the heavier half of the items.
    fn fold_items(&mut self) {
        self.work += self.cells.len();
        let mut requests: Vec<i64> = self.cells.values().map(|sums| sums.requests).collect();
        let middle = requests.len() / 2;
        let (_, median, _) = requests.select_nth_unstable(middle);
        let bound = *median;
        let mut rest = Self::default();
        let mut room = MOST_CELLS / 2;
        self.cells.retain(|cell, sums| {
            let cell = Cell(*cell);
            let stays = cell.item() == REST || sums.requests > bound || (sums.requests == bound && room > 0);
            room = room.saturating_sub(usize::from(stays));
            if !stays {
                rest.cells.entry(Cell::new(cell.host(), cell.bot(), REST).0).or_default().add(*sums);
            }
            stays
        });
        for (cell, sums) in rest.cells {
            self.cells.entry(cell).or_default().add(sums);
        }
    }

    /// Keeps the names of the heaviest hosts with half of the cells.
    fn fold_hosts(&mut self) {
        self.work += self.cells.len();
        let mut hosts: HashMap<i64, (i64, usize), RandomState> = HashMap::default();
        for (cell, sums) in self.iter() {
            let (requests, cells) = hosts.entry(cell.host()).or_default();
            *requests = requests.saturating_add(sums.requests);
            *cells += 1;
        }
        let mut hosts: Vec<_> = hosts.into_iter().filter(|(host, _)| *host != REST).collect();
        hosts.sort_unstable_by_key(|(host, (requests, _))| (std::cmp::Reverse(*requests), *host));
        let mut room = MOST_CELLS / 2;
        let fits = |(_, (_, cells)): &&(i64, (i64, usize))| match room.checked_sub(*cells) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        let kept: HashSet<i64, RandomState> = hosts.iter().take_while(fits).map(|(host, _)| *host).collect();
        let cells = std::mem::take(&mut self.cells);
        for (cell, sums) in cells {
            let cell = Cell(cell);
            let cell = match kept.contains(&cell.host()) {
                true => cell,
                false if self.exact_by_item => Cell::new(REST, cell.bot(), cell.item()),
                false => Cell::new(REST, cell.bot(), REST),
            };
            self.cells.entry(cell.0).or_default().add(sums);
        }
    }

    /// A copy with all other hosts summed up under [`REST`].
    pub(crate) fn within(&self, hosts: &HashSet<i64>) -> Self {
        let mut within = Self::default();
        for (cell, sums) in self.iter() {
            let host = if hosts.contains(&cell.host()) { cell.host() } else { REST };
            within.cells.entry(Cell::new(host, cell.bot(), cell.item()).0).or_default().add(sums);
        }
        within
    }

    /// The heaviest items of each host, by requests and by bytes; the others summed up under [`REST`].
    pub(crate) fn heaviest(&self, share: &ItemShare<'_>) -> Vec<(Cell, Sums)> {
        let mut by_host: HashMap<i64, Vec<(Cell, Sums)>> = HashMap::new();
        for (cell, sums) in self.iter() {
            by_host.entry(cell.host()).or_default().push((cell, sums));
        }
        let least = share.least();
        let mut kept = Vec::new();
        for (host, mut cells) in by_host {
            let requests: i64 = cells.iter().map(|(_, sums)| sums.requests).sum();
            let most = usize::try_from(requests / REQUESTS_PER_ITEM).unwrap_or(usize::MAX);
            let most = if share.hosts.contains(&host) { most.clamp(least, share.most) } else { least };
            let mut rest = [Sums::default(); 2];
            cells.sort_unstable_by_key(|(cell, sums)| (std::cmp::Reverse(sums.requests), cell.0));
            let (named, mut others) = cells.split_at(most.min(cells.len()));
            let mut others: Vec<_> = std::mem::take(&mut others).to_vec();
            others.sort_unstable_by_key(|(cell, sums)| (std::cmp::Reverse(sums.bytes), cell.0));
            let by_bytes = (most / 4).min(others.len());
            for (index, (cell, sums)) in named.iter().chain(&others).enumerate() {
                if cell.item() == REST || index >= named.len() + by_bytes {
                    rest[usize::from(cell.bot())].add(*sums);
                } else {
                    kept.push((*cell, *sums));
                }
            }
            for (bot, sums) in [false, true].into_iter().zip(rest) {
                if sums.requests > 0 {
                    kept.push((Cell::new(host, bot, REST), sums));
                }
            }
        }
        kept
    }
}

/// The hosts of a period that keep their names.
pub(crate) fn heaviest_hosts(traffic: &RollupTally) -> HashSet<i64> {
    let mut hosts: HashMap<i64, i64> = HashMap::new();
    for (cell, sums) in traffic.iter() {
        *hosts.entry(cell.host()).or_default() += sums.requests;
    }
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    hosts.sort_unstable_by_key(|(host, requests)| (std::cmp::Reverse(*requests), *host));
    hosts.into_iter().take(MOST_HOSTS).map(|(host, _)| host).filter(|host| *host != REST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_hold_what_they_are_given() {
        for host in [0, 1, 77, i64::from(i32::MAX) >> 1, REST] {
            for bot in [false, true] {
                for item in [0, 1, 599, i64::from(i32::MAX), REST] {
                    let cell = Cell::new(host, bot, item);
                    assert_eq!((cell.host(), cell.bot(), cell.item()), (host, bot, item));
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        let mut tally = RollupTally::default();
        for item in 1..=300_000 {
            tally.add(Cell::new(1, item % 3 == 0, item), Sums { requests: 1, bytes: 10 });
            tally.add(Cell::new(1, false, 7), Sums { requests: 1, bytes: 1 });
        }
        assert!(tally.cells.len() <= MOST_CELLS + 2 && tally.work <= 1_200_000, "{}", tally.work);
        let total: i64 = tally.iter().map(|(_, sums)| sums.requests).sum();
        assert_eq!(total, 600_000);
        let seven = tally.iter().find(|(cell, _)| *cell == Cell::new(1, false, 7)).unwrap().1;
        assert_eq!(seven.requests, 300_001);
        let kept = heaviest_hosts(&tally);
        let named = tally.within(&kept).heaviest(&ItemShare { hosts: &kept, most: 500, least: 64 });
        assert!(named.len() <= 630, "{}", named.len());
        assert_eq!(named.iter().map(|(_, sums)| sums.requests).sum::<i64>(), 600_000);
    }

    #[test]
    fn made_up_hosts_cost_a_constant_each_and_nothing_is_lost() {
        let mut traffic = RollupTally::exact_by_item();
        let mut pages = RollupTally::default();
        for host in 1..=300_000 {
            let sums = Sums { requests: 1, bytes: 10 };
            // One of the hosts is real.
            for host in [host + 10, 7] {
                traffic.add(Cell::new(host, host % 3 == 0, 200 + host % 5), sums);
                pages.add(Cell::new(host, false, 1 + host % 9), sums);
            }
        }
        for tally in [&traffic, &pages] {
            assert!(tally.cells.len() <= MOST_CELLS + 2);
            // Without folding of hosts: some 65,536 visits per addition after the first 65,536.
            assert!(tally.work <= 4 * 600_000, "{} cells were looked at", tally.work);
            assert_eq!(tally.iter().map(|(_, sums)| sums.requests).sum::<i64>(), 600_000);
            assert!(heaviest_hosts(tally).contains(&7));
        }
        let seven: i64 =
            pages.iter().filter(|(cell, _)| cell.host() == 7).map(|(_, sums)| sums.requests).sum();
        assert_eq!(seven, 300_000);
        for status in 0..5 {
            let of_status =
                |(cell, sums): (Cell, Sums)| (cell.item() == 200 + status).then_some(sums.requests);
            let found: i64 = traffic.iter().filter_map(of_status).sum();
            let real = if status == 7 % 5 { 300_000 } else { 0 };
            assert_eq!(found, 60_000 + real, "statuses stay exact");
        }
    }
}
