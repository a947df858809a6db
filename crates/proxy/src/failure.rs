//! From errors to named causes: what the event of a connection says about its end.

use std::io;

use offramp_certs::client_auth::identity;
use offramp_certs::explain::{TlsPeer, tls_error};
use offramp_observe::facts::FatalAlert;
use offramp_observe::{Cause, Close};
use offramp_record::{Alert, RecordFault};
use offramp_tls::{HandshakeError, HandshakeFault, SessionError};
use offramp_upstream::{Breach, ConnectFault, Unreachable, UpstreamFault};
use offramp_wire::HelloFault;
use rustls::{CertificateError, Error as TlsError, PeerIncompatible};

/// A fault of the client's records; its alert was sent.
pub(crate) fn record(fault: RecordFault) -> Close {
    let cause = match fault {
        RecordFault::BadRecordMac => Cause::BadRecordMac,
        RecordFault::RecordOverflow => Cause::RecordOverflow,
        RecordFault::BadHeader | RecordFault::BadAlert | RecordFault::BadHandshake => Cause::DecodeError,
        RecordFault::BadAlertLevel | RecordFault::BadKeyUpdate => Cause::IllegalParameter,
        RecordFault::UnexpectedType
        | RecordFault::NoContentType
        | RecordFault::UnexpectedHandshake
        | RecordFault::StraddlesKeyChange
        | RecordFault::Interleaved
        | RecordFault::TooManyWarnings => Cause::UnexpectedMessage,
        RecordFault::TooManyEmpty => Cause::EmptyRecords,
        RecordFault::TooManyKeyUpdates => Cause::KeyUpdates,
        RecordFault::TooManyRenegotiations => Cause::Renegotiation,
        RecordFault::SequenceExhausted => Cause::SequenceLimit,
    };
    sent(Close::from(cause), fault.alert()).with_detail(&fault.to_string())
}

/// The same end, with the alert that was sent.
pub(crate) fn sent(close: Close, alert: Alert) -> Close {
    close.with_alert(FatalAlert::Sent(alert))
}

/// The client sent a fatal alert.
pub(crate) fn received(cause: Cause, alert: Alert) -> Close {
    Close::from(cause).with_alert(FatalAlert::Received(alert))
}

/// Reading from or writing to the client failed.
pub(crate) fn client(error: &io::Error) -> Close {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Close::from(Cause::ClientReset),
        _ => resources(error, Cause::ClientReset),
    }
}

/// Reading from or writing to the server failed.
pub(crate) fn server(error: &io::Error) -> Close {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Close::from(Cause::ServerReset),
        _ => resources(error, Cause::ServerReset),
    }
}

/// Names the resource that the kernel has run out of, or the fault of our own, as the cause; else `otherwise`.
pub(crate) fn resources(error: &io::Error, otherwise: Cause) -> Close {
    Close::from(ours(error).unwrap_or(otherwise)).with_detail(&error.to_string())
}

/// The cause of an error that no peer has to answer for.
fn ours(error: &io::Error) -> Option<Cause> {
    if let Some(inner) = error.get_ref()
        && inner.is::<SessionError>()
    {
        return Some(Cause::Internal);
    }
    // EMFILE and ENFILE; ENOMEM and ENOBUFS; ENOSPC, which is how epoll says that it may watch no more.
    match error.raw_os_error() {
        Some(23 | 24 | 28) => Some(Cause::DescriptorsExhausted),
        Some(12 | 105) => Some(Cause::OutOfMemory),
        _ => None,
    }
}

/// The error is not the peer's fault: the kernel has run out of something, or we have failed.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    ours(error).is_some()
}

/// No server of a backend with `servers` servers could be reached.
pub(crate) fn unreachable(error: &Unreachable, servers: usize) -> Close {
    unreached(&error.reason, servers)
}

/// Like [`unreachable`], by the reason alone.
pub(crate) fn unreached(reason: &ConnectFault, servers: usize) -> Close {
    let (cause, detail) = match reason {
        ConnectFault::Timeout => (Cause::ConnectTimeout, "the connect timeout ran out".to_owned()),
        ConnectFault::NoAddress => {
            (Cause::ServerUnreachable, "the server's name does not resolve".to_owned())
        }
        ConnectFault::Tls(error) => {
            return if servers > 1 { all_failed(error) } else { server_handshake(error) };
        }
        ConnectFault::NoServerAlive => return Cause::NoServerAlive.into(),
        ConnectFault::QueueFull => return Cause::QueueFull.into(),
        ConnectFault::QueueTimeout => return Cause::QueueTimeout.into(),
        ConnectFault::Io(io) => {
            let cause = match io.kind() {
                io::ErrorKind::ConnectionRefused => Cause::ServerRefused,
                // It accepted, and was faster with its reset than we with noticing.
                io::ErrorKind::ConnectionReset => Cause::ServerReset,
                _ => Cause::ServerUnreachable,
            };
            (resources(io, cause).cause, io.to_string())
        }
    };
    let ours = matches!(cause, Cause::DescriptorsExhausted | Cause::OutOfMemory);
    let cause = if servers > 1 && !ours { Cause::AllServersFailed } else { cause };
    Close::from(cause).with_detail(&detail)
}

