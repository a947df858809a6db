//! The record layer of one connection, with its key updates and its end.

use std::fmt;

use offramp_record::{
    Alert, Choice, ContentType, Fault, KeyMaterial, Opener, Pressure, Sealer, Suite, Version,
};
use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;

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
    /// Where TLS 1.3 gets its next keys from.
    keys: Option<Box<Keys>>,
}

/// What rustls knows of a connection after its handshake.
enum Keys {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

impl Session {
    /// Takes over from rustls.
    pub(crate) fn new(
        secrets: &rustls::ExtractedSecrets,
        kernel: KernelConnection<ServerConnectionData>,
        version: Version,
        choice: &Choice,
    ) -> Result<Self, SessionError> {
        let sending = material(version, secrets.tx.0, &secrets.tx.1)?;
        let receiving = material(version, secrets.rx.0, &secrets.rx.1)?;
        Ok(Self {
            opener: Opener::new(&receiving, choice),
            sealer: Sealer::new(&sending, choice),
            keys: (version == Version::Tls13).then(|| Box::new(Keys::Server(kernel))),
        })
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
            keys: (version == Version::Tls13).then(|| Box::new(Keys::Client(kernel))),
        })
    }

    /// Gives the session tickets of the server to rustls, which keeps them for the next connection, after
    /// [`offramp_record::Event::Tickets`].
    ///
    /// # Errors
    /// Where one is malformed; the connection must end with the fault's alert.
    pub fn keep_tickets(&mut self) -> Result<(), Fault> {
        let tickets = self.opener.take_tickets();
        let Some(Keys::Client(kernel)) = self.keys.as_deref_mut() else { return Ok(()) };
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

    /// Fetches the peer's next keys, after [`offramp_record::Event::KeyUpdate`].
    ///
    /// # Errors
    /// Where rustls cannot give them; the connection must end with `internal_error`.
    pub fn update_receiving(&mut self) -> Result<(), SessionError> {
        let keys = match self.keys()? {
            Keys::Server(kernel) => kernel.update_rx_secret(),
            Keys::Client(kernel) => kernel.update_rx_secret(),
        };
        let keys = keys.map_err(|error| refused(&error))?;
        self.opener.rekey(&material(Version::Tls13, keys.0, &keys.1)?);
        Ok(())
    }

    /// Seals a KeyUpdate of ours behind what `out` holds and changes the sending keys.
    ///
    /// # Errors
    /// Where rustls cannot give new keys; the connection must end with `internal_error`.
    pub fn update_sending(&mut self, out: &mut Vec<u8>) -> Result<(), SessionError> {
        let keys = match self.keys()? {
            Keys::Server(kernel) => kernel.update_tx_secret(),
            Keys::Client(kernel) => kernel.update_tx_secret(),
        };
        let keys = keys.map_err(|error| refused(&error))?;
        self.sealer.seal_message(ContentType::Handshake, &KEY_UPDATE, out);
        self.sealer.rekey(&material(Version::Tls13, keys.0, &keys.1)?);
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

    fn keys(&mut self) -> Result<&mut Keys, SessionError> {
        self.keys.as_deref_mut().ok_or_else(|| SessionError("TLS 1.2 has no key updates".into()))
    }
}

fn refused(error: &rustls::Error) -> SessionError {
    SessionError(format!("rustls gave no new keys: {error}"))
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
