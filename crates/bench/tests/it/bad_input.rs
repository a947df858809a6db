//! What wrong arguments get.

use crate::{bench, text};

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [("--scenarios relay-smal", "relay-small"), ("--contestants ngnix", "nginx")];
    for (args, known) in cases {
        let output = bench(dir.path(), &format!("run {args}"));
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(known), "{}", text(&output));
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for args in ["--rounds 0", "--seconds 0", "--seconds nan", "--nice 99"] {
        assert_eq!(bench(dir.path(), &format!("run {args}")).status.code(), Some(2), "{args}");
    }
}

#[test]
fn a_congestion_control_that_cannot_be_had_is_an_error_where_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["no_such_thing", "not/a/name"] {
        let output = bench(dir.path(), &format!("run --congestion {name}"));
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(name), "{}", text(&output));
    }
}

#[test]
fn a_missing_offramp_is_named_with_what_brings_it() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(dir.path(), "run --contestants offramp --offramp nowhere/offramp");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("nowhere/offramp"), "{}", text(&output));
}

#[test]
fn a_gate_without_a_run_and_a_wrong_file_of_gates_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("gates.toml"), "[[gate]]\ncase = 'x'\n").unwrap();
    let output = bench(dir.path(), "gate --gates gates.toml");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("metric"), "{}", text(&output));
    std::fs::write(dir.path().join("gates.toml"), "gate = []\n").unwrap();
    let output = bench(dir.path(), "gate --gates gates.toml");
    assert!(text(&output).contains("no run"), "{}", text(&output));
}

#[test]
fn a_helper_started_by_hand_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(dir.path(), "load");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("helper"), "{}", text(&output));
}
