//! Packages of npm for tests, each in a folder beside the build: installed once, used again by later runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use offramp_testkit::process::require;

use crate::support::venv::succeed;

/// A folder whose `node_modules` has this version of a package; `NODE_PATH` of whoever uses it.
///
/// # Panics
/// If it cannot be made, with what is missing.
pub(crate) fn modules(package: &str, version: &str) -> PathBuf {
    /// One at a time, whichever test comes first.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock();
    let name = format!("{}-{version}", package.replace(['@', '/'], "_"));
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !place.join("complete").exists() {
        // What an interrupted run may have left is of no use.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        let mut npm = Command::new(require("npm", "npm"));
        npm.args([
            "install",
            "--silent",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
        ]);
        npm.arg(&place).arg(format!("{package}@{version}"));
        succeed(npm, "it comes from the npm registry, which must be reachable once");
        fs::write(place.join("complete"), version).unwrap();
    }
    place.join("node_modules")
}
