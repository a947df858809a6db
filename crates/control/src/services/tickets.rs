//! The keys of session tickets, and the time of the next key.

use std::sync::Arc;
use std::time::Duration;

use offramp_config::model;
use offramp_observe::Log;
use offramp_process::Finding;
use offramp_tls::TicketKeys;
use tokio::time::Instant;

use crate::data_plane::DataPlane;
use crate::service::{Service, Way};

/// The ticket keys in force, and their rotation.
pub(crate) struct TicketRotation {
    keys: Arc<TicketKeys>,
    settings: TicketsWanted,
    /// The time of the next key; `None` where there are no tickets.
    rotate_at: Option<Instant>,
    log: Log,
}

/// The tickets that a change wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketsWanted {
    /// The time between two keys.
    rotation: Duration,
    /// Set where clients get tickets.
    issued: bool,
}

impl From<&model::Tls> for TicketsWanted {
    fn from(tls: &model::Tls) -> Self {
        Self { rotation: tls.ticket_rotation, issued: tls.tickets.get() > 0 }
    }
}

/// A change of the ticket keys.
pub(crate) struct TicketsStep {
    settings: TicketsWanted,
    pub(crate) keys: Arc<TicketKeys>,
}

impl TicketRotation {
    /// Keys that change at this interval, of which no ticket is issued yet.
    pub(crate) fn of(keys: TicketKeys, rotation: Duration, log: Log) -> Self {
        let settings = TicketsWanted { rotation, issued: false };
        Self { keys: Arc::new(keys), settings, rotate_at: None, log }
    }

    pub(crate) fn keys(&self) -> &Arc<TicketKeys> {
        &self.keys
    }

    /// Brings the next key forward: it is due as it was in the process that the keys came from.
    pub(crate) fn rotate_within(&mut self, left: Duration) {
        self.rotate_at = self.rotate_at.map(|at| at.min(Instant::now() + left));
    }

    /// The time until the next key.
    pub(crate) fn until_rotation(&self) -> Option<Duration> {
        self.rotate_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The time to call [`Self::rotate_if_due`].
    pub(crate) fn due(&self) -> Option<Instant> {
        self.rotate_at
    }

    /// Makes the next key, if its time has come.
    pub(crate) fn rotate_if_due(&mut self, now: Instant) {
        if self.rotate_at.is_none_or(|at| at > now) {
            return;
        }
        // First: a panic does not make it due at once again.
        self.rotate_at = Some(now + self.settings.rotation);
        match self.keys.rotate() {
            Ok(()) => self.log.debug("session tickets get a new key", &[]),
            Err(error) => self.log.error(
                "cannot create a new ticket key; the old one stays in use",
                &[("reason", (&error).into())],
            ),
        }
    }
}

impl Service for TicketRotation {
    type Wanted<'a> = TicketsWanted;
    type Step = TicketsStep;

    fn prepare(&self, wanted: TicketsWanted, _: Way) -> Result<TicketsStep, Vec<Finding>> {
        let keys = if wanted.rotation == self.settings.rotation {
            Arc::clone(&self.keys)
        } else {
            let new = TicketKeys::new(wanted.rotation);
            Arc::new(new.map_err(|error| vec![Finding::nowhere(error.to_string())])?)
        };
        Ok(TicketsStep { settings: wanted, keys })
    }

    fn commit(&mut self, step: TicketsStep, _: &DataPlane) {
        if step.settings != self.settings {
            let TicketsWanted { rotation, issued } = step.settings;
            self.rotate_at = issued.then(|| Instant::now() + rotation);
        }
        (self.keys, self.settings) = (step.keys, step.settings);
    }
}
