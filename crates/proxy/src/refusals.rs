//! Lines of the log about limits that refuse clients, of client certificates that are refused, and of pauses of
//! accepting: at most one line a minute for each limit and each reason, with how many there were since the last
//! line.
//!
//! Every place that refuses or pauses comes here, and only counts: a log that takes nothing must not hold up a
//! worker. The lines are written by the task that runs [`Refusals::write`], at once where nothing was said for a
//! minute, else when the minute is over; so no refusal is left out when the clients give up.

use std::convert::Infallible;
use std::future::pending;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use offramp_observe::counters::PauseReason;
use offramp_observe::facts::{EndpointAddress, Limit};
use offramp_observe::format::coarse;
use offramp_observe::{Cause, Log, NoticeKind, Notices};
use tokio::sync::Notify;

/// The shortest time between two lines about the same limit.
const SILENCE: Duration = Duration::from_secs(60);

/// Counts refusals and pauses of all workers, and tells the log.
pub struct Refusals {
    log: Log,
    /// The same for watchers.
    notices: Notices,
    show: AtomicU8,
    limits: [LogSubject; Cause::COUNT],
    pauses: [LogSubject; PauseReason::ALL.len()],
    /// Requests that were refused because too much is held; see `l7::h2::memory`.
    memory: LogSubject,
    /// Woken when something was counted that no line has said.
    unsaid: Notify,
}

/// Part of a client's address that a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// The whole address.
    Address,
    /// The network of the client.
    Network,
    /// No part of it.
    Nothing,
}

impl Refusals {
    /// Nothing was refused yet.
    #[must_use]
    pub fn new(log: Log) -> Arc<Self> {
        Arc::new(Self {
            log,
            notices: Notices::default(),
            show: AtomicU8::new(Show::Address as u8),
            limits: std::array::from_fn(|_| LogSubject::default()),
            pauses: std::array::from_fn(|_| LogSubject::default()),
            memory: LogSubject::default(),
            unsaid: Notify::new(),
        })
    }

    /// Notices of this and of everything else that happens to the process.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Shows this much of clients from now on.
    pub fn show(&self, show: Show) {
        self.show.store(show as u8, Ordering::Relaxed);
    }

    /// Number of clients or requests that each limit has refused, in the order of the causes; the causes are those
    /// that events have.
    pub fn totals(&self) -> impl Iterator<Item = (Cause, u64)> {
        let limits = Cause::ALL.into_iter().filter(|cause| cause.limit().is_some());
        limits.map(|cause| (cause, self.limits[cause as usize].lock().total))
    }

    /// Number of requests that were refused because those under way hold too much.
    pub fn for_memory(&self) -> u64 {
        self.memory.lock().total
    }

    /// Says what was counted since the last lines.
    pub fn say_now(&self) {
        self.say_due(None);
    }

