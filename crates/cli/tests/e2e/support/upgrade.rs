//! The processes of an instance that is upgraded: each new one is a child of the one before.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::Command;

use offramp_testkit::process::{Signal, Source, copy_program};
use rustix::process::{Pid, kill_process};

use crate::support::instance::{Home, Instance};
use crate::support::offramp::offramp;

/// An instance and all its processes. Those that are left end with it.
pub(crate) struct Upgraded {
    pub(crate) instance: Instance,
    /// The first, and those that have taken over.
    processes: RefCell<Vec<u32>>,
}

impl Upgraded {
    pub(crate) fn of(instance: Instance) -> Self {
        let first = instance.process.id();
        Self { instance, processes: RefCell::new(vec![first]) }
    }

    /// The process that accepts connections.
    pub(crate) fn current(&self) -> u32 {
        *self.processes.borrow().last().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.current()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// Has the next process take over, and waits until systemd would know.
    pub(crate) fn upgrade(&self) {
        self.upgrade_by(|| self.signal(Signal::USR2));
    }

    /// The same by another order than the signal.
    pub(crate) fn upgrade_by(&self, order: impl FnOnce()) {
        order();
        self.instance.notified("RELOADING=1");
        let next: u32 = self.instance.notified("MAINPID=").parse().unwrap();
        self.processes.borrow_mut().push(next);
        self.instance.notified("READY=1");
    }

    /// Tries to, and gives the line in which the log says why nothing came of it.
    pub(crate) fn fails(&self) -> String {
        let before = self.logged("upgrade failed").len();
        self.signal(Signal::USR2);
        self.instance.notified("RELOADING=1");
        self.instance.notified("READY=1");
        self.instance.until("the reason", || self.logged("upgrade failed").into_iter().nth(before))
    }

    /// The lines of the log with this.
    pub(crate) fn logged(&self, what: &str) -> Vec<String> {
        let lines = self.instance.process.lines(Source::Stderr);
        lines.into_iter().filter(|line| line.contains(what)).collect()
    }

    /// Waits until all but the current process have ended in order, and gives their last lines.
    pub(crate) fn until_others_ended(&self) -> Vec<String> {
        let others = self.processes.borrow().len() - 1;
        for process in &self.processes.borrow()[..others] {
            self.instance.until("the end of a process before", || ended(*process).then_some(()));
        }
        let stopped = || Some(self.logged(" stopped ")).filter(|lines| lines.len() >= others);
        self.instance.until("the last lines of the processes before", stopped)
    }

    /// Stops the last process, and waits for its end and for that of all others.
    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        self.instance.until("the end", || ended(self.current()).then_some(()));
        let stopped = self.until_others_ended();
        assert!(stopped.iter().all(|line| line.contains("connections_cut=0")), "{stopped:?}");
        assert_eq!(self.logged("panicked"), [""; 0]);
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        for process in self.processes.borrow().iter().skip(1) {
            // It is one of this test, and none that has got its number since.
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let home = self.instance.home.path().to_string_lossy().into_owned();
            if String::from_utf8_lossy(&line).contains(&home) {
                let id = i32::try_from(*process).ok().and_then(Pid::from_raw).unwrap();
                let _ = kill_process(id, Signal::KILL);
            }
        }
    }
}

/// Whether a process has ended; one that nobody has waited for has.
fn ended(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Starts the program at `program`, which may be another later.
pub(crate) fn run_at(home: Home, program: &Path, text: &str) -> Upgraded {
    let model = offramp(home.path(), &["run", "--config"]);
    let mut command = Command::new(program);
    command.args(model.get_args()).current_dir(home.path());
    for (name, value) in model.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Upgraded::of(home.start(command, text))
}

/// Puts this program at `program`, as installers do: another file under the same name.
pub(crate) fn install(program: &Path) {
    let fresh = program.with_extension("new");
    let own = Path::new(env!("CARGO_BIN_EXE_offramp"));
    if fs::hard_link(own, &fresh).is_err() {
        copy_program(own, &fresh);
    }
    fs::rename(fresh, program).unwrap();
}
