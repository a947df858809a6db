//! Every kind of certificate that must not be believed, made with `openssl ca`, shown by clients and by servers: each
//! has its alert and its cause, and the event says whose certificate it is.

use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{Process, require};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::client_pki::{openssl, pin};
use crate::support::http_curl::get;
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, ask, cause, text};
use crate::support::nginx::nginx;
use crate::support::openssl::{echo, refused};

/// What `openssl ca` issues, and for whom.
const CONFIGURATION: &str = "\
[ca]
default_ca = root
[root]
certificate = root.pem
private_key = root.key
database = index.txt
rand_serial = yes
crlnumber = crlnumber
new_certs_dir = .
default_md = sha256
default_days = 30
default_crl_days = 30
unique_subject = no
policy = anything
[middle]
certificate = middle.pem
private_key = middle.key
database = middle.txt
rand_serial = yes
new_certs_dir = .
default_md = sha256
default_days = 30
unique_subject = no
policy = anything
[anything]
commonName = supplied
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
[clients]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = clientAuth
[servers]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost
[others]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:other.test
";

/// Dates of a certificate, as `openssl ca` takes them.
const PAST: [&str; 4] = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"];
const FUTURE: [&str; 4] = ["-startdate", "21000101000000Z", "-enddate", "21010101000000Z"];

/// A public key infrastructure in a folder: `root.pem`, `middle.pem` below it, `stranger.pem` that nobody knows, and
/// certificates of this kind (a section of the configuration), each under the name of what is wrong with it.
fn make(home: &Path, kind: &str, wrong_kind: &str) {
    std::fs::write(home.join("pki.cnf"), CONFIGURATION).unwrap();
    for (file, content) in [("index.txt", ""), ("middle.txt", ""), ("crlnumber", "01\n")] {
        std::fs::write(home.join(file), content).unwrap();
    }
    for name in ["root", "stranger"] {
        sign_itself(home, name, &[]);
    }
    issue(home, "middle", "root", "authority", &[]);
    for (name, by, kind, dates) in [
        ("good", "root", kind, &[][..]),
        ("expired", "root", kind, &PAST),
        ("not-yet-valid", "root", kind, &FUTURE),
        ("wrong-purpose", "root", wrong_kind, &[]),
        ("revoked", "root", kind, &[]),
        ("chainless", "middle", kind, &[]),
    ] {
        issue(home, name, by, kind, dates);
    }
    let leaf = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=DNS:localhost"];
    sign_itself(home, "self-signed", &leaf);
    // Another authority with other keys.
    request(home, "untrusted");
    let sign = "x509 -req -in untrusted.csr -days 30 -CA stranger.pem -CAkey stranger.key -CAcreateserial \
                -out untrusted.pem -extfile pki.cnf -extensions";
    openssl(home, &sign.split(' ').filter(|word| !word.is_empty()).chain([kind]).collect::<Vec<_>>());
    openssl(home, &["ca", "-config", "pki.cnf", "-revoke", "revoked.pem"]);
    openssl(home, &["ca", "-config", "pki.cnf", "-gencrl", "-out", "crl.pem"]);
    let chain = ["chainless.pem", "middle.pem"].map(|file| std::fs::read(home.join(file)).unwrap()).concat();
    std::fs::write(home.join("chained.pem"), chain).unwrap();
    std::fs::copy(home.join("chainless.key"), home.join("chained.key")).unwrap();
}

/// The arguments that make a new key and a certificate, or the request for one, for this common name.
fn new(name: &str) -> Vec<String> {
    let line =
        format!("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -subj /CN={name}");
    line.split(' ').map(str::to_owned).collect()
}

fn sign_itself(home: &Path, name: &str, more: &[&str]) {
    let (new, out) = (new(name), format!("{name}.pem"));
    let new: Vec<&str> = new.iter().map(String::as_str).collect();
    openssl(home, &[&new[..], &["-x509", "-days", "30", "-out", &out], more].concat());
}

fn request(home: &Path, name: &str) {
    let (new, out) = (new(name), format!("{name}.csr"));
    let new: Vec<&str> = new.iter().map(String::as_str).collect();
    openssl(home, &[&new[..], &["-out", &out]].concat());
}

fn issue(home: &Path, name: &str, by: &str, extensions: &str, dates: &[&str]) {
    request(home, name);
    let (request, out) = (format!("{name}.csr"), format!("{name}.pem"));
    let sign = ["ca", "-batch", "-notext", "-config", "pki.cnf", "-name", by, "-extensions", extensions];
    openssl(home, &[&sign[..], &["-in", &request, "-out", &out], dates].concat());
}

/// What is wrong with a client's certificate; cause and alert of the refusal.
const CLIENTS: [(&str, &str, &str); 7] = [
    ("expired", "client_certificate_expired", "certificate_expired"),
    ("not-yet-valid", "client_certificate_not_yet_valid", "certificate_expired"),
    ("wrong-purpose", "client_certificate_wrong_purpose", "unsupported_certificate"),
    ("revoked", "client_certificate_revoked", "certificate_revoked"),
    ("self-signed", "client_certificate_unknown_issuer", "unknown_ca"),
    ("untrusted", "client_certificate_unknown_issuer", "unknown_ca"),
    ("chainless", "client_certificate_unknown_issuer", "unknown_ca"),
];