    /// Writes the lines, for as long as it runs.
    pub async fn write(&self) -> Infallible {
        let mut next: Option<Instant> = None;
        loop {
            let later = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.unsaid.notified() => {}
                () = later => {}
            }
            next = self.say_due(Some(Instant::now()));
        }
    }

    /// A connection or a request ended by this cause; nothing is done unless a limit refused it.
    pub(crate) fn ended(&self, cause: Cause, client: &EndpointAddress) {
        if cause.limit().is_some() {
            self.count(&self.limits[cause as usize], Last::client(client));
        }
    }

    /// A client showed a certificate that is refused. `identity` names its subject.
    pub(crate) fn certificate(&self, cause: Cause, identity: &str, client: &EndpointAddress) {
        let Last::Client(client) = Last::client(client) else { return };
        self.count(&self.limits[cause as usize], Last::Certificate(client, identity.into()));
    }

    /// A worker with `open` connections pauses accepting for a listener.
    pub(crate) fn paused(&self, reason: PauseReason, listener: &Arc<str>, open: usize) {
        self.count(&self.pauses[reason as usize], Last::Listener(Arc::clone(listener), open));
    }

    /// A request was refused because those under way hold too much.
    pub(crate) fn has_no_memory(&self, client: &EndpointAddress) {
        self.count(&self.memory, Last::client(client));
    }

    fn count(&self, subject: &LogSubject, last: Last) {
        if subject.happened(last) {
            self.unsaid.notify_one();
        }
    }

    /// Says what was counted and, with a time, may be said by then. Gives when the next line may be written, where there
    /// is something left to say.
    fn say_due(&self, now: Option<Instant>) -> Option<Instant> {
        let mut next = None;
        let mut due = |subject: &LogSubject| match subject.due(now) {
            Due::Now(count, last) => Some((count, last)),
            Due::At(at) => {
                next = next.map_or(Some(at), |next: Instant| Some(next.min(at)));
                None
            }
            Due::Nothing => None,
        };
        for cause in Cause::ALL {
            let Some((refused, last)) = due(&self.limits[cause as usize]) else { continue };
            match (cause.limit(), last) {
                (Some(limit), last) => self.say(cause.name(), limit, &last, refused),
                (None, Last::Certificate(client, identity)) => {
                    self.say_certificate(cause, client, &identity, refused);
                }
                (None, _) => {}
            }
        }
        if let Some((refused, last)) = due(&self.memory) {
            self.say("memory", Limit::Key("limits.memory"), &last, refused);
        }
        for reason in PauseReason::ALL {
            if let Some((pauses, last)) = due(&self.pauses[reason as usize]) {
                self.say_pauses(reason, &last, pauses);
            }
        }
        next
    }

    fn say_pauses(&self, reason: PauseReason, last: &Last, pauses: u64) {
        let Last::Listener(listener, open) = last else { return };
        let advice = match reason {
            PauseReason::Memory => "the kernel has no memory for another socket",
            PauseReason::Descriptors => {
                "raise the limit of open files (systemd: LimitNOFILE=), or lower `limits.connections`"
            }
            PauseReason::ProcessMemory => {
                "raise `limits.process_memory`; clients wait until the process holds a sixteenth less"
            }
            PauseReason::Connections => "raise `limits.connections`; clients wait until a connection ends",
            PauseReason::Denied => {
                "the kernel does not let Offramp accept: look at the audit log of the security module, and at seccomp filters"
            }
        };
        let fields = [
            ("listener", listener.into()),
            ("reason", reason.name().into()),
            ("open", (*open).into()),
            ("pauses", pauses.into()),
            ("advice", advice.into()),
        ];
        self.log.warn("accepting pauses", &fields);
        self.notices.note(NoticeKind::Limit, "accepting_pauses", &fields);
    }

    fn say(&self, name: &'static str, limit: Limit, last: &Last, refused: u64) {
        let Last::Client(client) = last else { return };
        let client = self.shown(*client);
        let fields = [
            ("limit", name.into()),
            ("client", (&client).into()),
            ("refused", refused.into()),
            ("key", (&limit).into()),
        ];
        self.log.warn("a limit refuses clients", &fields);
        self.notices.note(NoticeKind::Limit, "refused", &fields);
    }

    fn say_certificate(&self, cause: Cause, client: Option<IpAddr>, identity: &str, refused: u64) {
        let client = self.shown(client);
        let fields = [
            ("cause", cause.name().into()),
            ("certificate", identity.into()),
            ("client", (&client).into()),
            ("refused", refused.into()),
        ];
        self.log.warn("a client certificate is refused", &fields);
    }

    /// As much of a client as the operator wants to see.
    pub(crate) fn shown(&self, client: Option<IpAddr>) -> String {
        let shown = self.show.load(Ordering::Relaxed);
        match client {
            _ if shown == Show::Nothing as u8 => "hidden".to_owned(),
            None => "unix".to_owned(),
            Some(address) if shown == Show::Network as u8 => coarse(address).to_string(),
            Some(address) => address.to_canonical().to_string(),
        }
    }
}

/// Something of which at most one line a minute is written.
#[derive(Default)]
struct LogSubject(Mutex<SubjectCount>);

