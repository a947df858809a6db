//! The table of event fields: key, type, kinds of events, and meaning.
//!
//! Keys are a contract with users' queries: fields may be added, a key never changes its name or meaning.
//! Absent values are left out. The tables in `docs/reference/events.md` and the names that `access_log.omit` and
//! `access_log.hash` accept derive from this table.

/// The type of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A point in time, RFC 3339 in UTC with microseconds.
    Time,
    /// Text of arbitrary characters.
    Text,
    /// An unsigned integer of 64 bits.
    Number,
    /// A boolean: `true` or `false`.
    Flag,
    /// A list of texts; logfmt joins them by commas.
    List,
}

impl FieldKind {
    /// The type's name in the documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Text => "text",
            Self::Number => "number",
            Self::Flag => "flag",
            Self::List => "list",
        }
    }
}

/// The kinds of events that have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOf {
    /// Events of connections only.
    Connection,
    /// Events of requests only.
    Request,
    /// Events of both kinds.
    Both,
}

impl FieldOf {
    /// Returns `true` if events of connections have the field.
    #[must_use]
    pub const fn connections(self) -> bool {
        matches!(self, Self::Connection | Self::Both)
    }

    /// Returns `true` if events of requests have the field.
    #[must_use]
    pub const fn requests(self) -> bool {
        matches!(self, Self::Request | Self::Both)
    }
}

macro_rules! fields {
    ($($variant:ident, $key:literal, $kind:ident, $of:ident, $meaning:literal;)+) => {
        /// A field of events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Field {
            $(#[doc = $meaning] $variant,)+
        }

        impl Field {
            /// Every field, in the order of an event's line, which is that of the discriminants.
            pub const ALL: [Self; [$($key),+].len()] = [$(Self::$variant),+];

            /// The key in `snake_case`.
            #[must_use]
            #[inline]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)+ }
            }

            /// The key as a further JSON member: `,"key":`.
            #[inline]
            pub(super) const fn json_key(self) -> &'static str {
                match self { $(Self::$variant => concat!(",\"", $key, "\":"),)+ }
            }

            /// The key as a further JSON member with a text value: `,"key":"`.
            #[inline]
            pub(super) const fn json_text_key(self) -> &'static str {
                match self { $(Self::$variant => concat!(",\"", $key, "\":\""),)+ }
            }

            /// The key in logfmt: `key=`.
            #[inline]
            pub(super) const fn logfmt_key(self) -> &'static str {
                match self { $(Self::$variant => concat!($key, "="),)+ }
            }

            /// The type of the field's values.
            #[must_use]
            pub const fn kind(self) -> FieldKind {
                match self { $(Self::$variant => FieldKind::$kind,)+ }
            }

            /// The kinds of events that have the field.
            #[must_use]
            pub const fn of(self) -> FieldOf {
                match self { $(Self::$variant => FieldOf::$of,)+ }
            }

            /// The meaning in one line of English.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

