//! The new process of an upgrade, as it sees the one before.

use std::io;

use offramp_net::Address;
use offramp_process::inherited::Inherited;
use offramp_process::upgrade::{Predecessor, Refuser, Takeover};

use super::state::State;

/// The hand-over of the process that this one replaces.
#[derive(Debug)]
pub struct Heir(Takeover<State>);

impl Heir {
    /// Takes what is handed over on standard input; nothing if that is no end of a hand-over.
    ///
    /// # Errors
    /// It is none that this program knows, and the process before has the reason.
    pub fn receive() -> Result<Option<Self>, String> {
        Ok(Takeover::receive()?.map(Self))
    }

    /// True if a socket for clients came that listens there.
    #[must_use]
    pub fn listens_on(&self, address: &Address) -> bool {
        self.0.inherited().has_listener(address)
    }

    /// Allows core dumps again, if they were allowed before this process knew its configuration.
    pub(crate) fn show_memory(&self) -> io::Result<()> {
        self.0.show_memory()
    }

    /// The means to say later that nothing came of it.
    #[must_use]
    pub fn refuser(&self) -> Option<Refuser> {
        self.0.refuser()
    }

    pub(crate) fn parts(self) -> (Predecessor, State, Inherited) {
        self.0.parts()
    }
}
