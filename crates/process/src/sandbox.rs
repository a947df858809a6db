//! What the process forbids itself once it has started, so that a fault in it leads nowhere. What it needs of files and
//! ports follows from its configuration (`needs`), and what it gets from that and the disk (`grants`).
//!
//! It happens on the main thread while that is the only one: later threads are restricted as it is. What was opened
//! before stays open. What Offramp must do all the same, such as starting the program of an upgrade, the `helper` does.

mod grants;
mod needs;

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use offramp_config::Config;
use offramp_config::model::{DnsProvider, NotifyTarget, ProgramCommand, Sandbox, StoreUrl};
use offramp_net::process::{self, UserIdentity};
use offramp_net::sandbox::{bounds, calls};
use offramp_observe::{Log, LogField};

use crate::error::{Error, Finding};
use crate::helper::{Helper, NamedPrograms};
use crate::origin::{Origin, Source};
use crate::program::Program;
use crate::state_dir;

use grants::Grants;
use needs::Need;

/// Files and TCP ports that the process uses beside those that its configuration names.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Files that are read.
    pub files: Vec<PathBuf>,
    /// Ports that are connected.
    pub ports: Vec<u16>,
    /// Folders for Unix sockets, of this configuration or a later one.
    pub sockets: Vec<PathBuf>,
    /// Set where abstract Unix sockets of other processes are connected: that of the service manager may be one.
    pub abstract_sockets: bool,
}

/// The limits that the process has set itself: the helper starts programs for it, and grants bound its files and ports.
#[derive(Debug, Default)]
pub struct Confinement {
    /// Starts the program of an upgrade and DNS hooks; without, this process does.
    pub helper: Option<Arc<Helper>>,
    /// The files and ports that the process may use; `None`: any.
    grants: Option<Grants>,
}

/// The process that is to be confined, beside its configuration.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The origin of its configurations.
    pub source: &'a Source,
    /// The program of an upgrade.
    pub program: Option<&'a Program>,
    /// Files and ports that the configuration does not name.
    pub also: &'a Reach,
}

/// Hides the memory of this process before there are keys in it. Where nothing is to be forbidden, undoes what an
/// heir has done of it before it knew its configuration.
///
/// # Errors
/// The configuration requires it, and it cannot be done.
pub fn hide_memory(
    config: &Config,
    helper: Option<&Helper>,
    show_memory: impl FnOnce() -> io::Result<()>,
    log: &Log,
) -> Result<(), Error> {
    if helper.is_some() && config.process.sandbox != Sandbox::Off {
        let hidden = process::forbid_core_dumps().map_err(|error| error.to_string());
        return SandboxParts::new(config.process.sandbox, log).note(CORE_DUMPS, "none", hidden);
    }
    if let Err(error) = show_memory() {
        log.warn("core dumps stay forbidden", &[("reason", (&error).into())]);
    }
    Ok(())
}

/// Restricts the process as its configuration has it.
///
/// # Errors
/// Something that the configuration requires cannot be done, or what was begun cannot be finished.
pub fn enter(
    config: &Config,
    helper: Option<Helper>,
    scope: Scope<'_>,
    identity: Option<&UserIdentity>,
    log: &Log,
) -> Result<Confinement, Error> {
    let mut confinement = Confinement::default();
    let Some(mut helper) = helper else { return Ok(confinement) };
    if config.process.sandbox == Sandbox::Off {
        helper.dismiss();
        return Ok(confinement);
    }
    helper.settle(identity, programs(config)).map_err(|error| Error::one(format!("sandbox: {error}")))?;
    let why = |error: io::Error| error.to_string();
    let strict = config.process.sandbox == Sandbox::Strict;
    if matches!(scope.source.origin, Origin::File(_)) {
        // A later configuration may keep something in it. Where it cannot be made, that is refused then.
        let _ = state_dir::prepare(&config.process.state_dir);
    }
    let grants = Grants::of(config, scope, strict);
    let mut parts = SandboxParts::new(config.process.sandbox, log);
    // Another time: the kernel decides anew when the user changes.
    parts.note(CORE_DUMPS, "none", process::forbid_core_dumps().map_err(why))?;
    parts.note("new_privileges", "none", process::forbid_new_privileges().map_err(why))?;
    parts.note("programs", "helper", Ok(()))?;
    let rights = alone()
        .and_then(|()| process::drop_capabilities(gives_files(config, &scope.source.origin)).map_err(why));
    let left = if matches!(rights, Ok(true)) { "needed" } else { "none" };
    parts.note("capabilities", left, rights.map(drop))?;
    let restricted = alone().and_then(|()| bounds::restrict(grants.bounds(), parts.is_required()));
    match restricted {
        Ok(restricted) => {
            let others = if strict { "landlock" } else { "any" };
            let version = restricted.version.into();
            for (path, reason) in &restricted.without_rule {
                let path = path.display().to_string();
                let fields = [("path", (&path).into()), ("reason", reason.into())];
                log.warn("the sandbox does not let Offramp use a path that the configuration names", &fields);
            }
            let ways = [(FILES, "landlock".into()), ("reading", others.into()), ("ports", others.into())];
            parts.done.extend(ways.into_iter().chain([("landlock", version)]));
            confinement.grants = Some(grants.entered(restricted));
        }
        Err(reason) => parts.note(FILES, "landlock", Err(reason))?,
    }
    parts.note("system_calls", "seccomp", alone().and_then(|()| calls::restrict(strict)))?;
    log.info("sandbox", &parts.done);
    confinement.helper = Some(Arc::new(helper));
    Ok(confinement)
}

