//! Driving the handshake.
//!
//! rustls gets one record at a time, so it never sees anything behind the client's Finished. What the client sent early
//! stays in the buffer, still encrypted, for the record layer.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use offramp_certs::client_auth::identity;
use offramp_certs::explain::{TlsPeer, tls_error};
use offramp_net::{Buffer, Socket};
use offramp_record::{Alert, Choice, HEADER, Version, whole_record};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData};
use rustls::{
    AlertDescription, CipherSuite, HandshakeKind, NamedGroup, PeerIncompatible, ProtocolVersion, ServerConfig,
};

use crate::client::PreambleFault;
use crate::queue::{Caller, Shed};
use crate::secrets::Secrets;
use crate::session::{Session, SessionError};
use crate::tickets::Expiry;
use crate::verifier;

/// The most bytes that wait to be understood: a handshake message of 64 KiB, the largest that rustls
/// takes, in records, with one more record behind it.
const MOST_WAITING: usize = 96 * 1024;
/// Room for one read: a full record.
const READ_ROOM: usize = 4096;
/// Most server flights fit: ServerHello, a chain of two or three certificates, Finished.
const FLIGHT: usize = 4096;
/// The type of protected records, and of garbage in the place of 0-RTT data.
const APPLICATION_DATA: u8 = 23;
/// The length of the tag of every AEAD of TLS 1.3.
const TAG: usize = 16;
/// The type of alerts that are plaintext, or sealed by TLS 1.2.
const ALERT: u8 = 21;

/// A finished handshake.
pub struct Established {
    /// The record layer.
    pub session: Session,
    /// What was agreed.
    pub negotiated: Negotiated,
    /// Session tickets that were not sent yet: they are to leave with what follows, or soon; see
    /// [`Sending`](crate::Sending). Nothing that the session seals may overtake them.
    pub tickets: Vec<u8>,
    /// How the client refused the end of the handshake, where it had left already. What it sent before may still be
    /// there to be read, but the kernel will not tell of a reset again.
    pub left: Option<io::ErrorKind>,
}

/// What a handshake agreed on.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// The protocol version.
    pub version: Version,
    /// The cipher suite.
    pub suite: CipherSuite,
    /// The key-exchange group; absent where a TLS 1.2 session was resumed.
    pub group: Option<NamedGroup>,
    /// Whether a ticket replaced certificates and signatures.
    pub resumed: bool,
    /// The application protocol.
    pub alpn: Option<Box<[u8]>>,
    /// The client's leaf certificate, verified, in DER.
    pub client_certificate: Option<Box<[u8]>>,
    /// What the client sent behind it, in the same order: its issuers, as far as it sent them.
    pub client_chain: Box<[Box<[u8]>]>,
}

/// A handshake that failed.
#[derive(Debug)]
pub struct HandshakeError {
    /// Why.
    pub fault: HandshakeFault,
    /// The alert that was sent, if one was.
    pub alert: Option<Alert>,
    /// The certificate of the other side, in DER, where it is what was refused.
    pub refused: Option<Box<[u8]>>,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            HandshakeFault::Closed => f.write_str("the connection was closed within the TLS handshake"),
            HandshakeFault::Io(error) => write!(f, "the connection broke within the TLS handshake: {error}"),
            HandshakeFault::Tls(rustls::Error::NoApplicationProtocol) => {
                f.write_str("TLS handshake: no common application protocol (ALPN)")
            }
            // Only handshakes with servers are shown so; those with clients become facts.
            HandshakeFault::Tls(error) => {
                let error = tls_error(error, TlsPeer::Server);
                match &self.refused {
                    Some(certificate) => write!(f, "TLS handshake: {}: {error}", identity(certificate)),
                    None => write!(f, "TLS handshake: {error}"),
                }
            }
            HandshakeFault::TooLarge => f.write_str("a message of the TLS handshake was too large"),
            HandshakeFault::Preamble(fault) => fault.fmt(f),
            HandshakeFault::Shed => f.write_str("too many TLS handshakes wait for CPU time"),
            HandshakeFault::Internal(error) => error.fmt(f),
        }
    }
}

/// Why a handshake failed.
#[derive(Debug)]
pub enum HandshakeFault {
    /// The peer closed before it was done.
    Closed,
    /// The connection broke.
    Io(io::Error),
    /// rustls refused; the error says whose fault it was.
    Tls(rustls::Error),
    /// More than 96 KiB without a whole message.
    TooLarge,
    /// The server does not begin with TLS where it was asked for it.
    Preamble(PreambleFault),
    /// Too many handshakes wait to be done in time.
    Shed,
    /// Our own fault.
    Internal(SessionError),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self { fault: HandshakeFault::Io(error), alert: None, refused: None }
    }
}

