//! Listening sockets that this process did not open itself: they come from the process that it replaces, or from
//! the service manager.
//!
//! They are matched to what the configuration wants by address, and by name where several have the same address. One of
//! the service manager is also matched by its name alone: the name of a listener, `metrics` or `admin`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use offramp_net::{Address, listen};
use serde::{Deserialize, Serialize};

/// A socket of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSocket {
    /// Its listener's name.
    pub listener: Arc<str>,
    /// Its address as configured.
    pub address: Address,
}

/// The purpose of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The clients of a listener.
    Listener,
    /// The page of metrics.
    Metrics,
    /// Something that the server carries for others, such as the admin interface.
    Carried,
    /// Any of these: the service manager does not say.
    Any,
}

/// The label of the sockets of one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The use that is made of them.
    pub purpose: Purpose,
    /// The name of the listener.
    pub name: String,
    /// The address as configured.
    pub address: String,
    /// Set where the service manager has it too: its file is not ours.
    #[serde(default)]
    pub foreign: bool,
}

/// The label of a set of sockets, and how many follow for it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SocketCount {
    #[serde(flatten)]
    pub(crate) label: Label,
    pub(crate) count: usize,
}

/// The sockets that another process takes over: the sets in the order of their descriptors.
#[derive(Debug, Default)]
pub struct Offer {
    pub(crate) sets: Vec<SocketCount>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Offer {
    /// Adds a set.
    ///
    /// # Errors
    /// No more descriptors are to be had.
    pub fn add<'f>(
        &mut self,
        label: Label,
        sockets: impl IntoIterator<Item = BorrowedFd<'f>>,
    ) -> io::Result<()> {
        let before = self.fds.len();
        for socket in sockets {
            self.fds.push(socket.try_clone_to_owned()?);
        }
        self.sets.push(SocketCount { label, count: self.fds.len() - before });
        Ok(())
    }
}

/// Tells of each set of an [`Offer`], in its order, if the other process does not want it.
#[derive(Debug)]
pub struct Unwanted {
    numbers: Vec<usize>,
    next: usize,
}

impl Unwanted {
    /// The sets of these numbers.
    pub(crate) fn of(numbers: Vec<usize>) -> Self {
        Self { numbers, next: 0 }
    }

    /// Set if the next set is unwanted.
    pub fn next_is_left(&mut self) -> bool {
        self.next += 1;
        self.numbers.contains(&(self.next - 1))
    }
}

/// The sockets of one address.
#[derive(Debug)]
pub struct Set {
    /// Its place among those that came.
    pub(crate) number: usize,
    /// The label that they came with.
    pub label: Label,
    /// One for each worker that had one.
    pub fds: Vec<OwnedFd>,
}

/// The part of a label that must match.
#[derive(Clone, Copy)]
enum By {
    Both,
    Address,
    Name,
}

/// All that came, less what was taken.
#[derive(Debug, Default)]
pub struct Inherited {
    sets: Vec<Set>,
}

impl Inherited {
    pub(crate) fn new(sets: Vec<Set>) -> Self {
        Self { sets }
    }

    /// Sockets that the service manager has opened, with their names.
    pub fn activated(sockets: Vec<(String, OwnedFd)>) -> Self {
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

    /// The same sockets once more, for a second attempt to start.
    ///
    /// # Errors
    /// No more descriptors are to be had.
    pub fn try_clone(&self) -> io::Result<Self> {
        let again = |set: &Set| {
            let fds = set.fds.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
            Ok(Set { number: set.number, label: set.label.clone(), fds })
        };
        Ok(Self { sets: self.sets.iter().map(again).collect::<io::Result<_>>()? })
    }

    /// Takes what listeners want, each its own.
    pub fn for_listeners(&mut self, wanted: &[WantedSocket]) -> Vec<Option<Set>> {
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
    pub fn for_address(&mut self, purpose: Purpose, name: &str, address: &Address) -> Option<Set> {
        self.take(purpose, By::Address, name, address).or_else(|| self.take(purpose, By::Name, name, address))
    }

    /// True if a socket of the process before that was not taken receives some of the connections to this address.
    pub fn overlaps(&self, address: &Address) -> bool {
        let Address::Tcp(wanted) = address else { return false };
        let of_listeners = self.sets.iter().filter(|set| set.label.purpose == Purpose::Listener);
        let mut addresses = of_listeners.flat_map(|set| set.fds.first().and_then(listen::bound_address));
        addresses.any(|held| held.port() == wanted.port())
    }

    /// True if there is one for clients of this address.
    pub fn has_listener(&self, address: &Address) -> bool {
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

    /// The sockets that were not taken, by name and address.
    pub fn rest(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sets.iter().map(|set| (set.label.name.as_str(), set.label.address.as_str()))
    }

    /// The numbers of unwanted sets.
    pub fn left(&self) -> impl Iterator<Item = usize> {
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

    fn wanted(sockets: &[(&str, &str)]) -> Vec<WantedSocket> {
        let address = |text: &str| match text.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None => Address::Tcp(text.parse().unwrap()),
        };
        let one = |(name, at): &(&str, &str)| WantedSocket { listener: (*name).into(), address: address(at) };
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
