//! What the process forbids itself once it has started, so that a fault in it leads nowhere. What it needs of files and
//! ports follows from its configuration (`needs`), and what it gets from that and the disk (`grants`).
//!
//! It happens on the main thread while that is the only one: later threads are restricted as it is. What was opened
//! before stays open. What Offramp must do all the same, such as starting the program of an upgrade, the `helper` does.

mod grants;
mod needs;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use offramp_config::Config;
use offramp_config::model::{DnsProvider, Sandbox, StoreUrl};
use offramp_net::process::{self, Identity};
use offramp_net::sandbox::{bounds, calls};
use offramp_observe::{Log, LogField};

use crate::error::{Error, Finding};
use crate::helper::Helper;
use crate::running::Source;
use crate::server::Origin;
use crate::state;
use crate::upgrade::Heir;

pub(crate) use grants::Grants;

/// Files and TCP ports that the process uses beside those that its configuration names.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Files that are read.
    pub files: Vec<PathBuf>,
    /// Ports that are connected.
    pub ports: Vec<u16>,
    /// Folders for Unix sockets, of this configuration or a later one.
    pub sockets: Vec<PathBuf>,
    /// Whether abstract Unix sockets of other processes are connected: that of the service manager may be one.
    pub abstract_sockets: bool,
}

/// Has nobody see the memory of this process, before there are keys in it. Where nothing is to be forbidden, undoes what an
/// heir has done of it before it knew its configuration.
///
/// # Errors
/// The configuration requires it, and it cannot be done.
pub(crate) fn hide_memory(
    config: &Config,
    helper: Option<&Helper>,
    heir: Option<&Heir>,
    log: &Log,
) -> Result<(), Error> {
    if helper.is_some() && config.sandbox != Sandbox::Off {
        let hidden = process::forbid_core_dumps().map_err(|error| error.to_string());
        return Parts::new(config.sandbox, log).note(CORE_DUMPS, "none", hidden);
    }
    if let Some(Err(error)) = heir.map(Heir::show_memory) {
        log.warn("core dumps stay forbidden", &[("reason", (&error).into())]);
    }
    Ok(())
}

/// Restricts the process as its configuration has it, and gives `source` the helper where it is needed from now on, and
/// what the process may still do.
///
/// # Errors
/// Something that the configuration requires cannot be done, or what was begun cannot be finished.
pub(crate) fn enter(
    config: &Config,
    helper: Option<Helper>,
    source: &mut Source,
    also: &Reach,
    identity: Option<&Identity>,
    log: &Log,
) -> Result<(), Error> {
    let Some(mut helper) = helper else { return Ok(()) };
    if config.sandbox == Sandbox::Off {
        helper.dismiss();
        return Ok(());
    }
    helper.settle(identity, hooks(config)).map_err(|error| Error::one(format!("sandbox: {error}")))?;
    let why = |error: std::io::Error| error.to_string();
    let strict = config.sandbox == Sandbox::Strict;
    if matches!(source.origin, Origin::File(_)) {
        // A later configuration may keep something in it. Where it cannot be made, that is refused then.
        let _ = state::prepare(&config.state_dir);
    }
    let grants = Grants::of(config, source, also, strict);
    let mut parts = Parts::new(config.sandbox, log);
    // Another time: the kernel decides anew when the user changes.
    parts.note(CORE_DUMPS, "none", process::forbid_core_dumps().map_err(why))?;
    parts.note("new_privileges", "none", process::forbid_new_privileges().map_err(why))?;
    parts.note("programs", "helper", Ok(()))?;
    let rights = alone().and_then(|()| process::drop_capabilities(gives_files(config, source)).map_err(why));
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
            let ways = [("files", "landlock".into()), ("reading", others.into()), ("ports", others.into())];
            parts.done.extend(ways.into_iter().chain([("landlock", version)]));
            source.grants = Some(grants.entered(restricted));
        }
        Err(reason) => parts.note("files", "landlock", Err(reason))?,
    }
    parts.note("system_calls", "seccomp", alone().and_then(|()| calls::restrict(strict)))?;
    log.info("sandbox", &parts.done);
    source.helper = Some(Arc::new(helper));
    Ok(())
}

/// A thread that is there already would stay as it is.
fn alone() -> Result<(), String> {
    match process::threads() {
        1 => Ok(()),
        threads => Err(format!("there are {threads} threads already")),
    }
}

/// Whether files are given to other users: that of the configuration when a change is written to it, which keeps its
/// owner, and those that SQLite makes beside a database.
fn gives_files(config: &Config, source: &Source) -> bool {
    let own = process::Identity::current().numbers();
    let is_of_others = |path: &Path| path.metadata().is_ok_and(|found| (found.uid(), found.gid()) != own);
    let written = matches!(&source.origin, Origin::File(path) if is_of_others(path));
    written || matches!(&config.log_store.url, Some(StoreUrl::Sqlite(file)) if is_of_others(&file.path))
}

/// What a reload names that cannot be used any more.
pub(crate) fn beyond(source: &Source, config: &Config) -> Vec<Finding> {
    let Some(helper) = &source.helper else { return Vec::new() };
    let of_hooks = other_hooks(config, |program| helper.has(program));
    of_hooks.chain(source.grants.iter().flat_map(|grants| grants.missing(config))).collect()
}

/// What a configuration names that was not read from the file, and that the sandbox of the file's will not let it use.
pub(crate) fn beyond_file(file: &Config, config: &Config, source: &Source, also: &Reach) -> Vec<Finding> {
    if file.sandbox == Sandbox::Off {
        return Vec::new();
    }
    let grants = Grants::of(file, source, also, file.sandbox == Sandbox::Strict);
    let known = hooks(file);
    let of_hooks = other_hooks(config, |program| known.iter().any(|hook| hook == program));
    of_hooks.chain(grants.missing(config)).collect()
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
pub(crate) fn with_denied(denied: Vec<Finding>, error: &Error) -> Error {
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
pub(crate) fn explain(source: &Source, error: &Error) -> Error {
    explained(source, error.findings()).into()
}

/// The same findings in the same way.
pub(crate) fn explained(source: &Source, findings: &[Finding]) -> Vec<Finding> {
    let restricted = source.grants.as_ref().is_some_and(Grants::restrict_reading);
    let explained = findings.iter().map(|finding| match finding.text.contains(DENIED) && restricted {
        true => Finding::new(&finding.at, format!("{}; if the sandbox denies it: {UPGRADE}", finding.text)),
        false => finding.clone(),
    });
    explained.collect()
}

/// How the C library calls it.
const DENIED: &str = "Permission denied";

/// What helps where a reload cannot.
const UPGRADE: &str = "write it to the file of the configuration and run `offramp ctl upgrade` (SIGUSR2), \
     which starts a new process with a sandbox of its own, without a lost connection";

/// What keeps the memory of the process from disks and from others.
const CORE_DUMPS: &str = "core_dumps";

/// What was done so far.
struct Parts<'a> {
    mode: Sandbox,
    done: Vec<LogField<'static>>,
    log: &'a Log,
}

impl<'a> Parts<'a> {
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
                return Err(Error::one(format!("sandbox = \"{}\", but {part}: {reason}", self.mode)));
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
fn hooks(config: &Config) -> Vec<PathBuf> {
    let programs = config.authorities.iter().filter_map(|authority| match &authority.dns {
        Some(DnsProvider::Hook(program)) => Some(program.path.clone()),
        _ => None,
    });
    let mut programs: Vec<PathBuf> = programs.collect();
    programs.sort_unstable();
    programs.dedup();
    programs
}
