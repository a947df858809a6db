use std::net::Ipv4Addr;
use std::rc::Rc;

use offramp_observe::{Detail, Level, LogFormat, NoticeKind, Output};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

use super::look::{Begun, LagReport};
use super::*;
use crate::snapshot::{Current, Destination, Route, Target};
use crate::worker::rig;
use crate::{Match, RouteRule, RouteTable};

/// A worker whose answers are given by hand.
struct Rig {
    lateness: Arc<Lateness>,
    pulse: Arc<Pulse>,
    look: LagProbe,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let lateness = Lateness::new();
        let (pulse, now) = (lateness.add(), lateness.begun);
        Self { lateness, pulse, look: LagProbe::default(), now }
    }

    /// Looks after so many milliseconds.
    fn look_after(&mut self, millis: u64) -> Vec<LagReport> {
        self.now += Duration::from_millis(millis);
        let place = |_| Some(("route", "a.test".into()));
        self.look.look(self.now, &self.lateness.workers(), place)
    }

    /// The worker answers, so many milliseconds after the last look, having used so much CPU time in all.
    fn answer_after(&self, millis: u64, cpu: u64) {
        let at = self.now + Duration::from_millis(millis);
        self.pulse.cpu.store(cpu * 1_000_000, Ordering::Relaxed);
        self.pulse.answered_at.store(self.pulse.since_begin(at), Ordering::Relaxed);
        self.pulse.answered.store(self.pulse.asked.load(Ordering::Relaxed), Ordering::Release);
    }
}

#[test]
fn answers_in_time_are_not_reported() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        assert!(rig.look_after(50).is_empty());
        rig.answer_after(20, 0);
    }
    // Two looks may pass before the answer.
    assert!(rig.look_after(50).is_empty());
    assert!(rig.look_after(50).is_empty());
    rig.answer_after(49, 0);
    assert!(rig.look_after(50).is_empty());
}

#[test]
fn a_late_answer_is_reported_once_with_what_the_worker_had_begun() {
    let mut rig = Rig::new();
    rig.look_after(50);
    rig.answer_after(1, 7);
    let client = IpAddr::from(Ipv4Addr::new(192, 0, 2, 7));
    rig.look_after(50);
    rig.pulse.begins_for(Doing::Request(RouteId(7)), Some(client));
    for _ in 0..4 {
        assert!(rig.look_after(50).is_empty(), "it may come yet");
    }
    // What it does afterwards is no reason.
    rig.pulse.begins(Doing::Relay(RouteId(8)));
    rig.answer_after(30, 230);
    let reports = rig.look_after(50);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.worker, report.late, report.is_stuck), (0, Duration::from_millis(230), false));
    let place = Some(("route", "a.test".into()));
    assert_eq!(report.begun, Begun { step: Doing::Request(RouteId(7)), client: Some(client), place });
    assert_eq!((report.cpu, report.is_new), (Some(Duration::from_millis(223)), true));
    assert!(rig.look_after(50).is_empty());
}

#[test]
fn a_loop_that_stands_still_is_reported_after_a_second_and_counted_once() {
    let mut rig = Rig::new();
    rig.look_after(50);
    let reports: Vec<_> = (0..60).flat_map(|_| rig.look_after(50)).collect();
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert!(report.is_stuck && report.is_new && report.cpu.is_none());
    assert!((1000..1100).contains(&report.late.as_millis()), "{report:?}");
    rig.answer_after(0, 1);
    let rest = rig.look_after(50);
    assert!(!rest[0].is_new && !rest[0].is_stuck && rest[0].late == Duration::from_secs(3), "{rest:?}");
    assert_eq!(rest[0].more + report.more, 3_000_000_000);
}

#[test]
fn a_process_that_was_stopped_has_no_late_loop() {
    let mut rig = Rig::new();
    rig.look_after(50);
    // SIGSTOP and SIGCONT: neither thread ran. The worker answers before or after the next look.
    rig.answer_after(60_010, 0);
    assert!(rig.look_after(60_000).is_empty());
    assert!(rig.look_after(60_000).is_empty());
    rig.answer_after(20, 0);
    assert!(rig.look_after(50).is_empty());
}

#[test]
fn who_sleeps_is_not_asked() {
    let mut rig = Rig::new();
    rig.pulse.sleeps();
    assert!((0..10).all(|_| rig.look_after(50).is_empty() && rig.look.all_slept()));
    assert_eq!(rig.pulse.asked.load(Ordering::Relaxed), 0);
    rig.pulse.wakes();
    rig.look_after(50);
    assert!(!rig.look.all_slept());
    assert_eq!(rig.pulse.asked.load(Ordering::Relaxed), 1);
    // It fell asleep after it was asked: the question wakes it.
    rig.pulse.sleeps();
    rig.look_after(50);
    assert!(!rig.look.all_slept());
    rig.answer_after(0, 0);
    rig.look_after(50);
    assert!(rig.look.all_slept());
}