impl From<Shed> for HandshakeError {
    fn from(_: Shed) -> Self {
        Self { fault: HandshakeFault::Shed, alert: None, refused: None }
    }
}

/// What one turn of rustls came to.
enum Turn {
    Again,
    Flush,
    Blocked,
    Done,
}

/// Does the handshake on `socket`, whose first bytes may already be in `buffer`.
///
/// Afterwards `buffer` holds what the client sent behind its handshake, untouched. There is no
/// timeout in here: the caller bounds the whole. `early` says that the ClientHello announced 0-RTT
/// data, which is never accepted: it is skipped, up to the limit of rustls. Each message of the client waits for
/// the turn of `caller`.
///
/// # Errors
/// The alert to the client, if there is one, was sent before.
pub async fn handshake(
    socket: &Socket,
    buffer: &mut Buffer,
    config: Arc<ServerConfig>,
    early: bool,
    choice: &Choice,
    caller: &Caller<'_>,
) -> Result<Established, HandshakeError> {
    let mut connection = UnbufferedServerConnection::new(config).map_err(|error| HandshakeError {
        fault: HandshakeFault::Tls(error),
        alert: None,
        refused: None,
    })?;
    let mut out = Vec::with_capacity(FLIGHT);
    let mut shown = 0;
    let mut left = None;
    let mut fresh = false;
    let mut flights = 0_usize;
    let mut secrets = Secrets::default();
    let mut expiry = Expiry::NEVER;
    loop {
        // Keys are agreed upon and signatures made where something new is shown, and nowhere else.
        if fresh {
            // A HelloRetryRequest is a flight without a signature.
            let retried = connection.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
            let answered = flights > usize::from(retried);
            caller.enter(answered).await?;
            // Who has waited for long may have given up. A signature for nobody would cost the others. Behind the
            // server's flight of TLS 1.3 no signature is left to make, and a client may leave with its Finished.
            let last = answered && connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
            if !last && caller.waited() && gave_up(socket, buffer, shown) {
                return Err(HandshakeError { fault: HandshakeFault::Closed, alert: None, refused: None });
            }
        }
        let begun = fresh.then(Instant::now);
        let (discard, turn) =
            expiry.during(|| turn(&mut connection, &mut buffer.filled_mut()[..shown], &mut out));
        secrets.catch();
        if let Some(begun) = begun {
            caller.spend(begun.elapsed());
        }
        fresh = false;
        buffer.consume(discard);
        shown -= discard;
        match turn {
            Ok(Turn::Again) => {}
            Ok(Turn::Flush) => {
                flights += 1;
                let done = !connection.is_handshaking();
                // Behind the client's Finished of TLS 1.3 there are only tickets, which can wait.
                if done && connection.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
                    continue;
                }
                let sent = socket.write_all(&out).await;
                match sent {
                    // What a client sent before it left counts. But the kernel reports the error only once.
                    Err(error) if done => left = Some(error.kind()),
                    sent => sent?,
                }
                out.clear();
            }
            Ok(Turn::Blocked) => {
                if early && discard == 0 {
                    shown -= skip_rejected(buffer, shown);
                }
                shown = next_shown(socket, buffer, shown, &connection).await?;
                fresh = true;
            }
            Ok(Turn::Done) => return finish(connection, &secrets, out, left, choice),
            Err(error) => {
                // Before anything is awaited: others have their turns meanwhile.
                let refused = verifier::take_refused();
                let error = refuse(socket, buffer, shown, connection, out, error).await;
                return Err(HandshakeError { refused, ..error });
            }
        }
    }
}

/// Whether the client has left, and what it has sent is not enough to be answered anyway.
fn gave_up(socket: &Socket, buffer: &Buffer, shown: usize) -> bool {
    shown == buffer.len() && shown < MOST_WAITING && socket.peer_left()
}

