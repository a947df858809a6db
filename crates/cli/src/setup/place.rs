//! Paths of configuration and program, and the rights to write.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::application::is_hidden;
use super::finding::SetupFinding;
use super::plan::{self, Manager};
use crate::banner::quoted;
use crate::failure::Failure;
use crate::flags::setup::SetupArguments;
use crate::steps::{Root, SetupRecord};
use crate::surroundings;

/// Paths that a setup uses.
pub(crate) struct SetupPaths {
    /// Path of the configuration within the tree.
    pub(crate) config: PathBuf,
    /// Path of the running program.
    pub(crate) program: PathBuf,
}

impl SetupPaths {
    /// Reads the paths.
    ///
    /// # Errors
    /// The configuration has no absolute path in a tree, or the program is not known.
    pub(crate) fn of(arguments: &SetupArguments, root: &Root) -> Result<Self, Failure> {
        let given = &arguments.config;
        if !root.is_machine() && !given.is_absolute() {
            let why = "error: with --root, --config is an absolute path within the tree";
            return Err(Failure::usage(why));
        }
        let config = offramp_config::absolute(given).map_err(Failure::usage)?;
        if config.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
            return Err(Failure::usage(
                "error: the path of --config has a control character, or is no UTF-8",
            ));
        }
        let program = surroundings::program().map(|program| program.path);
        let program = program.or_else(|| std::env::current_exe().ok()).ok_or_else(|| {
            Failure::runtime("error: the path of the running program cannot be read from /proc")
        })?;
        Ok(Self { config, program: program.canonicalize().unwrap_or(program) })
    }

    /// Checks that the files can be written, and that the service will see them.
    pub(crate) fn check(&self, root: &Root, manager: Manager, record: &SetupRecord) -> Vec<SetupFinding> {
        let mut findings = plan::check_user(root);
        let config = self.file(root);
        let mut paths = vec![config.clone()];
        if manager == Manager::Other {
            let other =
                "systemd does not run here: the file is written and the user created, and you start Offramp";
            findings.push(
                SetupFinding::warning(other).advise("the service manager of this machine runs: offramp run"),
            );
        } else {
            paths.push(root.join("/etc/systemd/system/offramp.service"));
            findings.extend(self.check_unit(root, record));
        }
        let mut denied: Vec<String> = Vec::new();
        for path in paths {
            if let Some(why) = unwritable(&path)
                && !denied.contains(&why)
            {
                denied.push(why);
            }
        }
        // Without root the commands are shown instead, which is no error.
        let is_root = offramp_net::process::is_root();
        findings
            .extend(denied.into_iter().filter(|_| is_root || !root.is_machine()).map(SetupFinding::error));
        findings
    }

    /// Path of the configuration, as this process reaches it.
    fn file(&self, root: &Root) -> PathBuf {
        // One that a link leads elsewhere is refused by the plan.
        root.place(&self.config).unwrap_or_else(|_| root.join(&self.config))
    }

    /// Checks that the unit serves the configuration.
    fn check_unit(&self, root: &Root, record: &SetupRecord) -> Vec<SetupFinding> {
        let shown = self.config.display();
        if let Some(other) = plan::other_unit(root, record) {
            let unit = other.path.display();
            let serves =
                other.text.contains(&format!("-c {shown}")) || self.config == Path::new(plan::CONFIG);
            return vec![match serves {
                true => SetupFinding::good(format!("the unit {unit} is there already, and stays as it is")),
                false => SetupFinding::error(format!("the unit {unit} does not serve {shown}"))
                    .advise("leave --config out, or change the unit: systemctl edit offramp"),
            }];
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
        if !self.config.to_str().is_some_and(|text| text.chars().all(is_plain)) {
            return vec![SetupFinding::error(format!(
                "{shown} cannot stand in a unit: use letters, digits and `._-+`"
            ))];
        }
        let is_copied = !root.is_machine() || is_hidden(&self.program);
        if !is_copied && !self.program.to_str().is_some_and(|text| text.chars().all(is_plain)) {
            let message = format!("the program {} cannot stand in a unit", self.program.display());
            return vec![
                SetupFinding::error(message).advise(
                    "move it to a path of letters, digits and `._-+`, such as /usr/local/bin/offramp",
                ),
            ];
        }
        if is_hidden(&self.config) && root.is_machine() {
            let message = format!("{shown} is hidden from the service, which sees no homes and no /tmp");
            return vec![
                SetupFinding::error(message).advise("leave --config out, or choose a place below /etc"),
            ];
        }
        let other = plan::other_program(root, &self.program, record).map(|there| {
            let message = format!("the service runs {there}, which is there and another than this program");
            let (from, to) = (quoted(&self.program), quoted(&root.join(there)));
            SetupFinding::warning(message).advise(format!("to replace it: install -m 755 {from} {to}"))
        });
        other.into_iter().collect()
    }

    /// Returns true if a file is there that setup has not written, or that somebody has changed since.
    pub(crate) fn is_taken(&self, root: &Root, record: &SetupRecord, text: &str) -> bool {
        let path = self.file(root);
        match std::fs::read_to_string(&path) {
            Ok(found) => plan::is_foreign(root, &path, record) && found != text,
            // An ordinary user may not read what setup wrote; root will see.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => false,
            Err(_) => plan::is_foreign(root, &path, record),
        }
    }

    /// The finding for such a file.
    pub(crate) fn taken(&self, root: &Root) -> SetupFinding {
        let path = self.file(root);
        SetupFinding::error(format!("{} is there, and setup has not written it as it is", path.display()))
            .advise(format!(
                "--overwrite replaces it; the old file becomes {}",
                plan::backup(&path).display()
            ))
            .advise("or keep it, and have it checked: offramp check")
    }

    /// Asks whether such a file may be replaced.
    ///
    /// # Errors
    /// The answer cannot be read.
    pub(crate) fn agrees(&self, root: &Root) -> Result<bool, Failure> {
        let path = self.file(root);
        let question = format!(
            "{} is there, and setup has not written it as it is. Replace it? The old file becomes {}.",
            path.display(),
            plan::backup(&path).display()
        );
        surroundings::agrees(&question, false)
    }
}

/// The reason why a file cannot be written, by the first directory on its way that is there.
fn unwritable(path: &Path) -> Option<String> {
    let there = path.ancestors().skip(1).find(|folder| folder.symlink_metadata().is_ok())?;
    let shown = there.display();
    match access(there, Access::WRITE_OK) {
        Ok(()) => None,
        Err(Errno::ROFS) => Some(format!(
            "{shown} is on a file system that is mounted read-only: mount it writable, or set up another tree with --root"
        )),
        Err(error) => Some(format!("{shown} cannot be written: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::finding::FindingLevel;

    #[test]
    fn a_program_that_cannot_stand_in_a_unit_is_an_error() {
        let machine = Root::machine();
        for program in ["/srv/my tools/offramp", "/srv/100%/offramp", "/srv/\"/offramp", "/srv/$x/offramp"] {
            let paths = SetupPaths { config: plan::CONFIG.into(), program: program.into() };
            // On a machine with a unit of a package that one stays, and names its own program.
            if plan::other_unit(&machine, &SetupRecord::default()).is_some() {
                return;
            }
            let found = paths.check_unit(&machine, &SetupRecord::default());
            assert!(found.len() == 1 && found[0].level == FindingLevel::Error, "{program}: {found:?}");
            assert!(found[0].text.contains("cannot stand in a unit"), "{found:?}");
        }
    }
}
