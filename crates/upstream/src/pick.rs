//! Choice of the server that a connection or request tries first, and of those after it.
//!
//! Pure: no sockets, and time, load and health are arguments. [`Picker`] is the shared configuration;
//! [`Chooser`] is the state of one worker.
//!
//! Servers are in tiers, tried one after the other:
//! 1. healthy primaries, 2. healthy backups, 3. troubled primaries, 4. troubled backups.
//!
//! A server is troubled if it failed for this worker a moment ago (its back-off) or was ejected: it is tried
//! last, but it is tried. One that is down or draining is not tried at all. The first server comes from the
//! first non-empty tier, by the policy: smooth weighted round robin, the least loaded, the less loaded of
//! two, or the owner of a key. Those that follow are the next owners of a key, or in turn.

mod chooser;
mod hash;
mod tried;

use std::num::NonZeroU16;

pub use chooser::{BACK_OFF_LIMIT, BACK_OFF_START, ChoiceParams, Chooser, Picked};
pub use hash::key;
pub use tried::Tried;

/// Policy by which the first server is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BalancePolicy {
    /// Smooth weighted round robin.
    #[default]
    RoundRobin,
    /// The fewest requests in proportion to the weight.
    LeastConn,
    /// The less loaded of two servers drawn by weight: nearly as even, and many workers that decide at the
    /// same moment do not all choose the same.
    TwoChoices,
    /// The same server for the same key, while it is healthy.
    Hash(HashSource),
}

/// Source of the hash key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashSource {
    /// IP address of the client.
    Client,
    /// Value of the cookie of this name.
    Cookie(Box<str>),
    /// Value of the header of this name, in lower case.
    Header(http::HeaderName),
}

impl BalancePolicy {
    /// Returns true for policies that depend on the load of servers.
    #[must_use]
    pub fn needs_load(&self) -> bool {
        matches!(self, Self::LeastConn | Self::TwoChoices)
    }
}

/// Configuration of one server for the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Share of connections in proportion to the weights of the others of its kind.
    pub weight: NonZeroU16,
    /// Set for servers that get connections only while no primary is healthy.
    pub backup: bool,
}

impl Default for Candidate {
    /// A primary of weight 1.
    fn default() -> Self {
        Candidate { weight: NonZeroU16::MIN, backup: false }
    }
}

/// Current state of a server for the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStanding {
    /// Health of the server.
    pub usage: Use,
    /// Current part of its weight, of [`FULL_SHARE`]; at least 1.
    pub share: u16,
    /// Number of current requests.
    pub load: u32,
    /// Set if it has its maximum of requests.
    pub full: bool,
}

impl Default for ServerStanding {
    /// Healthy, idle, with its full weight.
    fn default() -> Self {
        ServerStanding { usage: Use::Normal, share: FULL_SHARE, load: 0, full: false }
    }
}

/// Permission to use a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The server is healthy.
    Normal,
    /// It was ejected: used only if no other is left.
    LastResort,
    /// It is down, or leaving.
    Never,
}

/// The whole of a server's weight.
pub const FULL_SHARE: u16 = 256;

/// Servers of a backend, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picker {
    servers: Box<[Candidate]>,
    /// Hash seeds of the servers, by name, so that neither order nor a reload moves keys.
    seeds: Box<[u64]>,
}

impl Picker {
    /// Returns true for servers that get connections only while no primary is healthy.
    pub(crate) fn is_backup(&self, server: usize) -> bool {
        self.servers[server].backup
    }

    /// Creates a picker for `servers`, which are identified by their index from now on.
    pub fn named<'n>(servers: impl IntoIterator<Item = (&'n str, Candidate)>) -> Self {
        let (seeds, servers): (Vec<u64>, Vec<Candidate>) =
            servers.into_iter().map(|(name, candidate)| (key(name.as_bytes()), candidate)).unzip();
        Picker { servers: servers.into(), seeds: seeds.into() }
    }

    /// Number of servers of the backend.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns true without servers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}
