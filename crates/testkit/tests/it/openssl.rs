//! The record-level client against OpenSSL's server, a known good one, in every suite and version.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use offramp_testkit::ca::{Ca, Files, Key, Leaf, Name, Validity};
use offramp_testkit::process::{Process, Ready, free_port, require, temp_dir};
use offramp_testkit::tls_client::wire::alert;
use offramp_testkit::tls_client::{
    Alert, Cipher, Client, End, Event, Options, Received, Seal, Suite, Version,
};

/// `openssl s_server`, which answers each line with the line reversed.
fn server(files: &Files, suite: Suite, extra: &[&str]) -> (Process, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut command = Command::new(require("openssl", "openssl"));
    command.args(["s_server", "-rev", "-accept", &address.to_string()]);
    command.arg("-cert").arg(&files.chain).arg("-key").arg(&files.key).args(extra);
    match suite.version {
        Version::Tls13 => command.args(["-tls1_3", "-ciphersuites", suite.openssl_name()]),
        Version::Tls12 => command.args(["-tls1_2", "-cipher", suite.openssl_name()]),
    };
    let process = Process::start(command, Duration::from_secs(60)).unwrap();
    process.wait_for(&Ready::Line("ACCEPT".into()), Duration::from_secs(20)).unwrap();
    (process, address)
}

fn connect(address: SocketAddr, suite: Suite) -> Client<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut client = Client::new(stream, Options::new(suite)).unwrap();
    client.handshake().unwrap();
    client
}

/// The next application data; tickets are passed over.
fn data(client: &mut Client<TcpStream>) -> Vec<u8> {
    loop {
        match client.receive().unwrap() {
            Received::Event(Event::Data(bytes)) => return bytes,
            Received::Event(Event::Handshake { .. }) => {}
            other => panic!("{other:?} instead of data"),
        }
    }
}

fn files(directory: &std::path::Path) -> Files {
    Ca::new(directory).unwrap().issue("server", &Leaf::server(Key::P256, &["localhost"])).unwrap()
}

#[test]
fn every_suite_of_both_versions_is_spoken() {
    let directory = temp_dir();
    let files = files(directory.path());
    for suite in Suite::ALL {
        let (_process, address) = server(&files, suite, &[]);
        let mut client = connect(address, suite);
        client.send(&Seal::data(b"drawer\n")).unwrap();
        assert_eq!(data(&mut client), b"reward\n", "{suite:?}");
        client.send(&Seal::alert(&[alert::WARNING, alert::CLOSE_NOTIFY])).unwrap();
        let Received::Event(Event::Alert(Alert { description, protected: true, .. })) =
            client.receive().unwrap()
        else {
            panic!("no close_notify from {suite:?}")
        };
        assert_eq!(description, alert::CLOSE_NOTIFY);
        client.stream().shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.receive().unwrap(), Received::End(End::Eof));
    }
}

#[test]
fn a_wrong_tag_is_answered_with_bad_record_mac() {
    let directory = temp_dir();
    let files = files(directory.path());
    for suite in [Version::Tls12, Version::Tls13].map(|version| Suite::new(version, Cipher::Aes128Gcm)) {
        let (_process, address) = server(&files, suite, &[]);
        let mut client = connect(address, suite);
        let mut record = client.seal(&Seal::data(b"data\n"));
        *record.last_mut().unwrap() ^= 1;
        client.write_raw(&record).unwrap();
        loop {
            match client.receive().unwrap() {
                Received::Event(Event::Alert(sent)) => {
                    assert_eq!(sent.description, alert::BAD_RECORD_MAC);
                    break;
                }
                Received::Event(Event::Handshake { .. }) => {}
                other => panic!("{other:?} instead of an alert"),
            }
        }
    }
}

#[test]
fn key_updates_go_both_ways() {
    let directory = temp_dir();
    let files = files(directory.path());
    // At once, since `s_server -rev` sleeps for a second whenever it has nothing to read.
    std::thread::scope(|scope| {
        for suite in Suite::ALL.into_iter().filter(|suite| suite.version == Version::Tls13) {
            let files = &files;
            scope.spawn(move || update_keys_twice(files, suite));
        }
    });
}

fn update_keys_twice(files: &Files, suite: Suite) {
    let (_process, address) = server(files, suite, &[]);
    let mut client = connect(address, suite);
    for round in 1..=2 {
        let update = client.seal_key_update(1);
        client.write_raw(&update).unwrap();
        client.send(&Seal::data(b"live\n").padding(7)).unwrap();
        assert_eq!(data(&mut client), b"evil\n");
        assert_eq!(client.read_updates(), round);
    }
}

#[test]
fn a_requested_certificate_is_declined() {
    let directory = temp_dir();
    let files = files(directory.path());
    for suite in [Version::Tls12, Version::Tls13].map(|version| Suite::new(version, Cipher::Aes256Gcm)) {
        let (_process, address) = server(&files, suite, &["-verify", "1"]);
        let mut client = connect(address, suite);
        client.send(&Seal::data(b"stop\n")).unwrap();
        assert_eq!(data(&mut client), b"pots\n");
    }
}

#[test]
fn every_key_of_the_ca_serves() {
    let directory = temp_dir();
    let ca = Ca::new(directory.path()).unwrap();
    for key in Key::ALL {
        let files = ca.issue(&format!("{key:?}"), &Leaf::server(key, &["localhost"])).unwrap();
        let suite = Suite::new(Version::Tls13, Cipher::Aes128Gcm);
        let (_process, address) = server(&files, suite, &[]);
        let mut client = connect(address, suite);
        client.send(&Seal::data(b"tar\n")).unwrap();
        assert_eq!(data(&mut client), b"rat\n", "{key:?}");
    }
}

#[test]
fn a_chain_verifies() {
    let directory = temp_dir();
    let ca = Ca::new(directory.path()).unwrap();
    let verify = |files: &Files| {
        let mut command = Command::new(require("openssl", "openssl"));
        command.arg("verify").arg("-CAfile").arg(ca.certificate()).arg(&files.cert);
        let process = Process::start(command, Duration::from_secs(20)).unwrap();
        process.wait(Duration::from_secs(20)).unwrap().success()
    };
    let names = [Name::Dns("host.test".into()), Name::Uri("spiffe://test/client".into())];
    assert!(verify(&ca.issue("client", &Leaf::client("somebody", &names)).unwrap()));
    let expired = Leaf { validity: Validity::Expired, ..Leaf::server(Key::P256, &["localhost"]) };
    assert!(!verify(&ca.issue("expired", &expired).unwrap()));
    let future = Leaf { validity: Validity::NotYet, ..Leaf::server(Key::P384, &["localhost"]) };
    assert!(!verify(&ca.issue("future", &future).unwrap()));
}
