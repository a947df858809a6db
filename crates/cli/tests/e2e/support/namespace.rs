//! A network of its own for one test: programs in it can take any address and port, and nobody else can reach them.

use std::process::Command;

use offramp_testkit::process::{Process, Ready, require};

use crate::support::instance::{LIFE, PATIENCE};

/// A network namespace with loopback. It ends when this is dropped.
pub(crate) struct Namespace {
    holder: Process,
}

impl Namespace {
    /// Makes one. Who is not root is root in a user namespace that goes with it.
    pub(crate) fn new() -> Self {
        let mut command = Command::new(require("unshare", "util-linux"));
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let _ = require("ip", "iproute2");
        command.args(["--net", "sh", "-euc", "ip link set lo up; echo up; exec sleep 300"]);
        let holder = Process::start(command, LIFE).unwrap();
        holder.wait_for(&Ready::Line("up".into()), PATIENCE).unwrap();
        Self { holder }
    }

    /// A process that is in the namespace.
    pub(crate) fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// The same command, in the namespace.
    pub(crate) fn within(&self, command: &Command) -> Command {
        let mut inside = Command::new(require("nsenter", "util-linux"));
        inside.arg(format!("--target={}", self.holder.id())).arg("--net");
        if !rustix::process::geteuid().is_root() {
            inside.args(["--user", "--preserve-credentials"]);
        }
        inside.arg("--").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            inside.current_dir(directory);
        }
        inside
    }
}
