//! Programs that Offramp starts: itself for an upgrade, DNS hooks for ACME, and receivers of notifications.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use offramp_config::model::ProgramCommand;
use offramp_net::child::without_ambient_capabilities;

/// Set in the environment of a new process: its standard input is the end of a hand-over.
pub const HANDOVER: &str = "OFFRAMP_HANDOVER";

/// The command line of this program, which an upgrade starts anew.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program on disk.
    pub path: PathBuf,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// Folder of the state directory, where root started this process: the new one may be another user, whose default of
    /// `state_dir` is elsewhere, although the state is here.
    pub state_home: Option<PathBuf>,
}

impl Program {
    /// The command of an upgrade; the caller makes its standard input the end of a hand-over.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).env(HANDOVER, "1");
        if let Some(folder) = &self.state_home {
            command.env("XDG_STATE_HOME", folder);
        }
        // The service manager has given these to one process.
        for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command
    }
}

/// The command of a DNS hook: action, domain without the prefix of the record, and value.
pub fn dns_hook(program: &Path, [action, domain, value]: [&str; 3]) -> Command {
    let record = challenge_record(domain);
    let mut command = Command::new(program);
    command
        .args([action, &record, value])
        .env("OFFRAMP_ACME_ACTION", action)
        .env("OFFRAMP_ACME_DOMAIN", domain)
        .env("OFFRAMP_ACME_RECORD", record)
        .env("OFFRAMP_ACME_VALUE", value)
        // Only this process speaks to the service manager.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null());
    command
}

/// The command of a program that gets a notification; the caller makes its standard input the message.
pub fn receiver_program(program: &ProgramCommand) -> Command {
    let mut command = Command::new(program.path());
    // Only this process speaks to the service manager.
    command.args(program.arguments()).env_remove("NOTIFY_SOCKET");
    without_ambient_capabilities(&mut command);
    command
}

/// The name of the TXT record that proves control of a domain (RFC 8555, section 8.4).
pub fn challenge_record(domain: &str) -> String {
    format!("_acme-challenge.{domain}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_new_process_finds_the_state_of_a_process_that_root_started() {
        for state_home in [None, Some(PathBuf::from("/var/lib"))] {
            let program =
                Program { path: "/bin/true".into(), arguments: Vec::new(), state_home: state_home.clone() };
            let command = program.command();
            let set = command.get_envs().find(|(name, _)| *name == OsStr::new("XDG_STATE_HOME"));
            assert_eq!(
                set.and_then(|(_, value)| value),
                state_home.as_ref().map(|folder| folder.as_os_str())
            );
        }
    }
}
