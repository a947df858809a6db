//! Limits on resources.

use std::time::Duration;

use super::Size;
use crate::units::Rate;

/// Limits on the use of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections over all workers: 1 to 10,000,000.
    pub connections: u32,
    /// Concurrent connections per client address, except loopback and proxies: 1 to 10,000,000.
    pub connections_per_client: u32,
    /// New handshakes per client address, if limited.
    pub handshakes_per_client: Option<Rate>,
    /// Bytes per second in each direction per client address, if limited: 16 KiB to 1 TiB.
    pub bandwidth_per_client: Option<Size>,
    /// The time from accepting a connection to the end of its handshake: 1 ms to 1 h.
    pub handshake_timeout: Duration,
    /// The timeout of one connection attempt to a server: 1 ms to 1 h.
    pub connect_timeout: Duration,
    /// The time without a byte in either direction after which a connection is closed: 1 ms to 30 d.
    pub idle_timeout: Duration,
    /// The maximum age of a client's connection, if limited: 1 s to 30 d.
    pub max_age: Option<Duration>,
    /// The time for requests in progress on an HTTP connection that has reached `max_age`: 0 to 30 d.
    pub max_age_grace: Duration,
    /// The time for open connections to finish after an order to stop: up to 24 h, 0 for none.
    pub drain_timeout: Duration,
    /// The time for the new process of an upgrade to accept connections: 1 ms to 1 h.
    pub upgrade_timeout: Duration,
    /// The resident memory above which no connection is accepted, if limited: 8 MiB to 1 TiB.
    pub process_memory: Option<Size>,
    /// Limits that apply to HTTP only.
    pub http: HttpLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 100_000,
            connections_per_client: 1000,
            handshakes_per_client: None,
            bandwidth_per_client: None,
            handshake_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(300),
            max_age: None,
            max_age_grace: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            upgrade_timeout: Duration::from_secs(60),
            process_memory: None,
            http: HttpLimits::default(),
        }
    }
}

/// Limits that apply to HTTP only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// The time for receiving a request header: 1 ms to 1 h.
    pub request_header_timeout: Duration,
    /// The maximum gap within a request body: 1 ms to 1 h.
    pub request_body_timeout: Duration,
    /// The minimum average rate of a request body after 10 s, in bytes per second: up to 1 GiB, 0 for none.
    pub min_body_rate: Size,
    /// The time between two requests of a connection: 1 ms to 24 h.
    pub keepalive_timeout: Duration,
    /// The time from a request to the header of the server's response: 1 ms to 24 h.
    pub response_timeout: Duration,
    /// Header fields of a request: 1 to 10,000.
    pub request_headers: u32,
    /// The size of a request header: 1 KiB to 1 MiB.
    pub request_header_size: Size,
    /// The size of path and query of a request: 64 B to 1 MiB.
    pub request_target_size: Size,
    /// Requests per client address, if limited.
    pub requests_per_client: Option<Rate>,
    /// Concurrent requests on one HTTP/2 connection: 1 to 10,000.
    pub streams: u32,
    /// The memory for HTTP/2 requests and responses in flight, per worker: 1 MiB to 1 TiB.
    pub memory: Size,
    /// The maximum window of an HTTP/2 upload: from 256 KiB, its initial size, to 1 GiB.
    pub max_window: Size,
    /// The memory for cached small files, per worker: up to 64 GiB; 0 caches neither files nor descriptors.
    pub file_cache: Size,
    /// The memory for encoders of responses, per worker: up to 1 TiB.
    pub compression_memory: Size,
}

impl Default for HttpLimits {
    fn default() -> Self {
        HttpLimits {
            request_header_timeout: Duration::from_secs(10),
            request_body_timeout: Duration::from_secs(30),
            min_body_rate: Size::new(256),
            keepalive_timeout: Duration::from_secs(75),
            response_timeout: Duration::from_secs(60),
            request_headers: 100,
            request_header_size: Size::new(32 << 10),
            request_target_size: Size::new(8 << 10),
            requests_per_client: None,
            streams: 100,
            memory: Size::new(256 << 20),
            max_window: Size::new(8 << 20),
            file_cache: Size::new(16 << 20),
            compression_memory: Size::new(32 << 20),
        }
    }
}
