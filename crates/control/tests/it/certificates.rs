//! Certificates that change under a running server are used for new handshakes, without a reload.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::server::{Listen, Server, apps};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::instance::{Folder, Instance, connect, echo};

/// Longer than any delay of a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

const WEB: &str = "[[listener]]\nname = \"web\"\naddress = \"127.0.0.1:0\"\n";

struct Rig {
    folder: Folder,
    ca: Ca,
    backend: Server,
}

impl Rig {
    fn new() -> Self {
        let folder = Folder::new();
        let ca = Ca::new(folder.path()).unwrap();
        Self { folder, ca, backend: Server::start(&Listen::Ipv4, apps::echo).unwrap() }
    }

    fn start(&self, certificate: &str) -> Instance {
        let route = format!("[[route]]\nserver = \"{}\"\n", self.backend.address());
        self.folder.write(&format!("{WEB}[[certificate]]\n{certificate}\n{route}"));
        self.folder.start().unwrap()
    }

    /// Mints a pair `NAME.pem` and `NAME.key` into the folder `to`, whole or not at all. Gives the certificate.
    fn mint(&self, name: &str, to: &str) -> CertificateDer<'static> {
        let files = self.ca.issue("minted", &Leaf::server(Key::P256, &["localhost"])).unwrap();
        let to = self.folder.path().join(to);
        fs::rename(files.key, to.join(format!("{name}.key"))).unwrap();
        let der = CertificateDer::from_pem_file(&files.cert).unwrap();
        fs::rename(files.cert, to.join(format!("{name}.pem"))).unwrap();
        der
    }

    fn client(&self) -> Arc<ClientConfig> {
        client(&self.ca.certificate())
    }

    /// Waits until a client is shown `expected`.
    #[track_caller]
    fn until_shown(&self, web: SocketAddr, expected: &CertificateDer<'_>) {
        let begun = Instant::now();
        while self.shown(web) != *expected {
            assert!(begun.elapsed() < PATIENCE, "the new certificate is not used\n{}", self.folder.log());
            std::thread::yield_now();
        }
    }

    #[track_caller]
    fn until_told(&self, text: &str) {
        let begun = Instant::now();
        while !self.folder.log().contains(text) {
            assert!(begun.elapsed() < PATIENCE, "{text} is not told\n{}", self.folder.log());
            std::thread::yield_now();
        }
    }

    /// The certificate that a client is shown.
    fn shown(&self, web: SocketAddr) -> CertificateDer<'static> {
        let mut tls = connect(&self.client(), web, "localhost").unwrap();
        echo(&mut tls, "hello");
        tls.conn.peer_certificates().unwrap()[0].clone()
    }
}

