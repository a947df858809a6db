//! Environment of the process: variables, user, standard streams, terminal. No other module reads them.

use std::ffi::OsString;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use offramp_config::Environment;
use offramp_config::model::AccessFormat;
use offramp_control::Heir;
use offramp_control::outputs::Terminals;
use offramp_process::{HANDOVER, Program};
use rustix::termios;

use crate::failure::Failure;

/// Inputs for the defaults of a configuration.
pub(crate) fn environment() -> Environment {
    let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Environment {
        is_root: offramp_net::process::is_root(),
        xdg_state_home: path("XDG_STATE_HOME"),
        home: path("HOME"),
    }
}

/// Files and directories that libraries read because of environment variables: authorities (as in OpenSSL)
/// and time zones (tzset(3)).
pub(crate) fn of_libraries() -> Vec<PathBuf> {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR", "TZDIR"].into_iter().filter_map(std::env::var_os);
    named.filter(|value| !value.is_empty()).map(PathBuf::from).collect()
}

/// Directories below /run that systemd has created for this process (systemd.exec(5), `RuntimeDirectory=`).
pub(crate) fn runtime_directories() -> Vec<PathBuf> {
    let named = std::env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
    std::env::split_paths(&named).filter(|path| path.is_absolute()).collect()
}

/// Home of the user of this process.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Name of the user who called sudo, if one did (sudo(8)).
pub(crate) fn sudo_user() -> Option<String> {
    std::env::var("SUDO_USER").ok().filter(|name| !name.is_empty() && name != "root")
}

/// Numbers of the users who have started this process: its own, and those who became it by sudo, pkexec or su
/// (`/proc/self/loginuid`, which is set at a login and stays).
pub(crate) fn starting_users() -> Vec<u32> {
    let named = ["SUDO_UID", "PKEXEC_UID"].into_iter().filter_map(|name| std::env::var(name).ok());
    let login = std::fs::read_to_string("/proc/self/loginuid").ok();
    // The largest number stands for no login.
    let others =
        named.chain(login).filter_map(|user| user.trim().parse().ok()).filter(|user| *user != u32::MAX);
    std::iter::once(offramp_net::process::UserIdentity::current().numbers().0).chain(others).collect()
}

/// Returns true in a session with windows, where xdg-open(1) finds a browser.
pub(crate) fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// Socket for notifications to systemd (`sd_notify(3)`).
pub(crate) fn notify_socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET")
}

/// Receives the handover of the previous process, in an upgrade (SIGUSR2).
///
/// # Errors
/// The handover cannot be used.
pub(crate) fn heir() -> Result<Option<Heir>, Failure> {
    if std::env::var_os(HANDOVER).is_none() {
        return Ok(None);
    }
    Heir::receive().map_err(|reason| Failure::runtime(format_args!("error: {reason}")))
}

/// Sockets that the service manager has opened for this process, with their names (sd_listen_fds(3)).
pub(crate) fn activated() -> Vec<(String, OwnedFd)> {
    let variable = |name| std::env::var(name).ok();
    if variable("LISTEN_PID").and_then(|id| id.parse().ok()) != Some(std::process::id()) {
        return Vec::new();
    }
    let count = variable("LISTEN_FDS").and_then(|count| count.parse().ok()).unwrap_or(0);
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat_with(String::new));
    let named = names.zip(offramp_net::activation::take(count));
    named.filter_map(|(name, fd)| Some((name, fd?))).collect()
}

/// Watchdog timeout of systemd, if it is enabled (sd_watchdog_enabled(3)).
pub(crate) fn watchdog() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    // Unset after an upgrade: systemd sets it for the process that it has started.
    let meant = variable("WATCHDOG_PID").is_none_or(|id| id.parse() == Ok(std::process::id()));
    let limit = variable("WATCHDOG_USEC")?.parse().ok().filter(|limit| *limit > 0)?;
    meant.then(|| Duration::from_micros(limit))
}

/// Arguments of this process, and the program that an upgrade starts: the path of the invocation if that is
/// this program, so that an upgrade follows a symbolic link to another version.
pub(crate) fn program() -> Option<Program> {
    let mut arguments = std::env::args_os();
    let called = arguments.next().map(PathBuf::from);
    let current = std::env::current_exe().ok()?;
    let is_this = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == current);
    let called =
        called.filter(|path| path.components().count() > 1).and_then(|path| std::path::absolute(path).ok());
    let path = called.filter(is_this).unwrap_or(current);
    let environment = environment();
    let state_home =
        environment.is_root.then(|| environment.state_dir().parent().map(PathBuf::from)).flatten();
    Some(Program { path, arguments: arguments.collect(), state_home })
}

/// Password for PostgreSQL, from the variable that libpq uses ("Environment Variables").
pub(crate) fn postgres_password() -> Option<String> {
    std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty())
}

