//! The changes in force of a process that has ended, made to a file that was changed since: item by item.

use std::sync::Arc;

use offramp_config::{Config, Edit, EditMeeting};

use crate::differences::{self, is_same};
use crate::edits::edited;
use crate::running_config::RunningConfig;
use offramp_process::Source;

/// The file with the changes that could be made to it.
pub(super) struct Merged {
    pub(super) running: RunningConfig,
    /// The changes that are not made, with the reason of each.
    pub(super) conflicts: Vec<String>,
}

/// The configurations of a merge.
#[derive(Clone, Copy)]
pub(super) struct Sides<'a> {
    /// That of the file when the process before had read it.
    pub(super) base: &'a Config,
    /// The one that was in force.
    pub(super) saved: &'a RunningConfig,
    /// That of the file now.
    pub(super) file: &'a RunningConfig,
}

/// Makes the changes that led from the base to the saved configuration to the file as it is now, where `admits` lets them be.
/// The file wins if both have changed the same thing.
pub(super) fn merge(
    sides: Sides<'_>,
    source: &Source,
    admits: &dyn Fn(&Config) -> Result<(), String>,
) -> Merged {
    let Sides { base, saved, file } = sides;
    let (ours, theirs) = (Edit::between(base, &saved.config), Edit::between(base, &file.config));
    let (mut wanted, mut conflicts) = (Vec::new(), Vec::new());
    for edit in &ours {
        let meetings: Vec<EditMeeting> = theirs.iter().map(|other| edit.meets(other)).collect();
        if meetings.contains(&EditMeeting::Conflict) {
            conflicts.push(format!("{edit} (the file has another change of it)"));
        } else if !meetings.contains(&EditMeeting::Same) {
            wanted.push(edit);
        }
    }
    let made = |running: &RunningConfig, edits: &[&Edit]| {
        let made = edited(running, edits, source).map_err(|(_, why)| why.to_string())?;
        admits(&made.config)?;
        Ok(RunningConfig { config: Arc::new(made.config), text: made.text })
    };
    let running = make(file, &wanted, &made, &mut conflicts);
    let left = without_edit(base, &ours, saved, source);
    let left =
        left.into_iter().filter(|line| differences::lines(&running.config, &saved.config).contains(line));
    let left: Vec<String> = left.collect();
    if !left.is_empty() && is_same(base, &file.config) {
        return Merged { running: saved.clone(), conflicts: Vec::new() };
    }
    conflicts
        .extend(left.into_iter().map(|line| format!("{line} (it cannot be merged with a changed file)")));
    Merged { running, conflicts }
}

/// Makes edits to the file, as many of them as can be made.
fn make<F>(file: &RunningConfig, edits: &[&Edit], made: &F, conflicts: &mut Vec<String>) -> RunningConfig
where
    F: Fn(&RunningConfig, &[&Edit]) -> Result<RunningConfig, String>,
{
    if edits.is_empty() {
        return file.clone();
    }
    if let Ok(running) = made(file, edits) {
        return running;
    }
    let mut running = file.clone();
    for edit in edits {
        match made(&running, &[edit]) {
            Ok(with) => running = with,
            Err(why) => conflicts.push(format!("{edit} ({why})")),
        }
    }
    running
}

/// The differences for which there is no edit: of policies, of authorities, of the order of items.
fn without_edit(base: &Config, edits: &[Edit], saved: &RunningConfig, source: &Source) -> Vec<String> {
    let start = RunningConfig::printed(Arc::new(base.clone()));
    let edits: Vec<&Edit> = edits.iter().collect();
    let lines = match edited(&start, &edits, source) {
        Ok(led) => differences::lines(&led.config, &saved.config),
        Err(_) => differences::lines(base, &saved.config),
    };
    lines.to_vec()
}
