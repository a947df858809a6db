//! What a process begins with: the configuration of its file, and what another process hands over.

use std::os::fd::OwnedFd;

use offramp_config::Config;
use offramp_observe::Log;

use crate::error::{Error, none_or_refused};
use crate::inherited::Inherited;
use crate::running::Source;
use crate::sandbox::{self, Reach};
use crate::unwritten::Unwritten;
use crate::upgrade::{Heir, Predecessor, State};

/// What the process begins with: its configuration, and what another one hands over.
pub(super) struct Given {
    /// The configuration of the file, with the changes that were handed over.
    pub(super) config: Config,
    /// The configuration of the file, where it is another.
    pub(super) file: Option<Config>,
    pub(super) unwritten: Unwritten,
    pub(super) before: Option<Predecessor>,
    pub(super) state: State,
    pub(super) inherited: Inherited,
}

impl Given {
    /// Takes what another process hands over. Its changes of the configuration may not reach further than the sandbox that
    /// the file wants: whoever has taken over that process could write its own sandbox otherwise.
    pub(super) fn take(
        file: Config,
        heir: Option<Heir>,
        activated: Vec<(String, OwnedFd)>,
        (source, also): (&Source, &Reach),
        log: &Log,
    ) -> Result<Self, Error> {
        let (before, state, inherited) = match heir.map(Heir::parts) {
            Some((before, state, inherited)) => (Some(before), state, inherited),
            None => (None, State::default(), Inherited::activated(activated)),
        };
        let own = before.is_some().then(|| file.clone());
        let (config, unwritten) = state.with_unwritten(file, source, log)?;
        if let Some(file) = own.as_ref().filter(|_| unwritten.count() > 0) {
            none_or_refused(sandbox::beyond_file(file, &config, source, also))?;
        }
        Ok(Self { config, file: own, unwritten, before, state, inherited })
    }
}
