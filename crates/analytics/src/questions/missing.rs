//! Bounds on requests that an answer cannot attribute: roll-ups keep the rest of a host without names, and an
//! aggregation drops light groups. Each count of an answer is then a lower bound, and this is its largest
//! error.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::question::Shortfall;
use crate::rollup::REST;
use crate::rollup::tally::Sums;

/// The requests and bytes that the counts of an answer may lack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missing {
    /// Nameless sums by host; under [`REST`] those of unknown hosts.
    hosts: HashMap<i64, Sums, RandomState>,
    /// Dropped groups: the heaviest one, and the sum of all.
    forgotten: [Sums; 2],
    /// Excluded requests that may be among the counted ones.
    surplus: Sums,
}

impl Missing {
    /// Adds nameless requests of a host or of [`REST`].
    pub(crate) fn add(&mut self, host: i64, sums: Sums) {
        self.hosts.entry(host).or_default().add(sums);
    }

    /// Records a drop of groups: the heaviest one, and their sum.
    pub(crate) fn forget(&mut self, each: Sums, all: Sums) {
        self.forgotten[0].add(each);
        self.forgotten[1].add(all);
    }

    /// Records requests that should be excluded but may have been counted.
    pub(crate) fn add_surplus(&mut self, sums: Sums) {
        self.surplus.add(sums);
    }

    /// The largest error for a page of this host.
    pub(crate) fn of_host(&self, host: i64) -> Sums {
        let mut sums = self.forgotten[0];
        [host, REST].iter().filter_map(|host| self.hosts.get(host)).for_each(|more| sums.add(*more));
        sums
    }

    /// The largest error for one item.
    pub(crate) fn of_any(&self) -> Sums {
        self.without_name(self.forgotten[0])
    }

    /// The largest error for the sum of several items.
    pub(crate) fn of_several(&self) -> Sums {
        self.without_name(self.forgotten[1])
    }

    fn without_name(&self, mut sums: Sums) -> Sums {
        self.hosts.values().for_each(|more| sums.add(*more));
        sums
    }

    /// The error bound of a row in an answer.
    pub(crate) fn shortfall(&self) -> Option<Shortfall> {
        let Sums { requests, bytes } = self.of_any();
        (requests > 0).then_some(Shortfall { requests, bytes })
    }

    /// Remarks on missing requests, if any.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(Shortfall { requests, bytes }) = self.shortfall() {
            notes.push(format!(
                "the counts are at least what is shown: up to {requests} requests ({bytes} bytes) more may belong to a \
                 row, or to one that is not listed, because they were added up without names"
            ));
        }
        if self.surplus.requests > 0 {
            notes.push(format!(
                "up to {} requests ({} bytes) of the excluded clients may be counted, because they were added up \
                 without names",
                self.surplus.requests, self.surplus.bytes
            ));
        }
        notes
    }
}
