//! What is kept is private, whole, and still there afterwards.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;
use crate::acme::request::new_key;
use crate::local_ca::LocalCa;

/// A chain without its key, and the key, as between an authority and its client.
fn issued(dir: &Path, name: &str) -> (String, String) {
    let now = SystemTime::now();
    let certificate = LocalCa::open_or_create(dir, now).unwrap().issue(&[name], now).unwrap();
    let CertificateOrigin::LocalCa { path } = certificate.source else { unreachable!() };
    let text = std::fs::read_to_string(path).unwrap();
    let (chain, key) = text.split_at(text.find("-----BEGIN PRIVATE KEY-----").unwrap());
    (chain.to_owned(), key.to_owned())
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_fits_is_kept_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::new(dir.path());
    let subject = Subject::new(&["a.example.org"], KeyType::P256).unwrap();
    let now = SystemTime::now();
    assert!(storage.certificate(&subject, now).is_none());
    let (chain, key) = issued(dir.path(), "a.example.org");
    storage.keep_certificate(&subject, &chain, &key, "https://a/dir", now).unwrap();
    let kept = storage.certificate(&subject, now).unwrap();
    let CertificateOrigin::Acme { path } = &kept.source else { panic!("{:?}", kept.source) };
    assert_eq!((mode(path), mode(path.parent().unwrap()), mode(storage.path())), (0o600, 0o700, 0o700));
    assert_eq!(storage.issuer(&subject).as_deref(), Some("https://a/dir"));
    assert!(storage.obtained(&subject).unwrap() >= now - Duration::from_secs(10));
    assert_eq!(storage.key(&subject).unwrap().trim(), key.trim());
    assert_eq!(storage.certificates(now).len(), 1);
    let (cert, secret) = (dir.path().join("a.pem"), dir.path().join("a.key"));
    storage.export(&subject, &cert, Some(&secret)).unwrap();
    assert_eq!((mode(&cert), mode(&secret)), (0o644, 0o600));
    assert_eq!(std::fs::read_to_string(&cert).unwrap().trim(), chain.trim());
    file::load(&cert, Some(&secret), now).unwrap();
    storage.export(&subject, &cert, None).unwrap();
    assert_eq!(mode(&cert), 0o600);
    file::load(&cert, None, now).unwrap();
    // Another kind of key is another certificate.
    let rsa = Subject::new(&["a.example.org"], KeyType::Rsa2048).unwrap();
    assert!(storage.certificate(&rsa, now).is_none());
}

#[test]
fn what_does_not_fit_leaves_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::new(dir.path());
    let subject = Subject::new(&["a.example.org"], KeyType::P256).unwrap();
    let now = SystemTime::now();
    let (chain, key) = issued(dir.path(), "a.example.org");
    storage.keep_certificate(&subject, &chain, &key, "", now).unwrap();
    let (other, other_key) = issued(dir.path(), "b.example.org");
    let stranger = new_key(KeyType::P256).unwrap();
    let later = now + Duration::from_secs(400 * 24 * 3600);
    for (chain, key, now) in [
        (chain.as_str(), stranger.as_str(), now),
        (other.as_str(), other_key.as_str(), now),
        ("<html>", key.as_str(), now),
        (chain.as_str(), key.as_str(), later),
    ] {
        let refused = storage.keep_certificate(&subject, chain, key, "", now);
        assert!(refused.is_err(), "{refused:?}");
        let names = storage.certificate(&subject, now).unwrap().names;
        assert_eq!(names[0].to_string(), "a.example.org");
    }
    let directory = storage.directory(&subject);
    let left: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name != "candidate.pem"), "{left:?}");
}

#[test]
fn a_clock_that_jumps_by_a_year_and_back_loses_no_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::new(dir.path());
    let subject = Subject::new(&["a.example.org"], KeyType::P256).unwrap();
    let (now, year) = (SystemTime::now(), Duration::from_secs(365 * 24 * 3600));
    let (chain, key) = issued(dir.path(), "a.example.org");
    storage.keep_certificate(&subject, &chain, &key, "", now).unwrap();
    let of = |now| storage.certificate(&subject, now).unwrap().certified_key.cert.clone();
    let before = of(now);
    for jumped in [now + year, now - year, now + year * 9] {
        assert_eq!(of(jumped), before);
    }
    // Ahead, what is issued has ended; behind, it is not valid yet, and the clock may be wrong.
    assert!(storage.keep_certificate(&subject, &chain, &key, "", now + year * 2).is_err());
    storage.keep_certificate(&subject, &chain, &key, "", now - year).unwrap();
    assert_eq!(of(now), before);
}

#[test]
fn orders_and_failures_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::new(dir.path());
    let subject = Subject::new(&["*.example.org", "example.org"], KeyType::P256).unwrap();
    let order = PendingOrder {
        directory: "https://a/dir".into(),
        account: "https://a/1".into(),
        profile: None,
        url: "https://a/order/1".into(),
        key: "secret".into(),
        resumed: 0,
    };
    storage.keep_order(&subject, &order).unwrap();
    assert_eq!(storage.order(&subject).unwrap().url, order.url);
    assert!(!format!("{order:?}").contains("secret"));
    storage.forget_order(&subject);
    assert!(storage.order(&subject).is_none());
    assert!(storage.records(&subject).is_empty());
    let records = [("example.org".to_owned(), "value".to_owned())];
    storage.keep_records(&subject, &records).unwrap();
    assert_eq!(storage.records(&subject), records);
    storage.forget_records(&subject);
    assert!(storage.records(&subject).is_empty());
    let mut failures = Failures::default();
    failures.note(SystemTime::now(), None);
    storage.keep_failures(&subject, &failures).unwrap();
    assert_eq!(storage.failures(&subject), failures);
    std::fs::write(storage.directory(&subject).join(FAILURES), "{").unwrap();
    assert_eq!(storage.failures(&subject), Failures::default());
    storage.keep_account(&["letsencrypt", "https://a/dir"], "{}").unwrap();
    assert_eq!(storage.account(&["letsencrypt", "https://a/dir"]).unwrap().unwrap().as_str(), "{}");
    assert!(storage.account(&["letsencrypt", "https://b/dir"]).unwrap().is_none());
}

#[test]
fn what_was_ordered_on_demand_is_known_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::new(dir.path());
    assert!(storage.all_demanded().is_empty());
    for name in ["b.example.org", "a.example.org"] {
        let subject = Subject::new(&[name], KeyType::P256).unwrap();
        storage.keep_demanded(&subject, &Demanded { name: name.into(), used: 7 }).unwrap();
    }
    let names: Vec<String> = storage.all_demanded().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["a.example.org", "b.example.org"]);
    let subject = Subject::new(&["a.example.org"], KeyType::P256).unwrap();
    assert_eq!(storage.demanded(&subject).unwrap().used, 7);
    storage.remove(&subject);
    assert!(storage.demanded(&subject).is_none() && storage.all_demanded().len() == 1);
}

#[test]
fn one_process_orders() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::new(dir.path());
    storage.prepare().unwrap();
    let lock = storage.try_lock().unwrap();
    assert!(lock.is_some() && storage.try_lock().unwrap().is_none());
    drop(lock);
    assert!(storage.try_lock().unwrap().is_some());
}

#[test]
fn names_count_once_and_must_be_names() {
    let subject = Subject::new(&["A.example.org", "a.example.org."], KeyType::P256).unwrap();
    assert_eq!(subject.names().len(), 1);
    assert!(Subject::new(&["10.0.0.1"], KeyType::P256).is_err());
    assert!(Subject::new::<&str>(&[], KeyType::P256).is_err());
}
