//! A browser that trusts the local CA sees the demo's page.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, Signal, Source, require, temp_dir};

use crate::support::offramp::{offramp, stderr};

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
    trust(home);

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

/// Has Chromium trust the local CA, in a database that does not exist yet.
fn trust(home: &Path) {
    let _ = require("certutil", "libnss3-tools");
    let mut command = offramp(home, &["ca", "trust", "--browsers", "--state-dir", "state"]);
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("trusted now"), "{said}");
}