/// A warning where this kernel cannot do what the configuration requires: a start is refused here.
#[must_use]
pub fn unavailable(config: &Config) -> Option<Finding> {
    let mode = config.process.sandbox;
    let reason = match mode {
        Sandbox::On | Sandbox::Off => None,
        Sandbox::Required | Sandbox::Strict => bounds::missing(mode == Sandbox::Strict),
    }?;
    Some(Finding::nowhere(format!("a start is refused on this machine: {}", lacking(mode, FILES, &reason))))
}

/// The part of a required sandbox that cannot be had, and the remedy.
fn lacking(mode: Sandbox, part: &str, reason: &str) -> String {
    format!(
        "sandbox = \"{mode}\", but {part}: {reason}; `sandbox = \"on\"` does without what is not available"
    )
}

/// A thread that is there already would stay as it is.
fn alone() -> Result<(), String> {
    match process::threads() {
        1 => Ok(()),
        threads => Err(format!("there are {threads} threads already")),
    }
}

/// True if files are given to other users: that of the configuration when a change is written to it, which keeps its
/// owner, and those that SQLite makes beside a database.
fn gives_files(config: &Config, origin: &Origin) -> bool {
    let own = process::UserIdentity::current().numbers();
    let is_of_others = |path: &Path| path.metadata().is_ok_and(|found| (found.uid(), found.gid()) != own);
    let written = matches!(origin, Origin::File(path) if is_of_others(path));
    written
        || matches!(&config.telemetry.log_store.url, Some(StoreUrl::Sqlite(file)) if is_of_others(&file.path))
}

/// The files, ports and hooks of a later configuration that the process may not use.
pub fn beyond(confinement: &Confinement, config: &Config) -> Vec<Finding> {
    let Some(helper) = &confinement.helper else { return Vec::new() };
    let of_hooks = other_hooks(config, |program| helper.has(program));
    let of_receivers = other_receivers(config, |command| helper.has_receiver(command));
    of_hooks
        .chain(of_receivers)
        .chain(confinement.grants.iter().flat_map(|grants| grants.missing(config)))
        .collect()
}

/// Everything that a configuration names beyond its file, and that the sandbox of the file's will not let it use.
pub fn beyond_file(file: &Config, config: &Config, scope: Scope<'_>) -> Vec<Finding> {
    if file.process.sandbox == Sandbox::Off {
        return Vec::new();
    }
    beyond_grants(file, config, &Grants::of(file, scope, file.process.sandbox == Sandbox::Strict))
}

/// Like [`beyond_file`], for a configuration that another user than root may have written and that root opens files for: each
/// file that it names is named by the file of the configuration under the same key. That user may swap files in folders of its
/// own, and may not have root open what it cannot open itself; a path that root's file names was root's decision.
pub fn beyond_named(file: &Config, config: &Config, scope: Scope<'_>) -> Vec<Finding> {
    let named = needs::needs(file);
    let is_named = |need: &Need| named.iter().any(|known| (known.key, &known.what) == (need.key, &need.what));
    let needs = needs::needs(config);
    let others = needs.iter().filter(|need| need.what.path().is_some() && !is_named(need));
    let of_files = others.map(|need| {
        let path = need.what.path().map(|path| path.display().to_string()).unwrap_or_default();
        let text = format!(
            "`{}`: root does not open {path} for a configuration that another user can write, because the file of the \
             configuration does not name it there; write it to that file",
            need.key
        );
        Finding::new(&need.at, text)
    });
    let beyond: Vec<Finding> = of_files.chain(other_programs(file, config)).collect();
    // Ports may be in files, which are opened only if all files are named.
    if beyond.is_empty() { beyond_file(file, config, scope) } else { beyond }
}

fn beyond_grants(file: &Config, config: &Config, grants: &Grants) -> Vec<Finding> {
    other_programs(file, config).into_iter().chain(grants.missing(config)).collect()
}

/// The programs of a configuration that its file does not name.
fn other_programs(file: &Config, config: &Config) -> Vec<Finding> {
    let NamedPrograms { hooks, receivers } = programs(file);
    let of_hooks = other_hooks(config, |program| hooks.iter().any(|hook| hook == program));
    of_hooks.chain(other_receivers(config, |command| receivers.contains(command))).collect()
}