fields! {
    Time, "time", Time, Both, "When the connection was accepted; of a request: when its first byte came.";
    Event, "event", Text, Both, "`connection` or `request`.";
    Id, "id", Text, Both, "Unique id of the connection, a UUID of version 7; sorts by time. Servers get the same id in the PROXY v2 header. Of a request: its `X-Request-Id`.";
    Connection, "connection", Text, Request, "The id of the request's connection.";
    Worker, "worker", Number, Both, "The worker that served the connection, from 0.";
    Listener, "listener", Text, Both, "The listener's name.";
    Client, "client", Text, Both, "The client's IP address, or `unix`; from a trusted PROXY header or, of a request, from the fields of `trusted_proxies`.";
    ClientPort, "client_port", Number, Both, "The client's port; absent where trusted proxies name the client.";
    Peer, "peer", Text, Both, "The address that really connected, if a PROXY header or trusted proxies name another client.";
    PeerPort, "peer_port", Number, Both, "The peer's port.";
    Method, "method", Text, Request, "The method, such as `GET`.";
    Scheme, "scheme", Text, Request, "`https`, or `http` on a plain-text listener.";
    Host, "host", Text, Request, "The requested host: lower case, without port.";
    Path, "path", Text, Request, "The path as the client sent it, without the query.";
    Query, "query", Text, Request, "The query, without its question mark.";
    Protocol, "protocol", Text, Request, "`HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`.";
    Status, "status", Number, Request, "The status of the response; 0 if none began.";
    Referer, "referer", Text, Request, "The `Referer` header.";
    UserAgent, "user_agent", Text, Request, "The `User-Agent` header.";
    User, "user", Text, Request, "The authenticated user, where there is one.";
    Sni, "sni", Text, Both, "The server name that the client requested.";
    Ja4, "ja4", Text, Both, "The JA4 fingerprint of the client's TLS library and its settings, over TCP; in text only at the log level `debug`.";
    Alpn, "alpn", Text, Both, "The negotiated application protocol.";
    TlsVersion, "tls_version", Text, Both, "`TLSv1.2` or `TLSv1.3`.";
    TlsSuite, "tls_suite", Text, Both, "The cipher suite, by its IANA name.";
    TlsGroup, "tls_group", Text, Both, "The key-exchange group, by its IANA name.";
    TlsScheme, "tls_scheme", Text, Both, "The scheme of the server's signature, by its IANA name.";
    Resumed, "resumed", Flag, Both, "Whether the handshake resumed an earlier session; absent if it did not complete.";
    ClientCn, "client_cn", Text, Both, "Common name of the client certificate's subject.";
    Route, "route", Text, Both, "The route that matched.";
    Backend, "backend", Text, Both, "The backend of the route.";
    Server, "server", Text, Both, "The server that was connected to, or tried last.";
    Tries, "tries", Number, Both, "Attempts to connect to servers, or to get a response; absent if there was none.";
    BytesFromClient, "bytes_from_client", Number, Both, "Bytes of plaintext from the client to the server; of a request: of its body.";
    BytesToClient, "bytes_to_client", Number, Both, "Bytes of plaintext from the server to the client; of a request: of the response's body.";
    HandshakeUs, "handshake_us", Number, Connection, "Duration of the handshake, in microseconds.";
    QueueUs, "queue_us", Number, Request, "Time that the request waited for a server with a free place, in microseconds; absent if it did not.";
    ConnectUs, "connect_us", Number, Both, "Time until a server was connected, failed tries included, in microseconds; absent where a kept connection was used.";
    FirstByteUs, "first_byte_us", Number, Request, "Time from the request's first byte to the server's response head, in microseconds.";
    TotalUs, "total_us", Number, Both, "Time from accept to the end; of a request: from its first byte to the response's last; in microseconds.";
    Cause, "cause", Text, Both, "Why it ended: see the causes.";
    Fault, "fault", Text, Both, "Whose fault it was: `client`, `server`, `us`, `policy` or `nobody`.";
    AlertSent, "alert_sent", Text, Both, "The fatal TLS alert that Offramp sent: to the server if `cause` begins with `server_`, else to the client.";
    AlertReceived, "alert_received", Text, Both, "The fatal TLS alert that Offramp received: from the server if `cause` begins with `server_`, else from the client.";
    Detail, "detail", Text, Both, "The message of the system or a library.";
    TraceId, "trace_id", Text, Request, "The id of the distributed trace (W3C Trace Context), 32 hexadecimal digits.";
    SpanId, "span_id", Text, Request, "The id of the request's own span, 16 hexadecimal digits.";
    OfferedVersions, "offered_versions", List, Connection, "For a failed handshake: the TLS versions that the client offered.";
    OfferedSuites, "offered_suites", List, Connection, "The cipher suites that the client offered.";
    OfferedGroups, "offered_groups", List, Connection, "The key-exchange groups that the client offered.";
    OfferedSchemes, "offered_schemes", List, Connection, "The signature schemes that the client offered.";
    OfferedAlpn, "offered_alpn", List, Connection, "The application protocols that the client offered.";
    ConfiguredVersions, "configured_versions", List, Connection, "For a failed handshake: the TLS versions that are configured.";
    ConfiguredSuites, "configured_suites", List, Connection, "The cipher suites that are configured.";
    ConfiguredGroups, "configured_groups", List, Connection, "The key-exchange groups that are configured.";
    ConfiguredSchemes, "configured_schemes", List, Connection, "The signature schemes that are configured.";
    ConfiguredAlpn, "configured_alpn", List, Connection, "The application protocols that are configured.";
}

impl Field {
    /// Looks a field up by its key.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.key() == key)
    }

    /// The index of the field in [`Field::ALL`].
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The number of fields.
    pub const COUNT: usize = Self::ALL.len();
}

#[cfg(test)]
mod tests {
    use super::Field;

    #[test]
    fn keys_are_unique_and_snake_case() {
        for field in Field::ALL {
            assert_eq!(Field::from_key(field.key()), Some(field));
            assert_eq!(Field::ALL[field.index()], field);
            assert!(
                field.key().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{}",
                field.key()
            );
            assert!(field.meaning().ends_with('.'), "{}", field.key());
        }
    }
}
