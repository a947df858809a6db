//! What names that clients make up may cost, and what stays on the disk.

use std::sync::mpsc;
use std::thread;

use offramp_certs::acme::KeyType;
use offramp_certs::local_ca::LocalCa;
use offramp_config::Environment;
use offramp_observe::Log;
use offramp_proxy::Challenges;
use offramp_testkit::process::require;

use super::*;

/// A handler over this state directory, for two names of `shop.test` an hour.
fn handler(state: &std::path::Path) -> (Arc<DemandHandler>, Arc<Config>) {
    let text = format!(
        "state_dir = {state:?}\n[acme.own]\ndirectory = \"https://127.0.0.1:1/dir\"\nca = \"ca.pem\"\n\
         [[certificate]]\nacme = \"own\"\non_demand = {{ names = \"*.shop.test\", rate = \"2/h\" }}\n\
         [[route]]\nserver = \"127.0.0.1:1\"\n"
    );
    let (config, _) = offramp_config::parse(&text, "/f.toml", &Environment::default()).unwrap();
    let (announce, _) = tokio::sync::mpsc::unbounded_channel();
    let context = AcmeContext::new(state, Challenges::none(), Arc::default(), Log::silent(), announce);
    let (demand, _) = Demand::new();
    let handler = DemandHandler::new(Arc::new(context), demand);
    handler.follow(&config);
    (handler, Arc::new(config))
}

#[test]
fn a_name_beyond_the_rate_costs_no_walk_over_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (handler, config) = handler(folder.path());
    let rules = Rule::all(&config);
    let admit =
        move |name: &str| handler.admit(&rules, &rules[0], name).map_err(|Refusal(outcome, _)| outcome);
    assert_eq!((admit("a.shop.test"), admit("b.shop.test")), (Ok(()), Ok(())));
    // Whoever opens it waits until somebody writes, which nobody does.
    let kept = folder.path().join("acme/certificates/x.shop.test-0");
    std::fs::create_dir_all(&kept).unwrap();
    let made =
        std::process::Command::new(require("mkfifo", "coreutils")).arg(kept.join("on_demand.json")).status();
    assert!(made.unwrap().success());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(admit("c.shop.test")));
    let outcome = told.recv_timeout(Duration::from_secs(60)).expect("the disk was read");
    assert_eq!(outcome, Err(DemandOutcome::OverRate));
}

/// Notes that a client used the certificate for this name so many days ago.
fn note(storage: &offramp_certs::acme::Storage, name: &str, key: KeyType, days: u64) -> Subject {
    let subject = Subject::new(&[name], key).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let demanded = Demanded { name: name.to_owned(), used: now - days * 24 * 3600 };
    storage.keep_demanded(&subject, &demanded).unwrap();
    subject
}

/// Puts a certificate there that ends at the end of its own life, whenever that is.
fn issue(storage: &offramp_certs::acme::Storage, subject: &Subject, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let issued = LocalCa::open_or_create(folder.path(), now).unwrap().issue(&[name], now).unwrap();
    let offramp_certs::CertificateOrigin::LocalCa { path } = issued.source else { unreachable!() };
    let text = std::fs::read_to_string(path).unwrap();
    let (chain, key) = text.split_at(text.find("-----BEGIN PRIVATE KEY-----").unwrap());
    storage.keep_certificate(subject, chain, key, "https://127.0.0.1:1/dir", now).unwrap();
}

#[test]
fn what_the_configuration_has_no_use_for_any_more_does_not_stay_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let (handler, _) = handler(folder.path());
    let storage = &handler.context.storage;
    let note = |name, key, days| note(storage, name, key, days);
    // Ordered in vain; of a name that is allowed no longer; of another kind of key.
    let gone = [
        note("vain.shop.test", KeyType::P256, 8),
        note("vain.former.test", KeyType::P256, 8),
        note("other.shop.test", KeyType::Rsa2048, 8),
    ];
    let kept = [
        note("recent.shop.test", KeyType::P256, 1),
        note("recent.former.test", KeyType::P256, 1),
        note("valid.shop.test", KeyType::P256, 8),
        note("valid.former.test", KeyType::P256, 8),
        note("broken.former.test", KeyType::P256, 8),
    ];
    issue(storage, &kept[2], "valid.shop.test");
    issue(storage, &kept[3], "valid.former.test");
    // A disk that cannot be read for a moment.
    std::fs::write(storage.file(&kept[4]), "").unwrap();
    handler.tidy();
    assert!(gone.iter().all(|subject| storage.demanded(subject).is_none()));
    assert!(kept.iter().all(|subject| storage.demanded(subject).is_some()));
    assert!(storage.certificate(&kept[3], SystemTime::now()).is_some());
}

#[test]
fn an_order_that_begins_is_not_old() {
    let folder = tempfile::tempdir().unwrap();
    let (handler, config) = handler(folder.path());
    let subject = note(&handler.context.storage, "a.shop.test", KeyType::P256, 8);
    let rules = Rule::all(&config);
    let want = rules[0].want("a.shop.test", false, &config, UseMark::default()).unwrap();
    assert!(handler.note(&want, "a.shop.test").is_ok());
    handler.tidy();
    assert!(handler.context.storage.demanded(&subject).is_some());
}

#[tokio::test]
async fn an_order_that_fails_takes_no_certificate_away_that_came_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (handler, config) = handler(folder.path());
    let rules = Rule::all(&config);
    let want = rules[0].want("a.shop.test", false, &config, UseMark::default()).unwrap();
    // Nothing listens where the authority should be.
    assert!(handler.order(&want, "a.shop.test").await.is_err());
    assert!(handler.context.storage.demanded(&want.subject).is_none(), "nothing is left of it");
    // The keeper of the same name orders at the same time, and is luckier.
    let turn = handler.context.turns.take(&want.subject).await;
    let (outcome, ()) = tokio::join!(handler.order(&want, "a.shop.test"), async {
        tokio::task::yield_now().await;
        issue(&handler.context.storage, &want.subject, "a.shop.test");
        drop(turn);
    });
    assert!(outcome.is_ok());
    assert!(handler.has_certificate(&want, SystemTime::now()));
}