#[test]
fn clients_are_refused_with_alert_and_cause() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    make(home.path(), "clients", "servers");
    let instance = home.run(&format!(
        "{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\nclient_auth = {{ ca = \"root.pem\", crl = \"crl.pem\" }}\n",
        app.address()
    ));
    for version in ["-tls1_2", "-tls1_3"] {
        for (name, expected, alert) in CLIENTS {
            let [cert, key] = ["pem", "key"].map(|end| format!("{name}.{end}"));
            let seen = instance.events().len();
            refused(&instance, &[version, "-cert", &cert, "-key", &key]);
            let event =
                instance.until("the event of the refusal", || instance.events().into_iter().nth(seen));
            let said = (cause(&event), text(&event, "alert_sent"), text(&event, "fault"));
            assert_eq!(said, (expected, alert, "client"), "{version} {name}: {event}");
            assert_eq!(text(&event, "client_cn"), name, "{event}");
            let whose = text(&event, "detail");
            assert!(whose.starts_with(&format!("CN={name}")) && whose.contains("; issuer CN="), "{event}");
        }
        let seen = instance.events().len();
        echo(&instance, &[version, "-cert", "good.pem", "-key", "good.key"]);
        echo(
            &instance,
            &[version, "-cert", "chainless.pem", "-key", "chainless.key", "-cert_chain", "middle.pem"],
        );
        instance.events_of(seen + 2);
    }
    assert_eq!(app.accepted(), 4);
    instance.stop();
}

/// What is wrong with a server's certificate; cause and alert of the refusal.
const SERVERS: [(&str, &str, &str); 9] = [
    ("expired", "server_certificate_expired", "certificate_expired"),
    ("not-yet-valid", "server_certificate_not_yet_valid", "certificate_expired"),
    ("wrong-host", "server_certificate_wrong_name", "bad_certificate"),
    ("wrong-purpose", "server_certificate_wrong_purpose", "unsupported_certificate"),
    ("revoked", "server_certificate_revoked", "certificate_revoked"),
    ("self-signed", "server_certificate_untrusted", "unknown_ca"),
    ("untrusted", "server_certificate_untrusted", "unknown_ca"),
    ("chainless", "server_certificate_untrusted", "unknown_ca"),
    ("wrong-pin", "server_certificate_not_pinned", "access_denied"),
];

/// An nginx that shows each certificate on a socket of its name.
fn servers(home: &Home) -> Process {
    issue(home.path(), "wrong-host", "root", "others", &[]);
    let shown = ["good", "chained", "wrong-host"].into_iter();
    let names: Vec<&str> = shown.chain(CLIENTS.map(|(name, ..)| name)).collect();
    let servers = names.iter().map(|name| {
        format!(
            "server {{ listen unix:{name}.sock ssl; ssl_certificate {name}.pem; \
             ssl_certificate_key {name}.key; location / {{ return 200 \"{name} is good\"; }} }}\n"
        )
    });
    nginx(home, &servers.collect::<String>(), &format!("{}.sock", names.last().unwrap()))
}

/// The socket, and what checks its certificate.
fn backend(home: &Home, name: &str) -> String {
    let (socket, tls) = match name {
        "wrong-pin" => ("good", format!("pin = \"sha256/{}\"", pin(home.path(), "chainless.pem"))),
        "right-pin" => ("expired", format!("pin = \"sha256/{}\"", pin(home.path(), "expired.pem"))),
        name => (name, "verify = \"root.pem\", crl = \"crl.pem\", name = \"localhost\"".to_owned()),
    };
    format!(
        "[[route]]\nhost = \"{name}.example.org\"\nbackend = \"{name}\"\n[backend.{name}]\n\
         servers = \"unix:{socket}.sock\"\ntls = {{ {tls} }}\n"
    )
}

#[test]
fn servers_are_refused_with_alert_and_cause() {
    let home = Home::new();
    make(home.path(), "servers", "clients");
    let _nginx = servers(&home);
    let http = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n";
    let tcp = "[[listener]]\nname = \"tcp\"\naddress = \"127.0.0.1:0\"\n";
    let bad = SERVERS.map(|(name, ..)| backend(&home, name)).concat();
    let good = ["good", "chained", "right-pin"].map(|name| backend(&home, name)).concat();
    let instance = home.run(&format!("{CERTIFICATE}{http}{tcp}{bad}{good}"));
    for name in ["good", "chained", "right-pin"] {
        let answer = get(&instance, &[], &format!("https://{name}.example.org/"));
        assert_eq!(answer.status(), 200, "{name}: {answer:?}\n{}", instance.process.transcript());
    }
    for (name, expected, alert) in SERVERS {
        let host = format!("{name}.example.org");
        assert_eq!(get(&instance, &[], &format!("https://{host}/")).status(), 502, "{name}");
        connect(&instance, &host);
        let is_of = |event: &serde_json::Value| [text(event, "host"), text(event, "sni")].contains(&&*host);
        let of_it = || instance.events().into_iter().filter(is_of).collect::<Vec<_>>();
        let events = instance.until("two events", || Some(of_it()).filter(|events| events.len() >= 2));
        for event in events {
            // In mode `tcp` the client has got an alert, too, and the event of its connection tells of that one.
            let alert = if event["event"] == "request" { alert } else { "internal_error" };
            let said = (cause(&event), text(&event, "alert_sent"), text(&event, "fault"));
            assert_eq!(said, (expected, alert, "server"), "{name}: {event}");
            let whose = if name.contains("pin") { "CN=good" } else { name };
            assert!(text(&event, "detail").contains(whose), "{name}: {event}");
        }
    }
    instance.stop();
}

/// Connects in mode `tcp`, and waits for the end.
fn connect(instance: &Instance, host: &str) {
    let mut command = Command::new(require("openssl", "openssl"));
    command.args([
        "s_client",
        "-quiet",
        "-connect",
        &instance.address_of("tcp").to_string(),
        "-servername",
        host,
    ]);
    ask(command, b"GET / HTTP/1.0\r\n\r\n", PATIENCE);
}
