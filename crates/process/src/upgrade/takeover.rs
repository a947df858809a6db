//! The new process of an upgrade, as it sees the one before.

use std::io;
use std::time::Duration;

use offramp_net::handover::{Channel, within};
use offramp_net::process;
use serde::de::DeserializeOwned;

use super::message::{self, Handover};
use crate::inherited::Inherited;

/// The time for a message that was sent already to arrive.
const ARRIVAL: Duration = Duration::from_secs(10);
/// The time for the process before to give up what only one can have.
const GIVING_UP: Duration = Duration::from_secs(30);

/// The hand-over of the process that this one replaces.
#[derive(Debug)]
pub struct Takeover<S> {
    channel: Channel,
    state: S,
    inherited: Inherited,
    /// Set if the kernel would have written core dumps of this process before it had keys.
    was_dumpable: bool,
}

/// Tells the process before that there will be no new one.
#[derive(Debug)]
pub struct Refuser(Channel);

impl<S: DeserializeOwned> Takeover<S> {
    /// Takes what is handed over on standard input; nothing if that is no end of a hand-over.
    ///
    /// # Errors
    /// It is none that this program knows, and the process before has the reason.
    pub fn receive() -> Result<Option<Self>, String> {
        let channel =
            Channel::of_stdin().map_err(|error| format!("the hand-over cannot be taken: {error}"))?;
        let Some(channel) = channel else { return Ok(None) };
        // Keys of session tickets come with it. What the configuration says of this is not known yet.
        let was_dumpable = process::is_dumpable();
        process::forbid_core_dumps().map_err(|error| format!("core dumps cannot be forbidden: {error}"))?;
        match message::accept(&channel, within(ARRIVAL)) {
            Ok((Handover { state, .. }, inherited)) => {
                Ok(Some(Self { channel, state, inherited, was_dumpable }))
            }
            Err(reason) => {
                // It notices the end of this process in any case.
                let _ = message::refuse(&channel, &reason, within(ARRIVAL));
                Err(reason)
            }
        }
    }

    /// The sockets that came.
    #[must_use]
    pub fn inherited(&self) -> &Inherited {
        &self.inherited
    }

    /// Allows core dumps again, if they were allowed before this process knew its configuration.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn show_memory(&self) -> io::Result<()> {
        if self.was_dumpable { process::allow_core_dumps() } else { Ok(()) }
    }

    /// The means to say later that nothing came of it.
    #[must_use]
    pub fn refuser(&self) -> Option<Refuser> {
        self.channel.try_clone().ok().map(Refuser)
    }

    /// The means to go on with the conversation, and what came.
    #[must_use]
    pub fn parts(self) -> (Predecessor, S, Inherited) {
        (Predecessor(self.channel), self.state, self.inherited)
    }
}

impl Refuser {
    /// Says why this process ends.
    pub fn refuse(&self, reason: &str) {
        // A process that does not listen any more serves on in any case, or has ended.
        let _ = message::refuse(&self.0, reason, within(ARRIVAL));
    }
}

/// The process before, while both serve.
#[derive(Debug)]
pub struct Predecessor(Channel);

impl Predecessor {
    /// Says that this process accepts connections, and waits until the other has given up what only one can have.
    /// `left`: the sets of sockets that this process does not want.
    pub fn take_over(self, left: &[usize]) {
        if message::ready(&self.0, left, within(ARRIVAL)).is_ok() {
            message::wait_for_go(&self.0, within(GIVING_UP));
        }
    }
}
