//! Connections that have no line in the format of the access log: they are counted by cause, and reported to the
//! program's log once a minute.
//!
//! nginx's formats know requests alone. What fails in the handshake, and every connection of a `tcp` listener, would
//! leave no trace.

use std::time::{Duration, Instant};

use crate::facts::{Cause, Close, FatalAlert, Fault};
use crate::log::{Level, Log};

/// The counts since the last log lines.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    counts: Vec<Count>,
    reported: Option<Instant>,
}

/// So many connections ended alike. There are as many kinds as causes and alerts, some hundreds at most.
#[derive(Debug)]
struct Count {
    cause: Cause,
    fault: Fault,
    alert: Option<FatalAlert>,
    connections: u64,
}

impl Unwritten {
    /// Counts a connection that ended so.
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

    /// Tells what was counted, if it is time: the first ones at once, those that follow after a minute.
    pub(super) fn tell(&mut self, log: &Log, now: Instant) {
        if !self.counts.is_empty() && self.due(now) == Some(Duration::ZERO) {
            self.reported = Some(now);
            self.tell_all(log);
        }
    }

    /// Tells what was counted: one line for each cause.
    pub(super) fn tell_all(&mut self, log: &Log) {
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

    /// The time until the next log line is due; `None` if there is nothing to log.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        let since = self.reported.map_or(EVERY, |reported| now.duration_since(reported));
        (!self.counts.is_empty()).then(|| EVERY.saturating_sub(since))
    }
}

const EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Unwritten;
    use crate::facts::{Alert, Cause, Close, FatalAlert};
    use crate::log::{Level, Log, LogFormat};
    use crate::sink::Output;

    #[test]
    fn causes_are_told_once_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::open(Output::File(path.clone()), LogFormat::Logfmt, Level::Info).unwrap();
        let (mut unwritten, begun) = (Unwritten::default(), Instant::now());
        let reported = || std::fs::read_to_string(&path).unwrap().lines().count();
        assert_eq!(unwritten.due(begun), None);
        let alert = Close::from(Cause::HandshakeAlert).with_alert(FatalAlert::Received(Alert::UNKNOWN_CA));
        unwritten.add(&alert);
        assert_eq!(unwritten.due(begun), Some(Duration::ZERO));
        unwritten.tell(&log, begun);
        assert_eq!(reported(), 1, "the first at once");
        for _ in 0..500 {
            unwritten.add(&alert);
            unwritten.add(&Close::from(Cause::ClientClosed));
        }
        unwritten.tell(&log, begun + Duration::from_secs(59));
        assert_eq!(reported(), 1);
        assert_eq!(unwritten.due(begun + Duration::from_secs(59)), Some(Duration::from_secs(1)));
        unwritten.tell(&log, begun + Duration::from_secs(60));
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
