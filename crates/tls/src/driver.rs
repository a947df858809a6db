//! Drives the handshake with a client.
//!
//! rustls gets one record at a time, so it never sees data behind the client's Finished. Early data of the
//! client stays in the buffer, still encrypted, for the record layer.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use offramp_net::{Buffer, Socket};
use offramp_record::{Alert, HEADER, LibraryChoice, Version, whole_record};
use rustls::server::UnbufferedServerConnection;
use rustls::{CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion, ServerConfig};

use crate::error::{HandshakeError, HandshakeFault};
use crate::queue::HandshakeRequest;
use crate::secrets::Secrets;
use crate::session::TlsSession;
use crate::step::{ALERT, APPLICATION_DATA, RustlsStep, TAG, encode_alert, sent_alert, step};
use crate::tickets::Expiry;
use crate::verifier;

/// Maximum number of unprocessed bytes: a handshake message of 64 KiB, the largest that rustls accepts, in
/// records, plus one more record.
const MOST_WAITING: usize = 96 * 1024;
/// Buffer space for one read.
const READ_ROOM: usize = 4096;
/// Fits most server flights: ServerHello, a chain of two or three certificates, Finished.
const FLIGHT: usize = 4096;

/// Result of a completed handshake.
pub struct Established {
    /// Record layer of the connection.
    pub session: TlsSession,
    /// Parameters that were negotiated.
    pub negotiated: Negotiated,
    /// Session tickets that are sealed and not sent yet: send them with the next record, or soon; see
    /// [`Sending`](crate::Sending). Records sealed by the session must not overtake them.
    pub tickets: Vec<u8>,
    /// Error of sending the last flight, if the client had left already. Bytes that it sent before may still
    /// be readable, but the kernel will not report the reset again.
    pub left: Option<io::ErrorKind>,
}

/// Parameters negotiated by a handshake.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// TLS version of the connection.
    pub version: Version,
    /// Cipher suite by its code point.
    pub suite: CipherSuite,
    /// Key-exchange group; `None` for a resumed TLS 1.2 session.
    pub group: Option<NamedGroup>,
    /// Set if a session was resumed, without certificates and signatures.
    pub resumed: bool,
    /// Application protocol agreed by ALPN.
    pub alpn: Option<Box<[u8]>>,
    /// Verified leaf certificate of the client, in DER.
    pub client_certificate: Option<Box<[u8]>>,
    /// Certificates that the client sent behind its leaf, in order.
    pub client_chain: Box<[Box<[u8]>]>,
}

/// Performs the handshake on `socket`; its first bytes may already be in `buffer`.
///
/// Afterwards `buffer` holds the data that the client sent behind its handshake, untouched. Sets no timeout:
/// the caller bounds the whole. `early` is set if the ClientHello announced 0-RTT data, which is never
/// accepted: it is skipped, up to the limit of rustls. Each message of the client waits for the turn of
/// `caller`.
///
/// # Errors
/// The alert to the client, if there is one, was sent before.
pub async fn handshake(
    socket: &Socket,
    buffer: &mut Buffer,
    config: Arc<ServerConfig>,
    early: bool,
    choice: &LibraryChoice,
    caller: &HandshakeRequest<'_>,
) -> Result<Established, HandshakeError> {
    let mut connection = UnbufferedServerConnection::new(config).map_err(HandshakeFault::Tls)?;
    let mut out = Vec::with_capacity(FLIGHT);
    let (mut shown, mut flights, mut fresh, mut left) = (0, 0, false, None);
    let mut secrets = Secrets::default();
    let mut expiry = Expiry::NEVER;
    loop {
        // Key agreement and signatures happen only after new input.
        if fresh {
            await_turn(caller, &connection, flights, || gave_up(socket, buffer, shown)).await?;
        }
        let begun = fresh.then(Instant::now);
        let (discard, step) =
            expiry.during(|| step(&mut connection, &mut buffer.filled_mut()[..shown], &mut out));
        secrets.catch();
        if let Some(begun) = begun {
            caller.spend(begun.elapsed());
        }
        buffer.consume(discard);
        (shown, fresh) = (shown - discard, false);
        match step {
            Ok(RustlsStep::Again) => {}
            Ok(RustlsStep::Flush) => {
                flights += 1;
                let done = !connection.is_handshaking();
                // Only tickets follow the client's Finished of TLS 1.3, and they can wait.
                if done && connection.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
                    continue;
                }
                match socket.write_all(&out).await {
                    // Data that a client sent before it left counts. But the kernel reports the error once.
                    Err(error) if done => left = Some(error.kind()),
                    sent => sent?,
                }
                out.clear();
            }
            Ok(RustlsStep::Blocked) => {
                if early && discard == 0 {
                    shown -= skip_rejected(buffer, shown);
                }
                shown = next_shown(socket, buffer, shown, &connection).await?;
                fresh = true;
            }
            Ok(RustlsStep::Done) => return finish(connection, &secrets, out, left, choice),
            Err(error) => {
                // Taken before anything is awaited: other handshakes run meanwhile.
                let refused = verifier::take_refused();
                let error = refuse(socket, &mut buffer.filled_mut()[..shown], connection, out, error);
                return Err(error.await.with_refused(refused));
            }
        }
    }
}

