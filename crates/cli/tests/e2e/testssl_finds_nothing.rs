//! testssl.sh finds nothing above LOW: 50 seconds for each look, most of which it waits.
//!
//! It looks at protocols, kinds of suites, forward secrecy, the server's preferences and certificate, and every
//! vulnerability that it knows. What is left out: single suites and simulated clients, which take minutes and say
//! the same again; headers of HTTP, which are the application's.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use offramp_testkit::process::require;
use serde_json::Value;

use crate::support::instance::{Home, LISTENER, PATIENCE, ask};

/// Mints a certificate as public authorities issue it: for 90 days, and with a place for revocations.
fn mint(home: &Home) {
    let run = |arguments: &str| {
        let mut command = Command::new(require("openssl", "openssl"));
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        command.args(arguments.split(' ')).current_dir(home.path());
        let output = ask(command, b"", PATIENCE);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("-subj /CN=Authority -days 3650 -out authority.pem -keyout authority.key");
    run(
        "-CA authority.pem -CAkey authority.key -subj /CN=localhost -days 90 -out public.pem -keyout public.key \
         -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost \
         -addext extendedKeyUsage=serverAuth -addext keyUsage=critical,digitalSignature \
         -addext crlDistributionPoints=URI:http://localhost/authority.crl",
    );
}

#[test]
fn testssl_finds_nothing_above_low() {
    let finding = scan("");
    for id in ["heartbleed", "CCS", "ROBOT", "BREACH", "LUCKY13"] {
        assert!(finding(id).starts_with("not vulnerable"), "{id}: {}", finding(id));
    }
}

/// Nor where clients may show a certificate, or must: testssl has none.
#[test]
fn testssl_finds_nothing_above_low_where_clients_show_certificates() {
    let look = |mode: &str| {
        let finding = scan(&format!("client_auth = {{ mode = \"{mode}\", ca = \"authority.pem\" }}\n"));
        for id in ["heartbleed", "CCS", "ROBOT", "LUCKY13"] {
            assert!(finding(id).starts_with("not vulnerable"), "{mode} {id}: {}", finding(id));
        }
    };
    // Most of a look is waiting, so that two take as long as one.
    thread::scope(|scope| {
        scope.spawn(|| look("optional"));
        scope.spawn(|| look("required"));
    });
}

/// Looks at an Offramp whose route has this line, too: there is nothing above LOW. Gives what was found, by its id.
fn scan(line: &str) -> impl Fn(&str) -> String + use<> {
    let home = Home::new();
    mint(&home);
    let instance = home.run(&format!(
        "{LISTENER}mode = \"http\"\n[[certificate]]\ncert = \"public.pem\"\nkey = \"public.key\"\n\
         [[route]]\nrespond = {{ status = 200, body = \"here\" }}\n{line}"
    ));
    let mut testssl = Command::new(require("testssl", "testssl.sh"));
    testssl.args(["--quiet", "--color", "0", "--warnings", "off", "--jsonfile", "found.json"]);
    testssl.args(["--add-ca", "authority.pem", "--ip", "127.0.0.1", "--nodns", "none"]);
    testssl.args([
        "--protocols",
        "--std",
        "--fs",
        "--server-preference",
        "--server-defaults",
        "--vulnerable",
    ]);
    testssl.arg(format!("https://localhost:{}", instance.address().port())).current_dir(instance.home.path());
    let output = ask(testssl, b"", Duration::from_secs(280));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = fs::read_to_string(instance.home.file("found.json")).unwrap_or_else(|_| panic!("{said}"));
    let found: Vec<Value> = serde_json::from_str(&found).unwrap();
    let severity = |one: &Value| one["severity"].as_str().unwrap_or_default().to_owned();
    // WARN is a check that testssl could not make. That of resumption closes its input at once, and so may leave
    // before the ticket of TLS 1.3 has come; `openssl_resumes_sessions` waits for it.
    // `engine_problem` is about the client: its OpenSSL has no GOST.
    // Two more need a request, which nobody without a certificate can make where one is required.
    let unasked = |one: &Value| {
        let finding = one["finding"].as_str().unwrap_or_default();
        line.contains("required") && finding.starts_with("client x509-based authentication prevents this")
    };
    let unmade = |one: &Value| {
        let is_ours = one["id"] == "sessionresumption_ticket" || one["id"] == "engine_problem";
        severity(one) == "WARN" && (is_ours || unasked(one))
    };
    // It cannot tell what is spoken behind a handshake that it cannot make.
    let unknown = |one: &Value| one["id"] == "service" && severity(one) == "DEBUG";
    let harmless =
        |one: &Value| ["OK", "INFO", "LOW"].contains(&&*severity(one)) || unmade(one) || unknown(one);
    let bad: Vec<_> = found.iter().filter(|one| !harmless(one)).collect();
    assert!(bad.is_empty(), "{bad:#?}\n{said}");
    // It did look.
    let finding = move |id: &str| {
        let one = found.iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("no {id}: {said}"));
        one["finding"].as_str().unwrap_or_default().to_owned()
    };
    for id in ["SSLv2", "SSLv3", "TLS1", "TLS1_1"] {
        assert_eq!(finding(id), "not offered", "{id}");
    }
    assert!(finding("TLS1_3").starts_with("offered") && finding("cert_chain_of_trust") == "passed.");
    instance.stop();
    finding
}