#[derive(Default)]
struct SubjectCount {
    total: u64,
    unsaid: u64,
    last: Last,
    /// Until when nothing is said.
    until: Option<Instant>,
}

/// Latest client that was refused.
#[derive(Clone)]
enum Last {
    /// A client, unless it came over a Unix socket.
    Client(Option<IpAddr>),
    /// A client in the same way, and the subject of its certificate.
    Certificate(Option<IpAddr>, Box<str>),
    /// A listener, and how many connections its worker had.
    Listener(Arc<str>, usize),
}

impl Default for Last {
    fn default() -> Self {
        Self::Client(None)
    }
}

impl Last {
    fn client(address: &EndpointAddress) -> Self {
        Self::Client(match address {
            EndpointAddress::Ip(address) => Some(address.ip()),
            EndpointAddress::Unix(_) => None,
        })
    }
}

/// Lines that are due.
enum Due {
    Nothing,
    /// Number of times since the last line.
    Now(u64, Last),
    /// Something, but not before then.
    At(Instant),
}

impl LogSubject {
    /// It happened; whether it is the first time since it was said last.
    fn happened(&self, last: Last) -> bool {
        let mut counted = self.lock();
        counted.total += 1;
        counted.unsaid += 1;
        counted.last = last;
        counted.unsaid == 1
    }

