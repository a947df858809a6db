//! The plan of a setup: what is written, created and started, as steps.

use std::path::{Path, PathBuf};

use super::application::is_hidden;
use super::finding::SetupFinding;
use crate::steps::{
    Account, FileGroup, PlanStep, Reversal, Root, SetupRecord, SystemAction, USER, group_id, user,
};

/// Inputs of a plan.
pub(crate) struct SitePlan<'a> {
    pub(crate) root: &'a Root,
    /// Path of the configuration within the tree.
    pub(crate) config: &'a Path,
    /// Its text.
    pub(crate) text: &'a str,
    /// The running program.
    pub(crate) program: &'a Path,
    pub(crate) manager: Manager,
    /// Set if the service is started.
    pub(crate) starts: bool,
}

/// Service manager of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// systemd runs this machine.
    Running {
        /// Its version (`systemctl --version`); 0 if it is not known.
        version: u32,
    },
    /// systemd is installed in the tree, but does not run.
    Installed,
    /// Another one, or none.
    Other,
}

impl Manager {
    /// Looks for systemd (sd_booted(3)).
    pub(crate) fn of(root: &Root) -> Self {
        if root.is_machine() && Path::new("/run/systemd/system").is_dir() {
            let SystemAction::Run(run) = SystemAction::run(["systemctl", "--version"]) else {
                return Self::Other;
            };
            let said = run.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            let version = said.ok().and_then(|said| said.split_whitespace().nth(1)?.parse().ok());
            return Self::Running { version: version.unwrap_or(0) };
        }
        let places = ["/lib/systemd/systemd", "/usr/lib/systemd/systemd"];
        let is_installed = places.iter().any(|place| root.resolve(place).is_some());
        if is_installed && !root.is_machine() { Self::Installed } else { Self::Other }
    }
}

/// The unit, the addition for systemd 253 and later, and their places.
const UNIT: &str = include_str!("../../../../deploy/systemd/offramp.service");
const ADDITION: &str = include_str!("../../../../deploy/systemd/from-253.conf");
const UNIT_PLACE: &str = "/etc/systemd/system/offramp.service";
const ADDITION_PLACE: &str = "/etc/systemd/system/offramp.service.d/from-253.conf";
/// Places of units that a package or `make install` has put there.
const OTHER_UNITS: [&str; 4] = [
    "/run/systemd/system/offramp.service",
    "/usr/local/lib/systemd/system/offramp.service",
    "/usr/lib/systemd/system/offramp.service",
    "/lib/systemd/system/offramp.service",
];
/// Place of the program, if the running one is where the service does not see it.
const PROGRAM: &str = "/usr/local/bin/offramp";

/// The paths of program and configuration that the unit of this repository has.
const UNIT_PROGRAM: &str = "/usr/bin/offramp";
pub(crate) const CONFIG: &str = "/etc/offramp/offramp.toml";

