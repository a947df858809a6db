//! From what is asked for to a configuration that was read, and the certificates that it names.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use offramp_config::{
    Config, ConfigDiff, Document, EDITED, Edit, EditError, Environment, Errors, Problem, Severity,
    keep_until_restart, load_document,
};

use super::persist::{self, File};
use super::{Change, Confirmation, NotChanged, Terms};
use crate::certificates::OnFault;
use crate::connections;
use crate::emptied;
use crate::error::{Error, Finding, none_or_refused};
use crate::history::Kind;
use crate::reload::{Proposal, finding};
use crate::running::Running;
use crate::server::Origin;
use crate::unwritten::Made;

/// A new configuration that was read.
pub(crate) struct Draft {
    pub(super) proposal: Proposal,
    /// What is to be written to the file.
    pub(super) file: Option<File>,
    /// What is odd about the text, and was not about the configuration in force.
    pub(super) warnings: Vec<Finding>,
    /// How it came about.
    pub(super) kind: Kind,
    /// How many connections are open on what becomes another, or goes; `None`: a worker did not answer in time.
    pub(super) connections: Option<u64>,
    /// What it means for what the file does not have.
    pub(super) made: Made,
}

impl Draft {
    pub(super) async fn read(running: &Running, change: &Change, terms: &Terms) -> Result<Self, NotChanged> {
        let draft = Self::read_kind(running, change, terms).await?;
        Ok(Self { kind: change.kind(), ..draft })
    }

    async fn read_kind(running: &Running, change: &Change, terms: &Terms) -> Result<Self, NotChanged> {
        let mint = !terms.dry_run;
        match change {
            Change::Confirm { .. } => Err(NotChanged::NothingToConfirm),
            Change::Reload => {
                let config = running.read()?;
                not_emptied(running, &config, terms)?;
                Ok(Self { made: Made::Read, ..Self::of(running, config, mint).await? })
            }
            Change::Document { name, folder, text } => {
                let path = match folder.as_ref().filter(|_| !terms.persist) {
                    // Only the directory counts.
                    Some(folder) => &folder.join("document"),
                    None => running.source.origin.path(),
                };
                let environment = &running.source.environment;
                let (config, warnings) = parse(environment, text, name, path)?;
                not_emptied(running, &config, terms)?;
                let warnings = if warnings.is_empty() {
                    warnings
                } else {
                    let current = Edit::text_of(&running.config);
                    let known = parse(environment, &current, EDITED, path).map(|(_, known)| known);
                    new(warnings, &known.unwrap_or_default())
                };
                let mut draft = Self { warnings, ..Self::of(running, config, mint).await? };
                if terms.persist {
                    let path = origin(running)?;
                    let before = persist::read(&path).map_err(NotChanged::NotWritten)?;
                    draft.file = Some(File::new(path, before, text.clone()));
                }
                Ok(draft)
            }
            Change::Edit(edit) => {
                let written = if terms.persist { Some(edit_file(running, edit)?) } else { None };
                let (file, written) = written.unzip();
                let environment = &running.source.environment;
                let edited = edited(&running.config, &[edit], running.source.origin.path(), environment);
                let edited = edited.map_err(|(_, why)| why)?;
                let made = Made::Item { edit: Box::new(edit.clone()), file: written.map(Arc::new) };
                let warnings = edited.warnings;
                Ok(Self { file, made, warnings, ..Self::of(running, edited.config, mint).await? })
            }
            Change::Rollback(version) => match (version, &running.confirmation) {
                (None, Some(waiting)) => {
                    let proposal = Self::back(running, waiting).await?;
                    let touched = connections::touched(&proposal.diff).map(Arc::new);
                    let connections = running.count(touched.as_ref()).await;
                    let (kind, made) = (Kind::Rollback, Made::Whole);
                    Ok(Self { proposal, file: None, warnings: Vec::new(), kind, connections, made })
                }
                _ => {
                    let config = Config::clone(&*running.earlier(*version)?);
                    Self::of(running, config, mint).await
                }
            },
        }
    }

    /// Of a configuration, and what it names: one that is taken back to, unless the caller says otherwise.
    pub(super) async fn of(running: &Running, mut config: Config, mint: bool) -> Result<Self, NotChanged> {
        running.ends("parse_ms");
        let needs_restart = keep_until_restart(&running.config, &mut config);
        let diff = ConfigDiff::between(&running.config, &config);
        let touched = connections::touched(&diff).map(Arc::new);
        running.ends("difference_ms");
        // Both wait for other threads, which may be busy.
        let proposal = running.propose(config, diff, needs_restart, mint);
        let (proposal, connections) = tokio::join!(proposal, running.count(touched.as_ref()));
        running.ends("certificates_and_connections_ms");
        let (kind, made) = (Kind::TakenBack, Made::Whole);
        Ok(Self { proposal: proposal?, file: None, warnings: Vec::new(), kind, connections, made })
    }

