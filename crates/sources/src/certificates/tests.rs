//! What is read, what is kept, and when a fault is reported.

use std::fs;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::ca::{Ca, Key, Leaf, Validity};
use offramp_testkit::process::require;

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
        Pair::new(at("a.pem"), Some(at("a.key")))
    }

    /// Looks at the one pair: what is to be used, and what is reported.
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
    let mut reported = Vec::new();
    for lines in 1..=4 {
        // The line of the fault is another one each time.
        fs::write(rig.pair().cert, [&b"text\n".repeat(lines)[..], half].concat()).unwrap();
        let (kept, faults) = rig.look(OnFault::KeepOld);
        assert!(kept.is_some());
        reported.push((faults.len(), rig.sources.again()));
    }
    let (first, told_of) = ((0, Again::Soon), (1, Again::Later));
    assert_eq!(reported, [first, told_of, first, told_of]);
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

/// Has the CA say that the certificate `a.pem` is good, for a day.
fn respond(folder: &std::path::Path) {
    let openssl = |line: &str| {
        let mut command = Command::new(require("openssl", "openssl"));
        let output = command.args(line.split(' ')).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let serial = openssl("x509 -in a.pem -noout -serial");
    let serial = serial.trim().trim_start_matches("serial=");
    fs::write(folder.join("index.txt"), format!("V\t401231235959Z\t\t{serial}\tunknown\t/CN=a\n")).unwrap();
    let about = format!("-issuer ca.pem -serial 0x{serial} -ndays 1 -respout staple.der");
    openssl(&format!("ocsp -index index.txt -CA ca.pem -rsigner a.pem -rkey a.key {about}"));
}

#[test]
fn a_response_that_runs_out_is_stapled_no_longer_which_is_told_once() {
    let mut rig = Rig::new();
    rig.mint(Validity::Valid);
    respond(rig.folder.path());
    let pair = Pair { ocsp: Some(rig.folder.path().join("staple.der")), ..rig.pair() };
    let mut look = |now: SystemTime| {
        let mut look = Look::new(&rig.sources, now, OnFault::KeepOld);
        let (found, warnings) = look.pairs(vec![(pair.clone(), At::NOWHERE)]).pop().unwrap();
        (rig.sources, _) = look.finish();
        let Found::Value(certificate) = found else { panic!("it is gone") };
        let reported: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        (certificate, reported.into_iter().filter(|line| line.contains("OCSP")).collect::<Vec<_>>())
    };
    let (certificate, reported) = look(rig.now + Duration::from_secs(60));
    assert!(certificate.certified_key.ocsp.is_some() && reported.is_empty(), "{reported:?}");
    let until = certificate.staple_until.unwrap();
    // Until the last second it is stapled, and not from then on.
    let (kept, reported) = look(until - Duration::from_secs(1));
    assert!(same(Some(&kept), Some(&certificate)) && reported.is_empty(), "{reported:?}");
    let (bare, reported) = look(until);
    assert!(bare.certified_key.ocsp.is_none() && bare.staple_until.is_none());
    assert!(
        reported.len() == 1 && reported[0].contains("staple.der") && reported[0].contains("out of date"),
        "{reported:?}"
    );
    for hours in 1..4 {
        let (still, reported) = look(until + Duration::from_secs(hours * 3600));
        assert!(same(Some(&still), Some(&bare)) && reported.is_empty(), "{reported:?}");
    }
    // A new one is stapled, and one that is taken away leaves what is in use until it runs out.
    respond(rig.folder.path());
    let (fresh, _) = look(rig.now + Duration::from_secs(120));
    assert!(fresh.certified_key.ocsp.is_some());
    fs::remove_file(rig.folder.path().join("staple.der")).unwrap();
    let (kept, _) = look(rig.now + Duration::from_secs(180));
    assert!(same(Some(&kept), Some(&fresh)));
}

#[test]
fn a_certificate_that_is_on_demand_from_now_on_is_found_in_use() {
    let mut rig = Rig::new();
    rig.mint(Validity::Valid);
    let (first, _) = rig.look(OnFault::Refuse);
    let path = rig.pair().cert;
    let mut certificate = Certificate::clone(&first.unwrap());
    certificate.source = CertificateOrigin::Acme { path };
    let mut look = |used: Option<&str>| {
        let mut look = Look::new(&rig.sources, rig.now, OnFault::Refuse);
        let used = used.map(|name| look.mark(name));
        certificate.used.clone_from(&used);
        let found = look.obtained(certificate.clone());
        (rig.sources, _) = look.finish();
        assert_eq!(found.used, used);
        found
    };
    let scheduled = look(None);
    assert!(Arc::ptr_eq(&scheduled, &look(None)));
    // A reload moves its name from `names` to `on_demand`, and back.
    let demanded = look(Some("a.test"));
    assert!(Arc::ptr_eq(&demanded, &look(Some("a.test"))));
    look(None);
}

#[test]
fn many_are_read_in_their_order() {
    let items: Vec<usize> = (0..1000).collect();
    assert_eq!(in_parallel(&items, |item| item * 2), items.iter().map(|item| item * 2).collect::<Vec<_>>());
    assert!(in_parallel(&[] as &[usize], |item| *item).is_empty());
}
