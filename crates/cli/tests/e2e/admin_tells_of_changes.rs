//! `curl` asks the admin interface on its Unix socket what became of reloads.

use std::process::Command;

use offramp_testkit::process::{Signal, require};
use serde_json::Value;

use crate::support::instance::{Home, Instance, PATIENCE, ask};

/// What the admin interface on `admin.sock` of the home answers.
fn curl(instance: &Instance, path: &str) -> Value {
    let mut command = Command::new(require("curl", "curl"));
    command.args(["-q", "--silent", "--show-error", "--fail-with-body", "--unix-socket", "admin.sock"]);
    command.arg(format!("http://localhost{path}")).current_dir(instance.home.path());
    let output = ask(command, b"", PATIENCE);
    assert!(output.status.success(), "{path}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn curl_learns_what_became_of_reloads() {
    let text = format!("[admin]\naddress = \"unix:admin.sock\"\n{}", Home::one_route("127.0.0.1:9"));
    let instance = Home::new().run(&text);
    let nothing = serde_json::json!({ "version": 1, "changes": [], "closed_connections": [] });
    assert_eq!(curl(&instance, "/v1/changes"), nothing);
    instance.home.configure(&format!("{text}[limits]\nconnections = 77\n"));
    instance.process.signal(Signal::HUP).unwrap();
    let told = instance
        .until("a change", || Some(curl(&instance, "/v1/changes")).filter(|told| told["version"] == 2));
    let change = &told["changes"][0];
    assert_eq!((&change["by"], &change["version"]), (&"SIGHUP".into(), &2.into()), "{change}");
    assert!(change["changes"][0].as_str().unwrap().starts_with("limits.connections: "), "{change}");
    instance.home.configure(&format!("{text}[limits]\nconections = 78\n"));
    instance.process.signal(Signal::HUP).unwrap();
    let told = instance.until("a refusal", || {
        Some(curl(&instance, "/v1/refused")).filter(|told| told["refused"].as_array().unwrap().len() == 1)
    });
    let reason = told["refused"][0]["reasons"][0].as_str().unwrap();
    assert!(reason.contains("offramp.toml:") && reason.contains("conections"), "{reason}");
    assert_eq!(curl(&instance, "/v1/changes")["version"], 2);
    instance.stop();
}