/// Returns true if output goes to journald (systemd.exec(5)).
pub(crate) fn journal() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some_and(|value| !value.is_empty())
}

/// Default format of events on standard output: text on a terminal, else JSON.
pub(crate) fn events() -> AccessFormat {
    if io::stdout().is_terminal() { AccessFormat::Text } else { AccessFormat::Json }
}

/// Standard streams that are terminals.
pub(crate) fn terminals() -> Terminals {
    Terminals { stdout: io::stdout().is_terminal(), stderr: io::stderr().is_terminal() }
}

/// Returns true if this machine has the address `::1`.
pub(crate) fn has_ipv6() -> bool {
    offramp_net::listen::is_own(Ipv6Addr::LOCALHOST.into())
}

/// Columns of the terminal on standard output; `None` if it is none, or the width is unknown.
pub(crate) fn columns() -> Option<usize> {
    let out = io::stdout();
    let size = rustix::termios::tcgetwinsize(&out).ok().filter(|_| out.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Reason why nothing can be shown on the whole of a terminal; `None` if it can.
pub(crate) fn no_screen() -> Option<&'static str> {
    let kind = std::env::var_os("TERM").unwrap_or_default();
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        Some("standard input and standard output are no terminal")
    } else if kind.is_empty() || kind == "dumb" {
        Some("this terminal cannot move its cursor (TERM is dumb, or not set)")
    } else {
        None
    }
}

/// Returns false where the user wants no colours (no-color.org).
pub(crate) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns true if standard error is a terminal.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Prints to standard output. A closed pipe is no error.
///
/// # Errors
/// Standard output cannot be written, for another reason than a closed pipe.
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    show(text).map(drop)
}

/// Prints to standard output, and returns whether it still has a reader.
///
/// # Errors
/// Standard output cannot be written, for another reason than a closed pipe.
pub(crate) fn show(text: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::runtime(format_args!("error: cannot write to standard output: {error}"))),
    }
}

/// Local time zone: `TZ`, else the system's, else UTC.
pub(crate) fn time_zone() -> TimeZone {
    TimeZone::try_system().unwrap_or(TimeZone::UTC)
}

/// Maximum length of a line, in bytes.
const LINE: u64 = 4096;

/// Reads one line of standard input, and removes the line ending.
///
/// # Errors
/// The line cannot be read, or is longer than 4 KiB.
pub(crate) fn line() -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    io::stdin().lock().take(LINE).read_until(b'\n', &mut line)?;
    if line.len() as u64 == LINE {
        return Err(io::Error::other("the line is longer than 4 KiB"));
    }
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    line.truncate(end);
    Ok(line)
}

/// Returns true if questions can be asked: standard input and standard error are terminals.
pub(crate) fn is_asked() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question on standard error and reads the answer; `None` at the end of standard input.
///
/// # Errors
/// As [`line()`], or the answer is not UTF-8.
pub(crate) fn answer(question: &str) -> io::Result<Option<String>> {
    let mut err = io::stderr();
    let _ = write!(err, "{question}").and_then(|()| err.flush());
    let mut line = String::new();
    match io::stdin().lock().take(LINE).read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(line.trim().to_owned())),
    }
}

/// Asks for consent. `default` is what an empty answer means; the end of standard input is no consent.
///
/// # Errors
/// The answer cannot be read.
pub(crate) fn agrees(question: &str, default: bool) -> Result<bool, Failure> {
    let choice = if default { "[Y/n]" } else { "[y/N]" };
    loop {
        let answer = answer(&format!("{question} {choice} "))
            .map_err(|error| Failure::runtime(format_args!("error: cannot read the answer: {error}")))?;
        match answer.map(|answer| answer.to_lowercase()).as_deref() {
            None | Some("n" | "no") => return Ok(false),
            Some("y" | "yes") => return Ok(true),
            Some("") => return Ok(default),
            Some(_) => say("  write y or n"),
        }
    }
}

/// Reads a line without echo; `None` if standard input is no terminal.
///
/// # Errors
/// As [`line()`], or echo cannot be disabled.
pub(crate) fn hidden_line(prompt: &str) -> io::Result<Option<Vec<u8>>> {
    let input = io::stdin();
    if !input.is_terminal() {
        return Ok(None);
    }
    let shown = termios::tcgetattr(&input)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(termios::LocalModes::ECHO);
    termios::tcsetattr(&input, termios::OptionalActions::Flush, &hidden)?;
    let mut err = io::stderr();
    let _ = write!(err, "{prompt}").and_then(|()| err.flush());
    let line = line();
    termios::tcsetattr(&input, termios::OptionalActions::Flush, &shown)?;
    say("");
    line.map(Some)
}

/// Prints a line to standard error. If that is closed, the text is lost.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Overwrites the current line of the terminal.
pub(crate) fn say_over(text: &str) {
    let mut err = io::stderr();
    let _ = write!(err, "\r{text}\x1b[K\r").and_then(|()| err.flush());
}
