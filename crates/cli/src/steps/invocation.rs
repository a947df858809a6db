//! The run of a program, as this user or another.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::{Account, find_program};

/// A run of a program.
// Who makes one names what is special, and takes the rest from the default.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub(crate) struct Invocation {
    /// Program and arguments.
    pub(crate) words: Vec<String>,
    /// The user that it runs as, if that is another.
    pub(crate) user: Option<Account>,
}

impl Invocation {
    /// Runs the program to its end.
    ///
    /// # Errors
    /// It cannot be started, or fails; with the last lines of what it said.
    pub(crate) fn perform(&self) -> Result<(), String> {
        let output = self.output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n      ");
        let ends = match output.status.code() {
            Some(code) => format!("exit code {code}"),
            None => "ended by a signal".to_owned(),
        };
        Err(format!("`{}`: {ends}\n      {last}", self.words.join(" ")).trim_end().to_owned())
    }

    /// Runs the program, and returns what it said.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn output(&self) -> Result<Output, String> {
        let Some((name, arguments)) = self.words.split_first() else { return Err("no program".to_owned()) };
        let own = Some(PathBuf::from(name)).filter(|path| path.is_absolute());
        let Some(program) = own.or_else(|| find_program(name)) else {
            return Err(format!("the program `{name}` is not installed"));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        if let Some(user) = &self.user {
            // The user's own environment: a program must not take root's settings for its own.
            command.env("HOME", &user.home).env("USER", &user.name).env_remove("XDG_RUNTIME_DIR");
            command.uid(user.uid).gid(user.gid).current_dir("/");
        }
        // Messages of the program are parsed, or shown among those of Offramp, which are English.
        command.env("LC_ALL", "C");
        command.output().map_err(|error| format!("cannot start `{name}`: {error}"))
    }
}

/// Lines of a failed program that are shown.
const LINES: usize = 5;
