//! Listening sockets that this process did not open itself: they come from the process whose place it takes.
//!
//! They are matched to what the configuration wants by address, and by name where several have the same address.

use std::os::fd::OwnedFd;

use offramp_net::Address;
use serde::{Deserialize, Serialize};

use crate::plan::Wanted;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Purpose {
    /// The clients of a listener.
    Listener,
    /// The page of metrics.
    Metrics,
    /// Something that the server carries for others; see [`crate::Carried`].
    Carried,
}

/// What belongs to one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) purpose: Purpose,
    /// The listener.
    pub(crate) name: String,
    /// As configured.
    pub(crate) address: String,
}

/// The sockets of one address.
#[derive(Debug)]
pub(crate) struct Set {
    /// Its place among those that came.
    pub(crate) number: usize,
    pub(crate) label: Label,
    pub(crate) fds: Vec<OwnedFd>,
}

/// All that came, less what was taken.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sets: Vec<Set>,
}

impl Inherited {
    pub(crate) fn new(sets: Vec<Set>) -> Self {
        Self { sets }
    }

    /// Takes what listeners want, each its own.
    pub(crate) fn for_listeners(&mut self, wanted: &[Wanted]) -> Vec<Option<Set>> {
        let mut taken: Vec<Option<Set>> = wanted.iter().map(|_| None).collect();
        // Those of the same name first: several may have the same address where the port is 0.
        for same_name in [true, false] {
            for (want, place) in wanted.iter().zip(&mut taken).filter(|(_, place)| place.is_none()) {
                let address = want.address.to_string();
                *place = self.take(Purpose::Listener, |label| {
                    label.address == address && (!same_name || label.name == *want.listener)
                });
            }
        }
        taken
    }

    /// Takes what is for this address.
    pub(crate) fn for_address(&mut self, purpose: Purpose, address: &Address) -> Option<Set> {
        let address = address.to_string();
        self.take(purpose, |label| label.address == address)
    }

    /// Whether there is one for clients of this address.
    pub(crate) fn has_listener(&self, address: &Address) -> bool {
        let address = address.to_string();
        self.sets.iter().any(|set| set.label.purpose == Purpose::Listener && set.label.address == address)
    }

    fn take(&mut self, purpose: Purpose, fits: impl Fn(&Label) -> bool) -> Option<Set> {
        let at = self.sets.iter().position(|set| set.label.purpose == purpose && fits(&set.label))?;
        Some(self.sets.swap_remove(at))
    }

    /// The numbers of those that nobody wants.
    pub(crate) fn left(&self) -> impl Iterator<Item = usize> {
        self.sets.iter().map(|set| set.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited(labels: &[(Purpose, &str, &str)]) -> Inherited {
        let set = |(number, (purpose, name, address)): (usize, &(Purpose, &str, &str))| {
            let label = Label { purpose: *purpose, name: (*name).into(), address: (*address).into() };
            Set { number, label, fds: Vec::new() }
        };
        Inherited::new(labels.iter().enumerate().map(set).collect())
    }

    fn wanted(sockets: &[(&str, &str)]) -> Vec<Wanted> {
        let address = |text: &str| match text.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None => Address::Tcp(text.parse().unwrap()),
        };
        let one = |(name, at): &(&str, &str)| Wanted { listener: (*name).into(), address: address(at) };
        sockets.iter().map(one).collect()
    }

    #[test]
    fn each_gets_its_own_and_the_rest_is_left() {
        let any = "127.0.0.1:0";
        let mut inherited = inherited(&[
            (Purpose::Listener, "a", any),
            (Purpose::Listener, "b", any),
            (Purpose::Metrics, "", "127.0.0.1:9"),
            (Purpose::Listener, "old", "unix:/run/s"),
            (Purpose::Listener, "gone", "[::]:443"),
        ]);
        let wanted =
            wanted(&[("b", any), ("new", "unix:/run/s"), ("c", any), ("d", any), ("e", "127.0.0.1:9")]);
        let taken = inherited.for_listeners(&wanted);
        let numbers: Vec<_> = taken.iter().map(|set| set.as_ref().map(|set| set.number)).collect();
        assert_eq!(numbers, [Some(1), Some(3), Some(0), None, None]);
        let metrics = Address::Tcp("127.0.0.1:9".parse().unwrap());
        assert!(inherited.for_address(Purpose::Carried, &metrics).is_none());
        assert_eq!(inherited.for_address(Purpose::Metrics, &metrics).unwrap().number, 2);
        assert_eq!(inherited.left().collect::<Vec<_>>(), [4]);
    }
}
