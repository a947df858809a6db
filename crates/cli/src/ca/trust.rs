//! `offramp ca trust` and `untrust`: the stores of authorities of the system, of browsers and of Java.
//!
//! Each store is read first. The difference to the wish is a list of actions ([`crate::steps`]), which are shown or done.
//! A store that a user can change is changed as that user: root must not follow links, or run programs, that a user has made.

mod identity;
mod java;
mod nss;
mod owner;
mod report;
mod system;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use offramp_net::process;

use self::identity::CaIdentity;
use self::report::TrustReport;
use crate::failure::Failure;
use crate::flags::ca::{CaPlace, TrustArguments};
use crate::steps::{Account, DistributionFamily, Invocation, Root, SystemAction, home_of, one_line};
use crate::surroundings::{self, say};

/// Direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrustGoal {
    Trusted,
    Gone,
}

/// Stores and how they are reached.
struct TrustContext<'a> {
    root: &'a Root,
    distribution: DistributionFamily,
    ca: &'a CaIdentity,
    wish: TrustGoal,
    /// The user behind sudo, whose browsers are meant.
    user: Option<Account>,
    /// Home of that user, or of the user of this process.
    home: Option<PathBuf>,
}

/// A store, and what is to be done with it.
#[derive(Debug)]
struct TrustStore {
    /// Kind, as in the report.
    kind: &'static str,
    /// Path or name.
    place: String,
    state: StoreState,
}

/// State of a store before the change.
#[derive(Debug)]
enum StoreState {
    /// The wish is met; with a remark.
    Met(&'static str),
    /// Actions that meet it, a remark for afterwards, and a proof that they did.
    Pending(Vec<SystemAction>, &'static str, Option<StoreProof>),
    /// It cannot be changed; with the reason and what to do.
    Unreachable(String),
}

/// A file that has the certificate, or has it no more, once the store is changed.
#[derive(Debug)]
struct StoreProof {
    bundle: PathBuf,
    has_it: bool,
    /// A remedy if it is otherwise.
    advice: String,
}

impl StoreState {
    fn pending(actions: Vec<SystemAction>, remark: &'static str) -> Self {
        Self::Pending(actions, remark, None)
    }
}

impl TrustStore {
    fn new(kind: &'static str, place: impl Into<String>, state: StoreState) -> Self {
        Self { kind, place: place.into(), state }
    }
}

/// A run of a program that reads the certificate from standard input, with the certificate in it.
fn piped(run: Invocation, pem: &str) -> Invocation {
    let command = r#"pem=$1; shift; printf '%s\n' "$pem" | "$@""#;
    let shell = ["sh", "-c", command, "import", pem.trim_end()].map(str::to_owned);
    let words = shell.into_iter().chain(run.words).collect();
    Invocation { words, ..run }
}

/// Runs `offramp ca trust`.
///
/// # Errors
/// The CA cannot be used, or a store failed.
pub(super) fn trust(arguments: &TrustArguments) -> Result<(), Failure> {
    let path = certificate_path(arguments, TrustGoal::Trusted)?;
    run(arguments, &path, TrustGoal::Trusted)
}

/// Runs `offramp ca untrust`.
///
/// # Errors
/// As [`trust`].
pub(super) fn untrust(arguments: &TrustArguments) -> Result<(), Failure> {
    let path = certificate_path(arguments, TrustGoal::Gone)?;
    run(arguments, &path, TrustGoal::Gone)
}

/// The certificate of the CA. A CA is created only to be trusted, and not to be printed.
fn certificate_path(arguments: &TrustArguments, wish: TrustGoal) -> Result<PathBuf, Failure> {
    if let Some(path) = &arguments.certificate {
        return offramp_config::absolute(path).map_err(Failure::usage);
    }
    let CaPlace { config, state_dir } = &arguments.place;
    let is_default = config.is_none() && state_dir.is_none();
    let place = CaPlace { config: config.clone(), state_dir: state_dir.clone() };
    let state_dir = super::state_dir(place)?;
    let own = state_dir.join("ca/ca.pem");
    if is_default && !own.exists() {
        // With sudo: the CA of `offramp to`, which belongs to the user who called it.
        let root = Root::machine();
        let user = sudo_user(&root);
        let theirs = user.map(|user| user.home.join(".local/state/offramp/ca/ca.pem"));
        if let Some(theirs) = theirs.filter(|path| path.exists()) {
            return Ok(theirs);
        }
    }
    match wish {
        TrustGoal::Gone => Ok(own),
        TrustGoal::Trusted if !arguments.print => Ok(super::open(&state_dir)?.certificate_path()),
        TrustGoal::Trusted if own.exists() => Ok(own),
        TrustGoal::Trusted => Err(Failure::usage(format_args!(
            "error: there is no CA yet at {}, and --print creates none; create it first: offramp ca",
            own.display()
        ))),
    }
}

/// The user behind sudo; `None` if this process is not root.
fn sudo_user(root: &Root) -> Option<Account> {
    if !process::is_root() {
        return None;
    }
    Account::find(root, &surroundings::sudo_user()?)
}

fn run(arguments: &TrustArguments, path: &Path, wish: TrustGoal) -> Result<(), Failure> {
    let root = match &arguments.root {
        Some(directory) => Root::new(directory.canonicalize().map_err(|error| {
            Failure::usage(format_args!("error: --root {}: {error}", directory.display()))
        })?),
        None => Root::machine(),
    };
    let ca = CaIdentity::read(path, wish == TrustGoal::Gone).map_err(Failure::usage)?;
    let user = sudo_user(&Root::machine());
    let mut home = home_of(&root, user.as_ref(), surroundings::home());
    if let Some(name) = surroundings::sudo_user().filter(|_| process::is_root() && user.is_none()) {
        say(&one_line(&format!(
            "warning: SUDO_USER names {name}, who is no user of this machine: no browsers are looked for"
        )));
        home = None;
    }
    let user = user.map(|user| Account { home: home.clone().unwrap_or_default(), ..user });
    if let Some(day) = ca.expired(SystemTime::now()).filter(|_| wish == TrustGoal::Trusted) {
        say(&format!("warning: this CA expired on {day}: no program will accept it"));
    }
    let context =
        TrustContext { root: &root, distribution: DistributionFamily::of(&root), ca: &ca, wish, user, home };
    let all = !(arguments.system || arguments.browsers || arguments.java);
    say(&one_line(&format!("{} {}", ca.name(), path.display())));
    let mut report = TrustReport::default();
    if all || arguments.system {
        report.handle(&context, system::stores(&context), arguments.print)?;
    }
    if all || arguments.browsers {
        report.handle(&context, nss::stores(&context), arguments.print)?;
    }
    // After the system: on Debian its tool sees to the keystore of Java too.
    if all || arguments.java {
        report.handle(&context, java::stores(&context), arguments.print)?;
    }
    report.end(arguments, path, wish)
}
