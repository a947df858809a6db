//! How long the parts of a change or of a start took, for the log at the level debug.

use std::fmt;
use std::time::{Duration, Instant};

use offramp_observe::Log;

/// The parts that have ended, and their times.
#[derive(Clone, Debug)]
pub(crate) struct Phases {
    begun: Instant,
    last: Instant,
    ended: Vec<(&'static str, Duration)>,
}

impl Phases {
    /// The first part begins, or began then.
    pub(crate) fn since(begun: Instant) -> Self {
        Self { begun, last: begun, ended: Vec::new() }
    }

    /// A part has ended, which a field of the log is named after; the next one begins.
    pub(crate) fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.ended.push((name, now - self.last));
        self.last = now;
    }

    /// Says how long all took, and each part.
    pub(crate) fn tell(&self, log: &Log, message: &str) {
        let all = Millis(self.last - self.begun);
        let parts: Vec<_> = self.ended.iter().map(|(name, took)| (*name, Millis(*took))).collect();
        let mut fields = vec![("all_ms", (&all).into())];
        fields.extend(parts.iter().map(|(name, took)| (*name, took.into())));
        log.debug(message, &fields);
    }
}

/// Milliseconds with one digit behind the point.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.0.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use offramp_observe::{Level, LogFormat, Output};

    use super::*;

    #[test]
    fn every_part_is_told_in_its_order_and_all_of_them_together() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let output = Output::File(file.path().to_path_buf());
        let log = Log::open(output, LogFormat::Logfmt, Level::Debug).unwrap();
        let mut phases = Phases::since(Instant::now());
        phases.end("parse_ms");
        phases.end("build_ms");
        (phases.ended[0].1, phases.ended[1].1) = (Duration::from_micros(1_260), Duration::ZERO);
        phases.last = phases.begun + Duration::from_millis(20);
        phases.tell(&log, "a change took");
        let said = std::fs::read_to_string(file.path()).unwrap();
        assert!(said.contains("all_ms=20.0 parse_ms=1.3 build_ms=0.0"), "{said}");
    }
}