/// A real loop with a task that blocks it, and the thread that asks.
#[test]
fn a_task_that_blocks_its_loop_is_counted_and_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let log = Log::open(Output::File(file.path().to_path_buf()), LogFormat::Logfmt, Level::Warn).unwrap();
    let lateness = Lateness::new();
    let pulse = lateness.add();
    let current = Current::new(leading_to("late.test"));
    let id = RouteId::of("late.test");
    let refusals = Refusals::new(log.clone());
    lateness.watch(current.clone(), log, Arc::clone(&refusals)).unwrap();
    let shown = Rc::new(Arc::clone(&pulse));
    let runtime = Builder::new_current_thread().enable_time().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let answers = Arc::clone(&pulse);
        spawn_local(async move { answers.answer().await });
        let pulse = Rc::clone(&shown);
        let until = Instant::now() + Duration::from_secs(60);
        // Where the machine lets the thread wait it takes the time off; so once more.
        while lateness.totals().0 == 0 {
            assert!(Instant::now() < until, "nothing was counted");
            tokio::time::sleep(Duration::from_millis(60)).await;
            pulse.begins_for(Doing::Request(id), Some(Ipv4Addr::LOCALHOST.into()));
            thread::sleep(Duration::from_millis(400));
        }
    });
    let (count, total) = lateness.totals();
    assert!(count >= 1 && total > LATE, "{count}: {total:?}");
    let said = || std::fs::read_to_string(file.path()).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while said().is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    for part in [
        "a worker's loop was late",
        "worker=0 ",
        "late_ms=",
        "began_last=request route=late.test client=127.0.0.1 ",
    ] {
        assert!(said().contains(part), "{part} in {}", said());
    }
    // Those who watch hear of it, after the log has it.
    let noticed = || refusals.notices().since(NoticeKind::Late, 0).into_iter().next();
    while noticed().is_none() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let notice = noticed().expect("a notice");
    let route = ("route", Detail::Text("late.test".to_owned()));
    assert!(notice.what == "late" && notice.fields.contains(&route), "{notice:?}");
    // The same thread frees what is not followed any more.
    let weak = Arc::downgrade(&current.load());
    current.replace(leading_to("other.test"));
    let until = Instant::now() + Duration::from_secs(60);
    while weak.strong_count() > 0 {
        assert!(Instant::now() < until, "the old snapshot is not freed");
        pulse.wakes();
        thread::sleep(Duration::from_millis(5));
    }
}

/// A snapshot with a route of this name, and a listener on socket 1.
fn leading_to(name: &str) -> Snapshot {
    let mut snapshot = rig::snapshot(1);
    let target = Target::Passthrough(Destination { backend: 0, send_proxy: None, connect_timeout: None });
    let (deny_ja4, log_one_in) = (Arc::default(), std::num::NonZeroU32::MIN);
    let to = Route { name: name.into(), target, deny_ja4, addresses: None, log_one_in, bandwidth: None };
    let listener = snapshot.listeners.values_mut().next().map(|listener| Arc::get_mut(listener).unwrap());
    listener.unwrap().routes = RouteTable::new(vec![RouteRule { matches: Match::default(), to }]);
    let listener = Arc::clone(snapshot.listeners.values().next().unwrap());
    snapshot.sockets.insert(AcceptorId(1), listener);
    snapshot
}

#[test]
fn a_place_is_named_by_the_snapshot_that_has_it_or_not_at_all() {
    let current = Current::new(leading_to("a.test"));
    let name = |doing: Doing| {
        current.find(|snapshot| doing.place(snapshot)).map(|(what, name)| format!("{what}={name}"))
    };
    let (a, b) = (RouteId::of("a.test"), RouteId::of("b.test"));
    assert_eq!(name(Doing::Request(a)).as_deref(), Some("route=a.test"));
    assert_eq!(name(Doing::Relay(b)), None);
    assert_eq!(name(Doing::Handshake(AcceptorId(1))).unwrap(), format!("listener={}", rig::PROXIED));
    assert_eq!((name(Doing::Accept(AcceptorId(2))), name(Doing::Nothing)), (None, None));
    let followed = current.load_full();
    current.replace(leading_to("b.test"));
    current.sweep();
    assert_eq!(name(Doing::Relay(b)).as_deref(), Some("route=b.test"));
    assert_eq!(name(Doing::Request(a)).as_deref(), Some("route=a.test"), "a connection follows it still");
    drop(followed);
    current.sweep();
    assert_eq!(name(Doing::Request(a)), None, "nobody can work for it any more");
}

#[test]
fn a_step_is_read_as_it_was_written() {
    let pulse = Lateness::new().add();
    let client = Some(IpAddr::from(Ipv4Addr::new(192, 0, 2, 7)));
    for doing in [
        Doing::Handshake(AcceptorId(u32::MAX - 1)),
        Doing::Request(RouteId(u64::MAX)),
        Doing::Relay(RouteId::default()),
    ] {
        pulse.begins_for(doing, client);
        assert_eq!(pulse.doing(), (doing, client));
    }
    pulse.begins(Doing::Accept(AcceptorId(3)));
    assert_eq!(pulse.doing(), (Doing::Accept(AcceptorId(3)), None), "it was another step's client");
    pulse.begins_for(Doing::Relay(RouteId(1)), None);
    assert_eq!(pulse.doing(), (Doing::Relay(RouteId(1)), None));
}
