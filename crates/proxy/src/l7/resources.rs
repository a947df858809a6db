//! The resources of one worker that its HTTP connections use.

use std::cell::Cell;
use std::rc::Rc;

use offramp_upstream::Pools;

use super::body::ClientBody;
use super::compress::Compressors;
use super::date::Date;
use super::files::Roots;
use super::h2::Runners;
use super::heads::Heads;
use super::mirror::Mirrors;
use crate::credentials::KnownPasswords;
use crate::credentials::jwt::KnownTokens;
use crate::resources::SharedResources;

/// The resources of one worker that its HTTP connections use, beside [`Resources`](crate::resources::Resources).
pub(crate) struct HttpResources {
    /// Memory for heads of requests.
    pub(super) heads: Rc<Heads>,
    /// HTTP/1 connections that have memory for requests; see [`h1`](super::h1).
    pub(super) warm: Cell<usize>,
    /// The tasks of HTTP/2 streams.
    pub(super) runners: Rc<Runners>,
    /// The `date` of responses.
    pub(super) date: Date,
    /// Passwords that were right.
    pub(super) passwords: Rc<KnownPasswords>,
    /// Tokens that were right.
    pub(super) tokens: KnownTokens,
    /// Open roots of files.
    pub(super) roots: Roots,
    /// Memory of encoders of responses.
    pub(super) compressors: Compressors,
    /// Copies of requests that are under way.
    pub(super) mirrors: Mirrors,
    /// Pools of connections to servers.
    pub(super) pools: Pools<ClientBody>,
}

impl HttpResources {
    /// The resources of worker `index`.
    pub(crate) fn new(index: usize, shared: &SharedResources) -> Rc<Self> {
        let runners: Rc<Runners> = Rc::default();
        shared.held.add(runners.memory.shown());
        runners.memory.heed(&shared.pressure);
        Rc::new(Self {
            heads: Rc::default(),
            warm: Cell::new(0),
            runners,
            date: Date::default(),
            passwords: Rc::default(),
            tokens: KnownTokens::default(),
            roots: Roots::default(),
            compressors: Compressors::default(),
            mirrors: Mirrors::default(),
            pools: Pools::new(index),
        })
    }
}
