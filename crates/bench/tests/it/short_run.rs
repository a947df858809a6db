//! A run from end to end, against a contestant that the test itself brings: a shell script in the place
//! of Offramp that fails, and whichever peer is installed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use offramp_testkit::process::write_program;
use rustix::process::{Pid, Signal, kill_process};

use crate::{bench, text};

/// A peer that is installed here; a machine without any runs the test of the failing contestant alone.
pub(crate) fn installed_peer() -> Option<&'static str> {
    let found =
        |name: &str| ["/usr/sbin", "/usr/bin"].iter().any(|d| std::path::Path::new(d).join(name).exists());
    ["haproxy", "stunnel", "hitch"].into_iter().find(|name| found(name))
}

#[test]
fn a_contestant_that_fails_is_reported_with_its_own_words_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let fake = dir.path().join("offramp");
    write_program(&fake, "#!/bin/sh\necho 'no such listener mode' >&2\nexit 3\n");
    let mut contestants = "offramp".to_owned();
    contestants.extend(installed_peer().map(|peer| format!(",{peer}")));
    let args = format!(
        "run --offramp ./offramp --contestants {contestants} --scenarios relay-small,start --rounds 2 \
         --seconds 0.1 --out results"
    );
    let output = bench(dir.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("no such listener mode"), "{}", text(&output));
    let summary = std::fs::read_to_string(dir.path().join("results/summary.json")).unwrap();
    let raw = std::fs::read_to_string(dir.path().join("results/raw.csv")).unwrap();
    assert!(summary.contains("no such listener mode"), "{summary}");
    if let Some(peer) = installed_peer() {
        for round in 1..=2 {
            assert!(raw.contains(&format!("relay-small,relay-small,{peer},{round},cpu_us,")), "{raw}");
        }
        // The same run beside itself: nothing has changed.
        let compared = bench(dir.path(), "compare results results");
        assert!(
            text(&compared).contains("1.00") && !text(&compared).contains("worse"),
            "{}",
            text(&compared)
        );
    }
    // Offramp has no figure, so that its gate is missed.
    let gate = "[[gate]]\ncase = 'relay-small'\nmetric = 'cpu_us'\nstrict = 1\n";
    std::fs::write(dir.path().join("gates.toml"), gate).unwrap();
    let judged = bench(dir.path(), "gate --run results --gates gates.toml");
    let expected = if installed_peer().is_some() { Some(1) } else { Some(0) };
    assert_eq!(judged.status.code(), expected, "{}", text(&judged));
}

/// Both builds take part in each round, and each fails by its own name.
#[test]
fn another_build_is_measured_beside_the_first() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["first", "second"] {
        write_program(
            &dir.path().join(name),
            &format!("#!/bin/sh\necho 'this is the {name} build' >&2\nexit 3\n"),
        );
    }
    let args = "run --offramp ./first --beside other=./second --contestants offramp --scenarios relay-small --rounds 1 \
                --seconds 0.1 --congestion system --out results";
    let output = bench(dir.path(), args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    for name in ["first", "second"] {
        assert!(text(&output).contains(&format!("this is the {name} build")), "{}", text(&output));
    }
    for (beside, reason) in [
        ("other=./first --beside other=./second", "given twice"),
        ("nginx=./second", "a contestant has this name"),
        ("other=./nowhere", "there is no file ./nowhere"),
        ("./second", "NAME=FILE"),
    ] {
        let output = bench(dir.path(), &args.replace("other=./second", beside));
        assert!(!output.status.success() && text(&output).contains(reason), "{beside}: {}", text(&output));
    }
}

/// Clients that show certificates, an application that speaks TLS, and TLS that is passed through: with a real proxy.
#[test]
fn certificates_of_clients_and_tls_of_the_application_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(
        dir.path(),
        "run --contestants haproxy,nginx --scenarios handshake-mutual,relay-both-sides,passthrough --rounds 1 \
         --seconds 0.1 --congestion system --out results",
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let raw = std::fs::read_to_string(dir.path().join("results/raw.csv")).unwrap();
    for peer in ["haproxy", "nginx"] {
        for case in [
            "handshake-mutual,handshake-mutual",
            "relay-both-sides,relay-both-sides/download",
            "relay-both-sides,relay-both-sides/upload",
            "passthrough,passthrough/download",
            "passthrough,passthrough/upload",
        ] {
            assert!(
                raw.contains(&format!("{case},{peer},1,cpu_us,")),
                "{case} {peer}: {raw}{}",
                text(&output)
            );
        }
    }
}

/// Calls of gRPC with HTTP/2 on both sides, and a load that shares its core with the application.
#[test]
fn calls_of_grpc_and_loads_that_share_their_core_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(
        dir.path(),
        "run --contestants haproxy,nginx --scenarios grpc,relay-small-sparse --rounds 1 --seconds 0.1 \
         --congestion system --out results",
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let raw = std::fs::read_to_string(dir.path().join("results/raw.csv")).unwrap();
    for peer in ["haproxy", "nginx"] {
        for case in ["grpc,grpc/unary", "relay-small-sparse,relay-small-sparse"] {
            let row = |metric: &str| format!("{case},{peer},1,{metric},");
            assert!(raw.contains(&row("cpu_us")), "{case} {peer}: {raw}{}", text(&output));
            assert!(raw.contains(&format!("{}0", row("errors"))), "{case} {peer}: {raw}");
        }
    }
}

#[test]
fn an_interrupt_stops_everything_and_keeps_what_was_measured() {
    interrupt("system");
}

/// Interrupts a run with this congestion control in its second case.
pub(crate) fn interrupt(congestion: &str) {
    let Some(peer) = installed_peer() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_offramp-bench"))
        .args(["run", "--contestants", peer, "--scenarios", "start,relay-small", "--rounds", "1"])
        .args(["--seconds", "60", "--out", "results", "--congestion", congestion])
        .current_dir(dir.path())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    let mut lines = errors.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("relay-small")), "the second case was never announced");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    let summary = std::fs::read_to_string(dir.path().join("results/summary.json")).unwrap();
    assert!(summary.contains("\"partial\": true") && summary.contains("start_resident"), "{summary}");
    // Every program of the run has its files in this directory on its command line, and is gone.
    let mark = dir.path().display().to_string();
    let left: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| line.contains(&mark))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
