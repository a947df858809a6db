//! Every metric, once: name, kind, labels, help.
//!
//! Names follow the conventions of Prometheus: base units, the unit in the name, `_total` for counters. They
//! are a contract with users' dashboards: a metric may be added, a name never changes. The table in
//! `docs/events.md` derives from here.

/// What a metric measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, until the process ends.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts by size, cumulatively.
    Histogram,
    /// Always 1; the labels are what it says.
    Info,
}

impl Kind {
    /// The word for it in the exposition format of OpenMetrics.
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

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The full name, as users query it.
    pub name: &'static str,
    /// What it measures.
    pub kind: Kind,
    /// The labels that its samples carry.
    pub labels: &'static [&'static str],
    /// What it means, in one sentence.
    pub help: &'static str,
}

impl Metric {
    /// The name of the metric family in OpenMetrics: the name without the suffix that its kind adds.
    #[must_use]
    pub fn family(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// The unit, as the last word of the family's name.
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
                Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )+

        /// Every metric, in the order of the exposition.
        pub const ALL: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    BUILD, "offramp_build_info", Info, ["version", "commit"], "The version that runs.";
    WORKERS, "offramp_workers", Gauge, [], "Worker threads.";
    CONNECTIONS, "offramp_connections_total", Counter, [], "Connections accepted.";
    CONNECTIONS_ACTIVE, "offramp_connections_active", Gauge, [], "Connections open now.";
    CONNECTIONS_CLOSED, "offramp_connections_closed_total", Counter, ["cause", "fault"], "Connections ended, by cause and by whose fault it was.";
    CONNECTION_DURATION, "offramp_connection_duration_seconds", Histogram, [], "Time from accept to the end of a connection.";
    HANDSHAKES, "offramp_handshakes_total", Counter, ["version", "kind"], "TLS handshakes completed, by version and by kind (full or resumed).";
    HANDSHAKES_FAILED, "offramp_handshakes_failed_total", Counter, [], "TLS handshakes begun and not completed.";
    HANDSHAKE_DURATION, "offramp_handshake_duration_seconds", Histogram, [], "Time from the first byte to the completed TLS handshake.";
    RELAYED_BYTES, "offramp_relayed_bytes_total", Counter, ["direction"], "Bytes of plaintext relayed; the direction is client_to_server or server_to_client.";
    RECORDS, "offramp_records_total", Counter, ["operation"], "TLS records of application data; the operation is open (from clients) or seal (to clients).";
    KEY_UPDATES, "offramp_key_updates_total", Counter, ["direction"], "TLS 1.3 key updates received and sent.";
    ACCEPT_PAUSES, "offramp_accept_pauses_total", Counter, ["reason"], "Times that a worker paused accepting: it was out of descriptors, out of memory, or at the limit of connections.";
    CONNECT_ATTEMPTS, "offramp_connect_attempts_total", Counter, [], "Attempts to connect to a server.";
    CONNECT_FAILURES, "offramp_connect_failures_total", Counter, [], "Attempts to connect to a server that failed or timed out.";
    EVENTS_WRITTEN, "offramp_events_written_total", Counter, [], "Events written to the access log.";
    EVENTS_DROPPED, "offramp_events_dropped_total", Counter, ["reason"], "Events lost: the queue was full (queue_full), or the output failed (output_failed).";
    PROCESS_CPU, "process_cpu_seconds_total", Counter, [], "CPU time of the process, user and system.";
    PROCESS_RESIDENT_MEMORY, "process_resident_memory_bytes", Gauge, [], "Resident memory of the process.";
    PROCESS_OPEN_FDS, "process_open_fds", Gauge, [], "Open file descriptors.";
    PROCESS_MAX_FDS, "process_max_fds", Gauge, [], "The most file descriptors that the process may open.";
    PROCESS_START_TIME, "process_start_time_seconds", Gauge, [], "When the process started, in Unix time.";
}

#[cfg(test)]
mod tests {
    use super::{ALL, Kind, RELAYED_BYTES, WORKERS};
    use std::collections::HashSet;

    #[test]
    fn names_follow_the_conventions() {
        let names: HashSet<_> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len(), "a name occurs twice");
        let families: HashSet<_> = ALL.iter().map(super::Metric::family).collect();
        assert_eq!(families.len(), ALL.len(), "a family occurs twice");
        for metric in ALL {
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert_eq!(metric.kind == Kind::Info, metric.name.ends_with("_info"), "{}", metric.name);
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
