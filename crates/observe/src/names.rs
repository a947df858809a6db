//! The table of metrics: name, kind, labels, help.
//!
//! Names follow Prometheus conventions: base units, the unit in the name, `_total` for counters. They are a
//! contract with users' dashboards: metrics may be added, a name never changes. The table in `docs/reference/metrics.md`
//! derives from this one.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A monotonic counter, reset when the process ends.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Cumulative counts by size.
    Histogram,
    /// A constant 1: the labels carry the information.
    Info,
}

impl MetricKind {
    /// The type's name in OpenMetrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// The description of one metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The full name in queries.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: MetricKind,
    /// The label names of its samples.
    pub labels: &'static [&'static str],
    /// The meaning in one sentence.
    pub help: &'static str,
}

impl Metric {
    /// The OpenMetrics name of the metric family: the name without the suffix of its type.
    #[must_use]
    pub fn family(&self) -> &'static str {
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// Returns `true` if series may be evicted and restart, so that their start time is unknown.
    #[must_use]
    pub fn begins_anew(&self) -> bool {
        self.name.starts_with("offramp_client_tls_")
    }

    /// The unit: the last word of the family's name, if it is one.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        UNITS
            .into_iter()
            .find(|unit| self.family().strip_suffix(unit).is_some_and(|head| head.ends_with('_')))
    }
}

const UNITS: [&str; 2] = ["seconds", "bytes"];

