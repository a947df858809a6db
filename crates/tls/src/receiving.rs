//! What the events of an opener demand, done in one place for the relay and for [`Stream`](crate::Stream).

use offramp_record::{Alert, Event, Fault};

use crate::sending::Sending;
use crate::session::{Session, SessionError};

/// What a reader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It reads: the next record has not come whole.
    Incomplete,
    /// It opens on.
    More,
    /// It opens on; the peer's keys have changed, and ours too, if this was `answered`.
    KeyUpdate {
        /// Whether a KeyUpdate of ours was sealed.
        answered: bool,
    },
    /// It reads nothing more.
    End(End),
}

/// How a peer ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With close_notify.
    CloseNotify,
    /// By a record that must not be; the alert that says so was sent.
    Fault(Fault),
    /// With a fatal alert.
    PeerAlert(Alert),
}

impl Session {
    /// Does what `event` demands. What the peer has to hear of it is sealed behind what waits in `sending`, but for
    /// the `silent`: nothing may follow a close_notify or a fatal alert (RFC 8446 §6.1).
    ///
    /// # Errors
    /// As [`Session::update_receiving`].
    pub fn receive(
        &mut self,
        event: Event,
        sending: &mut Sending,
        silent: bool,
    ) -> Result<Received, SessionError> {
        let refused = match event {
            Event::NeedMore(_) => return Ok(Received::Incomplete),
            Event::Full => return Ok(Received::More),
            Event::KeyUpdate { answer } => {
                self.update_receiving()?;
                let answered = answer && !silent && sending.answer(self)?;
                return Ok(Received::KeyUpdate { answered });
            }
            Event::Tickets => self.keep_tickets(),
            Event::RefuseRenegotiation => {
                if !silent {
                    sending.alert(self, Alert::NO_RENEGOTIATION);
                }
                Ok(())
            }
            Event::CloseNotify => return Ok(Received::End(End::CloseNotify)),
            Event::PeerAlert(alert) => return Ok(Received::End(End::PeerAlert(alert))),
            Event::Fault(fault) => Err(fault),
        };
        let Err(fault) = refused else { return Ok(Received::More) };
        if !silent {
            sending.alert(self, fault.alert());
        }
        Ok(Received::End(End::Fault(fault)))
    }
}
