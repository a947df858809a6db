use std::time::UNIX_EPOCH;

use offramp_config::{Edit, Environment};
use offramp_sources::certificates::Sources;
use offramp_sources::contents::Contents;

use super::*;
use crate::confirmation::WayBack;
use crate::plan::Kept;

const ROUTE: &str = "[[route]]\nserver = \"127.0.0.1:2\"\n";

fn config(port: u16) -> Arc<Config> {
    let text = format!(
        "state_dir = \"/s\"\n[[listener]]\naddress = \"127.0.0.1:{port}\"\nmode = \"http\"\ntls = false\n{ROUTE}"
    );
    Arc::new(offramp_config::parse(&text, "/c/c.toml", &Environment::default()).unwrap().0)
}

/// The way in which a configuration comes in force.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The file was read.
    Read,
    /// An operator made it, and did not write it to the file.
    Made,
}

struct Rig {
    ledger: Ledger,
    recorded: Option<Recorded>,
}

impl Rig {
    /// A process whose file has a listener on port 1.
    fn new() -> Self {
        let config = config(1);
        let file = FileRead { config: Arc::clone(&config), digest: Some(1) };
        Self { ledger: Ledger::new(RunningConfig::printed(config), file), recorded: None }
    }

    /// A whole configuration with a listener on this port is in force, and waits to be confirmed if `waits` says so.
    fn change(&mut self, port: u16, how: How, waits: bool) -> u64 {
        let waits = waits.then(|| {
            let kept = Kept { contents: Contents::default(), events: None };
            let running = self.ledger.running().clone();
            let way_back = WayBack { running, sources: Sources::default(), kept };
            Confirmation::new(Duration::from_secs(60), way_back, None)
        });
        let new = config(port);
        let changes = Changes { lines: difference(self.ledger.config(), &new), ..Changes::default() };
        let (kind, by) = (Kind::Apply, Requester::Program);
        let read =
            (how == How::Read).then(|| FileRead { config: Arc::clone(&new), digest: Some(port.into()) });
        let entry = Entry { running: RunningConfig::printed(new), changes, kind, by, read, waits };
        let recorded = self.ledger.record(entry, UNIX_EPOCH);
        let version = recorded.version;
        self.recorded = Some(recorded);
        version
    }

    fn settled(&self) -> Option<(Settled, Option<u64>)> {
        self.recorded.as_ref()?.settled.as_ref().map(|settled| (settled.how, settled.version))
    }

    fn has_unwritten(&self) -> bool {
        !self.ledger.differences().is_empty()
    }
}

#[test]
fn a_change_that_waits_ends_in_one_of_three_ways() {
    // Confirmed: it stays, and the file does not have it.
    let mut rig = Rig::new();
    assert_eq!((rig.change(2, How::Made, true), rig.settled()), (2, None));
    assert!(rig.ledger.unconfirmed_until().is_some() && rig.ledger.take_back_at().is_some());
    assert_eq!((rig.ledger.confirm(None), rig.has_unwritten()), (Some(2), true));
    assert!(rig.ledger.waiting().is_none());
    // Taken back: the configuration before is in force, and the file has it.
    let mut rig = Rig::new();
    rig.change(2, How::Made, true);
    assert!(rig.has_unwritten());
    assert_eq!(rig.change(1, How::Made, false), 3);
    assert_eq!((rig.settled(), rig.has_unwritten()), (Some((Settled::TakenBack, Some(2))), false));
    assert!(
        matches!(rig.ledger.earlier(None), Err(NotChanged::Forgotten { .. })),
        "nobody confirmed version 2"
    );
    // Replaced, as by a reload.
    let mut rig = Rig::new();
    rig.change(2, How::Made, true);
    rig.change(3, How::Read, false);
    assert_eq!((rig.settled(), rig.has_unwritten()), (Some((Settled::Replaced, Some(2))), false));
}

#[test]
fn a_file_that_is_read_again_is_the_file_even_on_the_way_back() {
    let mut rig = Rig::new();
    rig.change(2, How::Made, false);
    rig.change(3, How::Made, true);
    // The file has port 2 by now, which was in force before the change that waits.
    rig.change(2, How::Read, false);
    assert_eq!((rig.settled(), rig.has_unwritten()), (Some((Settled::TakenBack, Some(3))), false));
}

