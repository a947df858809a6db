//! Certificates that are there already, when their sources are not.

use std::fs;

use offramp_certs::acme::{KeyType, Storage, Subject};
use offramp_testkit::ca::{Ca, Key, Leaf};

use super::*;

/// On the way back from a change, with a state directory that is away: certificates of the local CA and of authorities, and
/// those that stand in for others, are what they were, and nothing is made.
#[test]
fn without_a_state_directory_what_was_issued_stays_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, now) = (Ca::new(folder.path()).unwrap(), SystemTime::now());
    let state = folder.path().join("state");
    let issued = ca.issue("issued", &Leaf::server(Key::P256, &["issued.test"])).unwrap();
    let [chain, key] = [&issued.chain, &issued.key].map(|path| fs::read_to_string(path).unwrap());
    let subject = Subject::new(&["issued.test"], KeyType::P256).unwrap();
    Storage::new(&state).keep_certificate(&subject, &chain, &key, "", now).unwrap();
    let text = format!(
        "state_dir = {state:?}\n[[listener]]\naddress = \"127.0.0.1:1\"\n[[route]]\nserver = \"127.0.0.1:2\"\n\
         [[certificate]]\nlocal = true\nnames = [\"local.test\"]\n\
         [[certificate]]\nacme = \"own\"\nnames = [\"issued.test\"]\n\
         [[certificate]]\nacme = \"own\"\nnames = [\"missing.test\"]\n\
         [acme.own]\ndirectory = \"https://127.0.0.1:1/dir\"\nca = {:?}\nemail = \"a@b.test\"\n",
        folder.path().join("ca.pem")
    );
    let (config, _) = offramp_config::parse(&text, "/c.toml", &offramp_config::Environment::default())
        .unwrap_or_else(|errors| panic!("{errors}"));
    let read = |before: &Sources, on_fault, mint| {
        let material = Material::read(&config, before, now, on_fault, mint).none_or_refused().unwrap();
        let certificates = material.store.certificates().map(|one| one.certified_key.cert[0].to_vec());
        (certificates.collect::<Vec<_>>(), material.sources)
    };
    let (first, sources) = read(&Sources::default(), OnFault::Refuse, true);
    assert_eq!(first.len(), 3);
    fs::rename(&state, folder.path().join("away")).unwrap();
    let (back, sources) = read(&sources, OnFault::KeepOld, false);
    assert!(back == first && !state.exists());
    // Twice, as where it is tried again.
    assert!(read(&sources, OnFault::KeepOld, false).0 == first);
    // With another one, in which there is nothing but the authority, the missing one is issued.
    fs::create_dir(&state).unwrap();
    fs::rename(folder.path().join("away/ca"), state.join("ca")).unwrap();
    assert_eq!(read(&Sources::default(), OnFault::KeepOld, false).0.len(), 3);
}
