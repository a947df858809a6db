//! Facts, counters, formats and sinks.
