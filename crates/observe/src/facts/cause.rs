//! The table of causes: the reasons for which connections and requests end, each with its usual fault.
//!
//! The names are a contract with users' queries and alerts: rows may be added, a name never changes. The
//! `cause` field of events, the label of the counter and the table in `docs/reference/causes.md` derive from this
//! table. `proxy::failure` and `proxy::l7::upstream_failure` choose the cause, and the status of a response.

use std::fmt;

/// The party at fault for the end of a connection or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The client misbehaved, gave up, or vanished.
    Client,
    /// The server behind Offramp refused, failed, or hung.
    Server,
    /// Offramp, or the machine under it.
    Us,
    /// No party failed: a configured rule or limit refused.
    Policy,
    /// No fault: an ordinary end.
    Nobody,
}

impl Fault {
    /// Every fault, in the order of the discriminants.
    pub const ALL: [Self; 5] = [Self::Client, Self::Server, Self::Us, Self::Policy, Self::Nobody];

    /// The stable name, in `snake_case`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Us => "us",
            Self::Policy => "policy",
            Self::Nobody => "nobody",
        }
    }
}

macro_rules! causes {
    ($($variant:ident, $name:literal, $fault:ident, $meaning:literal;)+) => {
        /// The reason for the end of a connection or request. Each cause has a stable name, a one-line
        /// meaning, and a usual fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Cause {
            $(#[doc = $meaning] $variant,)+
        }

        impl Cause {
            /// Every cause, in the order of the discriminants.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The stable name, in `snake_case`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The usual fault of this cause.
            #[must_use]
            pub const fn fault(self) -> Fault {
                match self { $(Self::$variant => Fault::$fault,)+ }
            }

            /// The meaning in one line of English.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

causes! {
    // Ordinary ends.
    ClientClosed, "client_closed", Nobody, "The client closed with close_notify (passthrough: with a FIN), and everything was delivered.";
    ServerClosed, "server_closed", Nobody, "The server closed, and everything was delivered.";
    IdleTimeout, "idle_timeout", Nobody, "No byte moved in either direction for `idle_timeout`.";
    MaxAge, "max_age", Nobody, "The connection had the greatest age, `max_age`, and was ended; over HTTP after `max_age_grace`, with what was still under way.";
    Drain, "drain", Policy, "Offramp was stopping or reloading, and `drain_timeout` ran out.";
    ClosedByOperator, "closed_by_operator", Policy, "An operator closed the connection through the admin API (`offramp ctl conns --kill`).";
    ClientLeft, "client_left", Nobody, "The client closed a WebSocket, another tunnel or an event stream, as a closed tab does; such responses have no other end.";
    ClientSilent, "client_silent", Nobody, "The client closed before it sent a byte, as health checks and port scans do.";
    AcmeChallenge, "acme_challenge", Nobody, "A certificate authority looked whether the name leads here (ALPN `acme-tls/1`), and was answered.";
    PostgresCancel, "postgres_cancel", Nobody, "A client of PostgreSQL asked in clear for the end of a query (`cancel = \"clear\"`), and the request was passed on.";

    // Requests.
    Completed, "completed", Nobody, "The request got a complete response.";
    BadRequest, "bad_request", Client, "The request breaks the rules of HTTP, or has a form that is refused for safety; `detail` has the rule. Answered with 400, or as the detail says.";
    RequestHeaderTimeout, "request_header_timeout", Client, "The head of the request was not complete after `request_header_timeout`; answered with 408.";
    RequestBodyTimeout, "request_body_timeout", Client, "No byte of the request's body came for `request_body_timeout`; answered with 408.";
    RequestTooSlow, "request_too_slow", Client, "The request's body came more slowly than `min_body_rate`.";
    BodyTooLarge, "body_too_large", Policy, "The request's body is larger than `max_body`; answered with 413.";
    TargetTooLong, "target_too_long", Policy, "The request's target is longer than `request_target_size`; answered with 414.";
    Misdirected, "misdirected", Client, "The request's host does not belong to the certificate of the connection; answered with 421.";
    TooManyRequests, "too_many_requests", Policy, "The client sent requests faster than `requests_per_client`; answered with 429.";
    Unauthorized, "unauthorized", Client, "The request has no name and password of a user in `basic_auth`, or no token that `jwt` believes; then `detail` says why. Answered with 401.";
    AuthUnavailable, "auth_unavailable", Server, "The server of `forward_auth` could not be asked, did not answer in time, or answered with more than 1 MiB; `detail` says which. Answered with 503, or cut off so that the client notices.";
    KeysUnavailable, "keys_unavailable", Server, "The keys of `jwt` could not be fetched from their URL yet, so that no token can be checked; answered with 503.";
    TooManyLogins, "too_many_logins", Policy, "The client has sent too many wrong passwords, and must wait; answered with 429.";
    LoginsFull, "logins_full", Policy, "As many passwords as Offramp lets wait were waiting to be checked; answered with 503.";
    TokensFull, "tokens_full", Policy, "As many tokens of `jwt` as Offramp lets wait were waiting to be checked; answered with 503.";
    TokenExpired, "token_expired", Policy, "The token that opened the WebSocket, another tunnel, a response without a length or a call of gRPC has ended, and `keep_tunnels` does not let it go on.";
    HeadersTooLarge, "headers_too_large", Policy, "The head of the request has more fields or bytes than are allowed; answered with 431.";
    H2ProtocolError, "h2_protocol_error", Client, "The client broke the rules of HTTP/2 (RFC 9113); `detail` says how.";
    H2Flood, "h2_flood", Client, "The client sent more resets, pings, settings or empty frames than any honest client.";
    ClientAborted, "client_aborted", Client, "The client went away, or reset the stream, before the response was complete.";

    // The client goes away.
    ClientReset, "client_reset", Client, "The client reset the TCP connection.";
    ClientVanished, "client_vanished", Client, "The client closed TCP between two records, without close_notify.";
    ClientTruncated, "client_truncated", Client, "The client closed TCP in the middle of a record.";
    ClientHung, "client_hung", Client, "The client read none of the bytes that waited for it for `idle_timeout`.";

    // Before the handshake.
    PlainHttp, "plain_http", Client, "The client spoke plain HTTP on a TLS port; it was answered with a 400 that says so.";
    NotTls, "not_tls", Client, "The first bytes are neither TLS nor HTTP.";
    ClientHelloTooLarge, "client_hello_too_large", Client, "The ClientHello is larger than Offramp reads, or comes in more than 4,096 records.";
    ClientHelloMalformed, "client_hello_malformed", Client, "The ClientHello cannot be parsed.";
    NoRoute, "no_route", Policy, "No route matches the client's listener, name and ALPN, or host and path; a request is answered with 404.";
    UnknownName, "unknown_name", Policy, "No certificate covers the name, and there is no default one or `[tls]` refuses such clients; alert unrecognized_name was sent, or missing_extension without a name.";
    NoCertificate, "no_certificate", Us, "A route matches, but no certificate can be used with this client.";

    // The handshake.
    HandshakeTimeout, "handshake_timeout", Client, "The handshake was not complete after `handshake_timeout`.";
    HandshakeShed, "handshake_shed", Policy, "So many handshakes waited for CPU time that this one could not be complete after `handshake_timeout`.";
    HandshakeAbandoned, "handshake_abandoned", Client, "The client closed TCP in the middle of the handshake.";
    HandshakeFailed, "handshake_failed", Client, "The handshake failed for another reason than those below; `alert_sent` names it.";
    HandshakeAlert, "handshake_alert", Client, "The client refused the handshake; `alert_received` says why.";
    NoCommonVersion, "no_common_version", Policy, "The client offers no TLS version that is configured.";
    NoCommonSuite, "no_common_suite", Policy, "The client offers no cipher suite that is configured.";
    NoCommonGroup, "no_common_group", Policy, "The client offers no key-exchange group that is configured.";
    NoCommonScheme, "no_common_scheme", Policy, "The client offers no signature scheme that a certificate here can use.";
    NoCommonAlpn, "no_common_alpn", Policy, "The client offers no application protocol that is configured.";
    ClientCertificateMissing, "client_certificate_missing", Client, "The route requires a client certificate, and none came.";
    ClientCertificateExpired, "client_certificate_expired", Client, "The client's certificate, or one of its chain, has expired; `detail` says whose it is.";
    ClientCertificateNotYetValid, "client_certificate_not_yet_valid", Client, "The client's certificate, or one of its chain, is not valid yet; `detail` says whose it is.";
    ClientCertificateRevoked, "client_certificate_revoked", Client, "A revocation list in `crl` names the client's certificate; `detail` says whose it is.";
    ClientCertificateUnknownIssuer, "client_certificate_unknown_issuer", Client, "None of the authorities in `ca` has issued the client's certificate, or a certificate between the two did not come; `detail` says whose it is.";
    ClientCertificateWrongPurpose, "client_certificate_wrong_purpose", Client, "The client's certificate is for servers, or for something else than clients; `detail` says whose it is.";
    ClientCertificateRejected, "client_certificate_rejected", Client, "The client's certificate does not verify for another reason; `detail` says which, and whose it is.";
    ClientCertificateNotAllowed, "client_certificate_not_allowed", Policy, "The client's certificate verifies, but `allow` lists neither its names nor its key; `detail` says whose it is.";
    TlsRequired, "tls_required", Policy, "The listener has a `preamble`, and the client asked for a session in clear, or, without `cancel = \"clear\"`, for the end of a query in clear.";
    PreambleInvalid, "preamble_invalid", Client, "What the client sent before TLS breaks the protocol of the listener's `preamble`; `detail` says how.";
    AddressDenied, "address_denied", Policy, "`allow` or `deny` of the listener or the route refuses the client's address. A request is answered with 403; a connection is closed before its handshake, by a route with the alert access_denied.";
    Ja4Denied, "ja4_denied", Policy, "The client's JA4 fingerprint is in `deny_ja4` of the route; alert handshake_failure was sent.";

    // Records.
    BadRecordMac, "bad_record_mac", Client, "A record did not authenticate.";
    RecordOverflow, "record_overflow", Client, "A record is longer than TLS allows.";
    UnexpectedMessage, "unexpected_message", Client, "A record or message came at a wrong point.";
    DecodeError, "decode_error", Client, "A message could not be decoded.";
    IllegalParameter, "illegal_parameter", Client, "A message carried a value that TLS forbids.";
    ProtocolVersion, "protocol_version", Client, "A record after the handshake carried a wrong version number.";
    EmptyRecords, "empty_records", Client, "Too many empty records came in a row.";
    KeyUpdates, "key_updates", Client, "The client updated its keys too often.";
    Renegotiation, "renegotiation", Client, "The client tried to renegotiate, which Offramp refuses.";
    AlertReceived, "alert_received", Client, "The client sent a fatal alert after the handshake; `alert_received` names it.";
    SequenceLimit, "sequence_limit", Nobody, "The keys reached the number of records that they may protect, and could not be updated.";

    // The server.
    ConnectTimeout, "connect_timeout", Server, "The server did not accept within `connect_timeout`.";
    ServerRefused, "server_refused", Server, "The server refused the connection.";
    ServerUnreachable, "server_unreachable", Server, "The server's address cannot be reached or does not exist.";
    AllServersFailed, "all_servers_failed", Server, "Every server of the backend was tried, and none could be reached.";
    ServerReset, "server_reset", Server, "The server reset the connection.";
    ServerCertificateExpired, "server_certificate_expired", Server, "The server's certificate, or one above it, has expired.";
    ServerCertificateNotYetValid, "server_certificate_not_yet_valid", Server, "The server's certificate, or one above it, is not valid yet.";
    ServerCertificateWrongName, "server_certificate_wrong_name", Server, "The server's certificate is for other names than its own; `detail` lists them.";
    ServerCertificateWrongPurpose, "server_certificate_wrong_purpose", Server, "The server's certificate is not for servers.";
    ServerCertificateRevoked, "server_certificate_revoked", Server, "A revocation list in `crl` names the server's certificate, or one above it.";
    ServerCertificateUntrusted, "server_certificate_untrusted", Server, "No authority of `verify` vouches for the server's certificate: it is self-signed, of another authority, or an intermediate is missing.";
    ServerCertificateNotPinned, "server_certificate_not_pinned", Server, "The key in the server's certificate is none of `pin`.";
    ServerCertificateInvalid, "server_certificate_invalid", Server, "The server's certificate cannot be read, its signature is wrong, or it is refused for another reason that `detail` names.";
    ServerTlsDeclined, "server_tls_declined", Server, "The server was asked for TLS as `preamble` says, and answered with no, with an error message, or with something else; `detail` says which.";
    ServerHandshakeAlert, "server_handshake_alert", Server, "The server refused the TLS handshake; `alert_received` says why.";
    ServerHandshakeFailed, "server_handshake_failed", Server, "The TLS handshake with the server failed by a fault that has no cause of its own; `detail` names it.";
    ServerAlert, "server_alert", Server, "The server sent a fatal alert after the TLS handshake; `alert_received` names it.";
    ServerRecord, "server_record", Server, "The server sent a record that breaks the rules of TLS; `alert_sent` and `detail` say how.";
    ServerVanished, "server_vanished", Nobody, "The server closed TCP between two records, without close_notify; the client was not sent one either.";
    ServerTruncated, "server_truncated", Server, "The server closed TCP in the middle of a record.";
    ServerHung, "server_hung", Server, "The server read none of the bytes that waited for it for `idle_timeout`.";

    BadResponse, "bad_response", Server, "The response of the server is not HTTP, or breaks its rules; answered with 502.";
    ServerResponseTimeout, "server_response_timeout", Server, "The head of the server's response did not come within `response_timeout`; answered with 504.";
    ServerAborted, "server_aborted", Server, "The server closed before its response was complete; the response was cut off so that the client notices.";
    NoServerAlive, "no_server_alive", Server, "Every server of the backend is known to be down; answered with 503.";
    QueueFull, "queue_full", Policy, "All servers were at `max_connections`, and as many requests as `queue` allows were waiting; answered with 503.";
    QueueTimeout, "queue_timeout", Policy, "All servers were at `max_connections`, and none had a free place within `queue_timeout`; answered with 503.";

    // Files.
    FileFailed, "file_failed", Us, "A file below the `root` of a route could not be opened or read, or became shorter while it was sent; `detail` says which of them. Answered with 500, or cut off so that the client notices.";
    ListingsHeld, "listings_held", Policy, "Lists of directories that clients had not read yet took all the memory for them, 32 MiB per worker, or too many requests waited, or one waited for ten seconds; answered with 503.";

    // The PROXY protocol, inbound.
    ProxyStranger, "proxy_stranger", Client, "A PROXY header came from a source that `accept_proxy` does not list.";
    ProxyMissing, "proxy_missing", Client, "A source in `accept_proxy` sent no PROXY header.";
    ProxyMalformed, "proxy_malformed", Client, "The PROXY header cannot be parsed, or its checksum is wrong.";
    ProxyTimeout, "proxy_timeout", Client, "The PROXY header was not complete in time.";

    // Limits, and ourselves.
    LimitConnections, "limit_connections", Policy, "`limits.connections` were open when a listener closed, so the client could not wait any longer.";
    LimitConnectionsPerClient, "limit_connections_per_client", Policy, "The client had `connections_per_client` open already.";
    LimitHandshakesPerClient, "limit_handshakes_per_client", Policy, "The client started handshakes faster than `handshakes_per_client`.";
    DescriptorsExhausted, "descriptors_exhausted", Us, "The process or the system has no file descriptor left.";
    OutOfMemory, "out_of_memory", Us, "The system has no memory left for the connection.";
    Internal, "internal", Us, "A fault of Offramp; `detail` describes it. Please report it.";
}

impl Cause {
    /// The number of causes.
    pub const COUNT: usize = Self::ALL.len();

    /// The limit that refused the client, if one did.
    #[must_use]
    pub const fn limit(self) -> Option<Limit> {
        Some(match self {
            Self::LimitConnections => Limit::Key("limits.connections"),
            Self::LimitConnectionsPerClient => Limit::Key("limits.connections_per_client"),
            Self::LimitHandshakesPerClient => Limit::Key("limits.handshakes_per_client"),
            Self::HandshakeShed => Limit::Key("limits.handshake_timeout"),
            Self::TooManyRequests => Limit::Key("limits.requests_per_client"),
            Self::HeadersTooLarge => Limit::Keys("limits.request_header_size", "limits.request_headers"),
            Self::TargetTooLong => Limit::Key("limits.request_target_size"),
            Self::RequestTooSlow => Limit::Key("limits.min_body_rate"),
            Self::BodyTooLarge => Limit::Key("route.max_body"),
            Self::AddressDenied => Limit::Keys("route.deny", "route.allow"),
            Self::QueueFull => Limit::Keys("backend.*.queue", "backend.*.max_connections"),
            Self::QueueTimeout => Limit::Keys("backend.*.queue_timeout", "backend.*.max_connections"),
            Self::TooManyLogins | Self::LoginsFull => Limit::BuiltIn,
            Self::H2Flood | Self::EmptyRecords | Self::KeyUpdates | Self::ListingsHeld => Limit::BuiltIn,
            _ => return None,
        })
    }
}

/// The configuration keys that raise a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// One key of the configuration.
    Key(&'static str),
    /// Either of two keys of the configuration.
    Keys(&'static str, &'static str),
    /// No key: a built-in limit far above the needs of any honest client.
    BuiltIn,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In the notation of users: `backend.NAME.queue`.
        let key = |key: &str| key.replace(".*.", ".NAME.");
        match self {
            Self::Key(one) => f.write_str(&key(one)),
            Self::Keys(one, other) => write!(f, "{} or {}", key(one), key(other)),
            Self::BuiltIn => f.write_str("none, the limit is built in"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, Fault};
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_snake_case() {
        let names: HashSet<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), Cause::COUNT);
        for name in names {
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
        }
    }

    #[test]
    fn discriminants_are_indexes() {
        for (index, cause) in Cause::ALL.iter().enumerate() {
            assert_eq!(*cause as usize, index);
        }
        for (index, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(*fault as usize, index);
        }
    }

    #[test]
    fn meanings_are_one_sentence_line() {
        for cause in Cause::ALL {
            assert!(cause.meaning().ends_with('.') && !cause.meaning().contains('\n'), "{}", cause.name());
        }
    }
}