#[test]
fn only_what_needs_no_confirmation_is_saved() {
    let mut rig = Rig::new();
    let port = |rig: &Rig| {
        let saved = rig.ledger.saved()?;
        let port = saved.text.split("127.0.0.1:").nth(1)?.split('"').next()?.to_owned();
        Some((port, saved.changes > 0, saved.digest))
    };
    let saved = |port: &str, differs, digest| Some((port.to_owned(), differs, Some(digest)));
    assert_eq!(port(&rig), saved("1", false, 1));
    rig.change(2, How::Made, false);
    assert_eq!(port(&rig), saved("2", true, 1));
    rig.change(3, How::Made, true);
    assert_eq!(port(&rig), None);
    rig.change(2, How::Made, false);
    assert_eq!(port(&rig), saved("2", true, 1), "it was taken back");
    rig.change(3, How::Made, true);
    let read = FileRead { config: config(3), digest: Some(9) };
    rig.ledger.confirm(Some(read));
    assert_eq!(port(&rig), saved("3", false, 9), "it was confirmed and written");
    rig.change(4, How::Read, false);
    assert_eq!(port(&rig), saved("4", false, 4));
}

#[test]
fn while_a_change_waits_only_what_ends_the_wait_is_admitted() {
    let mut rig = Rig::new();
    rig.change(2, How::Made, true);
    let document = Change::Document { name: String::new(), folder: None, text: String::new() };
    let level = Edit::Set { section: "log", key: "level", value: "debug".to_owned() };
    let plain = Terms::default();
    let trial = Terms { dry_run: true, ..Terms::default() };
    let waits = Terms { confirm: Some(Duration::from_secs(1)), ..Terms::default() };
    let cases = [
        (Change::Reload, &plain, true),
        (Change::Reload, &waits, false),
        (Change::Rollback(None), &plain, true),
        (Change::Rollback(Some(1)), &waits, false),
        (document.clone(), &plain, false),
        (document, &trial, true),
        (Change::Edit(level.clone()), &plain, false),
        (Change::Edit(level), &trial, true),
    ];
    for (change, terms, admitted) in cases {
        let outcome = rig.ledger.admit(&change, terms);
        assert_eq!(outcome.is_ok(), admitted, "{change:?} on {terms:?}");
        assert!(admitted || matches!(outcome, Err(NotChanged::Unconfirmed { .. })), "{outcome:?}");
    }
    let other = Terms { expected: Some(1), ..Terms::default() };
    let Err(NotChanged::Version { version: 2, difference }) = rig.ledger.admit(&Change::Reload, &other)
    else {
        panic!("another version is in force");
    };
    assert!(!difference.is_empty());
    assert!(rig.ledger.expect(&Terms { expected: Some(2), ..Terms::default() }).is_ok());
}

#[test]
fn a_rollback_leads_to_what_was_in_force_before() {
    let mut rig = Rig::new();
    let forgotten = rig.ledger.earlier(None);
    assert!(matches!(forgotten, Err(NotChanged::Forgotten { version: None, .. })));
    rig.change(2, How::Made, false);
    rig.change(3, How::Made, true);
    let ports = [(None, 2), (Some(1), 1), (Some(2), 2), (Some(3), 3)];
    for (version, port) in ports {
        assert_eq!(rig.ledger.earlier(version).unwrap().config, config(port), "{version:?}");
    }
    let Err(NotChanged::Forgotten { known, .. }) = rig.ledger.earlier(Some(4)) else {
        panic!("there is no 4")
    };
    assert_eq!(known, [1, 2, 3]);
}

#[test]
fn a_way_back_that_fails_is_tried_again_at_growing_intervals_and_reported_once_for_a_reason() {
    let mut rig = Rig::new();
    assert!(rig.ledger.record_not_taken_back(Error::one("x"), UNIX_EPOCH).is_none(), "none waits");
    rig.change(2, How::Made, true);
    let mut fails = |reason: &str| {
        let failure = rig.ledger.record_not_taken_back(Error::one(reason), UNIX_EPOCH).unwrap();
        (failure.pause.as_secs(), failure.is_new, failure.version)
    };
    let failures: Vec<_> = ["a", "a", "b", "b", "b", "b", "b"].into_iter().map(&mut fails).collect();
    let expected = [(1, true), (2, false), (4, true), (8, false), (16, false), (30, false), (30, false)];
    assert_eq!(failures, expected.map(|(pause, is_new)| (pause, is_new, Some(2))));
    let refused = rig.ledger.history().refused();
    assert_eq!(refused.iter().map(|one| one.reasons[0].as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(&**rig.ledger.waiting().unwrap().failure().unwrap(), "b");
}
