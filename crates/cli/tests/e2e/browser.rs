//! A browser that trusts the local CA sees the demo's page.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, Signal, Source, require, temp_dir};

use crate::offramp::{offramp, stderr, stdout};

const LIFE: Duration = Duration::from_secs(180);
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn chromium_shows_the_page_and_names_its_key_exchange() {
    let home = temp_dir();
    let home = home.path();
    let arguments = ["demo", "--listen", "127.0.0.1:0", "--state-dir", "state"];
    let demo = Process::start(offramp(home, &arguments), LIFE).unwrap();
    demo.wait_for(&Ready::Line("  try  ".to_owned()), PATIENCE).unwrap();
    let lines = demo.lines(Source::Stderr);
    let url = lines.iter().find_map(|line| line.split_whitespace().find(|word| word.starts_with("https://")));
    trust(home, &home.join("state/ca/ca.pem"));

    let mut chromium = Command::new(require("chromium", "chromium"));
    chromium.env("HOME", home).current_dir(home);
    // Containers have neither the namespaces nor the shared memory that it would like.
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    chromium.args(["--no-first-run", "--disable-background-networking", "--dump-dom", url.unwrap()]);
    let browser = Process::start(chromium, LIFE).unwrap();
    assert!(browser.wait(PATIENCE).unwrap().success(), "{}", browser.transcript());
    let page = browser.lines(Source::Stdout).join("\n");
    for part in ["TLS is off here", "TLSv1.3", "X25519MLKEM768", "Chromium"] {
        assert!(page.contains(part), "{part} in {page}\n{}", browser.transcript());
    }
    demo.signal(Signal::TERM).unwrap();
    assert_eq!(demo.wait(PATIENCE).unwrap().code(), Some(0));
}

/// Does what `offramp ca` says for Chromium.
fn trust(home: &Path, ca: &Path) {
    let database = home.join(".pki/nssdb");
    std::fs::create_dir_all(&database).unwrap();
    let database = format!("sql:{}", database.display());
    let certutil = |arguments: &[&str]| {
        let mut command = Command::new(require("certutil", "libnss3-tools"));
        let output = command.args(["-d", &database]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    };
    certutil(&["-N", "--empty-password"]);
    certutil(&["-A", "-t", "C,,", "-n", "Offramp Local CA", "-i", &ca.display().to_string()]);
}