    /// The way back from a change that waits to be confirmed. Files that cannot be used any more are used as they were
    /// read before the change. Nothing is issued or made anew: a state directory that is away may come back.
    pub(super) async fn back(running: &Running, waiting: &Confirmation) -> Result<Proposal, Error> {
        let mut config = Config::clone(&waiting.before);
        let needs_restart = keep_until_restart(&running.config, &mut config);
        let diff = ConfigDiff::between(&running.config, &config);
        let (now, files) = (SystemTime::now(), &waiting.files);
        let before = files.sources.clone();
        let mint = false;
        let material = running.read_material(&config, before, now, OnFault::KeepOld, mint).await?;
        let (contents, events) = (Some(files.contents.clone()), files.events.clone());
        // The sandbox let it be in force.
        let denied = Vec::new();
        Ok(Proposal { config, needs_restart, diff, denied, material, now, mint, contents, events })
    }
}

fn origin(running: &Running) -> Result<PathBuf, NotChanged> {
    match &running.source.origin {
        Origin::File(path) => Ok(path.clone()),
        Origin::CommandLine => {
            Err(NotChanged::NotWritten("there is no file: Offramp was started without one".to_owned()))
        }
    }
}

/// Refuses what would take everything down, unless that is meant.
fn not_emptied(running: &Running, config: &Config, terms: &Terms) -> Result<(), Error> {
    if terms.force { Ok(()) } else { none_or_refused(emptied::look(&running.config, config)) }
}

/// A configuration with edits.
pub(crate) struct Edited {
    pub(crate) config: Config,
    /// What is odd about it, and was not before.
    warnings: Vec<Finding>,
}

/// Makes edits to a configuration, one after the other. They must lead to a sound one.
///
/// # Errors
/// One of them cannot be made, or leads to no sound configuration; which, or their number for all of them.
pub(crate) fn edited(
    config: &Config,
    edits: &[&Edit],
    path: &Path,
    environment: &Environment,
) -> Result<Edited, (usize, NotChanged)> {
    let all = |error: Error| (edits.len(), NotChanged::from(error));
    let read = |text: &str| parse(environment, text, EDITED, path);
    let text = Edit::text_of(config);
    let (same, known) = read(&text).map_err(all)?;
    if same != *config {
        let why = "this configuration cannot be changed item by item; change the whole of it";
        return Err(all(Error::one(why)));
    }
    let start = Text { text, config: same, warnings: Vec::new() };
    let made = match make(&start, edits, edits.len(), read) {
        // Which one is wrong is found by reading after each.
        Err(_) if edits.len() > 1 => make(&start, edits, 1, read),
        made => made,
    };
    let refused = |error| match error {
        Wrong::Edit(error) => error.into(),
        Wrong::Text(error, text) => Error::from(all_in_words(error.findings(), &text, config)).into(),
    };
    let Text { text, config: mut edited, warnings } = made.map_err(|(at, wrong)| (at, refused(wrong)))?;
    edited.keep_places(config);
    Ok(Edited { config: edited, warnings: all_in_words(&new(warnings, &known), &text, config) })
}

/// A text that edits are made in, and what it was read as.
#[derive(Clone)]
struct Text {
    text: String,
    config: Config,
    warnings: Vec<Finding>,
}

/// Why edits cannot be made.
enum Wrong {
    Edit(EditError),
    /// They lead to this text.
    Text(Error, String),
}

/// Makes edits one after the other, and reads the text as seldom as can be: each time costs milliseconds where there are
/// a thousand routes. At most so many are made between.
fn make(
    start: &Text,
    edits: &[&Edit],
    between: usize,
    read: impl Fn(&str) -> Result<(Config, Vec<Finding>), Error>,
) -> Result<Text, (usize, Wrong)> {
    let (mut now, mut done) = (start.clone(), 0);
    while done < edits.len() {
        let next = &edits[done..edits.len().min(done + between)];
        let made = Edit::apply_some(next, &now.text, &now.config, EDITED);
        let (text, made) = made.map_err(|(at, error)| (done + at, Wrong::Edit(error)))?;
        done += made;
        now = match read(&text) {
            Ok((config, warnings)) => Text { text, config, warnings },
            Err(error) => return Err((done - 1, Wrong::Text(error, text))),
        };
    }
    Ok(now)
}