    /// Lines that are due at `now`; all that wait, without a time.
    fn due(&self, now: Option<Instant>) -> Due {
        let mut counted = self.lock();
        if counted.unsaid == 0 {
            return Due::Nothing;
        }
        if let (Some(now), Some(until)) = (now, counted.until)
            && now < until
        {
            return Due::At(until);
        }
        counted.until = now.map(|now| now + SILENCE);
        Due::Now(std::mem::take(&mut counted.unsaid), counted.last.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SubjectCount> {
        // Nothing in here panics with the lock held; if it did, the counts would still be usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use offramp_observe::{Level, LogFormat, Output};

    use super::*;

    struct Rig {
        refusals: Arc<Refusals>,
        file: tempfile::NamedTempFile,
        begun: Instant,
    }

    impl Rig {
        fn new() -> Self {
            let file = tempfile::NamedTempFile::new().unwrap();
            let output = Output::File(file.path().to_path_buf());
            let log = Log::open(output, LogFormat::Logfmt, Level::Warn).unwrap();
            Self { refusals: Refusals::new(log), file, begun: Instant::now() }
        }

        fn refuse(&self, cause: Cause, client: &str) {
            let client: SocketAddr = client.parse().unwrap();
            self.refusals.ended(cause, &client.into());
        }

        /// Says what is due so many seconds after the begin; in how many seconds there is more to say.
        fn say(&self, second: u64) -> Option<u64> {
            let now = self.begun + Duration::from_secs(second);
            self.refusals.say_due(Some(now)).map(|next| (next - now).as_secs())
        }

        fn lines(&self) -> Vec<String> {
            let text = std::fs::read_to_string(self.file.path()).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn who_refuses_or_pauses_writes_nothing_itself() {
        let rig = Rig::new();
        rig.refuse(Cause::H2Flood, "192.0.2.1:5");
        rig.refusals.paused(PauseReason::Connections, &"public".into(), 7);
        rig.refusals.has_no_memory(&"192.0.2.1:5".parse::<SocketAddr>().unwrap().into());
        assert!(rig.lines().is_empty(), "{:?}", rig.lines());
        assert_eq!(rig.say(0), None);
        let lines = rig.lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        for part in ["limit=memory", "client=192.0.2.1", "refused=1 ", "key=limits.memory"] {
            assert!(lines[1].contains(part), "{part} in {}", lines[1]);
        }
        for part in ["accepting pauses", "listener=public", "reason=connections", "open=7", "pauses=1"] {
            assert!(lines[2].contains(part), "{part} in {}", lines[2]);
        }
        assert_eq!(rig.refusals.for_memory(), 1);
        let notices = rig.refusals.notices().since(NoticeKind::Limit, 0);
        let whats: Vec<_> = notices.iter().map(|notice| notice.what).collect();
        assert_eq!(whats, ["refused", "refused", "accepting_pauses"]);
    }

    #[test]
    fn one_line_a_minute_for_each_limit_says_who_how_many_and_which_key() {
        let rig = Rig::new();
        for second in 0..60 {
            rig.refuse(Cause::LimitConnectionsPerClient, "192.0.2.1:5");
            rig.refuse(Cause::TooManyRequests, "[2001:db8::1]:5");
            assert_eq!(rig.say(second), (second > 0).then(|| 60 - second));
        }
        assert_eq!(rig.lines().len(), 2, "{:?}", rig.lines());
        rig.refuse(Cause::LimitConnectionsPerClient, "192.0.2.2:5");
        assert_eq!(rig.say(60), None);
        rig.refuse(Cause::LimitConnectionsPerClient, "192.0.2.2:5");
        assert_eq!(rig.say(61), Some(59));
        let lines = rig.lines();
        assert_eq!(lines.len(), 4, "{lines:?}");
        for part in ["limit=limit_connections_per_client", "client=192.0.2.1", "refused=1 "] {
            assert!(lines[..2].iter().any(|line| line.contains(part)), "{part} in {lines:?}");
        }
        assert!(lines[..2].iter().any(|line| line.contains("client=2001:db8::1 ")), "{lines:?}");
        let later = |line: &&String| {
            ["client=192.0.2.2", "refused=60", "key=limits.connections_per_client"]
                .iter()
                .all(|part| line.contains(part))
        };
        assert_eq!(lines[2..].iter().filter(later).count(), 1, "{lines:?}");
        let total = |cause| rig.refusals.totals().find(|(found, _)| *found == cause).unwrap().1;
        assert_eq!((total(Cause::LimitConnectionsPerClient), total(Cause::TooManyRequests)), (62, 60));
    }

    #[test]
    fn what_was_not_said_is_said_when_it_may_be() {
        let rig = Rig::new();
        rig.refuse(Cause::H2Flood, "192.0.2.1:5");
        rig.say(0);
        rig.refuse(Cause::H2Flood, "192.0.2.1:5");
        rig.refuse(Cause::H2Flood, "192.0.2.1:5");
        assert_eq!(rig.say(59), Some(1));
        assert_eq!(rig.lines().len(), 1);
        assert_eq!(rig.say(60), None);
        rig.say(121);
        let lines = rig.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains("refused=2 ") && lines[1].contains("built in"), "{lines:?}");
        // The end of the process does not wait for the minute.
        rig.refuse(Cause::QueueFull, "192.0.2.1:5");
        rig.say(200);
        rig.refuse(Cause::QueueFull, "192.0.2.1:5");
        rig.refusals.say_now();
        let last = rig.lines().pop().unwrap();
        assert!(last.contains("refused=1 ") && last.contains("backend.NAME.queue"), "{last}");
    }

    #[tokio::test]
    async fn the_first_wakes_who_writes() {
        let rig = Rig::new();
        let written = async {
            tokio::task::yield_now().await;
            rig.refuse(Cause::H2Flood, "192.0.2.1:5");
            while rig.lines().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            never = rig.refusals.write() => match never {},
            () = written => {}
        }
        assert!(rig.lines()[0].contains("refused=1 "), "{:?}", rig.lines());
    }

    #[test]
    fn clients_are_shown_as_the_operator_wants_it() {
        for (show, text) in
            [(Show::Address, "192.0.2.77 "), (Show::Network, "192.0.2.0 "), (Show::Nothing, "hidden ")]
        {
            let rig = Rig::new();
            rig.refusals.show(show);
            rig.refuse(Cause::LimitHandshakesPerClient, "192.0.2.77:5");
            rig.say(0);
            assert!(rig.lines()[0].contains(&format!("client={text}")), "{:?}", rig.lines());
        }
    }
}