macro_rules! metrics {
    ($($constant:ident, $name:literal, $kind:ident, [$($label:literal),*], $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $constant: Metric =
                Metric { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };
        )+

        /// Every metric, in the order of the exposition.
        pub const ALL: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    BUILD, "offramp_build_info", Info, ["version", "commit"], "The running version.";
    WORKERS, "offramp_workers", Gauge, [], "Worker threads.";
    LAST_RELOAD, "offramp_config_last_reload_successful", Gauge, [], "Whether the last reload of the configuration was applied: 1, or 0 if it was refused; 1 before the first.";
    CONFIG_LOADED, "offramp_config_last_load_success_timestamp_seconds", Gauge, [], "When the current configuration was loaded, in Unix time.";
    RELOADS, "offramp_config_reloads_total", Counter, ["outcome"], "Reloads of the configuration, by outcome: success or refused.";
    AUTOSAVE_FAILURES, "offramp_config_autosave_failures_total", Counter, [], "Failed attempts to save the configuration in force in the state directory.";
    CONNECTIONS, "offramp_connections_total", Counter, [], "Connections accepted.";
    CONNECTIONS_ACTIVE, "offramp_connections_active", Gauge, [], "Connections open now.";
    CONNECTIONS_CLOSED, "offramp_connections_closed_total", Counter, ["cause", "fault"], "Connections ended, by cause and by whose fault it was.";
    CONNECTION_DURATION, "offramp_connection_duration_seconds", Histogram, [], "Time from accept to the end of a connection.";
    HANDSHAKES, "offramp_handshakes_total", Counter, ["version", "kind"], "TLS handshakes completed, by version and by kind (full or resumed).";
    HANDSHAKES_FAILED, "offramp_handshakes_failed_total", Counter, [], "TLS handshakes begun and not completed.";
    HANDSHAKE_DURATION, "offramp_handshake_duration_seconds", Histogram, [], "Time from the first byte to the completed TLS handshake.";
    TLS_SESSIONS, "offramp_tls_sessions_total", Counter, ["version", "suite", "group", "post_quantum", "kind"], "TLS sessions of finished connections, by the negotiated parameters; the group is empty for a resumption without key exchange.";
    TLS_FAILURES, "offramp_tls_failures_total", Counter, ["cause"], "Failed TLS handshakes of finished connections, by cause.";
    RELAYED_BYTES, "offramp_relayed_bytes_total", Counter, ["direction"], "Bytes of plaintext relayed; the direction is client_to_server or server_to_client.";
    RECORDS, "offramp_records_total", Counter, ["operation"], "TLS records of application data; the operation is open (from clients) or seal (to clients).";
    KEY_UPDATES, "offramp_key_updates_total", Counter, ["direction"], "TLS 1.3 key updates received and sent.";
    TURNS, "offramp_turns_total", Counter, [], "Turns of relayed connections (tcp); the work of each has a bound.";
    YIELDS, "offramp_yields_total", Counter, [], "Times that a connection with more to do let the other connections of its worker go first.";
    ACCEPT_PAUSES, "offramp_accept_pauses_total", Counter, ["reason"], "Times that a worker paused accepting, by reason: no file descriptor (descriptors), no memory (memory), `limits.connections` reached (connections), `limits.process_memory` reached (process_memory), or the kernel denied it (denied).";
    WORKER_LATE, "offramp_worker_late_total", Counter, [], "Times that the event loop of a worker came round more than 100 ms late.";
    WORKER_LATE_TIME, "offramp_worker_late_seconds_total", Counter, [], "How late the event loops of workers were in all those times.";
    PANICS, "offramp_panics_total", Counter, [], "Panics, faults of Offramp's own: each ended one connection, request or task; tasks that the process needs begin anew.";
    LIMIT, "offramp_limit", Gauge, ["limit"], "The limits of clients as they are configured: connections, connections_per_client, memory (bytes, per worker; where there is a listener for HTTP), and, where they are set, process_memory (bytes), bandwidth_per_client (bytes per second), handshakes_per_client_per_second and requests_per_client_per_second.";
    LIMIT_USED, "offramp_limit_used", Gauge, ["limit"], "How much of a limit is used: connections open now (connections), those of the client that has the most (connections_per_client), and the bytes that requests over HTTP/2 hold on the worker that holds the most (memory).";
    LIMIT_REFUSALS, "offramp_limit_refusals_total", Counter, ["limit"], "Clients and requests that a limit refused, by the cause that their event has; memory: requests over HTTP/2 that `limits.memory` refused, which have no event.";
    CERTIFICATE_EXPIRY, "offramp_certificate_expiry_timestamp_seconds", Gauge, ["name", "key"], "When a certificate expires, in Unix time, by its first name and the kind of its key; the 200 that expire first.";
    ACME_ORDERS, "offramp_acme_orders_total", Counter, ["outcome"], "Orders and renewals of certificates from authorities, by outcome: obtained or failed.";
    JWKS_FETCHES, "offramp_jwks_fetches_total", Counter, ["outcome"], "Fetches of the keys of tokens from the URLs of `jwks`, by outcome: success or failed.";
    ACME_ON_DEMAND, "offramp_acme_on_demand_total", Counter, ["outcome"], "Names without a certificate that clients asked for and that may have one on demand, by what became of them: obtained, failed, denied (by the URL that is asked), unanswered (by that URL), over_rate (certificate.on_demand.rate), busy (too many names at a time), paused (every authority has asked for a pause).";
    CERTIFICATE_LEFT, "offramp_certificate_expiry_seconds", Gauge, ["name", "source"], "How long a certificate has left, below 0 once it has expired, by its first name and where it comes from (file, acme, local_ca); the 200 that end first.";
    HTTP_CONNECTIONS, "offramp_http_connections_total", Counter, ["protocol"], "Connections that speak HTTP, by their first version.";
    REQUESTS_ACTIVE, "offramp_requests_active", Gauge, [], "Requests in progress.";
    REQUESTS_BY_PROTOCOL, "offramp_requests_by_protocol_total", Counter, ["protocol"], "Requests that ended, by the version of HTTP.";
    REQUESTS_ENDED, "offramp_requests_ended_total", Counter, ["cause", "fault"], "Requests that ended, by cause and by whose fault it was; pairs appear when they happen.";
    COMPRESSIONS, "offramp_compressed_responses_total", Counter, ["coding"], "Responses that gain by compression and whose clients want it, by the coding that they got: zstd, br, gzip, or none where the encoders of the worker had all of `limits.compression_memory`.";
    MIRRORED, "offramp_mirrored_requests_total", Counter, ["outcome"], "Requests of routes with a mirror that were to be copied, by outcome: answered or failed; or not copied: busy (too many copies in progress), too_large (the body), incomplete (the request did not come whole).";
    REQUESTS, "offramp_requests_total", Counter, ["route", "backend", "server", "method", "code"], "Requests that ended, by where they went, by method (the common ones, or other) and by class of status code (none if no response began).";
    REQUEST_DURATION, "offramp_request_duration_seconds", Histogram, ["route", "backend", "server"], "Time from the first byte of a request to the last byte of its response.";
    REQUEST_FIRST_BYTE, "offramp_request_first_byte_seconds", Histogram, ["route", "backend", "server"], "Time from the first byte of a request to the head of the server's response.";
    REQUEST_TRIES, "offramp_request_tries_total", Counter, ["route", "backend", "server"], "Attempts to send requests to a server; the server is the last one.";
    REQUEST_RETRIES, "offramp_request_retries_total", Counter, ["route", "backend", "server"], "Attempts after the first one of a request.";
    REQUEST_QUEUE, "offramp_request_queue_seconds_total", Counter, ["route", "backend", "server"], "Time that requests waited for a server with a free place.";
    ROUTE_CONNECTIONS, "offramp_route_connections_total", Counter, ["route", "backend", "server"], "Finished connections that were relayed as a whole (tcp), by where they went.";
    ROUTE_BANDWIDTH, "offramp_route_bandwidth_bytes", Gauge, ["route"], "The bytes per second that all clients of a route may send, and as many that they may receive, where it has `bandwidth`: the least of routes with one name; the first 200 by name.";
    ROUTE_BYTES, "offramp_route_bytes_total", Counter, ["route", "backend", "server", "direction"], "Bytes of finished connections (tcp) and of the bodies of finished requests (http), by where they went.";
    SERVER_UP, "offramp_server_up", Gauge, ["backend", "server"], "Whether a server is up: 1, or 0 if its health check failed.";
    SERVER_EJECTED, "offramp_server_ejected", Gauge, ["backend", "server"], "Whether a server is ejected because requests to it failed: 1 or 0.";
    SERVER_DRAINING, "offramp_server_draining", Gauge, ["backend", "server"], "Whether a server finishes its requests and gets no new ones: 1 or 0.";
    SERVER_ACTIVE, "offramp_server_active", Gauge, ["backend", "server"], "Requests and relayed connections on a server at the moment.";
    CLIENT_CONNECTIONS, "offramp_client_connections_total", Counter, ["client"], "Finished connections of the clients with the most; never too low, see `offramp_client_overestimate_max`.";
    CLIENT_REQUESTS, "offramp_client_requests_total", Counter, ["client"], "Finished requests of the clients with the most; never too low.";
    CLIENT_BYTES, "offramp_client_bytes_total", Counter, ["client", "direction"], "Bytes of finished connections and of the bodies of finished requests of the clients with the most; never too low.";
    CLIENT_OVERESTIMATE, "offramp_client_overestimate_max", Gauge, ["figure"], "The maximum error of a client's figure, and the maximum figure of a client that is left out.";
    CLIENT_TLS_SESSIONS, "offramp_client_tls_sessions_total", Counter, ["client", "sni", "version", "suite", "group", "post_quantum", "kind"], "TLS sessions of the heaviest pairs of client and requested name since they are watched, by the negotiated parameters.";
    CLIENT_TLS_HANDSHAKE, "offramp_client_tls_handshake_seconds_total", Counter, ["client", "sni"], "Time of completed TLS handshakes of the heaviest pairs of client and name; their number is that of the sessions.";
    CLIENT_TLS_FAILURES, "offramp_client_tls_failures_total", Counter, ["client", "sni", "cause"], "Failed TLS handshakes of the heaviest pairs of client and name, by cause.";
    CONNECT_ATTEMPTS, "offramp_connect_attempts_total", Counter, [], "Attempts to connect to a server.";
    CONNECT_FAILURES, "offramp_connect_failures_total", Counter, [], "Attempts to connect to a server that failed or timed out.";
    EVENTS_WRITTEN, "offramp_events_written_total", Counter, [], "Events written to the access log.";
    EVENTS_DROPPED, "offramp_events_dropped_total", Counter, ["reason"], "Events lost: the queue was full (queue_full), or the output failed (output_failed).";
    SPANS, "offramp_spans_total", Counter, ["outcome"], "Spans for the collector of traces: exported, dropped because too many waited, or refused by the collector.";
    LOG_STORE_UP, "offramp_log_store_up", Gauge, [], "Whether the log store takes events: 1, or 0 while they wait in the spool.";
    LOG_STORE_EVENTS, "offramp_log_store_events_total", Counter, ["outcome"], "Events for the log store: stored, or dropped because neither it nor the spool had room.";
    LOG_STORE_SPOOL, "offramp_log_store_spool_bytes", Gauge, [], "Bytes in the spool of the log store.";
    LOG_STORE_SPOOL_LIMIT, "offramp_log_store_spool_limit_bytes", Gauge, [], "The maximum bytes in the spool of the log store.";
    NOTIFICATIONS, "offramp_notifications_total", Counter, ["name", "result"], "Notifications to a receiver: sent, retried (tries that failed for now), refused by the receiver, or dropped because too many waited or for too long.";
    PROCESS_CPU, "process_cpu_seconds_total", Counter, [], "CPU time of the process, user and system.";
    PROCESS_RESIDENT_MEMORY, "process_resident_memory_bytes", Gauge, [], "Resident memory of the process.";
    PROCESS_OPEN_FDS, "process_open_fds", Gauge, [], "Open file descriptors.";
    PROCESS_MAX_FDS, "process_max_fds", Gauge, [], "The maximum number of file descriptors of the process.";
    PROCESS_START_TIME, "process_start_time_seconds", Gauge, [], "When the process started, in Unix time.";
}

#[cfg(test)]
mod tests {
    use super::{ALL, MetricKind, RELAYED_BYTES, WORKERS};
    use std::collections::HashSet;

    #[test]
    fn names_follow_the_conventions() {
        let names: HashSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len(), "a name occurs twice");
        let families: HashSet<_> = ALL.iter().map(super::Metric::family).collect();
        assert_eq!(families.len(), ALL.len(), "a family occurs twice");
        for metric in ALL {
            assert_eq!(
                metric.kind == MetricKind::Counter,
                metric.name.ends_with("_total"),
                "{}",
                metric.name
            );
            assert_eq!(metric.kind == MetricKind::Info, metric.name.ends_with("_info"), "{}", metric.name);
            assert!(metric.help.ends_with('.') && !metric.help.contains(['\n', '\\']), "{}", metric.name);
            assert!(metric.name.starts_with("offramp_") || metric.name.starts_with("process_"));
        }
    }

    #[test]
    fn units_are_read_from_the_name() {
        assert_eq!(RELAYED_BYTES.unit(), Some("bytes"));
        assert_eq!(WORKERS.unit(), None);
    }
}
