//! One step of a handshake in either role, and the alert at the end of a failed one.

use offramp_record::{Alert, HEADER, whole_record};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{AlertDescription, PeerIncompatible};

/// Type of protected records, and of garbage in place of 0-RTT data.
pub(crate) const APPLICATION_DATA: u8 = 23;
/// Tag length of every AEAD of TLS 1.3, in bytes.
pub(crate) const TAG: usize = 16;
/// Type of alerts in plaintext, or sealed by TLS 1.2.
pub(crate) const ALERT: u8 = 21;

/// Result of one step.
pub(crate) enum RustlsStep {
    Again,
    Flush,
    Blocked,
    Done,
}

/// A connection of rustls in either role, which has these methods on two types.
pub(crate) trait Unbuffered {
    /// Calls rustls once with the `shown` bytes of the peer, and appends what it sends to `out`. Returns the number of bytes
    /// that it has used up. [`RustlsStep::Done`] may be early.
    fn process(&mut self, shown: &mut [u8], out: &mut Vec<u8>) -> (usize, Result<RustlsStep, rustls::Error>);

    fn is_handshaking(&self) -> bool;
}

impl Unbuffered for UnbufferedServerConnection {
    fn process(&mut self, shown: &mut [u8], out: &mut Vec<u8>) -> (usize, Result<RustlsStep, rustls::Error>) {
        follow(self.process_tls_records(shown), out)
    }

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }
}

impl Unbuffered for UnbufferedClientConnection {
    fn process(&mut self, shown: &mut [u8], out: &mut Vec<u8>) -> (usize, Result<RustlsStep, rustls::Error>) {
        follow(self.process_tls_records(shown), out)
    }

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }
}

fn follow<D>(
    status: UnbufferedStatus<'_, '_, D>,
    out: &mut Vec<u8>,
) -> (usize, Result<RustlsStep, rustls::Error>) {
    let step = status.state.map(|state| match state {
        ConnectionState::EncodeTlsData(mut data) => {
            encode(&mut data, out);
            RustlsStep::Again
        }
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            RustlsStep::Flush
        }
        ConnectionState::WriteTraffic(_) => RustlsStep::Done,
        _ => RustlsStep::Blocked,
    });
    (status.discard, step)
}

/// Calls rustls for one step; see [`Unbuffered::process`].
pub(crate) fn step<C: Unbuffered>(
    connection: &mut C,
    shown: &mut [u8],
    out: &mut Vec<u8>,
) -> (usize, Result<RustlsStep, rustls::Error>) {
    match connection.process(shown, out) {
        // Half-RTT sending is off, so a server cannot send before the client's Finished.
        (discard, Ok(RustlsStep::Done)) if connection.is_handshaking() => (discard, Ok(RustlsStep::Blocked)),
        other => other,
    }
}

/// Appends the alert that rustls has ready after an error, if any.
///
/// rustls must get the same bytes as before: it may hold offsets of messages in them. After the alert it must not get them
/// again, because it would reject them a second time.
pub(crate) fn encode_alert<C: Unbuffered>(connection: &mut C, mut shown: &mut [u8], out: &mut Vec<u8>) {
    while !is_alert(last_record(out)) {
        let (discard, step) = step(connection, shown, out);
        shown = &mut shown[discard..];
        if !matches!(step, Ok(RustlsStep::Again)) {
            break;
        }
    }
}

/// Appends the data that rustls wants to send.
fn encode<D>(data: &mut EncodeTlsData<'_, D>, out: &mut Vec<u8>) {
    let start = out.len();
    // The first call only asks for the size.
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
        out.resize(start + size.required_size, 0);
        let written = data.encode(&mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
    }
}

/// Last of the records in `out`.
fn last_record(out: &[u8]) -> &[u8] {
    let mut last = out;
    while let Some(length) = whole_record(last).filter(|&length| length < last.len()) {
        last = &last[length..];
    }
    last
}

/// Recognizes an alert of rustls, also a sealed one of TLS 1.3: no handshake message is as short.
fn is_alert(record: &[u8]) -> bool {
    const SEALED_ALERT: usize = HEADER + 2 + 1 + TAG;
    match record.first() {
        Some(&ALERT) => true,
        Some(&APPLICATION_DATA) => record.len() == SEALED_ALERT,
        _ => false,
    }
}

/// The alert in the last of the records in `out`: read if it is plaintext (RFC 8446 §6), inferred from the
/// error if it is sealed by TLS 1.3, `None` otherwise.
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
