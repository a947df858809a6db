//! A network namespace with a loopback and nothing else, made by util-linux's `unshare` and iproute2's `ip`.
//!
//! The harness becomes `unshare`, which becomes `offramp-bench enter`, which prepares the namespace and
//! becomes the harness again: one process all the way, so that a terminal, a priority and whoever waits for
//! it keep what they had. Before that, a child tries the same, since there is no way back.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result, read_text, write_file};
use crate::process::find_program;

const NET: &str = "/proc/sys/net";
const CONGESTION: &str = "ipv4/tcp_congestion_control";

/// The congestion control in force in this namespace.
pub(crate) fn congestion() -> String {
    read(CONGESTION).unwrap_or_else(|_| "unknown".to_owned())
}

/// Becomes the same command inside a namespace with this congestion control.
///
/// # Errors
/// Why that cannot be; nothing has changed then.
pub(crate) fn enter(congestion: &str, machine: &str) -> Result<Infallible> {
    let unshare = tool("unshare", "util-linux")?;
    tool("ip", "iproute2")?;
    let own = std::env::current_exe().map_err(|e| Error::io("finding the own program", e))?;
    let mut prepare = vec!["--net".into(), "--".into(), own.clone().into_os_string(), "enter".into()];
    prepare.extend(["--congestion".into(), congestion.into()]);
    for (name, value) in settings() {
        prepare.extend(["--keep".into(), format!("{name}={value}").into()]);
    }
    attempt(&unshare, &prepare)?;
    let again = again(std::env::args_os().skip(1), machine);
    let error = Command::new(&unshare).args(prepare).arg("--").arg(own).args(again).exec();
    Err(Error::io("starting unshare", error))
}

/// Prepares this namespace and becomes `program`; without one, only prepares it.
///
/// # Errors
/// What cannot be set, or executed.
pub(crate) fn prepare(congestion: &str, keep: &[String], program: &[OsString]) -> Result<()> {
    let ip = tool("ip", "iproute2")?;
    let up = Command::new(ip).args(["link", "set", "lo", "up"]).stdin(Stdio::null()).output();
    let up = up.map_err(|e| Error::io("starting ip", e))?;
    if !up.status.success() {
        return Err(Error::Program { name: "ip link set lo up".into(), why: said(&up.stderr) });
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| Error::io("listening on its 127.0.0.1", e))?;
    for (name, value) in keep.iter().filter_map(|pair| pair.split_once('=')) {
        carry(name, value)?;
    }
    set_congestion(congestion)?;
    let Some((program, args)) = program.split_first() else { return Ok(()) };
    Err(Error::io(
        format!("starting {}", Path::new(program).display()),
        Command::new(program).args(args).exec(),
    ))
}

/// The command line of the harness with what it must know inside.
fn again(args: impl Iterator<Item = OsString>, machine: &str) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    // Behind the subcommand, which nothing but its name precedes.
    let place = args.iter().position(|arg| arg == OsStr::new("run")).map_or(args.len(), |run| run + 1);
    args.splice(place..place, ["--machine-congestion".into(), machine.into()]);
    args
}

fn attempt(unshare: &Path, prepare: &[OsString]) -> Result<()> {
    let tried = Command::new(unshare).args(prepare).stdin(Stdio::null()).output();
    let tried = tried.map_err(|e| Error::io("starting unshare", e))?;
    if tried.status.success() {
        return Ok(());
    }
    let mut why = said(&tried.stderr);
    if !rustix::process::geteuid().is_root() {
        why.push_str(" (a network namespace takes root)");
    }
    Err(Error::Measure(why))
}

/// What TCP over a loopback meets and a new namespace does not take over from the machine, so that the
/// congestion control is the only difference: everything of TCP, its ports, and the limits of sockets.
fn settings() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (dir, prefix) in [("ipv4", "tcp_"), ("ipv4", "ip_local_"), ("core", "")] {
        for entry in std::fs::read_dir(Path::new(NET).join(dir)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // The key of TCP Fast Open is a secret, and the congestion control is what shall differ.
            let left_out = name == "tcp_fastopen_key" || name.ends_with("_congestion_control");
            if name.starts_with(prefix) && !left_out && writable(&entry.path()) {
                let name = format!("{dir}/{name}");
                found.extend(read(&name).ok().map(|value| (name, value)));
            }
        }
    }
    found
}

/// Sets what differs here; what a namespace has no value of its own of is the machine's anyway.
fn carry(name: &str, value: &str) -> Result<()> {
    let file = Path::new(NET).join(name);
    if !writable(&file) || read(name).is_ok_and(|here| here == value) {
        return Ok(());
    }
    write_file(&file, value)
}

fn set_congestion(wanted: &str) -> Result<()> {
    let file = Path::new(NET).join(CONGESTION);
    match std::fs::write(&file, wanted) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let known = read("ipv4/tcp_available_congestion_control").unwrap_or_default();
            return Err(Error::Usage(format!(
                "this kernel has no congestion control {wanted:?}; it has: {known} (`modprobe tcp_{wanted}` may \
                 bring it)"
            )));
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(Error::Usage(format!(
                "{wanted} is not allowed in a network namespace until it is named in the machine's \
                 net.ipv4.tcp_allowed_congestion_control"
            )));
        }
        Err(error) => return Err(Error::io(format!("writing {}", file.display()), error)),
    }
    match congestion() {
        now if now == wanted => Ok(()),
        now => Err(Error::Measure(format!("{} was set to {wanted} and says {now}", file.display()))),
    }
}

fn tool(name: &str, package: &str) -> Result<PathBuf> {
    find_program(name).ok_or_else(|| Error::Missing(format!("{name} is not installed (package {package})")))
}

fn read(name: &str) -> Result<String> {
    read_text(&Path::new(NET).join(name)).map(|text| text.trim().to_owned())
}

fn writable(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o200 != 0)
}

/// What a program said on its way out, in one line.
fn said(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let lines: Vec<&str> = text.lines().map(|l| l.trim_start_matches("offramp-bench: ").trim()).collect();
    if lines.is_empty() { "it failed without a word".to_owned() } else { lines.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_inside_says_where_it_is_and_is_otherwise_the_same() {
        let args = ["run", "--rounds", "3", "--out", "run"].map(OsString::from);
        let again = again(args.into_iter(), "bbr");
        assert_eq!(again, ["run", "--machine-congestion", "bbr", "--rounds", "3", "--out", "run"]);
    }

    #[test]
    fn the_settings_that_are_kept_leave_out_secrets_and_what_shall_differ() {
        let names: Vec<String> = settings().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().any(|name| name == "ipv4/tcp_rmem"), "{names:?}");
        assert!(
            !names.iter().any(|name| name.contains("fastopen_key") || name.contains("congestion_control"))
        );
    }

    #[test]
    fn what_a_program_said_is_one_line_without_the_own_name() {
        assert_eq!(said(b"offramp-bench: writing x: Read-only\n"), "writing x: Read-only");
        assert_eq!(said(b""), "it failed without a word");
    }
}
