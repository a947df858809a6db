//! Reactions to the events of an opener, shared by the relay and [`TlsStream`](crate::TlsStream).

use offramp_record::{Alert, RecordEvent, RecordFault};

use crate::sending::Sending;
use crate::session::{SessionError, TlsSession};

/// Next step of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveAction {
    /// Read more: the next record is incomplete.
    Incomplete,
    /// Open more records from the buffer.
    More,
    /// Open more records; the keys of the peer have changed, and ours, too, if `answered`.
    KeyUpdate {
        /// Set if a KeyUpdate of ours was sealed.
        answered: bool,
    },
    /// Read nothing more: the stream has ended.
    End(TlsClosure),
}

/// End of a peer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsClosure {
    /// Orderly, by close_notify.
    CloseNotify,
    /// By an invalid record; the alert was sent.
    Fault(RecordFault),
    /// By a fatal alert.
    PeerAlert(Alert),
}

impl TlsSession {
    /// Reacts to `event`. Replies to the peer are sealed behind the records in `sending`, unless `silent`:
    /// nothing may follow a close_notify or a fatal alert (RFC 8446 §6.1).
    ///
    /// # Errors
    /// As [`TlsSession::update_receiving`].
    pub fn receive(
        &mut self,
        event: RecordEvent,
        sending: &mut Sending,
        silent: bool,
    ) -> Result<ReceiveAction, SessionError> {
        let refused = match event {
            RecordEvent::NeedMore(_) => return Ok(ReceiveAction::Incomplete),
            RecordEvent::Full => return Ok(ReceiveAction::More),
            RecordEvent::KeyUpdate { answer } => {
                self.update_receiving()?;
                let answered = answer && !silent && sending.answer(self)?;
                return Ok(ReceiveAction::KeyUpdate { answered });
            }
            RecordEvent::Tickets => self.keep_tickets(),
            RecordEvent::RefuseRenegotiation => {
                if !silent {
                    sending.alert(self, Alert::NO_RENEGOTIATION);
                }
                Ok(())
            }
            RecordEvent::CloseNotify => return Ok(ReceiveAction::End(TlsClosure::CloseNotify)),
            RecordEvent::PeerAlert(alert) => return Ok(ReceiveAction::End(TlsClosure::PeerAlert(alert))),
            RecordEvent::Fault(fault) => Err(fault),
        };
        let Err(fault) = refused else { return Ok(ReceiveAction::More) };
        if !silent {
            sending.alert(self, fault.alert());
        }
        Ok(ReceiveAction::End(TlsClosure::Fault(fault)))
    }
}
