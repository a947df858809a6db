//! From what is asked for to a configuration that was read, and the certificates that it names.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_config::{Config, ConfigDiff, EDITED, Edit, FILE_MAX, keep_until_restart};
use offramp_process::{Error, Finding, Origin, Source, log_warnings, none_or_refused, sandbox};
use offramp_proxy::live::Filter;
use offramp_sources::certificates::OnFault;

use crate::build::Material;
use crate::change::{Change, NotChanged, Terms};
use crate::config_file::{FileChange, FileRead, FileText};
use crate::confirmation::WayBack;
use crate::connections;
use crate::edits::{Edited, edited, finding, parse, refused, unknown};
use crate::emptied;
use crate::history::Kind;
use crate::plan::Proposal;
use crate::running::Running;
use crate::running_config::RunningConfig;

/// A new configuration that was read.
pub(crate) struct Draft {
    pub(crate) proposal: Proposal,
    /// The text of the configuration.
    pub(crate) text: Arc<str>,
    /// The file, where it was read for this change.
    pub(crate) read: Option<FileRead>,
    /// The text that is to be written to the file.
    pub(crate) file: Option<FileChange>,
    /// Warnings of the text that are new.
    pub(crate) warnings: Vec<Finding>,
    pub(crate) kind: Kind,
    /// The number of open connections on what becomes another, or goes; `None`: a worker did not answer in time, or
    /// the count was not requested.
    pub(crate) connections: Option<u64>,
}

/// The circumstances of a draft.
#[derive(Clone, Copy)]
struct Reading {
    /// Set where the local CA may issue.
    mint: bool,
    /// Set where the connections are counted that the change touches.
    count: bool,
}

impl Draft {
    /// Reads what a change asks for; with `count`, the connections are counted that it touches.
    ///
    /// # Errors
    /// It cannot be read, or is no sound configuration.
    pub(crate) async fn read(
        running: &Running,
        change: &Change,
        terms: &Terms,
        count: bool,
    ) -> Result<Self, NotChanged> {
        let reading = Reading { mint: !terms.dry_run, count };
        let draft = match change {
            // Nothing is read for these.
            Change::Confirm { .. } | Change::Persist => return Err(NotChanged::NothingToConfirm),
            Change::Reload => Self::of_file(running, terms, reading).await?,
            Change::Document { name, folder, text } => {
                let document = Text { name, folder: folder.as_deref(), text };
                Self::of_document(running, document, terms, reading).await?
            }
            Change::Edit(edit) => Self::of_edit(running, edit, terms, reading).await?,
            Change::Rollback(version) => match (version, running.ledger.waiting()) {
                (None, Some(waiting)) => {
                    let proposal = Self::back(running, &waiting.way_back).await?;
                    let touched = proposal.diff.as_ref().and_then(connections::touched).map(Arc::new);
                    let connections = count_touched(running, touched.as_ref()).await;
                    let text = Arc::clone(&waiting.way_back.running.text);
                    Self { connections, ..Self::whole(proposal, text) }
                }
                _ => Self::of(running, running.ledger.earlier(*version)?, reading).await?,
            },
        };
        Ok(Self { kind: change.kind(), ..draft })
    }

    /// The configuration as its file has it now; of a process without one, the one in force.
    async fn of_file(running: &Running, terms: &Terms, reading: Reading) -> Result<Self, NotChanged> {
        let Origin::File(path) = &running.source.origin else {
            return Self::of(running, running.ledger.running().clone(), reading).await;
        };
        let FileText { config, text, digest, warnings } =
            FileText::read(path, &running.source.environment).map_err(|errors| refused(&errors))?;
        log_warnings(&running.log, "configuration", &warnings.iter().map(finding).collect::<Vec<_>>());
        not_emptied(running, &config, terms)?;
        let draft = Self::of(running, RunningConfig::read(Arc::new(config), &text), reading).await?;
        let config = Arc::clone(&draft.proposal.config);
        Ok(Self { read: Some(FileRead { config, digest: Some(digest) }), ..draft })
    }

    async fn of_document(
        running: &Running,
        document: Text<'_>,
        terms: &Terms,
        reading: Reading,
    ) -> Result<Self, NotChanged> {
        let Text { name, folder, text } = document;
        let own = running.source.origin.path();
        let path = match folder.filter(|_| !terms.persist) {
            // Only the directory counts.
            Some(folder) => &folder.join("document"),
            None => own,
        };
        let environment = &running.source.environment;
        let (config, warnings) = parse(environment, text, name, path)?;
        not_emptied(running, &config, terms)?;
        let warnings = if warnings.is_empty() {
            warnings
        } else {
            let current = Edit::text_of(running.config());
            let known = parse(environment, &current, EDITED, path).map(|(_, known)| known);
            unknown(warnings, &known.unwrap_or_default())
        };
        let file = if terms.persist { Some(replace_file(running, text, config.clone())?) } else { None };
        let config = Arc::new(config);
        // Beside the file its relative paths would mean others.
        let is_beside = path.parent() == own.parent();
        let new = if is_beside { RunningConfig::read(config, text) } else { RunningConfig::printed(config) };
        Ok(Self::of(running, new, reading).await?.with(warnings, file))
    }

    async fn of_edit(
        running: &Running,
        edit: &Edit,
        terms: &Terms,
        reading: Reading,
    ) -> Result<Self, NotChanged> {
        let file = if terms.persist { Some(edit_file(running, edit)?) } else { None };
        let edited = edited(running.ledger.running(), &[edit], &running.source);
        let Edited { config, text, warnings } = edited.map_err(|(_, why)| why)?;
        let new = RunningConfig { config: Arc::new(config), text };
        Ok(Self::of(running, new, reading).await?.with(warnings, file))
    }