fn client(authority: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

#[test]
fn a_renewed_file_is_used_by_new_handshakes_alone() {
    let rig = Rig::new();
    let first = rig.mint("leaf", ".");
    let instance = rig.start("cert = \"leaf.pem\"\nkey = \"leaf.key\"");
    let web = instance.address("web");
    let mut kept = connect(&rig.client(), web, "localhost").unwrap();
    echo(&mut kept, "one");
    assert_eq!(rig.shown(web), first);
    // Twice: what is watched must still be watched afterwards.
    for _ in 0..2 {
        let renewed = rig.mint("leaf", ".");
        rig.until_shown(web, &renewed);
    }
    echo(&mut kept, "two");
    rig.until_told("certificates changed");
}

#[test]
fn a_file_that_is_half_written_leaves_the_old_one_and_is_told_once() {
    let rig = Rig::new();
    let first = rig.mint("leaf", ".");
    let instance = rig.start("cert = \"leaf.pem\"\nkey = \"leaf.key\"");
    let web = instance.address("web");
    let path = rig.folder.path().join("leaf.pem");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    rig.until_told("cut off");
    assert_eq!(rig.shown(web), first);
    // Other files are read on, and the fault is not told again.
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let renewed = rig.mint("leaf", ".");
    rig.until_shown(web, &renewed);
    assert_eq!(rig.folder.log().matches("cut off").count(), 1, "{}", rig.folder.log());
}

/// A revocation list that can be read and that no handshake can use: version 1.
const OLD_LIST: &str = "-----BEGIN X509 CRL-----
MFIwOTAKBggqhkjOPQQDAjANMQswCQYDVQQDDAJDQRcNMjYwMTAxMDAwMDAwWhcN
NDAwMTAxMDAwMDAwWjAKBggqhkjOPQQDAgMJADAGAgEBAgEB
-----END X509 CRL-----
";

#[test]
fn a_list_that_cannot_be_used_keeps_no_certificate_from_being_renewed() {
    let rig = Rig::new();
    let first = rig.mint("leaf", ".");
    rig.ca.revocation_list("list", 2090).unwrap();
    let instance = rig.start(&format!(
        "cert = \"leaf.pem\"\nkey = \"leaf.key\"\n[[route]]\nhost = \"localhost\"\nserver = \"{}\"\n\
         client_auth = {{ mode = \"optional\", ca = \"ca.pem\", crl = \"list.crl\" }}",
        rig.backend.address()
    ));
    let web = instance.address("web");
    assert_eq!(rig.shown(web), first);
    fs::write(rig.folder.path().join("list.crl"), OLD_LIST).unwrap();
    rig.until_told("version 1");
    let renewed = rig.mint("leaf", ".");
    rig.until_shown(web, &renewed);
    assert!(!rig.folder.log().contains("stay as they were"), "{}", rig.folder.log());
}

#[test]
fn pairs_come_and_go_in_a_folder() {
    let rig = Rig::new();
    fs::create_dir(rig.folder.path().join("certs.d")).unwrap();
    let first = rig.mint("first", "certs.d");
    let instance = rig.start("directory = \"certs.d\"");
    let web = instance.address("web");
    assert_eq!(rig.shown(web), first);
    // As certbot does it: a folder of links into an archive, switched one by one.
    let root = rig.folder.path().to_owned();
    fs::create_dir(root.join("archive")).unwrap();
    let second = rig.mint("two", "archive");
    fs::create_dir(root.join("certs.d/live")).unwrap();
    symlink(root.join("archive/two.key"), root.join("certs.d/live/privkey.pem")).unwrap();
    symlink(root.join("archive/two.pem"), root.join("certs.d/live/fullchain.pem")).unwrap();
    fs::remove_file(root.join("certs.d/first.pem")).unwrap();
    fs::remove_file(root.join("certs.d/first.key")).unwrap();
    rig.until_shown(web, &second);
    let third = rig.mint("three", "archive");
    for (link, target) in [("privkey.pem", "archive/three.key"), ("fullchain.pem", "archive/three.pem")] {
        symlink(root.join(target), root.join("next")).unwrap();
        fs::rename(root.join("next"), root.join("certs.d/live").join(link)).unwrap();
    }
    rig.until_shown(web, &third);
    // A broken pair keeps nobody from being served, also at a start.
    fs::write(root.join("certs.d/broken.pem"), "no PEM").unwrap();
    rig.until_told("broken.pem");
    assert_eq!(rig.shown(web), third);
    drop(instance);
    let instance = rig.folder.start().unwrap();
    assert_eq!(rig.shown(instance.address("web")), third);
    assert!(rig.folder.log().contains("left out"), "{}", rig.folder.log());
}

#[test]
fn the_authorities_of_clients_are_read_again() {
    let rig = Rig::new();
    let other = tempfile::tempdir().unwrap();
    let others = Ca::new(other.path()).unwrap();
    rig.mint("leaf", ".");
    fs::copy(rig.ca.certificate(), rig.folder.path().join("clients.pem")).unwrap();
    rig.folder.write(&format!(
        "{WEB}[[certificate]]\ncert = \"leaf.pem\"\nkey = \"leaf.key\"\n[[route]]\nserver = \"{}\"\n\
         client_auth = {{ ca = \"clients.pem\" }}\n",
        rig.backend.address()
    ));
    let instance = rig.folder.start().unwrap();
    let web = instance.address("web");
    let files = others.issue("client", &Leaf::client("alice", &[])).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(rig.ca.certificate()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_file(&files.cert).unwrap()];
    let key = rustls::pki_types::PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let client = Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap());
    let admitted = || {
        use std::io::{Read, Write};
        let Ok(mut tls) = connect(&client, web, "localhost") else { return false };
        let mut back = [0; 2];
        tls.write_all(b"hi").is_ok() && tls.read_exact(&mut back).is_ok()
    };
    assert!(!admitted(), "nobody knows this authority");
    let next = rig.folder.path().join("next.pem");
    fs::copy(others.certificate(), &next).unwrap();
    fs::rename(&next, rig.folder.path().join("clients.pem")).unwrap();
    let begun = Instant::now();
    while !admitted() {
        assert!(begun.elapsed() < PATIENCE, "{}", rig.folder.log());
        std::thread::yield_now();
    }
}
