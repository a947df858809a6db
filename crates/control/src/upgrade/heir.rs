//! The new process of an upgrade, as it sees the one before.

use std::io;
use std::time::Duration;

use offramp_net::handover::{Channel, within};
use offramp_net::{Address, process};

use super::message;
use super::state::State;
use crate::inherited::Inherited;

/// How long what was sent already may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(10);
/// How long the process before may take to give up what only one can have.
const GIVING_UP: Duration = Duration::from_secs(30);

/// What came from the process whose place this one takes.
#[derive(Debug)]
pub struct Heir {
    channel: Channel,
    pub(crate) state: State,
    pub(crate) inherited: Inherited,
    /// Whether the kernel would have written core dumps of this process before it had keys.
    was_dumpable: bool,
}

/// Tells the process before that there will be no new one.
#[derive(Debug)]
pub struct Refuser(Channel);

impl Heir {
    /// Takes what is handed over on standard input; nothing if that is no end of a hand-over.
    ///
    /// # Errors
    /// It is none that this program knows, which the process before was told.
    pub fn receive() -> Result<Option<Self>, String> {
        let channel =
            Channel::of_stdin().map_err(|error| format!("the hand-over cannot be taken: {error}"))?;
        let Some(channel) = channel else { return Ok(None) };
        // Keys of session tickets come with it. What the configuration says of this is not known yet.
        let was_dumpable = process::is_dumpable();
        process::forbid_core_dumps().map_err(|error| format!("core dumps cannot be forbidden: {error}"))?;
        match message::accept(&channel, within(ARRIVAL)) {
            Ok((state, inherited)) => Ok(Some(Self { channel, state, inherited, was_dumpable })),
            Err(reason) => {
                // It notices the end of this process in any case.
                let _ = message::refuse(&channel, &reason, within(ARRIVAL));
                Err(reason)
            }
        }
    }

    /// Whether a socket for clients came that listens there.
    #[must_use]
    pub fn listens_on(&self, address: &Address) -> bool {
        self.inherited.has_listener(address)
    }

    /// Allows core dumps again, if they were allowed before this process knew its configuration.
    pub(crate) fn show_memory(&self) -> io::Result<()> {
        if self.was_dumpable { process::allow_core_dumps() } else { Ok(()) }
    }

    /// Who can say later that nothing came of it.
    #[must_use]
    pub fn refuser(&self) -> Option<Refuser> {
        self.channel.try_clone().ok().map(Refuser)
    }

    pub(crate) fn parts(self) -> (Predecessor, State, Inherited) {
        (Predecessor(self.channel), self.state, self.inherited)
    }
}

impl Refuser {
    /// Says why this process ends.
    pub fn refuse(&self, reason: &str) {
        // Who does not listen any more serves on in any case, or has ended.
        let _ = message::refuse(&self.0, reason, within(ARRIVAL));
    }
}

/// The process before, while both serve.
pub(crate) struct Predecessor(Channel);

impl Predecessor {
    /// Says that this process accepts connections, and waits until the other has given up what only one can have.
    /// `left`: the sets of sockets that this process does not want.
    pub(crate) fn take_over(self, left: &[usize]) {
        if message::ready(&self.0, left, within(ARRIVAL)).is_ok() {
            message::wait_for_go(&self.0, within(GIVING_UP));
        }
    }
}
