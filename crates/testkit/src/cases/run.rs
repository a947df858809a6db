//! One case against one server: perform it, then find out how the connection fares.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use super::{Case, Outcome, Session};
use crate::Error;
use crate::tls_client::wire::alert;
use crate::tls_client::{End, Options, Suite};

/// Whose answer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The server under test.
    Offramp,
    /// Plain rustls.
    Oracle,
}

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The server's last alert.
    pub alert: Option<u8>,
    /// Whether that alert was a warning (close_notify included).
    pub warning: bool,
    /// How the connection ended.
    pub end: End,
    /// Whether all that was sent as data was echoed, the probe at the end included where one was sent.
    pub echoed: bool,
    /// The answer, where it was not TLS.
    pub plain: Option<Vec<u8>>,
    /// Whether data was sent and echoed after the case.
    pub alive: bool,
}

impl Verdict {
    /// The verdict in one word.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match (self.end, self.alert) {
            (End::Reset, _) => Outcome::Reset,
            (_, Some(alert)) if self.alive && self.warning => Outcome::Warned(alert),
            _ if self.alive => Outcome::Continues,
            (End::Eof, _) if self.plain.as_ref().is_some_and(|answer| answer.starts_with(HTTP_400)) => {
                Outcome::Http400
            }
            (End::Eof, Some(alert::CLOSE_NOTIFY)) if self.echoed => Outcome::Drained,
            (End::Eof, Some(alert::CLOSE_NOTIFY)) => Outcome::Alert(alert::CLOSE_NOTIFY),
            (End::Eof, Some(alert)) if !self.warning => Outcome::Alert(alert),
            (End::Eof, _) => Outcome::Closed,
            (End::StillOpen, _) => Outcome::Silent,
        }
    }
}

/// Performs `case` with `suite` on a connection from `connect`.
///
/// # Errors
/// [`Error::Peer`] where the server breaks the protocol itself, [`Error::Io`] where `connect` or the
/// socket's options fail. A refusal, an early end or a reset is a verdict, not an error.
pub fn run(
    case: &Case,
    suite: Suite,
    target: Target,
    connect: impl Fn() -> std::io::Result<TcpStream>,
) -> Result<Verdict, Error> {
    let stream = connect()?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut session = Session::new(stream, Options::new(suite))?;
    let mut verdict = Verdict {
        alert: None,
        warning: false,
        end: End::StillOpen,
        echoed: false,
        plain: None,
        alive: false,
    };
    let expected = case.expected_of(target);
    let survives = |outcome: &Outcome| matches!(outcome, Outcome::Continues | Outcome::Warned(_));
    let found = settle((case.perform)(&mut session), &mut session, &mut verdict)?;
    verdict.end = match found {
        Some(end) => end,
        None if expected.iter().any(survives) => probe(&mut session, &mut verdict)?,
        // Written to a server that is about to close, a probe could only do harm; so it is the last
        // resort, for a server that does not refuse what it should.
        None => match until_end(&mut session, &mut verdict)? {
            End::StillOpen if !refused(&session) => probe(&mut session, &mut verdict)?,
            end => end,
        },
    };
    verdict.echoed = session.echo_is_whole();
    if let Some(alert) = session.alert {
        verdict.alert = Some(alert.description);
        verdict.warning = alert.level == alert::WARNING;
    }
    Ok(verdict)
}

/// Whether the server has sent an alert that ends the connection.
fn refused(session: &Session) -> bool {
    session.alert.is_some_and(|sent| sent.level != alert::WARNING || sent.description == alert::CLOSE_NOTIFY)
}

/// Turns what stopped a performance into an end, where it is one. `None`: the performance is complete,
/// or its writing failed, and what the server has to say is still to be read.
fn settle(
    result: Result<(), Error>,
    session: &mut Session,
    verdict: &mut Verdict,
) -> Result<Option<End>, Error> {
    match result {
        Ok(()) => Ok(None),
        Err(Error::Alert(alert)) => {
            session.alert = Some(alert);
            until_end(session, verdict).map(Some)
        }
        Err(Error::Ended(end)) => Ok(Some(end)),
        Err(Error::NotTls(answer)) => {
            verdict.plain = Some(answer);
            Ok(Some(End::Eof))
        }
        // A server may close while a flood is still being written.
        Err(Error::Io(error)) if is_closed(error.kind()) => until_end(session, verdict).map(Some),
        Err(error) => Err(error),
    }
}

/// Reads up to the end of the connection.
fn until_end(session: &mut Session, verdict: &mut Verdict) -> Result<End, Error> {
    loop {
        match session.receive() {
            Ok(None) => {}
            Ok(Some(end)) => return Ok(end),
            Err(error) => {
                let end = settle(Err(error), session, verdict)?;
                return Ok(end.unwrap_or(End::StillOpen));
            }
        }
    }
}

/// Sends a last piece of data and reads until it has been echoed or the connection ends.
fn probe(session: &mut Session, verdict: &mut Verdict) -> Result<End, Error> {
    if !session.client.is_ready() {
        return until_end(session, verdict);
    }
    let result = session.data(PROBE).and_then(|()| session.await_echo());
    verdict.alive = result.is_ok();
    Ok(settle(result, session, verdict)?.unwrap_or(End::StillOpen))
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
}

/// How long a silent server is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sent after a case to see whether the connection lives.
const PROBE: &[u8] = b"is anybody there?";
/// How the answer to plain HTTP begins.
const HTTP_400: &[u8] = b"HTTP/1.1 400";
