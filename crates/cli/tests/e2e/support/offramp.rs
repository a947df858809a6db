//! The binary under test: where it is, and how a test starts it without touching the machine's state.

use std::path::Path;
use std::process::{Command, Output};

/// A command line of the binary, whose state is kept under `home` and which inherits nothing that would
/// change what it does.
pub(crate) fn offramp(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offramp"));
    command.args(arguments).current_dir(home).env("HOME", home).env("XDG_STATE_HOME", home.join("state"));
    command.env("TMPDIR", home).env_remove("NOTIFY_SOCKET").env("COLUMNS", "100").env("NO_COLOR", "1");
    // Not the browsers of the user who runs the tests by sudo.
    command.env("TZ", "UTC").env_remove("SUDO_USER");
    command
}

/// Runs it to its end, for commands that end by themselves.
pub(crate) fn output(home: &Path, arguments: &[&str]) -> Output {
    offramp(home, arguments).output().expect("the binary that cargo has built starts")
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
