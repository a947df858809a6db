//! One request as it goes into the log store: borrowed, so that a line of a log becomes one without copies.

use std::net::IpAddr;

/// One request. Bytes are as they were received: they may be anything, and the store decides how to keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry<'a> {
    /// When it began (or when the log says so), in microseconds since 1970-01-01T00:00:00Z.
    pub time_us: i64,
    /// The requested host, without port; `None` if the log does not have it.
    pub host: Option<&'a [u8]>,
    /// The client; `None` for clients without an IP address.
    pub client: Option<IpAddr>,
    /// The request.
    pub request: RequestPart<'a>,
    /// What came of it.
    pub response: ResponsePart,
    /// The `Referer` header.
    pub referer: Option<&'a [u8]>,
    /// The `User-Agent` header.
    pub agent: Option<&'a [u8]>,
    /// The authenticated user.
    pub user: Option<&'a [u8]>,
    /// What only a proxy knows.
    pub proxy: ProxyPart<'a>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPart<'a> {
    /// The method; `None` where the request line made no sense.
    pub method: Option<&'a [u8]>,
    /// The path, query excluded. A request line that made no sense is kept here as a whole.
    pub path: &'a [u8],
    /// The query, without its question mark.
    pub query: Option<&'a [u8]>,
    /// The protocol, such as `HTTP/1.1`.
    pub protocol: Option<&'a [u8]>,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponsePart {
    /// The status; 0 where no response was begun.
    pub status: u16,
    /// Bytes of the response's body that were sent.
    pub bytes: u64,
    /// Bytes of the request's body (or of the whole request, where the log says only that).
    pub received: Option<u64>,
    /// From the request's first byte to the response's last, in microseconds.
    pub duration_us: Option<u64>,
}

/// The parts of a request that only a proxy knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyPart<'a> {
    /// The route's name.
    pub route: Option<&'a [u8]>,
    /// The server that answered.
    pub server: Option<&'a [u8]>,
    /// The TLS version, such as `TLSv1.3`.
    pub tls: Option<&'a [u8]>,
    /// The request's id.
    pub id: Option<&'a [u8]>,
    /// How it ended, where that was not as it should be.
    pub cause: Option<&'a [u8]>,
}
