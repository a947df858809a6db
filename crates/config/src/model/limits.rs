//! What bounds the use of the machine.

use std::time::Duration;

use super::Size;
use crate::units::Rate;

/// What bounds the use of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time over all workers: 1 to 10,000,000.
    pub connections: u32,
    /// Connections at a time from one client address, but for loopback and proxies: 1 to 10,000,000.
    pub connections_per_client: u32,
    /// New handshakes from one client address, if they are limited.
    pub handshakes_per_client: Option<Rate>,
    /// Bytes per second in each direction of one client address, if they are limited: 16 KiB to 1 TiB.
    pub bandwidth_per_client: Option<Size>,
    /// From the accepted connection to the end of the handshake: 1 ms to 1 h.
    pub handshake_timeout: Duration,
    /// For one attempt to connect to a server: 1 ms to 1 h.
    pub connect_timeout: Duration,
    /// Without a byte in either direction a connection is closed: 1 ms to 30 d.
    pub idle_timeout: Duration,
    /// The greatest age of a client's connection, if there is one: 1 s to 30 d.
    pub max_age: Option<Duration>,
    /// How long open connections may finish after the order to stop: up to 24 h, 0 for not at all.
    pub drain_timeout: Duration,
    /// How long the new process of an upgrade may take until it accepts connections: 1 ms to 1 h.
    pub upgrade_timeout: Duration,
    /// The resident memory at which nobody is accepted, if it is bounded: 8 MiB to 1 TiB.
    pub process_memory: Option<Size>,
    /// What bounds HTTP.
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
            drain_timeout: Duration::from_secs(30),
            upgrade_timeout: Duration::from_secs(60),
            process_memory: None,
            http: HttpLimits::default(),
        }
    }
}

/// What bounds HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// From the first byte of a request to the end of its header: 1 ms to 1 h.
    pub request_header_timeout: Duration,
    /// Between two pieces of the body of a request: 1 ms to 1 h.
    pub request_body_timeout: Duration,
    /// Bytes per second that the body of a request must bring on average after 10 s: up to 1 GiB, 0 for no
    /// matter.
    pub min_body_rate: Size,
    /// Between two requests of a connection: 1 ms to 24 h.
    pub keepalive_timeout: Duration,
    /// From a request to the header of the server's response: 1 ms to 24 h.
    pub response_timeout: Duration,
    /// Header fields of a request: 1 to 10,000.
    pub request_headers: u32,
    /// The whole header of a request: 1 KiB to 1 MiB.
    pub request_header_size: Size,
    /// Path and query of a request: 64 B to 1 MiB.
    pub request_target_size: Size,
    /// Requests from one client address, if they are limited.
    pub requests_per_client: Option<Rate>,
    /// Requests at a time on one HTTP/2 connection: 1 to 10,000.
    pub streams: u32,
    /// What requests and responses under way over HTTP/2 may hold, per worker: 1 MiB to 1 TiB.
    pub memory: Size,
    /// The greatest window of an upload over HTTP/2: 256 KiB, with which it begins, to 1 GiB.
    pub max_window: Size,
    /// What small files that are served may hold in memory, per worker: up to 64 GiB, 0 for no files and no descriptors.
    pub file_cache: Size,
    /// What encoders of responses may hold, per worker: up to 1 TiB.
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
