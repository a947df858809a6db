//! The shell scripts of the repository: those of the Makefile, of packages, and of installations.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use offramp_testkit::process::require;

/// The files in `folder` and below it that begin as scripts of the shell.
fn scripts_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { scripts_below(&path) } else { vec![path] });
    files.filter(|path| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!/bin/sh\n"))).collect()
}

#[test]
fn shellcheck_finds_no_mistake() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scripts = ["scripts", "deploy"].map(|folder| scripts_below(&root.join(folder))).concat();
    for name in ["scripts/package", "scripts/package.d/20-deb", "deploy/debian/postinst"] {
        assert!(scripts.contains(&root.join(name)), "{name} in {scripts:?}");
    }
    let mut command = Command::new(require("shellcheck", "shellcheck"));
    let checked = command.args(["--severity=warning", "--shell=sh"]).args(&scripts).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