/// Reads a text, and tells its warnings.
fn parse(
    environment: &Environment,
    text: &str,
    name: &str,
    path: &Path,
) -> Result<(Config, Vec<Finding>), Error> {
    let document = Document { name, path };
    let (config, warnings) =
        load_document(text, &document, environment).map_err(|errors| refused(&errors))?;
    Ok((config, warnings.iter().map(finding).collect()))
}

/// The warnings that are not known. The lines that they name may be others.
fn new(warnings: Vec<Finding>, known: &[Finding]) -> Vec<Finding> {
    let without_lines = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let known: HashSet<String> = known.iter().map(|one| without_lines(&one.text)).collect();
    warnings.into_iter().filter(|one| !known.contains(&without_lines(&one.text))).collect()
}

fn all_in_words(findings: &[Finding], text: &str, config: &Config) -> Vec<Finding> {
    findings.iter().map(|finding| in_words(finding, text, config)).collect()
}

/// What is said of the text of an edit, which nobody can open: its lines are told as the items that stand there.
fn in_words(finding: &Finding, text: &str, config: &Config) -> Finding {
    let said = offramp_config::without_lines(&finding.text, text, config);
    let own = finding.at.place().filter(|place| &*place.file == EDITED);
    match own.and_then(|place| offramp_config::item_at(text, place.line, config)) {
        Some(item) => Finding::nowhere(format!("{item}: {said}")),
        None => Finding::new(&finding.at, said),
    }
}

/// Every mistake of a text.
pub(crate) fn refused(errors: &Errors) -> Error {
    let is_error = |problem: &&Problem| problem.severity() == Severity::Error;
    errors.problems().iter().filter(is_error).map(finding).collect::<Vec<_>>().into()
}

/// The file of the configuration with an edit, and what it has then; it must be sound.
fn edit_file(running: &Running, edit: &Edit) -> Result<(File, Config), NotChanged> {
    let path = origin(running)?;
    let text = persist::read(&path).map_err(NotChanged::NotWritten)?;
    // As it was called when it was read: the places of items say so.
    let name = path.display().to_string();
    let environment = &running.source.environment;
    let (config, _) = parse(environment, &text, &name, &path)?;
    let edited = edit.apply(&text, &config, &name)?;
    let (mut config, _) = parse(environment, &edited, &name, &path)?;
    // What differs in these is not in force, and is no change that was not written.
    keep_until_restart(&running.config, &mut config);
    Ok((File::new(path, text, edited), config))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use offramp_config::ServerEdit;
    use offramp_config::model::ServerState;

    use super::*;

    /// As many as pass over at an upgrade.
    #[test]
    fn many_edits_need_few_readings() {
        let servers: Vec<String> = (0..100).map(|at| format!("\"h:{}\"", at + 1)).collect();
        let text = format!("[[route]]\nbackend = \"b\"\n[backend.b]\nservers = [{}]\n", servers.join(", "));
        let environment = Environment::default();
        let config = offramp_config::parse(&text, "/c/c.toml", &environment).unwrap().0;
        let change = ServerEdit::Change { state: Some(ServerState::Drain), weight: None };
        let drain = |at: usize| Edit::Server {
            backend: "b".to_owned(),
            server: format!("h:{}", at + 1),
            change: change.clone(),
        };
        let route = |at: usize| {
            let text =
                format!("add = \"route\"\nname = \"\"\n[keys]\nhost = \"h{at}.example\"\nbackend = \"b\"\n");
            Edit::from_text(&text).unwrap()
        };
        let edits: Vec<Edit> = (0..100).flat_map(|at| [drain(at), route(at)]).collect();
        let edits: Vec<&Edit> = edits.iter().collect();
        let text = Edit::text_of(&config);
        let (config, warnings) = parse(&environment, &text, EDITED, Path::new("/c/c.toml")).unwrap();
        let start = Text { text, config, warnings };
        let readings = Cell::new(0);
        let read = |text: &str| {
            readings.set(readings.get() + 1);
            parse(&environment, text, EDITED, Path::new("/c/c.toml"))
        };
        let Ok(made) = make(&start, &edits, edits.len(), read) else { panic!("they can be made") };
        assert_eq!((readings.get(), made.config.routes.len()), (1, 101));
        assert!(made.config.backends[0].servers.iter().all(|server| server.state == ServerState::Drain));
        // Which one cannot be made is told.
        let wrong = drain(100);
        let all = [&edits[..], &[&wrong], &edits[..1]].concat();
        let error = edited(&start.config, &all, Path::new("/c/c.toml"), &environment).err().unwrap();
        assert!(matches!(error, (200, NotChanged::Edit(EditError::Unknown { .. }))), "{:?}", error.1);
    }
}
