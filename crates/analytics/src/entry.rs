//! The entry of one request in the log store, borrowed so that a log line becomes one without copies.

use std::net::IpAddr;

/// One request. Bytes are as received: they may be anything, and the store decides how to keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEntry<'a> {
    /// The start of the request (or the time in the log), in microseconds since 1970-01-01T00:00:00Z.
    pub time_us: i64,
    /// The requested host without port; `None` if the log has none.
    pub host: Option<&'a [u8]>,
    /// The client; `None` for clients without an IP address.
    pub client: Option<IpAddr>,
    /// The request line in its parts.
    pub request: RequestPart<'a>,
    /// Status, sizes and duration.
    pub response: ResponsePart,
    /// Durations of phases that only a proxy has.
    pub phases: PhasePart,
    /// The `Referer` header as received.
    pub referer: Option<&'a [u8]>,
    /// The `User-Agent` header.
    pub agent: Option<&'a [u8]>,
    /// The name of the authenticated user.
    pub user: Option<&'a [u8]>,
    /// Route, server and other facts that only a proxy has.
    pub proxy: ProxyPart<'a>,
}

/// The request line in its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPart<'a> {
    /// The method; `None` for a malformed request line.
    pub method: Option<&'a [u8]>,
    /// The path without the query. A malformed request line is kept here as a whole.
    pub path: &'a [u8],
    /// The query without its question mark.
    pub query: Option<&'a [u8]>,
    /// The protocol, such as `HTTP/1.1`.
    pub protocol: Option<&'a [u8]>,
}

/// Status, sizes and duration of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponsePart {
    /// The status; 0 if no response was started.
    pub status: u16,
    /// Bytes of the response body that were sent.
    pub bytes: u64,
    /// Bytes of the request body (or of the whole request, if the log has only that).
    pub received: Option<u64>,
    /// From the first byte of the request to the last of the response, in microseconds.
    pub duration_us: Option<u64>,
}

/// Durations of the phases of a request, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhasePart {
    /// In the queue for a server; `None` if it was not queued.
    pub queue_us: Option<u64>,
    /// Connecting to a server; `None` for a kept connection.
    pub connect_us: Option<u64>,
    /// From the first byte of the request to the head of the server's response; `None` without one.
    pub first_byte_us: Option<u64>,
}

impl PhasePart {
    /// The phases in the order of the fields.
    pub(crate) const fn all(self) -> [Option<u64>; 3] {
        [self.queue_us, self.connect_us, self.first_byte_us]
    }
}

/// Facts that only a proxy has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyPart<'a> {
    /// The name of the route.
    pub route: Option<&'a [u8]>,
    /// The server that answered.
    pub server: Option<&'a [u8]>,
    /// The TLS version, such as `TLSv1.3`.
    pub tls: Option<&'a [u8]>,
    /// The request id, as forwarded in `X-Request-Id`.
    pub id: Option<&'a [u8]>,
    /// The cause of an irregular end.
    pub cause: Option<&'a [u8]>,
}
