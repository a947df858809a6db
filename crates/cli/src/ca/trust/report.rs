//! The report of `offramp ca trust`: one line for each store, and the exit code.

use std::fmt::Write as _;
use std::path::Path;

use offramp_net::process;

use super::identity::CaIdentity;
use super::{StoreProof, StoreState, TrustContext, TrustGoal, TrustStore, nss};
use crate::banner::quoted;
use crate::failure::Failure;
use crate::flags::ca::TrustArguments;
use crate::steps::{SystemAction, one_line, shell};
use crate::surroundings::{print, say};

/// Results of the stores.
#[derive(Default)]
pub(super) struct TrustReport {
    found: usize,
    failed: usize,
    changed: usize,
    needs_root: bool,
}

impl TrustReport {
    /// Changes stores, or prints the commands.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn handle(
        &mut self,
        context: &TrustContext<'_>,
        stores: Vec<TrustStore>,
        prints: bool,
    ) -> Result<(), Failure> {
        for TrustStore { kind, place, state } in stores {
            self.found += 1;
            let said = match state {
                StoreState::Met(remark) => remark.to_owned(),
                StoreState::Pending(actions, ..) if prints => {
                    print(format!("# {kind}: {}\n{}", one_line(&place), shell(&actions)).as_bytes())?;
                    continue;
                }
                StoreState::Pending(actions, remark, proof) => match perform(&actions)
                    .map_err(|why| format!("{why}{}", nss::advice(&why)))
                    .and_then(|()| proof.map_or(Ok(()), |proof| proof.check(context.ca)))
                {
                    Ok(()) => {
                        self.changed += 1;
                        remark.to_owned()
                    }
                    Err(why) => {
                        self.failed += 1;
                        self.needs_root |=
                            !process::is_root() && why.to_lowercase().contains("permission denied");
                        format!("failed: {why}")
                    }
                },
                StoreState::Unreachable(why) => {
                    self.failed += 1;
                    format!("failed: {why}")
                }
            };
            let said: Vec<String> = said.split('\n').map(one_line).collect();
            say(&format!("  {kind:9} {}\n            {}", one_line(&place), said.join("\n")));
        }
        Ok(())
    }

    /// Says the result of all stores.
    ///
    /// # Errors
    /// A store failed.
    pub(super) fn end(
        &self,
        arguments: &TrustArguments,
        path: &Path,
        wish: TrustGoal,
    ) -> Result<(), Failure> {
        if self.found == 0 {
            say("  no store was found");
        } else if self.changed == 0 && self.failed == 0 && !arguments.print {
            say(match wish {
                TrustGoal::Trusted => "Nothing was to be done: every store trusts it already.",
                TrustGoal::Gone => "Nothing was to be done: no store has it.",
            });
        }
        match self.failed {
            0 => Ok(()),
            count => {
                let mut why = format!("error: stores that failed: {count} of {}", self.found);
                if self.needs_root {
                    let word = if wish == TrustGoal::Trusted { "trust" } else { "untrust" };
                    // Writing to a String cannot fail.
                    let _ = write!(why, "\nThey need root: sudo offramp ca {word} {}", quoted(path));
                }
                Err(Failure::Runtime(why))
            }
        }
    }
}

fn perform(actions: &[SystemAction]) -> Result<(), String> {
    actions.iter().try_for_each(|action| action.perform().map(drop))
}

impl StoreProof {
    /// Reads the file again.
    fn check(&self, ca: &CaIdentity) -> Result<(), String> {
        let found = std::fs::read_to_string(&self.bundle);
        let has_it = found.is_ok_and(|text| ca.is_in(&text));
        match (self.has_it, has_it) {
            (true, false) => Err(format!("{} does not have it, though the tool ran", self.bundle.display())),
            (false, true) => {
                Err(format!("{} still has it, though the tool ran{}", self.bundle.display(), self.advice))
            }
            (true, true) | (false, false) => Ok(()),
        }
    }
}
