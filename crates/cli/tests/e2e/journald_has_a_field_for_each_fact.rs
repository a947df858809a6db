//! A real journald takes the events of a real Offramp, and journalctl finds them by their fields.
//!
//! journald serves one machine, so it runs in a namespace of mounts, with `/run` and `/var/log` of its own. That
//! needs root; the test says so and is skipped without.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::require;
use serde_json::Value;

use crate::support::instance::{CERTIFICATE, Home, ask};
use crate::support::skipped::{is_root_or_skipped, skipped};

/// Starts journald and Offramp, makes two requests, and prints what journalctl finds of one host.
const SCRIPT: &str = "
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mkdir -p /run/systemd/journal
/lib/systemd/systemd-journald >journald.said 2>&1 &
journald=$!
until [ -S /run/systemd/journal/socket ]; do kill -0 $journald; sleep 0.02; done
$1 run --config offramp.toml 2>offramp.said &
offramp=$!
until [ -S tls.sock ]; do kill -0 $offramp; sleep 0.02; done
for host in git www; do
    $3 -q -sS --noproxy '*' --unix-socket tls.sock --cacert $2 -o body -A 'an agent' \"https://$host.example.org/some/page?q=1\"
done
kill -TERM $offramp
wait $offramp
journalctl --sync
journalctl OFFRAMP_HOST=git.example.org -o json --all --no-pager
kill $journald
";

#[test]
fn journalctl_finds_requests_by_host() {
    if !is_root_or_skipped("only root may mount") {
        return;
    }
    if !Path::new("/lib/systemd/systemd-journald").exists() {
        return skipped("there is no journald");
    }
    let home = Home::new();
    home.configure(&format!(
        "{CERTIFICATE}[access_log]\noutput = \"journald\"\n[[listener]]\naddress = \"unix:tls.sock\"\nmode = \"http\"\n\
         [[route]]\nhost = \"*.example.org\"\nrespond = {{ status = 404, body = \"nothing here\" }}\n"
    ));
    let mut unshare = Command::new(require("unshare", "util-linux"));
    unshare
        .args(["-m", "sh", "-euc", SCRIPT, "sh", env!("CARGO_BIN_EXE_offramp")])
        .arg(home.ca.certificate())
        .arg(require("curl", "curl"));
    unshare.current_dir(home.path());
    let output = ask(unshare, b"", Duration::from_secs(60));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let said = std::fs::read_to_string(home.file("offramp.said")).unwrap_or_default();
    assert!(output.status.success(), "{out}{err}{said}");
    let found: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), 1, "{out}");
    for (field, value) in [
        ("OFFRAMP_HOST", "git.example.org"),
        ("OFFRAMP_SNI", "git.example.org"),
        ("OFFRAMP_METHOD", "GET"),
        ("OFFRAMP_STATUS", "404"),
        ("OFFRAMP_USER_AGENT", "an agent"),
        ("SYSLOG_IDENTIFIER", "offramp"),
        ("PRIORITY", "6"),
    ] {
        assert_eq!(found[0][field], value, "{field} in {}", found[0]);
    }
    let duration = found[0]["OFFRAMP_DURATION_US"].as_str().unwrap_or_default();
    assert!(duration.parse::<u64>().is_ok_and(|duration| duration > 0), "{}", found[0]);
}
