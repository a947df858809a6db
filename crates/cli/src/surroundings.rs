//! What the process finds around itself: environment variables, user, terminal. Read here and nowhere else.

use std::ffi::OsString;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use offramp_config::Environment;
use offramp_config::model::AccessFormat;
use offramp_control::outputs::Terminals;
use offramp_control::{HANDOVER, Heir, Program};
use rustix::termios;

use crate::failure::Failure;

/// What the meaning of absent keys depends on.
pub(crate) fn environment() -> Environment {
    let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Environment {
        is_root: offramp_net::process::is_root(),
        xdg_state_home: path("XDG_STATE_HOME"),
        home: path("HOME"),
    }
}

/// Files and folders that libraries read because the environment names them: authorities (as OpenSSL takes them) and
/// time zones (tzset(3)).
pub(crate) fn of_libraries() -> Vec<PathBuf> {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR", "TZDIR"].into_iter().filter_map(std::env::var_os);
    named.filter(|value| !value.is_empty()).map(PathBuf::from).collect()
}

/// The folders that systemd has made in /run for this process (systemd.exec(5), `RuntimeDirectory=`).
pub(crate) fn runtime_directories() -> Vec<PathBuf> {
    let named = std::env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
    std::env::split_paths(&named).filter(|path| path.is_absolute()).collect()
}

/// Where systemd listens for notifications (`sd_notify(3)`).
pub(crate) fn notify_socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET")
}

/// The process whose place this one takes, if there is one (SIGUSR2).
///
/// # Errors
/// What it hands over cannot be used.
pub(crate) fn heir() -> Result<Option<Heir>, Failure> {
    if std::env::var_os(HANDOVER).is_none() {
        return Ok(None);
    }
    Heir::receive().map_err(|reason| Failure::runtime(format_args!("error: {reason}")))
}

/// The sockets that the service manager has opened for this process, with their names (sd_listen_fds(3)).
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

/// How often systemd wants a sign of life at least, if it does (sd_watchdog_enabled(3)).
pub(crate) fn watchdog() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    // After an upgrade it is not there: systemd has given it to the first process.
    let meant = variable("WATCHDOG_PID").is_none_or(|id| id.parse() == Ok(std::process::id()));
    let limit = variable("WATCHDOG_USEC")?.parse().ok().filter(|limit| *limit > 0)?;
    meant.then(|| Duration::from_micros(limit))
}

/// How this program was called, and the file that an upgrade starts: the one that it was called by, if that is this
/// program, so that a symbolic link to another version is followed.
pub(crate) fn program() -> Option<Program> {
    let mut arguments = std::env::args_os();
    let called = arguments.next().map(PathBuf::from);
    let current = std::env::current_exe().ok()?;
    let is_this = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == current);
    let called =
        called.filter(|path| path.components().count() > 1).and_then(|path| std::path::absolute(path).ok());
    Some(Program { path: called.filter(is_this).unwrap_or(current), arguments: arguments.collect() })
}

/// The password for PostgreSQL, as its own clients take it (libpq, "Environment Variables").
pub(crate) fn postgres_password() -> Option<String> {
    std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty())
}

/// Whether journald reads what this process prints (systemd.exec(5)).
pub(crate) fn journal() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some_and(|value| !value.is_empty())
}

/// The default format of events on standard output: text on a terminal, else JSON.
pub(crate) fn events() -> AccessFormat {
    if io::stdout().is_terminal() { AccessFormat::Text } else { AccessFormat::Json }
}

/// Which standard streams a person reads.
pub(crate) fn terminals() -> Terminals {
    Terminals { stdout: io::stdout().is_terminal(), stderr: io::stderr().is_terminal() }
}

/// Whether this machine has the address `::1`.
pub(crate) fn has_ipv6() -> bool {
    offramp_net::listen::is_own(Ipv6Addr::LOCALHOST.into())
}

/// How many columns the terminal has to which answers go, if it is one.
pub(crate) fn columns() -> Option<usize> {
    let out = io::stdout();
    let size = rustix::termios::tcgetwinsize(&out).ok().filter(|_| out.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether a person reads what is said.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Prints to standard output. A reader that has gone away has seen enough.
///
/// # Errors
/// Anything else that keeps it from being written.
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    show(text).map(drop)
}

/// Prints to standard output, and returns whether it still has a reader.
///
/// # Errors
/// Anything else that keeps it from being written.
pub(crate) fn show(text: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::runtime(format_args!("error: cannot write to standard output: {error}"))),
    }
}

/// The local time zone: `TZ`, else the system's, else UTC.
pub(crate) fn time_zone() -> TimeZone {
    TimeZone::try_system().unwrap_or(TimeZone::UTC)
}

/// The longest line that is read, in bytes.
const LINE: u64 = 4096;

/// One line of standard input, without its end.
///
/// # Errors
/// It cannot be read, or is longer than 4 KiB.
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

/// A line that a person types without seeing it; `None` where standard input is no terminal.
///
/// # Errors
/// As [`line()`]; or the terminal cannot be told not to show it.
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

/// Prints to standard error. If that is closed, the text is lost.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a line over the one before, on a terminal.
pub(crate) fn say_over(text: &str) {
    let mut err = io::stderr();
    let _ = write!(err, "\r{text}\x1b[K\r").and_then(|()| err.flush());
}