/// A unit that is there already, from a package or written by hand.
pub(crate) struct OtherUnit {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Finds a unit that setup has not written.
pub(crate) fn other_unit(root: &Root, record: &SetupRecord) -> Option<OtherUnit> {
    let read = |place: &str| std::fs::read_to_string(root.join(place)).ok();
    if let Some(text) = read(UNIT_PLACE).filter(|text| !record.wrote(Path::new(UNIT_PLACE), text.as_bytes()))
    {
        return Some(OtherUnit { path: root.join(UNIT_PLACE), text });
    }
    OTHER_UNITS.iter().find_map(|place| Some(OtherUnit { path: root.join(place), text: read(place)? }))
}

/// The plan. Steps that are done already are part of it.
///
/// # Errors
/// A link leads out of the tree, or the user cannot be created in it.
pub(crate) fn steps(site: &SitePlan<'_>, record: &SetupRecord) -> Result<Vec<PlanStep>, String> {
    let mut steps = Vec::new();
    let unit = match site.manager {
        Manager::Other => None,
        Manager::Running { .. } | Manager::Installed => Some(other_unit(site.root, record)),
    };
    let program = match &unit {
        Some(None) => program(site, record, &mut steps)?,
        _ => site.program.to_owned(),
    };
    if Account::find(site.root, USER).is_none() {
        let (actions, undo) = user::create(site.root)?;
        let title = format!("create the user {USER}, as which the service runs");
        steps.push(PlanStep { title, actions, undo });
    }
    configuration(site, record, &mut steps)?;
    if let Some(None) = unit {
        units(site, &program, &mut steps)?;
    }
    if unit.is_some() {
        // A running service reads the command line of its unit, and its program, only at a start.
        let is_other = |step: &PlanStep| {
            let changes = |path: &Path| path == Path::new(PROGRAM) || path.starts_with("/etc/systemd");
            let files =
                step.undo.iter().any(|change| matches!(change, Reversal::File { path, .. } if changes(path)));
            files && !step.actions.iter().all(SystemAction::is_done)
        };
        let restarts = steps.iter().any(is_other);
        service(site, restarts, &mut steps);
    }
    Ok(steps)
}

/// Checks a user of the service that is there already.
pub(crate) fn check_user(root: &Root) -> Vec<SetupFinding> {
    let Some(account) = Account::find(root, USER) else { return Vec::new() };
    let mut findings = Vec::new();
    if account.uid == 0 {
        findings.push(
            SetupFinding::error(format!("the user {USER} has the number 0: the service would run as root"))
                .advise(format!("give it another, or delete it: userdel {USER}")),
        );
    }
    if group_id(root, USER).is_none() {
        findings.push(
            SetupFinding::error(format!("the user {USER} is there, but no group {USER}: the unit names it"))
                .advise(format!("create it: groupadd --system {USER}")),
        );
    }
    if !["nologin", "false"].iter().any(|name| account.shell.ends_with(&format!("/{name}"))) {
        findings.push(
            SetupFinding::warning(format!("the user {USER} is there, and can log in"))
                .advise(format!("if it is for the service only: usermod --shell /usr/sbin/nologin {USER}")),
        );
    }
    findings
}

/// A program within a tree that the unit names and setup has not copied, if its bytes are not those of the running one.
pub(crate) fn other_program(root: &Root, program: &Path, record: &SetupRecord) -> Option<&'static str> {
    if root.is_machine() && !is_hidden(program) {
        return None;
    }
    let there = installed(root, record)?;
    let same = std::fs::read(root.join(there)).ok() == std::fs::read(program).ok();
    (!same).then_some(there)
}

/// Finds a program that is installed and that setup has not copied.
fn installed(root: &Root, record: &SetupRecord) -> Option<&'static str> {
    let is_own = |place: &str| {
        std::fs::read(root.join(place)).is_ok_and(|bytes| record.wrote(Path::new(place), &bytes))
    };
    let is_there = |place: &str| root.join(place).exists();
    match is_own(PROGRAM) {
        true => None,
        false => [PROGRAM, UNIT_PROGRAM].into_iter().find(|place| is_there(place)),
    }
}

/// Adds the step that copies the program, if that is necessary, and returns its path within the tree.
fn program(site: &SitePlan<'_>, record: &SetupRecord, steps: &mut Vec<PlanStep>) -> Result<PathBuf, String> {
    if site.root.is_machine() && !is_hidden(site.program) {
        return Ok(site.program.to_owned());
    }
    if let Some(there) = installed(site.root, record) {
        return Ok(PathBuf::from(there));
    }
    let to = site.root.place(PROGRAM)?;
    let folder = to.parent().map(Path::to_owned).unwrap_or_default();
    let copy = SystemAction::Copy { from: site.program.to_owned(), to };
    steps.push(PlanStep::new(
        site.root,
        format!("copy the program to {PROGRAM}, where the service sees it"),
        vec![SystemAction::Folder { path: folder }, copy],
    ));
    Ok(PathBuf::from(PROGRAM))
}

/// Steps for the configuration. A file that setup has not written is kept under another name.
fn configuration(site: &SitePlan<'_>, record: &SetupRecord, steps: &mut Vec<PlanStep>) -> Result<(), String> {
    let path = site.root.place(site.config)?;
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        let title = format!("create the directory {}", site.root.within(folder).display());
        steps.push(PlanStep::new(site.root, title, vec![SystemAction::Folder { path: folder.to_owned() }]));
    }
    let group = Some(FileGroup { root: site.root.clone(), name: USER.to_owned() });
    let write = SystemAction::Write { path: path.clone(), text: site.text.to_owned(), mode: 0o640, group };
    let mut actions = Vec::new();
    if is_foreign(site.root, &path, record) && !write.is_done() {
        actions.push(SystemAction::Move { from: path.clone(), to: backup(&path) });
    }
    actions.push(write);
    let title = format!("write the configuration {}", site.root.within(&path).display());
    steps.push(PlanStep::new(site.root, title, actions));
    Ok(())
}

