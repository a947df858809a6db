//! The arrows between the crates of the workspace: to lower tiers only, and few of them outwards.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Packages by tier, as the design has them; a package that is in neither list fails the test.
const TIERS: [&[&str]; 9] = [
    &["offramp-record", "offramp-wire", "offramp-config", "offramp-net"],
    &["offramp-certs", "offramp-http", "offramp-observe", "offramp-import"],
    &["offramp-tls", "offramp-process"],
    &["offramp-upstream"],
    &["offramp-proxy"],
    &["offramp-sources", "offramp-analytics"],
    &["offramp-control"],
    &["offramp-admin"],
    &["offramp"],
];
/// Packages for development, which others may have as a dev-dependency and in no other way.
const DEVELOPMENT: [&str; 2] = ["offramp-testkit", "offramp-bench"];
/// The packages that touch no socket, clock, randomness or log, and what would let them.
const PURE: [&str; 3] = ["offramp-record", "offramp-wire", "offramp-http"];
const IMPURE: [&str; 7] = ["tokio", "rustls", "rand", "libc", "rustix", "log", "tracing"];
/// The only package that may contain `unsafe`.
const UNSAFE: &str = "offramp-net";

struct Package {
    name: String,
    manifest: String,
    /// Name, and whether it is a dev-dependency.
    dependencies: Vec<(String, bool)>,
}

fn workspace() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let dependency = |value: &Value| (text(&value["name"]), value["kind"] == "dev");
    let package = |value: &Value| Package {
        name: text(&value["name"]),
        manifest: text(&value["manifest_path"]),
        dependencies: value["dependencies"].as_array().unwrap().iter().map(dependency).collect(),
    };
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

fn tiers() -> BTreeMap<&'static str, usize> {
    TIERS.iter().enumerate().flat_map(|(tier, names)| names.iter().map(move |&name| (name, tier))).collect()
}

#[test]
fn every_package_has_its_place() {
    let tiers = tiers();
    for package in workspace() {
        let name = package.name.as_str();
        assert!(
            tiers.contains_key(name) || DEVELOPMENT.contains(&name),
            "{name} has no tier: say in docs/architecture.md where it belongs, then here"
        );
    }
}

#[test]
fn arrows_go_down() {
    let tiers = tiers();
    for package in workspace().iter().filter(|package| !DEVELOPMENT.contains(&package.name.as_str())) {
        let from = tiers[package.name.as_str()];
        for (name, dev) in &package.dependencies {
            if DEVELOPMENT.contains(&name.as_str()) {
                assert!(dev, "{} needs {name} outside of its tests", package.name);
            } else if let Some(&to) = tiers.get(name.as_str()) {
                assert!(to < from, "{} (tier {from}) points to {name} (tier {to})", package.name);
            }
        }
    }
}

#[test]
fn the_test_kit_leans_on_no_crate_of_ours() {
    let tiers = tiers();
    let all = workspace();
    let kit = all.iter().find(|package| package.name == "offramp-testkit").unwrap();
    for (name, _) in &kit.dependencies {
        assert!(!tiers.contains_key(name.as_str()), "the kit would test {name} with itself");
    }
}

#[test]
fn pure_packages_stay_pure() {
    for package in workspace().iter().filter(|package| PURE.contains(&package.name.as_str())) {
        for (name, _) in package.dependencies.iter().filter(|(_, dev)| !dev) {
            let impure = IMPURE.contains(&name.as_str());
            assert!(!impure, "{} does no input or output, but depends on {name}", package.name);
        }
    }
}

#[test]
fn only_one_package_may_contain_unsafe() {
    for package in workspace() {
        let manifest = std::fs::read_to_string(&package.manifest).unwrap();
        let lints: Vec<_> = manifest
            .lines()
            .skip_while(|line| *line != "[lints]")
            .skip(1)
            .take_while(|line| !line.starts_with('['))
            .collect();
        let inherits = lints.contains(&"workspace = true");
        assert_eq!(inherits, package.name != UNSAFE, "{} and the lints of the workspace", package.name);
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    assert!(std::fs::read_to_string(root).unwrap().contains("unsafe_code = \"forbid\""));
}
