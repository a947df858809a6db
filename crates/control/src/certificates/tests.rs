//! What is read, what is kept, and when a fault is told.

use std::fs;
use std::time::Duration;

use offramp_testkit::ca::{Ca, Key, Leaf, Validity};

use super::*;

/// A folder with a CA, and time that the test moves.
struct Rig {
    folder: tempfile::TempDir,
    ca: Ca,
    now: SystemTime,
    sources: Sources,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::new(folder.path()).unwrap();
        Self { ca, folder, now: SystemTime::now(), sources: Sources::default() }
    }

    fn mint(&self, validity: Validity) {
        let leaf = Leaf { validity, ..Leaf::server(Key::P256, &["a.test"]) };
        self.ca.issue("a", &leaf).unwrap();
    }

    fn pair(&self) -> Pair {
        let at = |name: &str| self.folder.path().join(name);
        Pair { cert: at("a.pem"), key: Some(at("a.key")) }
    }

    /// Looks at the one pair: what is to be used, and what is told.
    fn look(&mut self, on_fault: OnFault) -> (Option<Arc<Certificate>>, Vec<String>) {
        // Each look is a while after the one before.
        self.now += Duration::from_secs(10);
        let mut look = Look::new(&self.sources, self.now, on_fault);
        let (found, _) = look.pairs(vec![(self.pair(), At::NOWHERE)]).pop().unwrap();
        let (sources, faults) = look.finish();
        self.sources = sources;
        let value = match found {
            Found::Value(value) => Some(value),
            Found::Nothing(_) => None,
        };
        (value, faults.into_iter().map(|fault| fault.text).collect())
    }
}

fn same(one: Option<&Arc<Certificate>>, other: Option<&Arc<Certificate>>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if Arc::ptr_eq(one, other))
}

#[test]
fn what_has_not_changed_is_not_read_again() {
    let mut rig = Rig::new();
    rig.mint(Validity::Valid);
    let (first, _) = rig.look(OnFault::Refuse);
    let (again, faults) = rig.look(OnFault::KeepOld);
    assert!(same(first.as_ref(), again.as_ref()) && faults.is_empty());
    // The same content in a new file is the same certificate.
    let path = rig.pair().cert;
    fs::write(&path, fs::read(&path).unwrap()).unwrap();
    let (again, _) = rig.look(OnFault::KeepOld);
    assert!(same(first.as_ref(), again.as_ref()));
    rig.mint(Validity::Valid);
    let (renewed, faults) = rig.look(OnFault::KeepOld);
    assert!(renewed.is_some() && !same(first.as_ref(), renewed.as_ref()) && faults.is_empty());
}

#[test]
fn a_fault_keeps_the_old_one_and_is_told_once_if_it_stays() {
    let mut rig = Rig::new();
    rig.mint(Validity::Valid);
    let (first, _) = rig.look(OnFault::Refuse);
    let whole = fs::read(rig.pair().cert).unwrap();
    fs::write(rig.pair().cert, &whole[..whole.len() / 2]).unwrap();
    // Perhaps the writer is not done.
    let (kept, faults) = rig.look(OnFault::KeepOld);
    assert!(same(first.as_ref(), kept.as_ref()) && faults.is_empty());
    assert_eq!(rig.sources.again(), Again::Soon);
    let (kept, faults) = rig.look(OnFault::KeepOld);
    assert!(same(first.as_ref(), kept.as_ref()));
    assert!(faults.len() == 1 && faults[0].contains("cut off"), "{faults:?}");
    for _ in 0..3 {
        let (kept, faults) = rig.look(OnFault::KeepOld);
        assert!(same(first.as_ref(), kept.as_ref()) && faults.is_empty(), "{faults:?}");
        assert_eq!(rig.sources.again(), Again::Later);
    }
    fs::write(rig.pair().cert, &whole).unwrap();
    rig.look(OnFault::KeepOld);
    assert_eq!(rig.sources.again(), Again::Never);
    // A start or a reload takes no old one.
    fs::write(rig.pair().cert, "").unwrap();
    assert!(rig.look(OnFault::Refuse).0.is_none());
}

#[test]
fn a_fault_that_is_another_with_each_look_is_told_all_the_same() {
    let mut rig = Rig::new();
    rig.mint(Validity::Valid);
    rig.look(OnFault::Refuse);
    let whole = fs::read(rig.pair().cert).unwrap();
    let half = &whole[..whole.len() / 2];
    let mut told = Vec::new();
    for lines in 1..=4 {
        // The line of the fault is another one each time.
        fs::write(rig.pair().cert, [&b"text\n".repeat(lines)[..], half].concat()).unwrap();
        let (kept, faults) = rig.look(OnFault::KeepOld);
        assert!(kept.is_some());
        told.push((faults.len(), rig.sources.again()));
    }
    let (first, told_of) = ((0, Again::Soon), (1, Again::Later));
    assert_eq!(told, [first, told_of, first, told_of]);
}

#[test]
fn a_key_for_another_certificate_changes_nothing() {
    let mut rig = Rig::new();
    rig.mint(Validity::Valid);
    let (first, _) = rig.look(OnFault::Refuse);
    let key = fs::read(rig.pair().key.unwrap()).unwrap();
    rig.mint(Validity::Valid);
    fs::write(rig.pair().key.unwrap(), key).unwrap();
    rig.look(OnFault::KeepOld);
    let (kept, faults) = rig.look(OnFault::KeepOld);
    assert!(same(first.as_ref(), kept.as_ref()));
    assert!(faults[0].contains("belongs to none"), "{faults:?}");
}

#[test]
fn what_is_not_valid_takes_no_place_of_what_is() {
    for (validity, expected) in [(Validity::Expired, "EXPIRED"), (Validity::NotYet, "not valid before")] {
        let mut rig = Rig::new();
        rig.mint(Validity::Valid);
        let (first, _) = rig.look(OnFault::Refuse);
        rig.mint(validity);
        rig.look(OnFault::KeepOld);
        let (kept, faults) = rig.look(OnFault::KeepOld);
        assert!(same(first.as_ref(), kept.as_ref()));
        assert!(faults[0].contains(expected), "{faults:?}");
        // Whoever reloads means it.
        assert!(!same(first.as_ref(), rig.look(OnFault::Refuse).0.as_ref()));
    }
}

#[test]
fn a_clock_that_jumps_back_and_forth_changes_no_certificate() {
    let mut rig = Rig::new();
    rig.mint(Validity::Valid);
    let (first, _) = rig.look(OnFault::Refuse);
    let year = Duration::from_secs(365 * 24 * 3600);
    for time in [rig.now - year, rig.now + year, rig.now] {
        rig.now = time;
        let (kept, faults) = rig.look(OnFault::KeepOld);
        assert!(same(first.as_ref(), kept.as_ref()) && faults.is_empty(), "{faults:?}");
    }
}

#[test]
fn many_are_read_in_their_order() {
    let items: Vec<usize> = (0..1000).collect();
    assert_eq!(in_parallel(&items, |item| item * 2), items.iter().map(|item| item * 2).collect::<Vec<_>>());
    assert!(in_parallel(&[] as &[usize], |item| *item).is_empty());
}
