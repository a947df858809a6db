//! An authority kept by `openssl ca`, with an intermediate, clients, a server, a revocation list and OCSP responses.

use std::path::Path;
use std::process::Command;

use offramp_testkit::process::require;

use crate::support::instance::{PATIENCE, ask};

/// The configuration of `openssl ca`, and of the extensions of what is issued.
const CONFIGURATION: &str = "\
[ca]
default_ca = authority
[authority]
database = index.txt
crlnumber = crlnumber
default_md = sha256
default_crl_days = 30
certificate = oca.pem
private_key = oca.key
[intermediate]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
[server]
subjectAltName = DNS:localhost
[client]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = clientAuth
subjectAltName = URI:spiffe://example.org/ns/prod/sa/bob,IP:192.0.2.7,DNS:bob.svc.test
";

/// Makes in `home` the authority `oca.pem`, an intermediate `middle.pem` below it, and the clients `bob` (of the
/// authority) and `carol` (of the intermediate, which is not in her file), each with `NAME.pem` and `NAME.key`; and
/// `crl.pem`, in which nobody is revoked.
pub(crate) fn make(home: &Path) {
    std::fs::write(home.join("ca.cnf"), CONFIGURATION).unwrap();
    std::fs::write(home.join("index.txt"), "").unwrap();
    std::fs::write(home.join("crlnumber"), "01\n").unwrap();
    let root = ["req", "-x509", "-days", "30", "-subj", "/CN=Offramp test PKI", "-out", "oca.pem"];
    openssl(home, &[&root[..], &new_key("oca.key")].concat());
    issue(home, ("middle", "/CN=Offramp test intermediate"), ("oca", "intermediate"), "100");
    issue(home, ("bob", "/O=Example/OU=dev/OU=ops/CN=bob"), ("oca", "client"), "4711");
    issue(home, ("carol", "/CN=carol"), ("middle", "client"), "4712");
    list(home);
}

/// Issues `web.pem` and `web.key`, for a server called `localhost`.
pub(crate) fn issue_server(home: &Path) {
    issue(home, ("web", "/CN=localhost"), ("oca", "server"), "4720");
    // 4720 is 1270 in hexadecimal.
    std::fs::write(home.join("index.txt"), "V\t401231235959Z\t\t1270\tunknown\t/CN=localhost\n").unwrap();
}

/// Has the authority say of `web.pem` what its list of certificates says, in `web.ocsp`.
pub(crate) fn respond(home: &Path) {
    let authority =
        ["ocsp", "-index", "index.txt", "-CA", "oca.pem", "-rsigner", "oca.pem", "-rkey", "oca.key"];
    let about = ["-issuer", "oca.pem", "-serial", "4720", "-ndays", "1", "-respout", "next.ocsp"];
    openssl(home, &[&authority[..], &about].concat());
    std::fs::rename(home.join("next.ocsp"), home.join("web.ocsp")).unwrap();
}

/// Revokes a client, and writes the list anew, whole or not at all.
pub(crate) fn revoke(home: &Path, client: &str) {
    openssl(home, &["ca", "-config", "ca.cnf", "-revoke", &format!("{client}.pem")]);
    list(home);
}

fn list(home: &Path) {
    openssl(home, &["ca", "-config", "ca.cnf", "-gencrl", "-out", "next.pem"]);
    std::fs::rename(home.join("next.pem"), home.join("crl.pem")).unwrap();
}

fn new_key(file: &str) -> [&str; 7] {
    ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", file]
}

fn issue(home: &Path, (name, subject): (&str, &str), (issuer, extensions): (&str, &str), serial: &str) {
    let [cert, key, request] = ["pem", "key", "csr"].map(|end| format!("{name}.{end}"));
    openssl(home, &[&["req", "-new", "-subj", subject, "-out", &request][..], &new_key(&key)].concat());
    let [by, by_key] = ["pem", "key"].map(|end| format!("{issuer}.{end}"));
    let sign = ["x509", "-req", "-in", &request, "-days", "30", "-CA", &by, "-CAkey", &by_key, "-out", &cert];
    openssl(
        home,
        &[&sign[..], &["-set_serial", serial, "-extfile", "ca.cnf", "-extensions", extensions]].concat(),
    );
}

/// The SHA-256 of a certificate's key in base64, as `pin:sha256/` wants it, by the command that the documentation has.
pub(crate) fn pin(home: &Path, cert: &str) -> String {
    let mut command = Command::new("sh");
    let line = format!(
        "openssl x509 -in {cert} -pubkey -noout | openssl pkey -pubin -outform der | \
         openssl dgst -sha256 -binary | base64"
    );
    command.args(["-c", &line]).current_dir(home);
    let output = ask(command, b"", PATIENCE);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs openssl in the home, which must succeed.
#[track_caller]
pub(crate) fn openssl(home: &Path, arguments: &[&str]) {
    let mut command = Command::new(require("openssl", "openssl"));
    command.args(arguments).current_dir(home);
    let output = ask(command, b"", PATIENCE);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
