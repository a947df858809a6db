//! The table of malformed input: what each case sends, which rule it breaks, and what must come back.
//!
//! [`table`] lists the cases; [`run`] performs one against a TLS-terminating echo server;
//! [`compare_all`] performs all of them against Offramp and against the [oracle](crate::oracle) and
//! tells where Offramp falls short. The rule: an outcome that the table allows, at least as strict as
//! the oracle's (unless the case says why not), never a reset; and the server serves the next client as if
//! nothing had been.
//!
//! A case that plain rustls answers differently says so, with its answer and the reason; a test holds
//! these notes to the truth.

mod alerts;
mod change_cipher_spec;
mod compare;
mod content;
mod data;
mod early_data;
mod finished;
mod hello;
mod key_update;
mod lengths;
mod post_handshake;
mod protection;
mod run;
mod session;
mod tls12;

use std::fmt;

pub use compare::{Difference, compare, compare_all};
pub use run::{Target, Verdict, run};
pub use session::Session;

use crate::Error;
use crate::tls_client::{Suite, Version};

/// How an encounter with a server came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The connection lives: what was sent before and after the case was echoed, whole and in order.
    Continues,
    /// The connection lives, and the server sent this warning alert.
    Warned(u8),
    /// The server sent this alert (fatal, or close_notify) and closed in order.
    Alert(u8),
    /// The server closed in order without an alert.
    Closed,
    /// Everything was echoed, then came close_notify, then the server closed in order.
    Drained,
    /// The server answered in plain HTTP with status 400 and closed in order.
    Http400,
    /// Nothing came, and the connection is dead or stuck.
    Silent,
    /// The connection was reset.
    Reset,
}

impl Outcome {
    /// Whether the server refused to go on.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Alert(_) | Self::Closed | Self::Http400)
    }
}

type Perform = dyn Fn(&mut Session) -> Result<(), Error> + Send + Sync;

/// What plain rustls does instead.
#[derive(Clone, Copy, Debug)]
pub struct Differs {
    /// Its outcome.
    pub outcome: Outcome,
    /// Why it has that outcome.
    pub why: &'static str,
}

/// One case.
pub struct Case {
    /// What is sent, as a sentence.
    pub name: String,
    /// The clause that it is about.
    pub rfc: &'static str,
    /// The versions in which it makes sense.
    pub versions: &'static [Version],
    /// What may come back.
    pub expect: Vec<Outcome>,
    /// Where plain rustls does something that [`Self::expect`] does not allow.
    pub rustls: Option<Differs>,
    /// Where the server under test may go on although plain rustls refuses: why.
    pub lenient: Option<&'static str>,
    perform: Box<Perform>,
}

impl Case {
    /// The suites that the case runs with.
    pub fn suites(&self) -> impl Iterator<Item = Suite> + '_ {
        Suite::ALL.into_iter().filter(|suite| self.versions.contains(&suite.version))
    }

    /// What this target is expected to do: the oracle is excused by its note.
    fn expected_of(&self, target: Target) -> Vec<Outcome> {
        match (target, self.rustls) {
            (Target::Oracle, Some(differs)) => vec![differs.outcome],
            _ => self.expect.clone(),
        }
    }

    /// A case that starts on a fresh TCP connection.
    fn fresh(
        name: impl Into<String>,
        rule: (&'static str, &'static [Version]),
        expect: &[Outcome],
        perform: impl Fn(&mut Session) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        let (rfc, versions) = rule;
        Self {
            name: name.into(),
            rfc,
            versions,
            expect: expect.to_vec(),
            rustls: None,
            lenient: None,
            perform: Box::new(perform),
        }
    }

    /// A case that starts after a complete handshake.
    fn established(
        name: impl Into<String>,
        rule: (&'static str, &'static [Version]),
        expect: &[Outcome],
        perform: impl Fn(&mut Session) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self::fresh(name, rule, expect, move |session| {
            session.handshake()?;
            perform(session)
        })
    }

    /// Notes that rustls does something else.
    fn rustls(self, outcome: Outcome, why: &'static str) -> Self {
        Self { rustls: Some(Differs { outcome, why }), ..self }
    }

    /// Notes that going on is as right as refusing, even where rustls refuses.
    fn lenient(self, why: &'static str) -> Self {
        Self { lenient: Some(why), ..self }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.rfc)
    }
}

/// Every case.
#[must_use]
pub fn table() -> Vec<Case> {
    [
        hello::cases(),
        early_data::cases(),
        change_cipher_spec::cases(),
        finished::cases(),
        protection::cases(),
        lengths::cases(),
        content::cases(),
        data::cases(),
        alerts::cases(),
        key_update::cases(),
        post_handshake::cases(),
        tls12::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Both versions.
const BOTH: &[Version] = &[Version::Tls12, Version::Tls13];
/// TLS 1.2 alone.
const TLS12: &[Version] = &[Version::Tls12];
/// TLS 1.3 alone.
const TLS13: &[Version] = &[Version::Tls13];

/// Where the RFCs demand a bound and leave the answer open: any refusal in order.
const TOO_MANY: &[Outcome] = &[
    Outcome::Closed,
    Outcome::Alert(crate::tls_client::wire::alert::UNEXPECTED_MESSAGE),
    Outcome::Alert(crate::tls_client::wire::alert::DECODE_ERROR),
    Outcome::Alert(crate::tls_client::wire::alert::HANDSHAKE_FAILURE),
    Outcome::Alert(crate::tls_client::wire::alert::CLOSE_NOTIFY),
];
/// Why rustls closes without an alert in several places.
const NO_ALERT: &str = "rustls returns this error without queueing an alert, and closes";