/// Lets rustls take one step.
fn turn(
    connection: &mut UnbufferedServerConnection,
    shown: &mut [u8],
    out: &mut Vec<u8>,
) -> (usize, Result<Turn, rustls::Error>) {
    let status = connection.process_tls_records(shown);
    let turn = status.state.map(|state| match state {
        ConnectionState::EncodeTlsData(mut data) => {
            encode(&mut data, out);
            Turn::Again
        }
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            Turn::Flush
        }
        ConnectionState::WriteTraffic(_) => Turn::Done,
        _ => Turn::Blocked,
    });
    let discard = status.discard;
    match turn {
        // Half-RTT sending is off, so this cannot be before the client's Finished.
        Ok(Turn::Done) if connection.is_handshaking() => (discard, Ok(Turn::Blocked)),
        turn => (discard, turn),
    }
}

/// Appends what rustls wants to send.
pub(crate) fn encode<D>(data: &mut EncodeTlsData<'_, D>, out: &mut Vec<u8>) {
    let start = out.len();
    // The first call only asks how much room is needed.
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
        out.resize(start + size.required_size, 0);
        let written = data.encode(&mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
    }
}

/// Waits for one more record than the `shown` bytes; returns how much to show then. It may be the end, or too much.
async fn next_shown(
    socket: &Socket,
    buffer: &mut Buffer,
    shown: usize,
    connection: &UnbufferedServerConnection,
) -> Result<usize, HandshakeError> {
    let next = match next_record(socket, buffer, shown).await {
        Err(HandshakeError { fault: HandshakeFault::TooLarge, .. }) => {
            return Err(too_large(socket, connection).await);
        }
        next => next?,
    };
    if is_close_notify(&buffer.filled()[shown..next]) {
        return Err(HandshakeError { fault: HandshakeFault::Closed, alert: None, refused: None });
    }
    Ok(next)
}

/// Waits until one more record than the `shown` bytes is whole; returns how much to show then.
pub(crate) async fn next_record(
    socket: &Socket,
    buffer: &mut Buffer,
    shown: usize,
) -> Result<usize, HandshakeError> {
    loop {
        let rest = &buffer.filled()[shown..];
        if let Some(length) = whole_record(rest) {
            return Ok(shown + length);
        }
        // A header that is no TLS is shown at once, for rustls to refuse: its length means nothing.
        if rest.len() >= HEADER && !plausible(rest) {
            return Ok(buffer.len());
        }
        if buffer.len() >= MOST_WAITING {
            return Err(HandshakeError { fault: HandshakeFault::TooLarge, alert: None, refused: None });
        }
        if buffer.read_from(socket, READ_ROOM).await? == 0 {
            return Err(HandshakeError { fault: HandshakeFault::Closed, alert: None, refused: None });
        }
    }
}

/// Whether a record is close_notify in plaintext. rustls takes it for a warning while the handshake goes on, and would
/// wait for a client that is gone.
pub(crate) fn is_close_notify(record: &[u8]) -> bool {
    matches!(record, [ALERT, 3, _, 0, 2, _, 0])
}

/// Whether a record header is one that rustls would wait for the rest of.
fn plausible(header: &[u8]) -> bool {
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    matches!(header[0], 20..=24) && header[1] == 3 && length <= (1 << 14) + 2048
}

/// Drops the record at the end of the `shown` bytes where rustls has dropped it as rejected 0-RTT
/// data: it would otherwise be tried, and counted against the limit, again with each record after.
///
/// That it was dropped shows in what the failed decryption leaves behind: zeros, and the tag. What is
/// kept instead, a part of a handshake message, is never all zeros, for its type is not.
fn skip_rejected(buffer: &mut Buffer, shown: usize) -> usize {
    let record = &buffer.filled()[..shown];
    let dropped = record.len() > HEADER
        && record[0] == APPLICATION_DATA
        && whole_record(record) == Some(shown)
        && record[HEADER..record.len().saturating_sub(TAG).max(HEADER)].iter().all(|&byte| byte == 0);
    if dropped {
        buffer.consume(shown);
        shown
    } else {
        0
    }
}

