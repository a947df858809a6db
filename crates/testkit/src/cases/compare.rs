//! Two servers over the whole table, and where the first falls short of the second or of the table.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::run::{Target, Verdict, run};
use super::{Case, Outcome, table};
use crate::Error;
use crate::tls_client::{Client, Options, Suite};

/// One case in which Offramp does not do what it must.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The case's sentence.
    pub case: String,
    /// The clause that it is about.
    pub rfc: &'static str,
    /// The suite in which it showed.
    pub suite: Suite,
    /// What the table allows.
    pub expect: Vec<Outcome>,
    /// What Offramp did; an error where it broke the protocol.
    pub offramp: Result<Verdict, String>,
    /// What the oracle did.
    pub oracle: Result<Verdict, String>,
    /// Why that is not good enough.
    pub why: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |verdict: &Result<Verdict, String>| match verdict {
            Ok(verdict) => format!("{:?}", verdict.outcome()),
            Err(error) => format!("error: {error}"),
        };
        write!(
            f,
            "{} ({}, {:?}): {}; offramp {}, oracle {}, allowed {:?}",
            self.case,
            self.rfc,
            self.suite,
            self.why,
            said(&self.offramp),
            said(&self.oracle),
            self.expect
        )
    }
}

/// The whole [table](table), every suite of each case's versions, against a TLS-terminating echo at
/// `offramp` and the [oracle](crate::oracle) at `oracle`. Empty where all is well.
#[must_use]
pub fn compare_all(offramp: SocketAddr, oracle: SocketAddr) -> Vec<Difference> {
    compare(&table(), offramp, oracle)
}

/// As [`compare_all`], for some cases.
///
/// # Panics
/// If a case panics, which is a fault of the table.
#[must_use]
pub fn compare(cases: &[Case], offramp: SocketAddr, oracle: SocketAddr) -> Vec<Difference> {
    let jobs: Vec<_> = cases.iter().flat_map(|case| case.suites().map(move |suite| (case, suite))).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(&(case, suite)) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if let Some(difference) = one(case, suite, offramp, oracle) {
                        found.lock().expect("no thread panics while it holds this").push(difference);
                    }
                }
            });
        }
    });
    found.into_inner().expect("no thread panics while it holds this")
}

fn one(case: &Case, suite: Suite, offramp: SocketAddr, oracle: SocketAddr) -> Option<Difference> {
    let ask = |target, address: SocketAddr| {
        run(case, suite, target, || TcpStream::connect_timeout(&address, CONNECT))
            .map_err(|error| error.to_string())
    };
    let (subject, reference) = (ask(Target::Offramp, offramp), ask(Target::Oracle, oracle));
    let why = shortfall(case, &subject, &reference).or_else(|| {
        next_client(suite, offramp).err().map(|error| format!("the next client fails: {error}"))
    })?;
    Some(Difference {
        case: case.name.clone(),
        rfc: case.rfc,
        suite,
        expect: case.expect.clone(),
        offramp: subject,
        oracle: reference,
        why,
    })
}

/// Why the verdict on Offramp is not good enough, if it is not.
fn shortfall(
    case: &Case,
    offramp: &Result<Verdict, String>,
    oracle: &Result<Verdict, String>,
) -> Option<String> {
    let got = match offramp {
        Ok(verdict) => verdict.outcome(),
        Err(_) => return Some("it breaks the protocol itself".into()),
    };
    if !case.expect.contains(&got) {
        return Some("the table does not allow this outcome".into());
    }
    let free = case.rustls.is_some() || case.lenient.is_some();
    match oracle {
        Ok(reference) if reference.outcome().is_refusal() && !got.is_refusal() && !free => {
            Some("the oracle refuses this".into())
        }
        Ok(_) => None,
        Err(error) => Some(format!("the oracle's verdict is missing: {error}")),
    }
}

/// Whether an ordinary client is served.
fn next_client(suite: Suite, address: SocketAddr) -> Result<(), Error> {
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_read_timeout(Some(CONNECT))?;
    Client::new(stream, Options::new(suite))?.handshake()
}

/// Cases in flight: most of the time is spent waiting for the other side.
const THREADS: usize = 4;
/// For connecting, and for each answer to the next client.
const CONNECT: Duration = Duration::from_secs(60);
