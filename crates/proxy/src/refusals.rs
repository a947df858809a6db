//! What the log says of limits that refuse clients, and of pauses of accepting: at most one line a minute for each
//! limit and each reason, with how many there were since the last line.
//!
//! Every place that refuses or pauses comes here. What was not said is said a minute later by whoever runs
//! [`Refusals::say_late`], so that no refusal is left out when the clients give up.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use offramp_observe::counters::PauseReason;
use offramp_observe::facts::{Address, Limit};
use offramp_observe::format::coarse;
use offramp_observe::{Cause, Log};
use tokio::sync::Notify;

/// The shortest time between two lines about the same limit.
const SILENCE: Duration = Duration::from_secs(60);

/// Counts refusals and pauses of all workers, and tells the log.
pub struct Refusals {
    log: Log,
    show: AtomicU8,
    limits: [Subject; Cause::COUNT],
    pauses: [Subject; PauseReason::ALL.len()],
    /// Woken when something was counted that no line has said.
    unsaid: Notify,
}

/// How much of a client's address a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// All of it.
    Address,
    /// Its network.
    Network,
    /// Nothing.
    Nothing,
}

impl Refusals {
    /// Nothing was refused yet.
    #[must_use]
    pub fn new(log: Log) -> Arc<Self> {
        Arc::new(Self {
            log,
            show: AtomicU8::new(Show::Address as u8),
            limits: std::array::from_fn(|_| Subject::default()),
            pauses: std::array::from_fn(|_| Subject::default()),
            unsaid: Notify::new(),
        })
    }

    /// Shows this much of clients from now on.
    pub fn show(&self, show: Show) {
        self.show.store(show as u8, Ordering::Relaxed);
    }

    /// How many clients or requests each limit has refused, in the order of the causes; the causes are those that
    /// events have.
    pub fn totals(&self) -> impl Iterator<Item = (Cause, u64)> {
        let limits = Cause::ALL.into_iter().filter(|cause| cause.limit().is_some());
        limits.map(|cause| (cause, self.limits[cause as usize].total()))
    }

    /// Says what was counted since the last lines.
    pub fn say_now(&self) {
        self.say_due(None);
    }

    /// Says, a while after it happened, what no line has said: the clients may not come again.
    pub async fn say_late(&self) -> Infallible {
        self.say_after(SILENCE).await
    }

    async fn say_after(&self, wait: Duration) -> Infallible {
        loop {
            self.unsaid.notified().await;
            tokio::time::sleep(wait).await;
            self.say_due(Some(Instant::now()));
        }
    }

    /// A connection or a request ended by this cause; nothing is done unless a limit refused it.
    pub(crate) fn ended(&self, cause: Cause, client: &Address) {
        if let Some(limit) = cause.limit() {
            self.refused(cause, limit, client, Instant::now());
        }
    }

    fn refused(&self, cause: Cause, limit: Limit, client: &Address, now: Instant) {
        let client = match client {
            Address::Ip(address) => Some(address.ip()),
            Address::Unix(_) => None,
        };
        match self.limits[cause as usize].happened(client, now) {
            Turn::Say(refused) => self.say(cause, limit, client, refused),
            Turn::First => self.unsaid.notify_one(),
            Turn::Silence => {}
        }
    }

    /// A worker with `open` connections pauses accepting for a listener.
    pub(crate) fn paused(&self, reason: PauseReason, listener: &Arc<str>, open: usize) {
        let Turn::Say(pauses) = self.pauses[reason as usize].happened(None, Instant::now()) else { return };
        let advice = match reason {
            PauseReason::Memory => "the kernel has no memory for another socket",
            PauseReason::Descriptors => {
                "raise the limit of open files (systemd: LimitNOFILE=), or lower `limits.connections`"
            }
            PauseReason::Connections => "raise `limits.connections`; clients wait until a connection ends",
            PauseReason::Denied => {
                "the kernel does not let Offramp accept: look at the audit log of the security module, and at seccomp filters"
            }
        };
        let fields = [
            ("listener", listener.into()),
            ("reason", reason.name().into()),
            ("open", open.into()),
            ("pauses", pauses.into()),
            ("advice", advice.into()),
        ];
        self.log.warn("accepting pauses", &fields);
    }

    fn say_due(&self, now: Option<Instant>) {
        for cause in Cause::ALL {
            if let Some(limit) = cause.limit()
                && let Some((refused, client)) = self.limits[cause as usize].unsaid(now)
            {
                self.say(cause, limit, client, refused);
            }
        }
    }

    fn say(&self, cause: Cause, limit: Limit, client: Option<IpAddr>, refused: u64) {
        let shown = self.show.load(Ordering::Relaxed);
        let client = match client {
            _ if shown == Show::Nothing as u8 => "hidden".to_owned(),
            None => "unix".to_owned(),
            Some(address) if shown == Show::Network as u8 => coarse(address).to_string(),
            Some(address) => address.to_canonical().to_string(),
        };
        let fields = [
            ("limit", cause.name().into()),
            ("client", (&client).into()),
            ("refused", refused.into()),
            ("key", (&limit).into()),
        ];
        self.log.warn("a limit refuses clients", &fields);
    }
}

