//! What a process begins with: the configuration of its file, and what another process hands over or has left.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use offramp_config::{Config, model};
use offramp_observe::Log;
use offramp_process::inherited::Inherited;
use offramp_process::sandbox::{self, Scope};
use offramp_process::upgrade::Predecessor;
use offramp_process::{Error, Origin, none_or_refused};

use super::StartFrom;
use crate::config_file::{FileRead, FileText};
use crate::resume::{FileAtStart, Resumption, resume};
use crate::running_config::RunningConfig;
use crate::upgrade::State;

/// The configuration of a process, and the hand-over of another one.
pub(super) struct Given {
    /// The configuration to start with.
    pub(super) running: RunningConfig,
    /// The configuration of the file, where a saved one is to be started with and may turn out to be of no use.
    pub(super) fallback: Option<RunningConfig>,
    /// The part of the autosave in this start.
    pub(super) resumption: Resumption,
    /// The configuration of the file, which the sandbox follows.
    pub(super) file: FileRead,
    /// The settings that the log was opened with.
    pub(super) log: model::LogConfig,
    pub(super) before: Option<Predecessor>,
    pub(super) state: State,
    pub(super) inherited: Inherited,
}

/// The parts of a start that decide on its configuration.
pub(super) struct Arrivals {
    /// The configuration of the file.
    pub(super) file: Config,
    pub(super) from: StartFrom,
    /// The sockets of the service manager.
    pub(super) activated: Vec<(String, OwnedFd)>,
}

impl Given {
    /// Takes what another process hands over or has left. Its changes of the configuration may not reach further than the
    /// sandbox that the file wants: an attacker who controls that process would choose its sandbox otherwise.
    pub(super) fn take(arrivals: Arrivals, scope: Scope<'_>, log: &Log) -> Result<Self, Error> {
        let Arrivals { file, from, activated } = arrivals;
        let is_resumed = matches!(from, StartFrom::Autosave);
        let (before, state, inherited) = match from {
            StartFrom::Predecessor(heir) => {
                let (before, state, inherited) = heir.parts();
                (Some(before), state, inherited)
            }
            StartFrom::File | StartFrom::Autosave => {
                (None, State::default(), Inherited::activated(activated))
            }
        };
        let (base, file) = read(file, scope);
        let settings = file.config.telemetry.log.clone();
        let (mut fallback, mut resumption) = (None, Resumption::taken_over(state.autosave_unused));
        let running = if before.is_some() {
            let running = state.take_over_changes(base, &file, scope.source, log)?;
            none_or_refused(sandbox::beyond_file(&file.config, &running.config, scope))?;
            running
        } else if is_resumed {
            let (saved, part) = resume(FileAtStart { base: &base, read: &file }, scope, log);
            resumption = part;
            match saved {
                Some(saved) => {
                    fallback = Some(base);
                    saved
                }
                None => base,
            }
        } else {
            base
        };
        Ok(Self { running, fallback, resumption, file, log: settings, before, state, inherited })
    }
}

/// The configuration of the file, with its text. The file may have changed since it was read.
fn read(config: Config, scope: Scope<'_>) -> (RunningConfig, FileRead) {
    let config = Arc::new(config);
    let Origin::File(path) = &scope.source.origin else {
        let file = FileRead { config: Arc::clone(&config), digest: Some(FileRead::COMMAND_LINE) };
        return (RunningConfig::printed(config), file);
    };
    let found = FileText::read(path, &scope.source.environment).ok();
    match found.filter(|found| found.config == *config) {
        Some(found) => {
            let file = FileRead { config: Arc::clone(&config), digest: Some(found.digest) };
            (RunningConfig::read(config, &found.text), file)
        }
        None => (RunningConfig::printed(Arc::clone(&config)), FileRead { config, digest: None }),
    }
}