/// The programs for notifications of a configuration that are not `known`.
fn other_receivers(
    config: &Config,
    known: impl Fn(&ProgramCommand) -> bool,
) -> impl Iterator<Item = Finding> {
    config.telemetry.notify.iter().filter_map(move |receiver| match &receiver.to {
        NotifyTarget::Program(program) if !known(&program.command) => Some(Finding::new(
            &receiver.at,
            format!(
                "`notify.program`: the sandbox does not let Offramp start {} with these arguments; {UPGRADE}",
                program.command.path().display()
            ),
        )),
        _ => None,
    })
}

/// The hooks of a configuration that are not `known`.
fn other_hooks(config: &Config, known: impl Fn(&Path) -> bool) -> impl Iterator<Item = Finding> {
    config.authorities.iter().filter_map(move |authority| match &authority.dns {
        Some(DnsProvider::Hook(program)) if !known(&program.path) => Some(Finding::new(
            &program.at,
            format!(
                "`dns_hook`: the sandbox does not let Offramp start {}; {UPGRADE}",
                program.path.display()
            ),
        )),
        _ => None,
    })
}

/// All that is wrong with a configuration: what the sandbox denies, and what else was found. That a file or port could not
/// be used that it denies is not said twice.
pub fn with_denied(denied: Vec<Finding>, error: &Error) -> Error {
    let place = |finding: &Finding| finding.at.place().map(ToString::to_string);
    let is_same = |one: &Finding, found: &Finding| {
        // One with a space in it is said twice, and that is all.
        let path = one.text.split([' ', ';']).find(|word| word.starts_with('/'));
        path.is_some_and(|path| found.text.contains(path))
            || one.at.place().is_some() && place(one) == place(found)
    };
    let is_known =
        |found: &&Finding| found.text.contains(DENIED) && denied.iter().any(|one| is_same(one, found));
    let others: Vec<Finding> = error.findings().iter().filter(|found| !is_known(found)).cloned().collect();
    denied.into_iter().chain(others).collect::<Vec<_>>().into()
}

/// The same error with what may be the reason, where files cannot be read that the configuration names: the sandbox
/// knows files and folders by what they were at the start.
pub fn explain(confinement: &Confinement, error: &Error) -> Error {
    explained(confinement, error.findings()).into()
}

/// The same findings in the same way.
pub fn explained(confinement: &Confinement, findings: &[Finding]) -> Vec<Finding> {
    let restricted = confinement.grants.as_ref().is_some_and(Grants::restrict_reading);
    let explained = findings.iter().map(|finding| match finding.text.contains(DENIED) && restricted {
        true => Finding::new(&finding.at, format!("{}; if the sandbox denies it: {UPGRADE}", finding.text)),
        false => finding.clone(),
    });
    explained.collect()
}

/// The error text of the C library.
const DENIED: &str = "Permission denied";

/// The remedy where a reload cannot help.
const UPGRADE: &str = "write it to the file of the configuration and run `offramp ctl upgrade` (SIGUSR2), \
     which starts a new process with a sandbox of its own, without a lost connection";

/// The part that keeps the memory of the process from disks and from other processes.
const CORE_DUMPS: &str = "core_dumps";

/// The part that restricts files and ports.
const FILES: &str = "files";

/// The parts that are done.
struct SandboxParts<'a> {
    mode: Sandbox,
    done: Vec<LogField<'static>>,
    log: &'a Log,
}

impl<'a> SandboxParts<'a> {
    fn new(mode: Sandbox, log: &'a Log) -> Self {
        Self { mode, done: Vec::new(), log }
    }

    fn is_required(&self) -> bool {
        matches!(self.mode, Sandbox::Required | Sandbox::Strict)
    }

    /// Notes what became of a part: with the whole process, or as a warning.
    fn note(
        &mut self,
        part: &'static str,
        way: &'static str,
        outcome: Result<(), String>,
    ) -> Result<(), Error> {
        match outcome {
            Ok(()) => self.done.push((part, way.into())),
            Err(reason) if self.is_required() => {
                return Err(Error::one(lacking(self.mode, part, &reason)));
            }
            Err(reason) => {
                let fields = [("part", part.into()), ("reason", (&reason).into())];
                self.log.warn("a part of the sandbox is not available", &fields);
            }
        }
        Ok(())
    }
}

/// The programs that the configuration names.
fn programs(config: &Config) -> NamedPrograms {
    let hooks = config.authorities.iter().filter_map(|authority| match &authority.dns {
        Some(DnsProvider::Hook(program)) => Some(program.path.clone()),
        _ => None,
    });
    let mut hooks: Vec<PathBuf> = hooks.collect();
    hooks.sort_unstable();
    hooks.dedup();
    let mut receivers: Vec<ProgramCommand> = Vec::new();
    for receiver in &config.telemetry.notify {
        if let NotifyTarget::Program(program) = &receiver.to
            && !receivers.contains(&program.command)
        {
            receivers.push(program.command.clone());
        }
    }
    NamedPrograms { hooks, receivers }
}
