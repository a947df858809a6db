//! What the process forbids itself once it has started, so that a fault in it leads nowhere.
//!
//! It happens on the main thread while that is the only one: later threads are restricted as it is. What was opened
//! before stays open. What Offramp must do all the same, such as starting the program of an upgrade, the `helper` does.

use std::path::PathBuf;
use std::sync::Arc;

use offramp_config::Config;
use offramp_config::model::{DnsProvider, Sandbox};
use offramp_net::process::{self, Identity};
use offramp_net::sandbox::calls;
use offramp_observe::{Log, LogField};

use crate::error::{Error, Finding};
use crate::helper::Helper;

/// Restricts the process as its configuration has it, and gives the helper where it is needed from now on.
///
/// # Errors
/// Something that the configuration requires cannot be done, or what was begun cannot be finished.
pub(crate) fn enter(
    config: &Config,
    helper: Option<Helper>,
    identity: Option<&Identity>,
    log: &Log,
) -> Result<Option<Arc<Helper>>, Error> {
    let Some(mut helper) = helper else { return Ok(None) };
    if config.sandbox == Sandbox::Off {
        helper.dismiss();
        return Ok(None);
    }
    helper.settle(identity, hooks(config)).map_err(|error| Error::one(format!("sandbox: {error}")))?;
    let why = |error: std::io::Error| error.to_string();
    let mut parts = Parts { required: config.sandbox == Sandbox::Required, done: Vec::new(), log };
    parts.note("core_dumps", "none", process::forbid_core_dumps().map_err(why))?;
    parts.note("new_privileges", "none", process::forbid_new_privileges().map_err(why))?;
    parts.note("programs", "helper", Ok(()))?;
    parts.note("system_calls", "seccomp", alone().and_then(|()| calls::restrict()))?;
    log.info("sandbox", &parts.done);
    Ok(Some(Arc::new(helper)))
}

/// A thread that is there already would stay as it is.
fn alone() -> Result<(), String> {
    match process::threads() {
        1 => Ok(()),
        threads => Err(format!("there are {threads} threads already")),
    }
}

/// What a reload names that cannot be used any more.
pub(crate) fn beyond(helper: Option<&Helper>, config: &Config) -> Vec<Finding> {
    let Some(helper) = helper else { return Vec::new() };
    let of_hooks = config.authorities.iter().filter_map(|authority| match &authority.dns {
        Some(DnsProvider::Hook(program)) if !helper.has(&program.path) => Some(Finding::new(
            &program.at,
            format!("Offramp's sandbox does not start {}; {UPGRADE}", program.path.display()),
        )),
        _ => None,
    });
    of_hooks.collect()
}

/// What helps where a reload cannot.
const UPGRADE: &str = "this needs an upgrade: SIGUSR2 has a new process take over with this configuration, without a lost connection";

/// What was done so far.
struct Parts<'a> {
    required: bool,
    done: Vec<LogField<'static>>,
    log: &'a Log,
}

impl Parts<'_> {
    /// Notes what became of a part: with the whole process, or as a warning.
    fn note(
        &mut self,
        part: &'static str,
        way: &'static str,
        outcome: Result<(), String>,
    ) -> Result<(), Error> {
        match outcome {
            Ok(()) => self.done.push((part, way.into())),
            Err(reason) if self.required => {
                return Err(Error::one(format!("sandbox = \"required\", but {part}: {reason}")));
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