/// Every server was tried, the last of which failed in its TLS handshake.
fn all_failed(error: &HandshakeError) -> Close {
    match server_handshake(error) {
        ours if ours.fault == offramp_observe::Fault::Us => ours,
        _ => Close::from(Cause::AllServersFailed).with_detail(&error.to_string()),
    }
}

/// The TLS handshake with a server failed.
fn server_handshake(error: &HandshakeError) -> Close {
    let cause = match &error.fault {
        HandshakeFault::Closed | HandshakeFault::TooLarge | HandshakeFault::Shed => {
            Cause::ServerHandshakeFailed
        }
        HandshakeFault::Io(io) => server(io).cause,
        HandshakeFault::Preamble(_) => Cause::ServerTlsDeclined,
        HandshakeFault::Internal(_) => Cause::Internal,
        HandshakeFault::Tls(TlsError::AlertReceived(alert)) => {
            let alert = Alert(u8::from(*alert));
            return received(Cause::ServerHandshakeAlert, alert).with_detail(&error.to_string());
        }
        HandshakeFault::Tls(TlsError::InvalidCertificate(why)) => server_certificate(why),
        HandshakeFault::Tls(TlsError::NoCertificatesPresented) => Cause::ServerCertificateInvalid,
        HandshakeFault::Tls(_) => Cause::ServerHandshakeFailed,
    };
    let close = Close::from(cause).with_detail(&error.to_string());
    match error.alert {
        Some(alert) => sent(close, alert),
        None => close,
    }
}

/// The cause for the fault of a server's certificate.
fn server_certificate(why: &CertificateError) -> Cause {
    use CertificateError as C;
    match why {
        C::Expired | C::ExpiredContext { .. } => Cause::ServerCertificateExpired,
        C::NotValidYet | C::NotValidYetContext { .. } => Cause::ServerCertificateNotYetValid,
        C::NotValidForName | C::NotValidForNameContext { .. } => Cause::ServerCertificateWrongName,
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => Cause::ServerCertificateWrongPurpose,
        C::Revoked => Cause::ServerCertificateRevoked,
        C::UnknownIssuer => Cause::ServerCertificateUntrusted,
        // Nothing but a pin is checked by the application.
        C::ApplicationVerificationFailure => Cause::ServerCertificateNotPinned,
        _ => Cause::ServerCertificateInvalid,
    }
}

/// A fault of a server's records; its alert was sent.
pub(crate) fn server_record(fault: RecordFault) -> Close {
    sent(Close::from(Cause::ServerRecord), fault.alert()).with_detail(&fault.to_string())
}

/// The error of a body of ours that says what the event is to say.
#[derive(Debug)]
pub(crate) struct BodyAbort(pub(crate) Close);

impl std::fmt::Display for BodyAbort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.cause.name())
    }
}

impl std::error::Error for BodyAbort {}