/// Takes the traffic secrets.
fn finish(
    connection: UnbufferedServerConnection,
    traffic: &Secrets,
    tickets: Vec<u8>,
    left: Option<io::ErrorKind>,
    choice: &Choice,
) -> Result<Established, HandshakeError> {
    let internal = |what: &str| HandshakeError {
        fault: HandshakeFault::Tls(rustls::Error::General(what.into())),
        alert: None,
        refused: None,
    };
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
        Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
        _ => return Err(internal("no protocol version was agreed")),
    };
    let suite = connection.negotiated_cipher_suite().ok_or_else(|| internal("no cipher suite was agreed"))?;
    let chain = connection.peer_certificates().unwrap_or_default();
    let negotiated = Negotiated {
        version,
        suite: suite.suite(),
        group: connection.negotiated_key_exchange_group().map(rustls::crypto::SupportedKxGroup::name),
        resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        alpn: connection.alpn_protocol().map(Into::into),
        client_certificate: chain.first().map(|leaf| leaf.as_ref().into()),
        client_chain: chain.iter().skip(1).map(|issuer| issuer.as_ref().into()).collect(),
    };
    // What rustls would keep to make new keys is more than we need.
    let (keys, _) = connection.dangerous_into_kernel_connection().map_err(|error| HandshakeError {
        fault: HandshakeFault::Tls(error),
        alert: None,
        refused: None,
    })?;
    let session = Session::new(&keys, traffic, version, choice).map_err(|error| HandshakeError {
        fault: HandshakeFault::Internal(error),
        alert: None,
        refused: None,
    })?;
    Ok(Established { session, negotiated, tickets, left })
}

/// Tells a client that what it sends is too much to be understood, where it understands plaintext: rustls seals no
/// alert that is not its own.
async fn too_large(socket: &Socket, connection: &UnbufferedServerConnection) -> HandshakeError {
    let sealed = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    let alert = (!sealed).then_some(Alert::DECODE_ERROR);
    if let Some(Alert(description)) = alert {
        // That the client may be gone already changes nothing about why it failed.
        let _ = socket.write_all(&[ALERT, 3, 3, 0, 2, 2, description]).await;
    }
    HandshakeError { fault: HandshakeFault::TooLarge, alert, refused: None }
}

/// Sends the alert that rustls has ready, if any.
///
/// rustls must get the same bytes as before: it may remember the places of messages in them. After the alert it must
/// not get them again, because it would refuse them a second time.
async fn refuse(
    socket: &Socket,
    buffer: &mut Buffer,
    mut shown: usize,
    mut connection: UnbufferedServerConnection,
    mut out: Vec<u8>,
    error: rustls::Error,
) -> HandshakeError {
    while !is_alert(last_record(&out)) {
        let (discard, turn) = turn(&mut connection, &mut buffer.filled_mut()[..shown], &mut out);
        buffer.consume(discard);
        shown -= discard;
        if !matches!(turn, Ok(Turn::Again)) {
            break;
        }
    }
    if !out.is_empty() {
        // That the client may be gone already changes nothing about why it failed.
        let _ = socket.write_all(&out).await;
    }
    let alert = sent_alert(&out, &error);
    HandshakeError { fault: HandshakeFault::Tls(error), alert, refused: None }
}

/// The last of the records in `out`.
pub(crate) fn last_record(out: &[u8]) -> &[u8] {
    let mut last = out;
    while let Some(length) = whole_record(last).filter(|&length| length < last.len()) {
        last = &last[length..];
    }
    last
}

/// Whether a record of rustls is an alert, also a sealed one of TLS 1.3: no handshake message is so
/// short.
pub(crate) fn is_alert(record: &[u8]) -> bool {
    const SEALED_ALERT: usize = HEADER + 2 + 1 + TAG;
    match record.first() {
        Some(&ALERT) => true,
        Some(&APPLICATION_DATA) => record.len() == SEALED_ALERT,
        _ => false,
    }
}

/// Which alert the last of the records in `out` carries: read where it is plaintext (RFC 8446 §6),
/// inferred from the error where it is sealed, unknown for the rest.
pub(crate) fn sent_alert(out: &[u8], error: &rustls::Error) -> Option<Alert> {
    let last = last_record(out);
    if !is_alert(last) {
        return None;
    }
    if let [ALERT, 3, _, 0, 2, _, description] = last {
        return Some(Alert(*description));
    }
    let alert = match error {
        rustls::Error::InvalidCertificate(error) => Alert(AlertDescription::from(error.clone()).into()),
        rustls::Error::InvalidMessage(error) => Alert(AlertDescription::from(*error).into()),
        rustls::Error::NoCertificatesPresented => Alert::CERTIFICATE_REQUIRED,
        rustls::Error::InappropriateMessage { .. } | rustls::Error::InappropriateHandshakeMessage { .. } => {
            Alert::UNEXPECTED_MESSAGE
        }
        rustls::Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon) => {
            Alert::HANDSHAKE_FAILURE
        }
        rustls::Error::NoApplicationProtocol => Alert::NO_APPLICATION_PROTOCOL,
        rustls::Error::PeerSentOversizedRecord => Alert::RECORD_OVERFLOW,
        _ => return None,
    };
    Some(alert)
}