/// Returns true for a file that is there, and that setup has not written or somebody has changed since.
pub(crate) fn is_foreign(root: &Root, path: &Path, record: &SetupRecord) -> bool {
    let Ok(found) = path.symlink_metadata() else { return false };
    let is_own = |bytes: Vec<u8>| record.wrote(&root.within(path), &bytes);
    !found.is_file() || !std::fs::read(path).is_ok_and(is_own)
}

/// A name beside a file that is free.
pub(crate) fn backup(path: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 0 { ".before-setup".to_owned() } else { format!(".before-setup-{number}") });
        PathBuf::from(name)
    };
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    (0..).map(name).find(is_free).unwrap_or_else(|| name(0))
}

/// Steps for the unit and, where systemd knows it, the addition.
fn units(site: &SitePlan<'_>, program: &Path, steps: &mut Vec<PlanStep>) -> Result<(), String> {
    let fitted = |text: &str| {
        let text = text.replace(UNIT_PROGRAM, &program.display().to_string());
        text.replace(CONFIG, &site.config.display().to_string())
    };
    let mut files = vec![(UNIT_PLACE, fitted(UNIT))];
    if matches!(site.manager, Manager::Running { version } if version >= 253) {
        files.push((ADDITION_PLACE, fitted(ADDITION)));
    }
    let is_running = matches!(site.manager, Manager::Running { .. });
    let read = SystemAction::run(["systemctl", "daemon-reload"]);
    for (place, text) in files {
        let path = site.root.place(place)?;
        let folder = path.parent().filter(|folder| !folder.exists()).map(Path::to_owned);
        let write = SystemAction::Write { path: path.clone(), text, mode: 0o644, group: None };
        let reads = is_running && !write.is_done();
        let mut actions: Vec<SystemAction> =
            folder.map(|path| SystemAction::Folder { path }).into_iter().collect();
        actions.push(write);
        let mut step = PlanStep::new(site.root, format!("install the unit {place}"), actions);
        if reads {
            step.actions.push(read.clone());
        }
        if is_running {
            step.undo.push(Reversal::Units);
        }
        steps.push(step);
    }
    Ok(())
}

