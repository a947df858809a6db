//! `offramp setup --undo`: takes back what the record says, the last step first.

use crate::failure::Failure;
use crate::flags::setup::SetupArguments;
use crate::steps::{Reversal, ReversalOutcome, Root, SetupRecord, one_line};
use crate::surroundings::{print, say};

/// Takes back what setup has done. A step that cannot be taken back stays in the record, which is written after each
/// step: an undo that was interrupted can be run again.
///
/// # Errors
/// Nothing is recorded, the user declined, or a step failed.
pub(crate) fn run(
    root: &Root,
    mut record: SetupRecord,
    asks: bool,
    arguments: &SetupArguments,
) -> Result<(), Failure> {
    let runtime = |why: String| Failure::runtime(format_args!("error: {why}"));
    if record.steps.is_empty() {
        let why = if root.is_machine() && !offramp_net::process::is_root() {
            "error: only root may see and take back what setup has done: run this with sudo"
        } else {
            "error: there is nothing to take back: setup has done nothing here, or it was taken back already"
        };
        return Err(Failure::runtime(why));
    }
    if arguments.print {
        return print(script(root, &record).map_err(runtime)?.as_bytes());
    }
    say("Steps that are taken back");
    record.steps.iter().rev().for_each(|step| say(&format!("  {}", one_line(&step.title))));
    super::confirm(asks, arguments.yes)?;
    say("");
    let leaving = record.own_group();
    let mut failed = 0;
    for index in (0..record.steps.len()).rev() {
        let step = &record.steps[index];
        let title = one_line(&step.title);
        match take_back(root, &step.undo, leaving) {
            Ok((word, remarks)) => {
                say(&format!("  {word:11} {title}"));
                remarks.iter().for_each(|remark| say(&format!("              {}", one_line(remark))));
                record.steps.remove(index);
                record.save().map_err(runtime)?;
            }
            Err(why) => {
                say(&format!("  failed      {title}\n              {why}"));
                failed += 1;
            }
        }
    }
    if let Some(why) = Reversal::reload_what_still_runs(root) {
        say(&format!(
            "  failed      have the service read the configuration from before\n              {why}"
        ));
        failed += 1;
    }
    let state = root.join("/var/lib/offramp");
    if state.exists() {
        say(&format!(
            "\n{0} stays: it has the certificates and the local CA. To remove it: rm -r {0}",
            state.display()
        ));
    }
    match failed {
        0 => Ok(()),
        count => Err(Failure::runtime(format_args!("error: steps that could not be taken back: {count}"))),
    }
}

/// Takes one step back; returns the result as a word, with remarks about what stays.
fn take_back(
    root: &Root,
    undo: &[Reversal],
    leaving: Option<u32>,
) -> Result<(&'static str, Vec<String>), String> {
    let mut word = "gone";
    let mut remarks = Vec::new();
    for change in undo {
        match change.perform(root, leaving)? {
            ReversalOutcome::Done if remarks.is_empty() => word = "taken back",
            ReversalOutcome::Done | ReversalOutcome::Already => {}
            ReversalOutcome::Kept(why) => {
                if word == "gone" || matches!(change, Reversal::File { .. } | Reversal::User { .. }) {
                    word = "stays";
                }
                remarks.push(why);
            }
        }
    }
    Ok((word, remarks))
}

/// The commands of a shell that take everything back.
fn script(root: &Root, record: &SetupRecord) -> Result<String, String> {
    let mut out = String::from(super::SCRIPT_START);
    let leaving = record.own_group();
    for step in record.steps.iter().rev() {
        out.push_str(&format!("\n# take back: {}\n", one_line(&step.title)));
        for change in &step.undo {
            out.push_str(&change.shell(root, leaving)?);
            out.push('\n');
        }
    }
    if let Some(reload) = Reversal::shell_of_reload(root) {
        out.push_str(&format!("\n# have what still runs read the configuration from before\n{reload}\n"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_ends_no_comment() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        let mut record = SetupRecord::default();
        record.begin("x\nid #", &[Reversal::Folder { path: "/x\ny".into() }]);
        let script = script(&root, &record).unwrap();
        assert!(script.contains("# take back: x\\nid #\n"), "{script}");
    }
}
