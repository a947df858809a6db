//! Runs in a network namespace, where the machine lets one be made.

use std::fs::read_to_string;
use std::process::Command;

use crate::short_run::{installed_peer, interrupt};
use crate::{bench, text};

const SETTING: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// A congestion control that this machine does not use, though it could: every kernel has `reno`, and
/// nearly every one `cubic`. None where no namespace can be made, which takes root.
fn another() -> Option<&'static str> {
    let made = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no network namespace can be made here");
        return None;
    }
    Some(if read_to_string(SETTING).ok()?.trim() == "reno" { "cubic" } else { "reno" })
}

#[test]
fn a_run_has_the_congestion_control_it_asks_for_and_the_machine_keeps_its_own() {
    let Some((wanted, peer)) = another().zip(installed_peer()) else { return };
    let machine = read_to_string(SETTING).unwrap();
    let dir = tempfile::tempdir().unwrap();
    // A gate that nothing can hold: the exit code must come through all the programs between.
    let gate = "[[gate]]\ncase = 'relay-small'\nmetric = 'cpu_us'\nstrict = 1\n";
    std::fs::write(dir.path().join("gates.toml"), gate).unwrap();
    let args = format!(
        "run --congestion {wanted} --contestants {peer} --scenarios relay-small --rounds 1 --seconds 0.1 \
         --gates gates.toml --gate strict --out results"
    );
    let output = bench(dir.path(), &args);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let report = read_to_string(dir.path().join("results/report.md")).unwrap();
    let machine = machine.trim();
    let clause = format!(
        "TCP congestion control {wanted}, in a network namespace of its own (the machine's is {machine})"
    );
    assert!(report.contains(&clause), "{report}");
    let summary = read_to_string(dir.path().join("results/summary.json")).unwrap();
    assert!(summary.contains(&format!("\"congestion\": \"{wanted}\"")), "{summary}");
    assert!(summary.contains("cpu_us"), "{summary}");
    assert_eq!(read_to_string(SETTING).unwrap().trim(), machine);
}

#[test]
fn an_interrupt_stops_everything_in_a_namespace_too() {
    if let Some(wanted) = another() {
        interrupt(wanted);
    }
}
