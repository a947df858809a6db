//! The documents of the repository, where a machine can tell that they are out of date.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use offramp_testkit::process::{require, temp_dir};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn every_outside_crate_that_is_used_has_its_line() {
    let manifest = read("Cargo.toml");
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let names = section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let manifests: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap())
        .collect();
    let used = |name: &&str| {
        let forms = [format!("\n{name}."), format!("\n{name} ")];
        manifests.iter().any(|manifest| forms.iter().any(|form| manifest.contains(form)))
    };
    let documented = read("docs/dependencies.md");
    for name in names.filter(used).filter(|name| !name.starts_with("offramp-")) {
        assert!(
            documented.contains(&format!("`{name}`")),
            "docs/dependencies.md does not say why {name} is there"
        );
    }
}

/// `systemd-analyze security` gives points for what a service could do; 10 is the most.
#[test]
fn the_unit_has_less_than_one_and_a_half_points() {
    let mut command = Command::new(require("systemd-analyze", "systemd"));
    // Fails with more than 14 tenths.
    command.args(["security", "--offline=true", "--no-pager", "--threshold=14"]);
    let output = command.arg(root().join("deploy/systemd/offramp.service")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Overall exposure level"), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
}

#[test]
fn every_crate_is_on_the_map() {
    let map = read("docs/architecture.md");
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(map.contains(&format!("\n| `{name}` | ")), "docs/architecture.md does not list {name}");
    }
}

/// The text of every source and test of the crates.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_tests_that_security_claims_are_there() {
    let modules = read("crates/cli/tests/e2e/main.rs");
    let mut functions = String::new();
    sources(&root().join("crates"), &mut functions);
    let page = read("SECURITY.md");
    let rows = page.lines().filter_map(|line| line.split(" | ").nth(2));
    let named: Vec<&str> = rows.flat_map(|tests| tests.split('`').skip(1).step_by(2)).collect();
    let named: Vec<&str> =
        named.into_iter().filter(|name| name.contains('_') && !name.contains(' ')).collect();
    assert!(named.len() >= 30, "{named:?}");
    for name in named {
        let there = modules.contains(&format!("mod {name};"))
            || functions.contains(&format!("#[test]\nfn {name}("))
            || functions.contains(&format!("#[test]\n    fn {name}("))
            || functions.contains(&format!("    fn {name}(facts in "));
        assert!(there, "SECURITY.md names {name}, which is no test");
    }
}

#[test]
fn the_picture_of_the_readme_shows_the_committed_figures() {
    let python = require("python3", "python3");
    let home = temp_dir();
    let drawn = home.path().join("comparison.svg");
    let status = Command::new(python).arg(root().join("scripts/plot")).arg(&drawn).status().unwrap();
    assert!(status.success(), "{status}");
    let same = fs::read_to_string(drawn).unwrap() == read("docs/benchmarks/comparison.svg");
    assert!(same, "docs/benchmarks/comparison.svg is out of date: run scripts/plot");
}

#[test]
fn every_make_command_that_is_named_is_there() {
    let makefile = read("Makefile");
    let mut named = 0;
    for page in ["README.md", "CONTRIBUTING.md", "docs/architecture.md"] {
        let text = read(page);
        for rest in text.split("`make ").skip(1).chain(text.split("\nmake ").skip(1)) {
            let command = rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap();
            if command.is_empty() {
                continue;
            }
            assert!(makefile.contains(&format!("\n{command}:")), "{page} names make {command}");
            named += 1;
        }
    }
    assert!(named >= 5, "{named}");
}
