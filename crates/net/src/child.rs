//! Settings of a program between fork and exec, which the standard library does not have.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has a program run without the capabilities that a service manager gives this process for its own use
/// (`AmbientCapabilities=`): it has the rights of its user, and no more.
pub fn without_ambient_capabilities(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec the closure makes one system call. It neither allocates nor takes a lock.
    unsafe { command.pre_exec(|| Ok(rustix::thread::clear_ambient_capability_set()?)) }
}

/// Has the kernel kill a program when the thread that starts it ends, however it ends. To be called by a thread that
/// lives as long as the program may.
pub fn killed_with_this_thread(command: &mut Command) -> &mut Command {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // One that ended before the line above sends no signal.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
    };
    // SAFETY: between fork and exec the closure makes two system calls. It neither allocates nor takes a lock.
    unsafe { command.pre_exec(bind) }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// The field of a status that a child sees of itself.
    fn status(set: impl FnOnce(&mut Command) -> &mut Command, field: &str) -> String {
        let mut command = Command::new("grep");
        command.args([field, "/proc/self/status"]).stdin(Stdio::null());
        let output = set(&mut command).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn no_ambient_capability_is_left() {
        let said = status(without_ambient_capabilities, "CapAmb");
        assert_eq!(said.trim_start_matches("CapAmb:").trim(), "0000000000000000");
    }

    #[test]
    fn a_program_ends_with_its_thread() {
        let starting = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            killed_with_this_thread(command.arg("600")).spawn().unwrap()
        });
        let status = starting.join().unwrap().wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }
}
