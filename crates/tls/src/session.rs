//! The record layer of one connection, with its key updates and its end.

use std::fmt;

use offramp_record::{
    Alert, Choice, ContentType, Fault, KeyMaterial, Opener, Pressure, Sealer, Suite, TrafficSecret, Version,
};
use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;

use crate::secrets::Secrets;

/// KeyUpdate without and with the wish that the peer update too (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Something of our own failed: rustls gave keys that the record layer does not know.
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
/// The opener and the sealer are used directly; their events and pressures come back here.
pub struct Session {
    /// Opens what the peer sends.
    pub opener: Opener,
    /// Seals what the peer gets.
    pub sealer: Sealer,
    keys: Keys,
}

/// Where the next keys come from.
enum Keys {
    /// TLS 1.2 has no key updates.
    None,
    /// TLS 1.3 as a server.
    Server(Traffic),
    /// TLS 1.3 as a client: rustls, which the session tickets are given to as well.
    Client(Box<KernelConnection<ClientConnectionData>>),
}

/// The traffic secrets of both directions.
struct Traffic {
    receiving: TrafficSecret,
    sending: TrafficSecret,
}

impl Session {
    /// Takes over from rustls.
    pub(crate) fn new(
        keys: &rustls::ExtractedSecrets,
        secrets: &Secrets,
        version: Version,
        choice: &Choice,
    ) -> Result<Self, SessionError> {
        let sending = material(version, keys.tx.0, &keys.tx.1)?;
        let receiving = material(version, keys.rx.0, &keys.rx.1)?;
        let keys = match version {
            Version::Tls12 => Keys::None,
            Version::Tls13 => {
                let suite = sending.suite();
                let both = secrets.client(suite).zip(secrets.server(suite));
                let (receiving, sending) =
                    both.ok_or_else(|| SessionError("rustls did not show the traffic secrets".into()))?;
                Keys::Server(Traffic { receiving, sending })
            }
        };
        Ok(Self { opener: Opener::new(&receiving, choice), sealer: Sealer::new(&sending, choice), keys })
    }

    /// Takes over from rustls where this side is the client.
    pub(crate) fn of_client(
        secrets: &rustls::ExtractedSecrets,
        kernel: KernelConnection<ClientConnectionData>,
        version: Version,
        choice: &Choice,
    ) -> Result<Self, SessionError> {
        let sending = material(version, secrets.tx.0, &secrets.tx.1)?;
        let receiving = material(version, secrets.rx.0, &secrets.rx.1)?;
        Ok(Self {
            opener: Opener::of_client(&receiving, choice),
            sealer: Sealer::new(&sending, choice),
            keys: if version == Version::Tls13 { Keys::Client(Box::new(kernel)) } else { Keys::None },
        })
    }

    /// Gives the session tickets of the server to rustls, which keeps them for the next connection, after
    /// [`offramp_record::Event::Tickets`].
    ///
    /// # Errors
    /// Where one is malformed; the connection must end with the fault's alert.
    pub fn keep_tickets(&mut self) -> Result<(), Fault> {
        let tickets = self.opener.take_tickets();
        let Keys::Client(kernel) = &mut self.keys else { return Ok(()) };
        for ticket in tickets {
            kernel.handle_new_session_ticket(&ticket).map_err(|_| Fault::BadHandshake)?;
        }
        Ok(())
    }

    /// The protocol version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.sealer.version()
    }

    /// Goes on to the peer's next keys, after [`offramp_record::Event::KeyUpdate`].
    ///
    /// # Errors
    /// Where TLS 1.2 is spoken, which has none, or rustls gives none; the connection must end with `internal_error`.
    pub fn update_receiving(&mut self) -> Result<(), SessionError> {
        let keys = match &mut self.keys {
            Keys::None => return Err(no_updates()),
            Keys::Server(traffic) => traffic.receiving.update(),
            Keys::Client(kernel) => next(kernel.update_rx_secret())?,
        };
        self.opener.rekey(&keys);
        Ok(())
    }

    /// Seals a KeyUpdate of ours behind what `out` holds and changes the sending keys.
    ///
    /// # Errors
    /// As [`Session::update_receiving`].
    pub fn update_sending(&mut self, out: &mut Vec<u8>) -> Result<(), SessionError> {
        let keys = match &mut self.keys {
            Keys::None => return Err(no_updates()),
            Keys::Server(traffic) => traffic.sending.update(),
            Keys::Client(kernel) => next(kernel.update_tx_secret())?,
        };
        self.sealer.seal_message(ContentType::Handshake, &KEY_UPDATE, out);
        self.sealer.rekey(&keys);
        Ok(())
    }

    /// What has to happen before more is sealed; see [`Sealer::pressure`].
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        self.sealer.pressure()
    }

    /// Seals an alert behind what `out` holds.
    pub fn alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        self.sealer.seal_message(ContentType::Alert, &[alert.level(), alert.0], out);
    }
}

fn no_updates() -> SessionError {
    SessionError("TLS 1.2 has no key updates".into())
}

/// The keys that rustls gave.
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
