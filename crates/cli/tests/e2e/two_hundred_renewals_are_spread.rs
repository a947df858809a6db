//! Two hundred certificates that are due in one night: all are renewed, each once, spread over the time that the authority
//! suggests, and a few at a time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use offramp_testkit::process::Signal;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::authority::Authority;
use crate::support::instance::{Home, LIFE};
use crate::support::openssl::echo;

const CERTIFICATES: usize = 200;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The night.
const WINDOW: Duration = Duration::from_secs(20);
/// Orders under way at a time: what Offramp allows itself.
const AT_ONCE: usize = 4;

/// Waits until the authority has issued so many.
fn issued(authority: &Authority, count: usize) {
    let deadline = Instant::now() + LIFE;
    let done = || authority.orders().iter().filter(|order| order.certificate.is_some()).count();
    while done() < count {
        assert!(Instant::now() < deadline, "{} of {count}", done());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes the certificates as old as if they had been obtained days ago: one that is new is not replaced.
fn age(home: &Home) {
    let old = SystemTime::now() - 40 * DAY;
    let mut aged = 0;
    for entry in fs::read_dir(home.file("state/acme/certificates")).unwrap() {
        let file = File::options().write(true).open(entry.unwrap().path().join("certificate.pem")).unwrap();
        file.set_modified(old).unwrap();
        aged += 1;
    }
    assert_eq!(aged, CERTIFICATES);
}

#[test]
fn two_hundred_certificates_are_renewed_in_one_night() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let authority = Authority::start(&home.ca, 90 * DAY);
    let certificate = |number| format!("[[certificate]]\nacme = \"own\"\nnames = [\"a{number}.test\"]\n");
    let certificates: String = (0..CERTIFICATES).map(certificate).collect();
    let text = format!(
        "{}{certificates}[[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"{}\"\n",
        authority.section(&home.ca.certificate(), ""),
        app.address()
    );
    let instance = home.run(&text);
    issued(&authority, CERTIFICATES);
    instance.until("the last one is on disk", || {
        let all = fs::read_dir(instance.home.file("state/acme/certificates")).unwrap();
        let kept = all.filter(|entry| entry.as_ref().unwrap().path().join("certificate.pem").exists());
        (kept.count() == CERTIFICATES).then_some(())
    });
    instance.process.signal(Signal::TERM).unwrap();
    instance.process.wait(LIFE).unwrap();
    let home = instance.home;
    fs::remove_file(home.file("notify.sock")).unwrap();

    age(&home);
    // The authority speaks of whole seconds.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start = UNIX_EPOCH + Duration::from_secs(now.as_secs() + 2);
    let window = [start, start + WINDOW];
    for order in authority.orders() {
        authority.suggest_between(&order.certificate.unwrap(), window);
    }
    let instance = home.run(&text);
    issued(&authority, 2 * CERTIFICATES);

    let orders = authority.orders();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for order in &orders {
        *names.entry(order.payload["identifiers"].to_string()).or_default() += 1;
    }
    assert_eq!((orders.len(), names.len()), (2 * CERTIFICATES, CERTIFICATES));
    assert!(names.values().all(|count| *count == 2), "{names:?}");
    // Each replaces the one before, and none comes before the night.
    let (first, renewals) = orders.split_at(CERTIFICATES);
    let mut replaced: Vec<_> =
        renewals.iter().map(|order| order.payload["replaces"].as_str().unwrap()).collect();
    let mut before: Vec<_> = first.iter().map(|order| order.certificate.as_deref().unwrap()).collect();
    replaced.sort_unstable();
    before.sort_unstable();
    assert_eq!(replaced, before);
    assert!(renewals.iter().all(|order| order.at >= start));
    // A machine that is slow renews later, and never sooner.
    let early = renewals.iter().filter(|order| order.at < start + WINDOW / 2).count();
    assert!(early <= CERTIFICATES * 3 / 4, "{early} of {CERTIFICATES} in the first half");
    assert!(authority.most_at_once() <= AT_ONCE, "{} at once", authority.most_at_once());
    // The new ones are in use.
    let serial = |said: &str| {
        let pem = said.split("-----BEGIN CERTIFICATE-----").nth(1).unwrap();
        pem.split("-----END").next().unwrap().to_owned()
    };
    let kept = |name: &str| {
        let all = fs::read_dir(instance.home.file("state/acme/certificates")).unwrap();
        let mut paths = all.map(|entry| entry.unwrap().path());
        let found = paths.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(name)).unwrap();
        serial(&fs::read_to_string(found.join("certificate.pem")).unwrap())
    };
    for name in ["a0.test", "a199.test"] {
        instance.until("clients get the new one", || {
            (serial(&echo(&instance, &["-servername", name])) == kept(&format!("{name}-"))).then_some(())
        });
    }
    instance.stop();
}
