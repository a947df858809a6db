//! TLS on request, as PostgreSQL's clients ask for it before the ClientHello.

use offramp_net::{Buffer, Socket};
use offramp_observe::{Cause, Close};
use offramp_wire::postgres::{self, ACCEPT, DECLINE, FirstPacket, fatal};
use offramp_wire::{ParseStep, PostgresFault};

use crate::failure;

/// The outcome of the preamble.
pub(crate) enum PostgresGreeting {
    /// The client has the byte that says that TLS begins now.
    Asked,
    /// The client begins with TLS, or with something that is no PostgreSQL and has a name of its own.
    Direct,
    /// The client asks in clear for the end of a query, which is allowed: the packet is all that `buffer` has.
    Cancel,
    /// The client is refused, and gets these last words.
    Refused(Close, Vec<u8>),
}

/// Answers until TLS begins. A client may be declined GSSAPI encryption once before.
pub(crate) async fn preamble(socket: &Socket, buffer: &mut Buffer, clear_cancel: bool) -> PostgresGreeting {
    let mut declined = false;
    loop {
        let (answer, consumed) = match postgres::peek(buffer.filled()) {
            ParseStep::Need(_) => match super::more(socket, buffer).await {
                Ok(1..) => continue,
                Ok(0) if buffer.is_empty() && !declined => return silent(Cause::ClientSilent.into()),
                Ok(0) => return silent(Cause::HandshakeAbandoned.into()),
                Err(close) => return silent(close),
            },
            ParseStep::Done { value: FirstPacket::Tls, .. }
            | ParseStep::Reject(PostgresFault::NotPostgres) => {
                return PostgresGreeting::Direct;
            }
            ParseStep::Reject(fault) => return invalid(&fault.to_string()),
            ParseStep::Done { value: FirstPacket::Cancel, .. } if clear_cancel && !declined => {
                return cancel(socket, buffer).await;
            }
            // A CancelRequest gets no reply.
            ParseStep::Done { value: FirstPacket::Cancel, .. } => return silent(Cause::TlsRequired.into()),
            ParseStep::Done { value: FirstPacket::Startup, .. } => {
                return PostgresGreeting::Refused(
                    Cause::TlsRequired.into(),
                    fatal(NOT_ALLOWED, TLS_REQUIRED),
                );
            }
            ParseStep::Done { value: FirstPacket::Gss, .. } if declined => {
                return invalid("GSSAPI encryption was declined already");
            }
            ParseStep::Done { value: FirstPacket::Gss, consumed } => {
                declined = true;
                (DECLINE, consumed)
            }
            ParseStep::Done { value: FirstPacket::Ssl, consumed } => (ACCEPT, consumed),
        };
        // An attacker in the middle could have put them there, to be taken for a part of what TLS protects
        // (CVE-2021-23214).
        if buffer.len() > consumed {
            return invalid("bytes in clear came behind the request for encryption");
        }
        buffer.consume(consumed);
        if let Err(error) = socket.write_all(&[answer]).await {
            return silent(failure::client(&error));
        }
        if answer == ACCEPT {
            return PostgresGreeting::Asked;
        }
    }
}

/// Reads the rest of a CancelRequest. Keys of other lengths are those of clients that use TLS for it.
async fn cancel(socket: &Socket, buffer: &mut Buffer) -> PostgresGreeting {
    let length = || buffer.filled().first_chunk().map(|length| u32::from_be_bytes(*length));
    if length() != Some(CANCEL_REQUEST as u32) {
        return silent(
            Close::from(Cause::PreambleInvalid).with_detail("a CancelRequest in clear has 16 bytes"),
        );
    }
    while buffer.len() < CANCEL_REQUEST {
        match super::more(socket, buffer).await {
            Ok(0) => return silent(Cause::HandshakeAbandoned.into()),
            Ok(_) => {}
            Err(close) => return silent(close),
        }
    }
    if buffer.len() > CANCEL_REQUEST {
        return silent(Close::from(Cause::PreambleInvalid).with_detail("bytes came behind a CancelRequest"));
    }
    PostgresGreeting::Cancel
}

fn silent(close: Close) -> PostgresGreeting {
    PostgresGreeting::Refused(close, Vec::new())
}

fn invalid(why: &str) -> PostgresGreeting {
    let close = Close::from(Cause::PreambleInvalid).with_detail(why);
    PostgresGreeting::Refused(close, fatal(PROTOCOL_VIOLATION, why))
}

/// SQLSTATE `invalid_authorization_specification`, as PostgreSQL says if pg_hba.conf demands TLS.
const NOT_ALLOWED: &str = "28000";
/// A length, a code, the number of a process and a secret, of four bytes each.
const CANCEL_REQUEST: usize = 16;
/// SQLSTATE `protocol_violation`.
const PROTOCOL_VIOLATION: &str = "08P01";
const TLS_REQUIRED: &str =
    "TLS is required: connect with sslmode=require, or better with sslmode=verify-full";
