//! `cert renew`: makes the running process renew a certificate now.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use offramp_control::control_socket;

use crate::check;
use crate::failure::Failure;
use crate::flags::cert::Renew;
use crate::surroundings::{self, print, say};

/// Timeout of the answer: an order takes an hour at most, and several may be queued before it.
const ORDER_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// Sends the request to the running process, and waits for the outcome.
///
/// # Errors
/// No process orders for this configuration, or an order failed.
pub(super) fn renew(arguments: Renew) -> Result<(), Failure> {
    let path = check::find(arguments.file)?;
    let config = check::load(&path, &surroundings::environment())?;
    let socket = control_socket(&config.process.state_dir);
    let stream = UnixStream::connect(&socket).map_err(|error| {
        let place = socket.display();
        Failure::runtime(match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
                "error: no running Offramp keeps certificates of authorities in {}; start it with `offramp run`, or \
                 order a certificate without it: offramp cert order",
                config.process.state_dir.display()
            ),
            ErrorKind::PermissionDenied => {
                format!("error: {place}: {error}; run this as root, or as the user that Offramp runs as")
            }
            _ => format!("error: {place}: {error}"),
        })
    })?;
    say("The running Offramp orders the certificate. That can take minutes.\n");
    let lines = ask(stream, &arguments.name)
        .map_err(|error| Failure::runtime(format!("error: the running Offramp does not answer: {error}")))?;
    if lines.is_empty() {
        return Err(Failure::runtime(
            "error: the running Offramp ended before the order did; its log says more",
        ));
    }
    let mut failed = Vec::new();
    for line in &lines {
        match line.strip_prefix("ok ") {
            Some(until) => print(format!("{}: renewed, valid until {until}\n", arguments.name).as_bytes())?,
            None => failed.push(format!("error: {}", line.strip_prefix("error ").unwrap_or(line))),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::runtime(failed.join("\n"))) }
}

fn ask(mut stream: UnixStream, name: &str) -> std::io::Result<Vec<String>> {
    stream.set_read_timeout(Some(ORDER_TIMEOUT))?;
    writeln!(stream, "renew {name}")?;
    // Control characters are removed: the terminal may be root's, and the process another user's.
    let printable = |line: String| line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    BufReader::new(stream).lines().map(|line| line.map(printable)).collect()
}
