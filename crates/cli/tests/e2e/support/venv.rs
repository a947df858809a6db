//! Python packages for tests, each in a virtual environment beside the build: made once, used again by
//! later runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use offramp_testkit::process::require;

use crate::support::instance::ask;

/// The Python of an environment that has this version of a package of PyPI.
///
/// # Panics
/// If it cannot be made, with what is missing.
pub(crate) fn python(package: &str, version: &str) -> PathBuf {
    environment(&[(package, version)])
}

/// The same with several packages.
///
/// # Panics
/// If it cannot be made, with what is missing.
pub(crate) fn environment(packages: &[(&str, &str)]) -> PathBuf {
    /// One at a time, whichever test comes first.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock();
    let names: Vec<String> = packages.iter().map(|(name, version)| format!("{name}-{version}")).collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(names.join("+"));
    let python = place.join("bin/python");
    if !place.join("complete").exists() {
        // What an interrupted run may have left is of no use.
        let _ = fs::remove_dir_all(&place);
        let mut venv = Command::new(interpreter());
        venv.args(["-m", "venv"]).arg(&place);
        succeed(venv, "on Debian: apt-get install python3-venv");
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(packages.iter().map(|(name, version)| format!("{name}=={version}")));
        succeed(pip, "it comes from PyPI, which must be reachable once");
        fs::write(place.join("complete"), names.join("\n")).unwrap();
    }
    python
}

/// The Python of the system, which every user can run: one of root's home would leave the environment to root alone.
pub(crate) fn interpreter() -> PathBuf {
    let system = Path::new("/usr/bin/python3");
    if system.exists() { system.to_owned() } else { require("python3", "python3") }
}

/// Runs a program that must succeed, and gives what it prints.
///
/// # Panics
/// If it fails, with all it said and this advice.
pub(crate) fn succeed(command: Command, advice: &str) -> String {
    let what = format!("{command:?}");
    let output = ask(command, b"", Duration::from_secs(120));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}{complaint}\n{advice}");
    said
}