/// The body of a response broke off.
pub(crate) fn response(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Close {
    // Servers fail with faults of `upstream`: this is the error of a file that is compressed on its way.
    if error.is::<io::Error>() {
        return Close::from(Cause::FileFailed).with_detail(&error.to_string());
    }
    if let Some(BodyAbort(close)) = error.downcast_ref() {
        return close.clone();
    }
    match error.downcast_ref() {
        Some(UpstreamFault::Aborted(Breach::Io(error))) if is_ours(error) => {
            resources(error, Cause::Internal)
        }
        _ => Close::from(Cause::ServerAborted).with_detail(&error.to_string()),
    }
}

/// A handshake failed; `hello` says what was odd about the ClientHello, if anything was.
pub(crate) fn handshake(error: &HandshakeError, hello: Option<HelloFault>) -> Close {
    let detail = match (&error.fault, &error.refused) {
        // A refused certificate comes first: its refusal must not be cut off.
        (HandshakeFault::Tls(fault), Some(certificate)) => {
            format!("{}: {}", identity(certificate), tls_error(fault, TlsPeer::Client))
        }
        (HandshakeFault::Tls(fault), None) => tls_error(fault, TlsPeer::Client),
        _ => String::new(),
    };
    let close = match &error.fault {
        HandshakeFault::Closed => Close::from(Cause::HandshakeAbandoned),
        HandshakeFault::Io(io) => client(io),
        HandshakeFault::TooLarge => Close::from(Cause::ClientHelloTooLarge),
        HandshakeFault::Shed => Close::from(Cause::HandshakeShed),
        // Only servers are asked for TLS.
        HandshakeFault::Preamble(fault) => Close::from(Cause::Internal).with_detail(&fault.to_string()),
        HandshakeFault::Internal(error) => Close::from(Cause::Internal).with_detail(&error.to_string()),
        HandshakeFault::Tls(TlsError::AlertReceived(alert)) => {
            return received(Cause::HandshakeAlert, Alert(u8::from(*alert)));
        }
        HandshakeFault::Tls(error) => {
            let cause = hello.map_or_else(|| tls(error), hello_cause);
            Close::from(cause).with_detail(&detail)
        }
    };
    match error.alert {
        Some(alert) => sent(close, alert),
        None => close,
    }
}

/// The cause for the fault of a ClientHello.
pub(crate) fn hello_cause(fault: HelloFault) -> Cause {
    match fault {
        HelloFault::NotTls => Cause::NotTls,
        HelloFault::TooLarge(_) | HelloFault::TooManyRecords | HelloFault::RecordTooLarge(_) => {
            Cause::ClientHelloTooLarge
        }
        HelloFault::UnexpectedRecord(_) | HelloFault::NotClientHello(_) => Cause::UnexpectedMessage,
        HelloFault::EmptyRecord | HelloFault::Malformed(_) | HelloFault::DuplicateExtension(_) => {
            Cause::ClientHelloMalformed
        }
    }
}

fn tls(error: &TlsError) -> Cause {
    use PeerIncompatible as P;
    match error {
        TlsError::PeerIncompatible(why) => match why {
            P::NoCipherSuitesInCommon => Cause::NoCommonSuite,
            P::NoKxGroupsInCommon | P::NamedGroupsExtensionRequired | P::KeyShareExtensionRequired => {
                Cause::NoCommonGroup
            }
            P::NoSignatureSchemesInCommon | P::SignatureAlgorithmsExtensionRequired => Cause::NoCommonScheme,
            P::SupportedVersionsExtensionRequired
            | P::Tls12NotOffered
            | P::Tls12NotOfferedOrEnabled
            | P::Tls13RequiredForQuic => Cause::NoCommonVersion,
            _ => Cause::HandshakeFailed,
        },
        TlsError::NoApplicationProtocol => Cause::NoCommonAlpn,
        TlsError::NoCertificatesPresented => Cause::ClientCertificateMissing,
        TlsError::InvalidCertificate(why) => certificate(why),
        TlsError::UnsupportedNameType => Cause::ClientCertificateRejected,
        TlsError::InvalidMessage(_) => Cause::DecodeError,
        TlsError::DecryptError => Cause::BadRecordMac,
        TlsError::PeerSentOversizedRecord => Cause::RecordOverflow,
        TlsError::InappropriateMessage { .. } | TlsError::InappropriateHandshakeMessage { .. } => {
            Cause::UnexpectedMessage
        }
        TlsError::PeerMisbehaved(_) => Cause::HandshakeFailed,
        TlsError::General(why) if why.contains("certificate") => Cause::NoCertificate,
        _ => Cause::Internal,
    }
}

fn certificate(why: &CertificateError) -> Cause {
    use CertificateError as C;
    match why {
        C::Expired | C::ExpiredContext { .. } => Cause::ClientCertificateExpired,
        C::NotValidYet | C::NotValidYetContext { .. } => Cause::ClientCertificateNotYetValid,
        C::Revoked => Cause::ClientCertificateRevoked,
        C::UnknownIssuer => Cause::ClientCertificateUnknownIssuer,
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => Cause::ClientCertificateWrongPurpose,
        _ => Cause::ClientCertificateRejected,
    }
}

#[cfg(test)]
mod tests {
    use offramp_observe::Fault;

    use super::*;

    /// EMFILE, ENFILE, ENOSPC, ENOMEM and ENOBUFS, whichever socket they come from.
    #[test]
    fn what_we_run_out_of_is_nobody_elses_fault() {
        for (number, cause) in [
            (24, Cause::DescriptorsExhausted),
            (23, Cause::DescriptorsExhausted),
            (28, Cause::DescriptorsExhausted),
            (12, Cause::OutOfMemory),
            (105, Cause::OutOfMemory),
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert!(is_ours(&error));
            for close in [client(&error), server(&error)] {
                assert_eq!((close.cause, close.fault), (cause, Fault::Us), "{number}");
            }
        }
        let broken =
            |number| response(&UpstreamFault::Aborted(Breach::Io(io::Error::from_raw_os_error(number))));
        assert_eq!((broken(105).cause, broken(105).fault), (Cause::OutOfMemory, Fault::Us));
        assert_eq!(broken(104).cause, Cause::ServerAborted);
        for number in [104, 32, 110] {
            let error = io::Error::from_raw_os_error(number);
            assert!(!is_ours(&error));
            assert_eq!(client(&error).cause, Cause::ClientReset);
            assert_eq!(server(&error).cause, Cause::ServerReset);
        }
    }
}
