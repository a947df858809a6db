//! The contract of a service: a part of the process that follows the configuration.
//!
//! A change asks every service to [prepare](Service::prepare) a step, which does all that can fail and changes nothing.
//! Only when every service has one are the steps [committed](Service::commit), in the order that
//! [`commit`](crate::commit) has. The start is the first change: services begin with nothing.

use std::io;

use offramp_process::Finding;
use offramp_process::inherited::{Offer, Unwanted};

use crate::data_plane::DataPlane;

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To a configuration that an operator wants.
    Forward,
    /// Back from a change that was not confirmed: it must succeed, so that what is broken is kept or logged.
    Back,
}

/// A part of the process that follows its own part of the configuration.
pub(crate) trait Service {
    /// The service's part of the configuration, with what other steps have made for it.
    type Wanted<'a>;
    /// A change of the service that cannot fail any more.
    type Step;

    /// Makes a step of what is wanted. Changes nothing.
    ///
    /// # Errors
    /// Everything that stands in the way. What was opened before it was found is given up.
    fn prepare(&self, wanted: Self::Wanted<'_>, way: Way) -> Result<Self::Step, Vec<Finding>>;

    /// Puts a step in force. To be called within the runtime.
    fn commit(&mut self, step: Self::Step, plane: &DataPlane);

    /// Gives up what a step has opened in the file system: it will not be committed.
    fn abandon(&self, _step: &Self::Step) {}

    /// Adds the sockets that another process takes over.
    ///
    /// # Errors
    /// They cannot be shared.
    fn offer(&self, _offer: &mut Offer) -> io::Result<()> {
        Ok(())
    }

    /// Gives up what only one process can have: another one has taken over. `unwanted` tells of each set of
    /// [offered](Self::offer) sockets, in the same order, if the other process does not want it.
    async fn hand_over(&mut self, _unwanted: &mut Unwanted, _plane: &DataPlane) {}

    /// Accepts nothing more: the drain begins.
    fn stop(&mut self) {}
}