/// Something of which at most one line a minute is written.
#[derive(Default)]
struct Subject(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    total: u64,
    unsaid: u64,
    /// The client of the last refusal.
    client: Option<IpAddr>,
    /// Until when nothing is said.
    until: Option<Instant>,
}

/// What is to be done about something that happened.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Say it, with how often it happened since it was said last.
    Say(u64),
    /// Say nothing; it is the first time since it was said last.
    First,
    /// Say nothing.
    Silence,
}

impl Subject {
    fn happened(&self, client: Option<IpAddr>, now: Instant) -> Turn {
        let mut counted = self.lock();
        counted.total += 1;
        counted.unsaid += 1;
        counted.client = client;
        if counted.until.is_none_or(|until| now >= until) {
            counted.until = Some(now + SILENCE);
            return Turn::Say(std::mem::take(&mut counted.unsaid));
        }
        if counted.unsaid == 1 { Turn::First } else { Turn::Silence }
    }

    /// What was not said, if anything, and, with a time, if it may be said by then.
    fn unsaid(&self, now: Option<Instant>) -> Option<(u64, Option<IpAddr>)> {
        let mut counted = self.lock();
        let due = counted.unsaid > 0 && now.is_none_or(|now| counted.until.is_none_or(|until| now >= until));
        if !due {
            return None;
        }
        counted.until = now.map(|now| now + SILENCE);
        Some((std::mem::take(&mut counted.unsaid), counted.client))
    }

    fn total(&self) -> u64 {
        self.lock().total
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counted> {
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

        fn refuse(&self, cause: Cause, client: &str, second: u64) {
            let client: SocketAddr = client.parse().unwrap();
            let now = self.begun + Duration::from_secs(second);
            self.refusals.refused(cause, cause.limit().unwrap(), &client.into(), now);
        }

        fn lines(&self) -> Vec<String> {
            let text = std::fs::read_to_string(self.file.path()).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn one_line_a_minute_for_each_limit_says_who_how_many_and_which_key() {
        let rig = Rig::new();
        for second in 0..60 {
            rig.refuse(Cause::LimitConnectionsPerClient, "192.0.2.1:5", second);
            rig.refuse(Cause::TooManyRequests, "[2001:db8::1]:5", second);
        }
        assert_eq!(rig.lines().len(), 2, "{:?}", rig.lines());
        for second in [60, 61] {
            rig.refuse(Cause::LimitConnectionsPerClient, "192.0.2.2:5", second);
        }
        let lines = rig.lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        for part in ["limit=limit_connections_per_client", "client=192.0.2.1", "refused=1 "] {
            assert!(lines[0].contains(part), "{part} in {}", lines[0]);
        }
        assert!(lines[1].contains("client=2001:db8::1 "), "{}", lines[1]);
        for part in ["client=192.0.2.2", "refused=60", "key=limits.connections_per_client"] {
            assert!(lines[2].contains(part), "{part} in {}", lines[2]);
        }
        let total = |cause| rig.refusals.totals().find(|(found, _)| *found == cause).unwrap().1;
        assert_eq!((total(Cause::LimitConnectionsPerClient), total(Cause::TooManyRequests)), (62, 60));
    }

    #[test]
    fn what_was_not_said_is_said_when_it_may_be() {
        let rig = Rig::new();
        let at = |second| Some(rig.begun + Duration::from_secs(second));
        (0..3).for_each(|second| rig.refuse(Cause::H2Flood, "192.0.2.1:5", second));
        rig.refusals.say_due(at(59));
        assert_eq!(rig.lines().len(), 1);
        rig.refusals.say_due(at(60));
        rig.refusals.say_due(at(121));
        let lines = rig.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains("refused=2 ") && lines[1].contains("built in"), "{lines:?}");
        // The end of the process does not wait for the minute.
        rig.refuse(Cause::QueueFull, "192.0.2.1:5", 200);
        rig.refuse(Cause::QueueFull, "192.0.2.1:5", 201);
        rig.refusals.say_now();
        let last = rig.lines().pop().unwrap();
        assert!(last.contains("refused=1 ") && last.contains("backend.NAME.queue"), "{last}");
    }

    #[tokio::test]
    async fn what_was_not_said_wakes_who_says_it() {
        let rig = Rig::new();
        // Long ago, so that a line may be written now.
        let long_ago = Instant::now() - SILENCE;
        let client: SocketAddr = "192.0.2.1:5".parse().unwrap();
        for _ in 0..3 {
            rig.refusals.refused(Cause::H2Flood, Limit::BuiltIn, &client.into(), long_ago);
        }
        assert_eq!(rig.lines().len(), 1);
        let told = async {
            while rig.lines().len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            never = rig.refusals.say_after(Duration::ZERO) => match never {},
            () = told => {}
        }
        assert!(rig.lines()[1].contains("refused=2 "), "{:?}", rig.lines());
    }

    #[test]
    fn clients_are_shown_as_the_operator_wants_it() {
        for (show, text) in
            [(Show::Address, "192.0.2.77 "), (Show::Network, "192.0.2.0 "), (Show::Nothing, "hidden ")]
        {
            let rig = Rig::new();
            rig.refusals.show(show);
            rig.refuse(Cause::LimitHandshakesPerClient, "192.0.2.77:5", 0);
            assert!(rig.lines()[0].contains(&format!("client={text}")), "{:?}", rig.lines());
        }
    }
}
