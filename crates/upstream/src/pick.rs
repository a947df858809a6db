//! Which server a connection or request tries first, and which after.
//!
//! Pure: no sockets, and time, load and health are arguments. [`Picker`] is what the configuration says
//! and is shared; [`Chooser`] is one worker's state and is not.
//!
//! Servers fall into tiers, tried one after the other:
//! 1. primaries that work, 2. backups that work, 3. primaries in trouble, 4. backups in trouble.
//!
//! In trouble is who refused this worker a moment ago (its back-off) or was ejected: it is tried last,
//! but it is tried. Who is down or draining is not tried at all. The first server comes from the first
//! tier that is not empty, by the policy: smooth weighted round robin, the least loaded, the less
//! loaded of two, or the owner of a key. Those that follow are the next owners of a key, or go round.

mod chooser;
mod hash;
mod tried;

use std::num::NonZeroU16;

pub use chooser::{BACK_OFF_LIMIT, BACK_OFF_START, Chooser, Picked, Question};
pub use hash::key;
pub use tried::Tried;

/// Who is asked first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// Who has the fewest requests for its weight.
    LeastConn,
    /// The one with fewer requests of two drawn by weight: nearly as even, and many workers that
    /// decide at the same moment do not all choose the same.
    TwoChoices,
    /// Always the same for the same key, as long as it works.
    Hash(HashKey),
}

/// What a request is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's IP address.
    Client,
    /// The value of the cookie of this name.
    Cookie(Box<str>),
    /// The value of the header of this name, in lower case.
    Header(http::HeaderName),
}

impl Policy {
    /// Whether it looks at how many requests servers have.
    #[must_use]
    pub fn needs_load(&self) -> bool {
        matches!(self, Self::LeastConn | Self::TwoChoices)
    }
}

/// One server, as far as picking is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its share of connections, in proportion to the weights of the others of its kind.
    pub weight: NonZeroU16,
    /// Whether it gets connections only while no primary works.
    pub backup: bool,
}

impl Default for Candidate {
    /// A primary of weight 1.
    fn default() -> Self {
        Candidate { weight: NonZeroU16::MIN, backup: false }
    }
}

/// How a server stands at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether it may be used.
    pub usage: Use,
    /// How much of its weight it has, of [`FULL_SHARE`]; at least 1.
    pub share: u16,
    /// How many requests it has.
    pub load: u32,
    /// Whether it has as many as it may have.
    pub full: bool,
}

impl Default for Standing {
    /// Well and idle.
    fn default() -> Self {
        Standing { usage: Use::Normal, share: FULL_SHARE, load: 0, full: false }
    }
}

/// Whether a server may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It works.
    Normal,
    /// It was ejected: only where nobody else is left.
    LastResort,
    /// It is down, or leaving.
    Never,
}

/// The whole of a server's weight.
pub const FULL_SHARE: u16 = 256;

/// The servers of a backend, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picker {
    servers: Box<[Candidate]>,
    /// What servers hash by: their names, so that neither order nor a reload moves keys.
    seeds: Box<[u64]>,
}

impl Picker {
    /// Set for servers that get connections only while no primary works.
    pub(crate) fn is_backup(&self, server: usize) -> bool {
        self.servers[server].backup
    }

    /// A picker for `servers`, which are named by their index from now on.
    pub fn named<'n>(servers: impl IntoIterator<Item = (&'n str, Candidate)>) -> Self {
        let (seeds, servers): (Vec<u64>, Vec<Candidate>) =
            servers.into_iter().map(|(name, candidate)| (key(name.as_bytes()), candidate)).unzip();
        Picker { servers: servers.into(), seeds: seeds.into() }
    }

    /// How many servers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there is no server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}