fn service(site: &SitePlan<'_>, restarts: bool, steps: &mut Vec<PlanStep>) {
    let root = match site.root.is_machine() {
        true => Vec::new(),
        false => vec![format!("--root={}", site.root.path().display())],
    };
    let systemctl = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned());
        std::iter::once("systemctl".to_owned()).chain(root.clone()).chain(words).collect::<Vec<String>>()
    };
    // A service that was enabled or started before setup stays so when setup is taken back.
    let was = |state: &str| {
        let SystemAction::Run(run) = SystemAction::run(systemctl(&[state, "--quiet", USER])) else {
            return false;
        };
        matches!(site.manager, Manager::Running { .. })
            && run.output().is_ok_and(|output| output.status.success())
    };
    let enable = SystemAction::run(systemctl(&["enable", USER]));
    let enabled = !was("is-enabled");
    if site.starts && matches!(site.manager, Manager::Running { .. }) {
        let was_active = was("is-active");
        // One that runs already takes the new file without losing a connection.
        let word = if was_active && restarts { "restart" } else { "reload-or-restart" };
        let actions = vec![enable, SystemAction::run(systemctl(&[word, USER]))];
        let undo = vec![Reversal::Service { enabled, started: !was_active }];
        let title = "start the service, now and at every start of the machine".to_owned();
        steps.push(PlanStep { title, actions, undo });
    } else {
        let undo = vec![Reversal::Service { enabled, started: false }];
        let title = "have the service started with the machine".to_owned();
        steps.push(PlanStep { title, actions: vec![enable], undo });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(root: &Root, manager: Manager, program: &str, record: &SetupRecord) -> Vec<PlanStep> {
        let site = SitePlan {
            root,
            config: Path::new(CONFIG),
            text: "x\n",
            program: Path::new(program),
            manager,
            starts: true,
        };
        steps(&site, record).unwrap()
    }

    fn titles(steps: &[PlanStep]) -> Vec<&str> {
        steps
            .iter()
            .map(|step| step.title.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
            .map(|title| -> &str { title.leak() })
            .collect()
    }

    #[test]
    fn a_fresh_tree_gets_everything() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        let record = SetupRecord::default();
        let steps = planned(&root, Manager::Installed, "/usr/bin/offramp", &record);
        assert_eq!(
            titles(&steps),
            [
                "copy the program",
                "create the user",
                "create the directory",
                "write the configuration",
                "install the unit",
                "have the service"
            ]
        );
        let steps = planned(&root, Manager::Other, "/usr/bin/offramp", &record);
        assert_eq!(titles(&steps), ["create the user", "create the directory", "write the configuration"]);
        // Everything but the state that the service makes can be taken back.
        assert!(steps.iter().all(|step| !step.undo.is_empty()));
    }

    #[test]
    fn the_unit_of_a_package_stays_and_its_program_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        std::fs::create_dir_all(root.join("/lib/systemd/system")).unwrap();
        std::fs::write(root.join("/lib/systemd/system/offramp.service"), UNIT).unwrap();
        let steps = planned(&root, Manager::Installed, "/tmp/offramp", &SetupRecord::default());
        assert_eq!(
            titles(&steps),
            ["create the user", "create the directory", "write the configuration", "have the service"]
        );
    }

    #[test]
    fn the_unit_names_program_and_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        let site = SitePlan {
            root: &root,
            config: Path::new("/srv/edge.toml"),
            text: "",
            program: Path::new("/opt/offramp"),
            manager: Manager::Running { version: 255 },
            starts: true,
        };
        let mut steps = Vec::new();
        units(&site, Path::new("/opt/offramp"), &mut steps).unwrap();
        assert_eq!(steps.len(), 2);
        for step in steps {
            let shell = step.shell();
            assert!(shell.contains("=/opt/offramp check -c /srv/edge.toml\n"), "{shell}");
            assert!(!shell.contains("=/usr/bin/offramp") && !shell.contains(CONFIG), "{shell}");
            assert!(shell.ends_with("systemctl daemon-reload\n"));
            assert_eq!(step.undo.last(), Some(&Reversal::Units));
        }
    }

    #[test]
    fn a_backup_takes_the_place_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert_eq!(backup(&path), folder.path().join("a.before-setup"));
        std::fs::write(backup(&path), "").unwrap();
        assert_eq!(backup(&path), folder.path().join("a.before-setup-1"));
    }

    #[test]
    fn a_link_out_of_the_tree_is_refused() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = Root::new(folder.path().canonicalize().unwrap());
        std::fs::create_dir(root.join("/etc")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("/etc/offramp")).unwrap();
        let site = SitePlan {
            root: &root,
            config: Path::new(CONFIG),
            text: "",
            program: Path::new("/usr/bin/offramp"),
            manager: Manager::Other,
            starts: true,
        };
        let why = steps(&site, &SetupRecord::default()).unwrap_err();
        assert!(why.contains("leads out of the tree"), "{why}");
    }

    #[test]
    fn a_user_that_cannot_serve_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        std::fs::create_dir(root.join("/etc")).unwrap();
        assert_eq!(check_user(&root), []);
        let group = "offramp:x:9:\n";
        for (user, group, told) in [
            ("offramp:x:0:0::/:/sbin/nologin", group, "would run as root"),
            ("offramp:x:9:9::/:/sbin/nologin", "", "no group offramp"),
            ("offramp:x:9:9::/:/bin/sh", group, "can log in"),
        ] {
            std::fs::write(root.join("/etc/passwd"), user).unwrap();
            std::fs::write(root.join("/etc/group"), group).unwrap();
            let found = check_user(&root);
            assert!(found.len() == 1 && found[0].text.contains(told), "{found:?}");
        }
    }

    #[test]
    fn another_program_in_the_place_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        std::fs::create_dir_all(root.join("/usr/local/bin")).unwrap();
        let own = root.join("/own");
        std::fs::write(&own, "new").unwrap();
        let record = SetupRecord::default();
        for (text, other) in [("old", Some(PROGRAM)), ("new", None)] {
            std::fs::write(root.join(PROGRAM), text).unwrap();
            assert_eq!(other_program(&root, &own, &record), other, "{text}");
        }
    }
}
