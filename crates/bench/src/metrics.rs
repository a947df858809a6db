//! The figures that are taken, each named once: what it counts, its unit, and which direction is better.

/// One kind of figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    /// The name in the raw data, in `summary.json` and in `gates.toml`.
    pub(crate) name: &'static str,
    /// The heading of its column.
    pub(crate) label: &'static str,
    pub(crate) better: Better,
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
    /// Neither: it explains another figure.
    Neutral,
}

const fn metric(name: &'static str, label: &'static str, better: Better) -> Metric {
    Metric { name, label, better }
}

pub(crate) const CPU: &str = "cpu_us";
pub(crate) const CPU_USER: &str = "cpu_user_us";
pub(crate) const CPU_SYSTEM: &str = "cpu_system_us";
pub(crate) const PER_SECOND: &str = "per_second";
pub(crate) const EFFICIENCY: &str = "efficiency";
pub(crate) const RESIDENT: &str = "resident";
pub(crate) const INDEX: &str = "index";
pub(crate) const PROXY_BUSY: &str = "proxy_busy";
pub(crate) const LOAD_BUSY: &str = "load_busy";
pub(crate) const ERRORS: &str = "errors";
pub(crate) const CONNECTION_BYTES: &str = "connection_bytes";
pub(crate) const IDLE_CPU: &str = "idle_cpu_ms_per_s";
pub(crate) const START_RESIDENT: &str = "start_resident";
pub(crate) const START_PROPORTIONAL: &str = "start_proportional";
pub(crate) const START_ANONYMOUS: &str = "start_anonymous";
pub(crate) const SYSCALLS: &str = "syscalls";
pub(crate) const RATE: &str = "rate";
pub(crate) const REQUESTS: &str = "requests";

/// Every figure, in the order of the columns.
pub(crate) const METRICS: &[Metric] = &[
    metric(CPU, "CPU µs per unit", Better::Lower),
    metric(CPU_USER, "user µs", Better::Lower),
    metric(CPU_SYSTEM, "system µs", Better::Lower),
    metric(PER_SECOND, "units per second", Better::Higher),
    metric(EFFICIENCY, "units per second per % of CPU", Better::Higher),
    metric(RESIDENT, "resident bytes after the load", Better::Lower),
    metric(INDEX, "units per CPU second and resident MiB", Better::Higher),
    metric(CONNECTION_BYTES, "bytes per connection", Better::Lower),
    metric(IDLE_CPU, "CPU ms per idle second", Better::Lower),
    metric(START_RESIDENT, "resident bytes at start", Better::Lower),
    metric(START_PROPORTIONAL, "proportional bytes at start", Better::Lower),
    metric(START_ANONYMOUS, "anonymous bytes at start", Better::Lower),
    metric(SYSCALLS, "system calls per unit", Better::Lower),
    metric(RATE, "arrivals per second", Better::Neutral),
    metric(REQUESTS, "requests", Better::Neutral),
    metric("mean", "mean µs", Better::Lower),
    metric("stdev", "standard deviation µs", Better::Lower),
    metric("p50", "p50 µs", Better::Lower),
    metric("p90", "p90 µs", Better::Lower),
    metric("p99", "p99 µs", Better::Lower),
    metric("p999", "p99.9 µs", Better::Lower),
    metric("max", "max µs", Better::Lower),
    metric(PROXY_BUSY, "proxy cores busy", Better::Neutral),
    metric(LOAD_BUSY, "load cores busy", Better::Neutral),
    metric(ERRORS, "errors", Better::Lower),
];

/// The figure of a name; `syscalls/NAME` is the share of one system call.
pub(crate) fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|m| m.name == name)
}

/// Which direction is better for a name.
pub(crate) fn better(name: &str) -> Better {
    match find(name) {
        Some(metric) => metric.better,
        None if name.starts_with("syscalls/") => Better::Lower,
        None => Better::Neutral,
    }
}