/// Waits for the turn of `caller` before rustls is shown the client's answer to so many `flights`. `gave_up` tells that
/// the client has left meanwhile.
async fn await_turn(
    caller: &HandshakeRequest<'_>,
    connection: &UnbufferedServerConnection,
    flights: usize,
    gave_up: impl FnOnce() -> bool,
) -> Result<(), HandshakeError> {
    // A HelloRetryRequest is a flight without a signature.
    let retried = connection.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
    let answered = flights > usize::from(retried);
    caller.enter(answered).await?;
    // A client that waited for long may have given up, and its signature would cost others time. Behind the server's
    // flight of TLS 1.3 no signature is left to make, and a client may leave with its Finished.
    let last = answered && connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    if !last && caller.waited() && gave_up() {
        return Err(HandshakeFault::Closed.into());
    }
    Ok(())
}

/// Returns true if the client has left and its bytes cannot be answered anyway.
fn gave_up(socket: &Socket, buffer: &Buffer, shown: usize) -> bool {
    shown == buffer.len() && shown < MOST_WAITING && socket.peer_left()
}

/// Waits for one more record than the `shown` bytes; returns the number of bytes to show then. Handles the
/// end of the stream and the size limit.
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
        return Err(HandshakeFault::Closed.into());
    }
    Ok(next)
}

/// Waits until one more record than the `shown` bytes is whole; returns the number of bytes to show then.
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
        // An invalid record header is shown at once, for rustls to reject: its length is meaningless.
        if rest.len() >= HEADER && !plausible(rest) {
            return Ok(buffer.len());
        }
        if buffer.len() >= MOST_WAITING {
            return Err(HandshakeFault::TooLarge.into());
        }
        if buffer.read_from(socket, READ_ROOM).await? == 0 {
            return Err(HandshakeFault::Closed.into());
        }
    }
}

/// Matches a close_notify in plaintext. During the handshake rustls treats it as a warning, and would wait
/// for a client that is gone.
pub(crate) fn is_close_notify(record: &[u8]) -> bool {
    matches!(record, [ALERT, 3, _, 0, 2, _, 0])
}

/// Returns true for record headers that make rustls wait for the rest.
fn plausible(header: &[u8]) -> bool {
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    matches!(header[0], 20..=24) && header[1] == 3 && length <= (1 << 14) + 2048
}

/// Drops the record at the end of the `shown` bytes if rustls has discarded it as rejected 0-RTT data:
/// otherwise each later call would try it again and count it against the limit.
///
/// Discarded records are recognized by what the failed decryption leaves behind: zeros, and the tag. A part
/// of a handshake message, which is kept, is never all zeros, because its type is not.
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

/// Takes over the traffic secrets.
fn finish(
    connection: UnbufferedServerConnection,
    traffic: &Secrets,
    tickets: Vec<u8>,
    left: Option<io::ErrorKind>,
    choice: &LibraryChoice,
) -> Result<Established, HandshakeError> {
    let internal =
        |what: &str| HandshakeError::from(HandshakeFault::Tls(rustls::Error::General(what.into())));
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
    // The state that rustls would keep for new keys is not needed.
    let (keys, _) = connection.dangerous_into_kernel_connection().map_err(HandshakeFault::Tls)?;
    let session = TlsSession::new(&keys, traffic, version, choice).map_err(HandshakeFault::Internal)?;
    Ok(Established { session, negotiated, tickets, left })
}

/// Sends an alert to a client that exceeds the limit, if it still accepts plaintext: rustls seals no alerts
/// except its own.
async fn too_large(socket: &Socket, connection: &UnbufferedServerConnection) -> HandshakeError {
    let sealed = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    let alert = (!sealed).then_some(Alert::DECODE_ERROR);
    if let Some(Alert(description)) = alert {
        // If the client is gone already, the cause of the failure is the same.
        let _ = socket.write_all(&[ALERT, 3, 3, 0, 2, 2, description]).await;
    }
    HandshakeError { fault: HandshakeFault::TooLarge, alert, refused: None }
}

/// Sends the alert that rustls has ready, if any.
async fn refuse(
    socket: &Socket,
    shown: &mut [u8],
    mut connection: UnbufferedServerConnection,
    mut out: Vec<u8>,
    error: rustls::Error,
) -> HandshakeError {
    encode_alert(&mut connection, shown, &mut out);
    if !out.is_empty() {
        // If the client is gone already, the cause of the failure is the same.
        let _ = socket.write_all(&out).await;
    }
    let alert = sent_alert(&out, &error);
    HandshakeError { fault: HandshakeFault::Tls(error), alert, refused: None }
}
