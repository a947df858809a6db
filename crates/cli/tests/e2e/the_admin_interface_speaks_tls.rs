//! `[admin]` with a certificate: everything over TLS and with the token, for `offramp ctl`, curl and Grafana.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Command, Output};

use offramp_testkit::ca::{Ca, Key, Leaf};
use offramp_testkit::process::{Source, require, temp_dir};

use crate::support::crowd::{connect, tcp, trusting, until};
use crate::support::instance::{Home, Instance, PATIENCE, ask};
use crate::support::offramp::{output, stderr, stdout};

const TEXT: &str = r#"
[admin]
address = "127.0.0.1:0"
token_file = "token"
certificate = "admin.chain.pem"
key = "admin.key"
[log_store]
url = "sqlite:access.db"
[[listener]]
address = "127.0.0.1:0"
mode = "http"
tls = false
[[route]]
respond = { body = "hello" }
"#;

fn start() -> (Instance, SocketAddr) {
    let home = Home::new();
    home.ca.issue("admin", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    fs::write(home.file("token"), "0123456789abcdef\n").unwrap();
    fs::write(home.file("wrong"), "0123456789abcdeF\n").unwrap();
    let instance = home.run(TEXT);
    let address = instance.until("the log says where", || {
        let lines = instance.process.lines(Source::Stderr);
        let line = lines.iter().find(|line| line.contains(" admin "))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
    });
    (instance, address)
}

fn curl(instance: &Instance, path: &str, address: SocketAddr, token: Option<&str>) -> Output {
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--write-out", "\n%{http_code}"]);
    command.arg("--cacert").arg(instance.home.ca.certificate());
    if let Some(token) = token {
        command.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    command.arg(format!("https://localhost:{}{path}", address.port()));
    ask(command, b"", PATIENCE)
}

#[test]
fn ctl_and_curl_need_the_authority_and_the_token() {
    let (instance, address) = start();
    let home = instance.home.path();
    let ca = instance.home.ca.certificate().display().to_string();
    let admin = format!("https://localhost:{}", address.port());
    let ctl = |ca: &str, token: &str| {
        output(home, &["ctl", "--admin", &admin, "--cacert", ca, "--token-file", token, "log-level", "debug"])
    };
    let done = ctl(&ca, "token");
    assert!(done.status.success(), "{}", stderr(&done));
    let wrong = ctl(&ca, "wrong");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("Authorization: Bearer"), "{}", stderr(&wrong));
    let others = temp_dir();
    let other = Ca::new(others.path()).unwrap().certificate().display().to_string();
    let untrusted = ctl(&other, "token");
    assert_eq!(untrusted.status.code(), Some(1));
    assert!(
        stderr(&untrusted)
            .contains("TLS: the signature of the certificate is not by the issuer that it names"),
        "{}",
        stderr(&untrusted)
    );
    // The token of the configuration is for this machine.
    let watched = output(home, &["ctl", "--admin", &admin, "--cacert", &ca, "history"]);
    assert!(stdout(&watched).contains("by token, from 127.0.0.1:"), "{}", stderr(&watched));
    // By the configuration alone, the name is not known that the certificate is for.
    let unnamed = output(home, &["ctl", "status"]);
    assert_eq!(unnamed.status.code(), Some(2));
    assert!(stderr(&unnamed).contains("--admin https://HOST:PORT"), "{}", stderr(&unnamed));
    for path in ["/v1/status", "/grafana/"] {
        let of = |token| stdout(&curl(&instance, path, address, token));
        assert!(of(Some("0123456789abcdef")).ends_with("\n200"), "{path}: {}", of(Some("0123456789abcdef")));
        assert!(of(Some("0123456789abcdeF")).ends_with("\n401"), "{path}");
        assert!(of(None).ends_with("\n401"), "{path}");
    }
    instance.stop();
}

#[test]
fn whoever_speaks_no_tls_is_let_go_and_told_once() {
    let (instance, address) = start();
    for _ in 0..3 {
        let mut plain = tcp(address).unwrap();
        plain.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut said = Vec::new();
        // A reset is an end, too.
        let _ = plain.read_to_end(&mut said);
        assert!(!said.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&said));
    }
    // One that says nothing has some seconds.
    assert_eq!(tcp(address).unwrap().read(&mut [0]).unwrap(), 0);
    let lines = instance.process.lines(Source::Stderr);
    let told = lines.iter().filter(|line| line.contains("admin: TLS handshake failed"));
    assert_eq!(told.count(), 1, "{lines:?}");
    instance.stop();
}

#[test]
fn a_renewed_certificate_is_used_by_itself() {
    let (instance, address) = start();
    let config = trusting(&instance.home.ca.certificate());
    let shown = || {
        let tls = connect(&config, address, "localhost").unwrap();
        tls.conn.peer_certificates().unwrap()[0].to_vec()
    };
    let before = shown();
    let fresh = instance.home.ca.issue("fresh", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    fs::rename(fresh.key, instance.home.file("admin.key")).unwrap();
    fs::rename(fresh.chain, instance.home.file("admin.chain.pem")).unwrap();
    until("the new certificate", || (shown() != before).then_some(()));
    instance.stop();
}
