//! Syslog: RFC 3164 to a Unix socket (`/dev/log`), RFC 5424 over UDP (RFC 5426).
//!
//! A listener on `/dev/log` expects the form of syslog(3): priority, tag and message, without a host.
//! journald and rsyslog do not understand RFC 5424 there. The time is left out: it would be local time
//! without a zone, and a receiver on the same machine uses the time of arrival (RFC 3164 §4.3.2).
//!
//! The line is the message; structured data would only repeat it. No wait exceeds its [`WaitBudget`]; a lost
//! receiver is looked for again with every batch. TCP and TLS to a remote collector are out of scope: a local
//! `rsyslog` or `syslog-ng` does that with a queue on disk.

use std::io;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use super::socket::{OutputSocket, WaitBudget, is_gone, is_too_long};
use crate::timestamp::rfc3339_micros;

/// The address of the syslog receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogTarget {
    /// A Unix socket of either type, usually `/dev/log`.
    Unix(PathBuf),
    /// `host:port` over UDP.
    Udp(Box<str>),
}

impl std::fmt::Display for SyslogTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "syslog ({})", path.display()),
            Self::Udp(address) => write!(f, "syslog (udp://{address})"),
        }
    }
}

/// The facility of a message (RFC 5424 §6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Facility {
    /// Facility 3: the program's own log.
    Daemon,
    /// Facility 16: the access log.
    Local0,
}

/// The priority of a message, encoded as `facility * 8 + severity` (RFC 5424 §6.2.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyslogPriority {
    pub(crate) facility: Facility,
    pub(crate) severity: u8,
}

/// The constant part of the header of this process's messages.
#[derive(Debug)]
pub(crate) enum SyslogHead {
    /// The tag of RFC 3164, as syslog(3) writes it.
    Local(String),
    /// `HOSTNAME APP-NAME PROCID` of RFC 5424.
    Distant(String),
}

impl SyslogHead {
    /// The header for this host and process in the form of `target`.
    pub(crate) fn new(target: &SyslogTarget) -> Self {
        let process = std::process::id();
        if let SyslogTarget::Unix(_) = target {
            return Self::Local(format!("offramp[{process}]: "));
        }
        let uname = rustix::system::uname();
        let is_printable = |c: &char| c.is_ascii_graphic();
        let host: String =
            uname.nodename().to_string_lossy().chars().filter(is_printable).take(255).collect();
        let host = if host.is_empty() { "-" } else { &host };
        Self::Distant(format!("{host} offramp {process}"))
    }

    /// Appends the header up to the message. `kind` is the MSGID, `-` for none; RFC 3164 has no field for it.
    pub(crate) fn write(&self, out: &mut Vec<u8>, priority: SyslogPriority, now: SystemTime, kind: &str) {
        let SyslogPriority { facility, severity } = priority;
        let facility = match facility {
            Facility::Daemon => 3,
            Facility::Local0 => 16,
        };
        out.push(b'<');
        out.extend_from_slice(itoa::Buffer::new().format(facility * 8 + severity.min(7)).as_bytes());
        out.push(b'>');
        match self {
            Self::Local(tag) => out.extend_from_slice(tag.as_bytes()),
            Self::Distant(origin) => {
                out.extend_from_slice(b"1 ");
                out.extend_from_slice(&rfc3339_micros(now));
                out.push(b' ');
                out.extend_from_slice(origin.as_bytes());
                out.push(b' ');
                out.extend_from_slice(kind.as_bytes());
                out.extend_from_slice(b" - ");
            }
        }
    }
}

/// An open connection to syslog.
#[derive(Debug)]
pub(super) struct Syslog {
    target: SyslogTarget,
    /// `None` once the connection is lost.
    socket: Option<OutputSocket>,
    scratch: Vec<u8>,
    wait_budget: WaitBudget,
}

impl Syslog {
    pub(super) fn open(target: SyslogTarget) -> io::Result<Self> {
        let socket = connect(&target)?;
        Ok(Self { target, socket: Some(socket), scratch: Vec::new(), wait_budget: WaitBudget::default() })
    }

    /// Resolves the receiver and connects anew.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.socket = Some(connect(&self.target)?);
        Ok(())
    }

    /// Sends messages one by one. A failure carries the number of messages sent before it; later ones are not
    /// sent.
    pub(super) fn send<'m>(
        &mut self,
        messages: impl Iterator<Item = &'m [u8]>,
    ) -> Result<(), (usize, io::Error)> {
        let deadline = self.wait_budget.deadline();
        let mut may_reconnect = true;
        for (sent, message) in messages.enumerate() {
            let outcome = self.send_one(message, deadline, &mut may_reconnect);
            self.wait_budget.record(&outcome);
            outcome.map_err(|error| (sent, error))?;
        }
        Ok(())
    }

    fn send_one(&mut self, message: &[u8], deadline: Instant, may_reconnect: &mut bool) -> io::Result<()> {
        loop {
            let socket = match &mut self.socket {
                Some(socket) => socket,
                lost => lost.insert(connect(&self.target)?),
            };
            let outcome = if socket.is_stream() {
                // A NUL ends the message on streams, as in glibc's syslog(3).
                self.scratch.clear();
                self.scratch.extend_from_slice(message);
                self.scratch.push(0);
                socket.send(&self.scratch, deadline)
            } else {
                socket.send(message, deadline)
            };
            match outcome {
                Err(error) if is_too_long(&error) && message.len() > CUT => {
                    cut(message, &mut self.scratch);
                    return socket.send(&self.scratch, deadline);
                }
                Err(error) if is_gone(&error) => {
                    self.socket = None;
                    if !std::mem::take(may_reconnect) {
                        return Err(error);
                    }
                }
                Err(error) => {
                    if socket.is_stream() {
                        // Part of a message may be in the stream, and the next must not continue it.
                        self.socket = None;
                    }
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
        }
    }
}

fn connect(target: &SyslogTarget) -> io::Result<OutputSocket> {
    match target {
        SyslogTarget::Unix(path) => OutputSocket::unix(path),
        SyslogTarget::Udp(address) => OutputSocket::udp(address),
    }
}

/// Copies the start of a message that is too long for a datagram, and adds a note.
fn cut(message: &[u8], out: &mut Vec<u8>) {
    // Not within a character: continuation bytes are 10xxxxxx.
    let end = (0..=CUT).rev().find(|&at| message.get(at).is_none_or(|byte| byte >> 6 != 0b10)).unwrap_or(0);
    out.clear();
    out.extend_from_slice(&message[..end]);
    out.extend_from_slice(format!(" [cut, {} bytes]", message.len()).as_bytes());
}

/// The size that every receiver should accept (RFC 5424 §6.1 by way of RFC 5425 §4.3.1), less the note.
const CUT: usize = 8192 - 32;
