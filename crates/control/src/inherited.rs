//! Listening sockets that this process did not open itself: they come from the process whose place it takes, or from
//! the service manager.
//!
//! They are matched to what the configuration wants by address, and by name where several have the same address. One of
//! the service manager is also matched by its name alone: the name of a listener, `metrics` or `admin`.

use std::os::fd::OwnedFd;

use offramp_net::{Address, listen};
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
    /// Any of these: the service manager does not say.
    Any,
}

/// What belongs to one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) purpose: Purpose,
    /// The listener.
    pub(crate) name: String,
    /// As configured.
    pub(crate) address: String,
    /// Whether the service manager has it too: its file is not ours.
    #[serde(default)]
    pub(crate) foreign: bool,
}

/// The sockets of one address.
#[derive(Debug)]
pub(crate) struct Set {
    /// Its place among those that came.
    pub(crate) number: usize,
    pub(crate) label: Label,
    pub(crate) fds: Vec<OwnedFd>,
}

/// What has to be the same.
#[derive(Clone, Copy)]
enum By {
    Both,
    Address,
    Name,
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

    /// What the service manager has opened: sockets with their names.
    pub(crate) fn activated(sockets: Vec<(String, OwnedFd)>) -> Self {
        let mut sets: Vec<Set> = Vec::new();
        for (name, fd) in sockets {
            let address = listen::address_of(&fd).map_or_else(String::new, |address| address.to_string());
            let label = Label { purpose: Purpose::Any, name, address, foreign: true };
            // Several of one address share it by SO_REUSEPORT.
            match sets.iter_mut().find(|set| set.label == label) {
                Some(set) => set.fds.push(fd),
                None => sets.push(Set { number: sets.len(), label, fds: vec![fd] }),
            }
        }
        Self { sets }
    }

    /// Takes what listeners want, each its own.
    pub(crate) fn for_listeners(&mut self, wanted: &[Wanted]) -> Vec<Option<Set>> {
        let mut taken: Vec<Option<Set>> = wanted.iter().map(|_| None).collect();
        // Those of the same name first: several may have the same address where the port is 0.
        for by in [By::Both, By::Address, By::Name] {
            for (want, place) in wanted.iter().zip(&mut taken).filter(|(_, place)| place.is_none()) {
                *place = self.take(Purpose::Listener, by, &want.listener, &want.address);
            }
        }
        taken
    }

    /// Takes what is for this address, or what the service manager calls so.
    pub(crate) fn for_address(&mut self, purpose: Purpose, name: &str, address: &Address) -> Option<Set> {
        self.take(purpose, By::Address, name, address).or_else(|| self.take(purpose, By::Name, name, address))
    }

    /// Whether one that nobody took, of the process before, takes some of the connections to this address.
    pub(crate) fn overlaps(&self, address: &Address) -> bool {
        let Address::Tcp(wanted) = address else { return false };
        let of_listeners = self.sets.iter().filter(|set| set.label.purpose == Purpose::Listener);
        let mut addresses = of_listeners.flat_map(|set| set.fds.first().and_then(listen::bound_address));
        addresses.any(|held| held.port() == wanted.port())
    }

    /// Whether there is one for clients of this address.
    pub(crate) fn has_listener(&self, address: &Address) -> bool {
        let address = address.to_string();
        self.sets.iter().any(|set| set.label.purpose == Purpose::Listener && set.label.address == address)
    }

    fn take(&mut self, purpose: Purpose, by: By, name: &str, address: &Address) -> Option<Set> {
        let address = address.to_string();
        let fits = |label: &Label| {
            let any = label.purpose == Purpose::Any;
            (any || label.purpose == purpose)
                && match by {
                    By::Both => label.address == address && label.name == name,
                    By::Address => label.address == address,
                    By::Name => any && label.name == name,
                }
        };
        let at = self.sets.iter().position(|set| fits(&set.label))?;
        Some(self.sets.remove(at))
    }

    /// What nobody took, by name and address.
    pub(crate) fn rest(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sets.iter().map(|set| (set.label.name.as_str(), set.label.address.as_str()))
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
            let label = Label {
                purpose: *purpose,
                name: (*name).into(),
                address: (*address).into(),
                foreign: *purpose == Purpose::Any,
            };
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
        assert!(inherited.for_address(Purpose::Carried, "admin", &metrics).is_none());
        assert_eq!(inherited.for_address(Purpose::Metrics, "metrics", &metrics).unwrap().number, 2);
        assert_eq!(inherited.left().collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn sockets_of_the_service_manager_are_matched_by_name_too() {
        let mut inherited = inherited(&[
            (Purpose::Any, "web", "[::]:8443"),
            (Purpose::Any, "offramp.socket", "[::]:443"),
            (Purpose::Any, "web", "127.0.0.1:443"),
            (Purpose::Any, "metrics", "127.0.0.1:9999"),
            (Purpose::Any, "unknown", "unix:/run/x"),
        ]);
        let wanted = wanted(&[("other", "[::]:443"), ("web", "127.0.0.1:443"), ("web", "[::]:444")]);
        let taken = inherited.for_listeners(&wanted);
        let numbers: Vec<_> = taken.iter().map(|set| set.as_ref().map(|set| set.number)).collect();
        assert_eq!(numbers, [Some(1), Some(2), Some(0)]);
        let metrics = Address::Tcp("127.0.0.1:9902".parse().unwrap());
        assert_eq!(inherited.for_address(Purpose::Metrics, "metrics", &metrics).unwrap().number, 3);
        assert_eq!(inherited.rest().collect::<Vec<_>>(), [("unknown", "unix:/run/x")]);
    }
}