    /// With warnings of its text, and the file that it writes.
    fn with(self, mut warnings: Vec<Finding>, file: Option<FileChange>) -> Self {
        warnings.extend(too_large(&self.text));
        let of_file = file.iter().flat_map(FileChange::warnings).map(Finding::nowhere);
        warnings.extend(of_file);
        Self { warnings, file, ..self }
    }

    /// A whole configuration, and what it names.
    async fn of(running: &Running, new: RunningConfig, reading: Reading) -> Result<Self, NotChanged> {
        running.end_phase("parse_ms");
        let (in_force, text) = (running.config(), new.text);
        let mut config = Arc::unwrap_or_clone(new.config);
        let needs_restart = keep_until_restart(in_force, &mut config);
        let diff = ConfigDiff::between(in_force, &config);
        let touched = connections::touched(&diff).filter(|_| reading.count).map(Arc::new);
        running.end_phase("difference_ms");
        let (config, now) = (Arc::new(config), SystemTime::now());
        let denied = sandbox::beyond(&running.confinement, &config);
        let before = running.services.snapshot.carryover.sources.clone();
        let material =
            Material::read_on_thread(Arc::clone(&config), before, now, OnFault::Refuse, reading.mint);
        // Both wait for other threads, which may be busy.
        let (material, connections) = tokio::join!(material, count_touched(running, touched.as_ref()));
        running.end_phase("certificates_and_connections_ms");
        let material = match material {
            Ok(material) => material,
            Err(error) => return Err(sandbox::with_denied(denied, &error).into()),
        };
        let (diff, mint, kept) = (Some(diff), reading.mint, None);
        let proposal = Proposal { config, needs_restart, diff, denied, material, now, mint, kept };
        Ok(Self { connections, ..Self::whole(proposal, text) })
    }

    /// The way back from a change that waits to be confirmed. Files that cannot be used any more are used as they were
    /// read before the change. Nothing is issued or made anew: a state directory that is away may come back.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) async fn back(running: &Running, way_back: &WayBack) -> Result<Proposal, Error> {
        let mut config = Config::clone(&way_back.running.config);
        let in_force = running.config();
        let needs_restart = keep_until_restart(in_force, &mut config);
        let diff = Some(ConfigDiff::between(in_force, &config));
        let (config, now, mint) = (Arc::new(config), SystemTime::now(), false);
        let before = way_back.sources.clone();
        let material =
            Material::read_on_thread(Arc::clone(&config), before, now, OnFault::KeepOld, mint).await?;
        let kept = Some(way_back.kept.clone());
        // The sandbox let it be in force.
        let denied = Vec::new();
        Ok(Proposal { config, needs_restart, diff, denied, material, now, mint, kept })
    }

    fn whole(proposal: Proposal, text: Arc<str>) -> Self {
        let (kind, warnings, connections) = (Kind::TakenBack, Vec::new(), Some(0));
        Self { proposal, text, read: None, file: None, warnings, kind, connections }
    }
}

/// A text that is to be the configuration.
struct Text<'a> {
    name: &'a str,
    folder: Option<&'a Path>,
    text: &'a str,
}

/// The longest time for which connections are counted that a change touches.
const COUNTING: Duration = Duration::from_millis(500);

/// The number of connections that are meant; a worker that is stuck holds up no change for long.
async fn count_touched(running: &Running, touched: Option<&Arc<Filter>>) -> Option<u64> {
    let Some(touched) = touched else { return Some(0) };
    tokio::time::timeout(COUNTING, running.view.connections().count(touched)).await.ok()?.ok()
}

/// Refuses what would take everything down, unless that is meant.
fn not_emptied(running: &Running, config: &Config, terms: &Terms) -> Result<(), Error> {
    if terms.force { Ok(()) } else { none_or_refused(emptied::look(running.config(), config)) }
}

/// The file of the configuration with an edit; it must be as it was last read, and sound with the edit.
fn edit_file(running: &Running, edit: &Edit) -> Result<FileChange, NotChanged> {
    let path = running.source.origin.file().map_err(NotChanged::NotWritten)?;
    let environment = &running.source.environment;
    let now =
        FileText::unchanged(path, running.ledger.file(), environment).map_err(NotChanged::NotWritten)?;
    // As it was called when it was read: the places of items say so.
    let name = path.display().to_string();
    let edited = edit.apply(&now.text, &now.config, &name)?;
    let (config, _) = parse(environment, &edited, &name, path)?;
    FileChange::new(path, now, edited, config, running.config()).map_err(NotChanged::NotWritten)
}

/// The file of the configuration with the text of a document, which was read as `config`.
fn replace_file(running: &Running, text: &str, config: Config) -> Result<FileChange, NotChanged> {
    let Source { origin, environment } = &running.source;
    let changed = origin.file().and_then(|path| {
        let now = FileText::replaced_by(text, path, running.ledger.file(), environment)?;
        FileChange::new(path, now, text.to_owned(), config, running.config())
    });
    changed.map_err(NotChanged::NotWritten)
}

/// The warning that a text in force is larger than a configuration's file may be.
fn too_large(text: &str) -> Option<Finding> {
    let length = text.len();
    (length as u64 > FILE_MAX).then(|| {
        Finding::nowhere(format!(
            "this configuration has {length} bytes as text, and a file has {FILE_MAX} at most (16 MiB): `offramp ctl persist` \
             cannot write it; put large bodies into files of their own (`respond = {{ file = ... }}`)"
        ))
    })
}
