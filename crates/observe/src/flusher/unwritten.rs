//! Connections without a line in the format of the access log: counted by cause, and reported to the
//! program's log once a minute.
//!
//! nginx's formats cover requests only. Failed handshakes and connections of `tcp` listeners would leave no
//! trace.

use std::time::{Duration, Instant};

use crate::facts::{Cause, Close, FatalAlert, Fault};
use crate::log::{Level, Log};

/// Counts since the last report.
#[derive(Debug, Default)]
pub(super) struct UnwrittenCounts {
    counts: Vec<Count>,
    reported: Option<Instant>,
}

/// Connections with the same end. There are some hundred kinds at most: causes times alerts.
#[derive(Debug)]
struct Count {
    cause: Cause,
    fault: Fault,
    alert: Option<FatalAlert>,
    connections: u64,
}

impl UnwrittenCounts {
    /// Counts a connection with this end.
    pub(super) fn add(&mut self, close: &Close) {
        let kind = (close.cause, close.fault, close.alert);
        match self.counts.iter_mut().find(|count| (count.cause, count.fault, count.alert) == kind) {
            Some(count) => count.connections += 1,
            None => {
                let (cause, fault, alert) = kind;
                self.counts.push(Count { cause, fault, alert, connections: 1 });
            }
        }
    }

    /// Reports the counts if due: the first at once, later ones after [`EVERY`].
    pub(super) fn report_if_due(&mut self, log: &Log, now: Instant) {
        if !self.counts.is_empty() && self.due(now) == Some(Duration::ZERO) {
            self.reported = Some(now);
            self.report_all(log);
        }
    }

    /// Reports the counts, one log line per cause.
    pub(super) fn report_all(&mut self, log: &Log) {
        for count in self.counts.drain(..) {
            let mut fields = vec![
                ("cause", count.cause.name().into()),
                ("fault", count.fault.name().into()),
                ("connections", count.connections.into()),
            ];
            match count.alert {
                Some(FatalAlert::Sent(alert)) => fields.push(("alert_sent", alert.name().into())),
                Some(FatalAlert::Received(alert)) => fields.push(("alert_received", alert.name().into())),
                None => {}
            }
            let level = match count.fault {
                Fault::Us | Fault::Server => Level::Warn,
                Fault::Client | Fault::Policy | Fault::Nobody => Level::Info,
            };
            log.write(level, "connections have no line in the format of the access log", &fields);
        }
    }

    /// The time until the next report is due; `None` if there is nothing to report.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        let since = self.reported.map_or(EVERY, |reported| now.duration_since(reported));
        (!self.counts.is_empty()).then(|| EVERY.saturating_sub(since))
    }
}

const EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::UnwrittenCounts;
    use crate::facts::{Alert, Cause, Close, FatalAlert};
    use crate::log::{Level, Log, LogFormat};
    use crate::sink::Output;

    #[test]
    fn causes_are_reported_once_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::open(Output::File(path.clone()), LogFormat::Logfmt, Level::Info).unwrap();
        let (mut unwritten, begun) = (UnwrittenCounts::default(), Instant::now());
        let reported = || std::fs::read_to_string(&path).unwrap().lines().count();
        assert_eq!(unwritten.due(begun), None);
        let alert = Close::from(Cause::HandshakeAlert).with_alert(FatalAlert::Received(Alert::UNKNOWN_CA));
        unwritten.add(&alert);
        assert_eq!(unwritten.due(begun), Some(Duration::ZERO));
        unwritten.report_if_due(&log, begun);
        assert_eq!(reported(), 1, "the first at once");
        for _ in 0..500 {
            unwritten.add(&alert);
            unwritten.add(&Close::from(Cause::ClientClosed));
        }
        unwritten.report_if_due(&log, begun + Duration::from_secs(59));
        assert_eq!(reported(), 1);
        assert_eq!(unwritten.due(begun + Duration::from_secs(59)), Some(Duration::from_secs(1)));
        unwritten.report_if_due(&log, begun + Duration::from_secs(60));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(reported(), 3, "one for each cause");
        assert!(
            text.contains("cause=handshake_alert fault=client connections=500 alert_received=unknown_ca"),
            "{text}"
        );
        assert!(text.contains("cause=client_closed fault=nobody connections=500"), "{text}");
        assert_eq!(unwritten.due(begun + Duration::from_secs(60)), None);
    }
}
