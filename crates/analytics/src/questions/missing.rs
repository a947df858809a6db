//! Requests that an answer cannot attribute: roll-ups keep the rest of a host without names, and a fold forgets light
//! groups when there are too many. Each count of an answer is then a lower bound, and this is how much more it may be.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::question::Shortfall;
use crate::rollup::REST;
use crate::rollup::tally::Sums;

/// The requests and bytes that the counts of an answer lack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missing {
    /// What has no name, by host; under [`REST`] what may be of any host.
    hosts: HashMap<i64, Sums, RandomState>,
    /// What was forgotten: of one group at most, and of all together.
    forgotten: [Sums; 2],
    /// What was asked to be left out, and may be among what is counted.
    surplus: Sums,
}

impl Missing {
    /// Requests without a name, of a host or of [`REST`].
    pub(crate) fn add(&mut self, host: i64, sums: Sums) {
        self.hosts.entry(host).or_default().add(sums);
    }

    /// Groups were forgotten at once: the most that one of them had, and all.
    pub(crate) fn forget(&mut self, each: Sums, all: Sums) {
        self.forgotten[0].add(each);
        self.forgotten[1].add(all);
    }

    /// Requests that may have been counted and should not.
    pub(crate) fn add_surplus(&mut self, sums: Sums) {
        self.surplus.add(sums);
    }

    /// So much more may be of one page of this host.
    pub(crate) fn of_host(&self, host: i64) -> Sums {
        let mut sums = self.forgotten[0];
        [host, REST].iter().filter_map(|host| self.hosts.get(host)).for_each(|more| sums.add(*more));
        sums
    }

    /// So much more may be of one item.
    pub(crate) fn of_any(&self) -> Sums {
        self.without_name(self.forgotten[0])
    }

    /// So much more may be of several items together.
    pub(crate) fn of_several(&self) -> Sums {
        self.without_name(self.forgotten[1])
    }

    fn without_name(&self, mut sums: Sums) -> Sums {
        self.hosts.values().for_each(|more| sums.add(*more));
        sums
    }

    /// The bound of a row, as an answer has it.
    pub(crate) fn shortfall(&self) -> Option<Shortfall> {
        let Sums { requests, bytes } = self.of_any();
        (requests > 0).then_some(Shortfall { requests, bytes })
    }

    /// What a reader must know, if anything is missing.
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
