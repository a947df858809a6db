//! Record layer of one connection, with its key updates and closing alerts.

use std::fmt;

use offramp_record::{
    Alert, ContentType, KeyDemand, KeyMaterial, LibraryChoice, Opener, RecordFault, Sealer, Suite,
    TrafficSecret, Version,
};
use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;

use crate::secrets::Secrets;

/// KeyUpdate with update_not_requested (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// An internal error: rustls yielded keys that the record layer does not support.
#[derive(Debug)]
pub struct SessionError(String);

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SessionError {}

/// Both directions of an established connection.
///
/// Opener and sealer are used directly; their events and pressures are handled by the methods here.
pub struct TlsSession {
    /// Opens records of the peer.
    pub opener: Opener,
    /// Seals records for the peer.
    pub sealer: Sealer,
    keys: NextKeys,
}

/// Source of the keys after an update.
enum NextKeys {
    /// None: TLS 1.2 has no key updates.
    None,
    /// Traffic secrets, for TLS 1.3 as a server.
    Server(TrafficSecrets),
    /// rustls, for TLS 1.3 as a client; it also gets the session tickets.
    Client(Box<KernelConnection<ClientConnectionData>>),
}

/// Traffic secrets of both directions.
struct TrafficSecrets {
    receiving: TrafficSecret,
    sending: TrafficSecret,
}

impl TlsSession {
    /// Takes over from rustls as a server.
    pub(crate) fn new(
        keys: &rustls::ExtractedSecrets,
        secrets: &Secrets,
        version: Version,
        choice: &LibraryChoice,
    ) -> Result<Self, SessionError> {
        let sending = material(version, keys.tx.0, &keys.tx.1)?;
        let receiving = material(version, keys.rx.0, &keys.rx.1)?;
        let keys = match version {
            Version::Tls12 => NextKeys::None,
            Version::Tls13 => {
                let suite = sending.suite();
                let both = secrets.client(suite).zip(secrets.server(suite));
                let (receiving, sending) =
                    both.ok_or_else(|| SessionError("rustls did not show the traffic secrets".into()))?;
                NextKeys::Server(TrafficSecrets { receiving, sending })
            }
        };
        Ok(Self { opener: Opener::new(&receiving, choice), sealer: Sealer::new(&sending, choice), keys })
    }

    /// Takes over from rustls as a client.
    pub(crate) fn of_client(
        secrets: &rustls::ExtractedSecrets,
        kernel: KernelConnection<ClientConnectionData>,
        version: Version,
        choice: &LibraryChoice,
    ) -> Result<Self, SessionError> {
        let sending = material(version, secrets.tx.0, &secrets.tx.1)?;
        let receiving = material(version, secrets.rx.0, &secrets.rx.1)?;
        Ok(Self {
            opener: Opener::of_client(&receiving, choice),
            sealer: Sealer::new(&sending, choice),
            keys: if version == Version::Tls13 { NextKeys::Client(Box::new(kernel)) } else { NextKeys::None },
        })
    }

    /// Passes the server's session tickets to rustls, which keeps them for later connections; call it after
    /// [`offramp_record::RecordEvent::Tickets`].
    ///
    /// # Errors
    /// A ticket is malformed; end the connection with the fault's alert.
    pub fn keep_tickets(&mut self) -> Result<(), RecordFault> {
        let tickets = self.opener.take_tickets();
        let NextKeys::Client(kernel) = &mut self.keys else { return Ok(()) };
        for ticket in tickets {
            kernel.handle_new_session_ticket(&ticket).map_err(|_| RecordFault::BadHandshake)?;
        }
        Ok(())
    }

    /// Protocol version of the session.
    #[must_use]
    pub fn version(&self) -> Version {
        self.sealer.version()
    }

    /// Switches to the peer's next keys, after [`offramp_record::RecordEvent::KeyUpdate`].
    ///
    /// # Errors
    /// TLS 1.2 has no key updates, or rustls yields no keys; end the connection with `internal_error`.
    pub fn update_receiving(&mut self) -> Result<(), SessionError> {
        let keys = match &mut self.keys {
            NextKeys::None => return Err(no_updates()),
            NextKeys::Server(traffic) => traffic.receiving.update(),
            NextKeys::Client(kernel) => next(kernel.update_rx_secret())?,
        };
        self.opener.rekey(&keys);
        Ok(())
    }

    /// Appends a sealed KeyUpdate to `out` and changes the sending keys.
    ///
    /// # Errors
    /// As [`TlsSession::update_receiving`].
    pub fn update_sending(&mut self, out: &mut Vec<u8>) -> Result<(), SessionError> {
        let keys = match &mut self.keys {
            NextKeys::None => return Err(no_updates()),
            NextKeys::Server(traffic) => traffic.sending.update(),
            NextKeys::Client(kernel) => next(kernel.update_tx_secret())?,
        };
        self.sealer.seal_message(ContentType::Handshake, &KEY_UPDATE, out);
        self.sealer.rekey(&keys);
        Ok(())
    }

    /// Action required before sealing more; see [`Sealer::pressure`].
    #[must_use]
    pub fn pressure(&self) -> KeyDemand {
        self.sealer.pressure()
    }

    /// Appends a sealed alert to `out`.
    pub fn alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        self.sealer.seal_message(ContentType::Alert, &[alert.level(), alert.0], out);
    }
}

fn no_updates() -> SessionError {
    SessionError("TLS 1.2 has no key updates".into())
}

/// Converts keys of rustls.
fn next(keys: Result<(u64, ConnectionTrafficSecrets), rustls::Error>) -> Result<KeyMaterial, SessionError> {
    let (sequence, keys) = keys.map_err(|error| SessionError(format!("rustls gave no new keys: {error}")))?;
    material(Version::Tls13, sequence, &keys)
}

fn material(
    version: Version,
    sequence: u64,
    secrets: &ConnectionTrafficSecrets,
) -> Result<KeyMaterial, SessionError> {
    let (suite, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Suite::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Suite::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Suite::Chacha20Poly1305, key, iv),
        _ => return Err(SessionError("rustls agreed on an unknown AEAD".into())),
    };
    iv.as_ref()
        .try_into()
        .ok()
        .and_then(|iv| KeyMaterial::new(version, suite, key.as_ref(), iv, sequence))
        .ok_or_else(|| SessionError(format!("rustls gave a malformed key for {}", suite.name())))
}

#[cfg(test)]
mod tests;
