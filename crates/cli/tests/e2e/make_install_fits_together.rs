//! `make install` and `make uninstall`: the files fit together wherever they are put, and all of them go again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use offramp_testkit::process::{require, temp_dir};

/// The files of an installation, below its prefix.
const FILES: [&str; 10] = [
    "bin/.debug/offramp.debug",
    "bin/offramp",
    "lib/systemd/system/offramp.service",
    "lib/systemd/system/offramp.socket",
    "share/bash-completion/completions/offramp",
    "share/fish/vendor_completions.d/offramp.fish",
    "share/man/man1/offramp.1",
    "share/man/man5/offramp.toml.5",
    "share/offramp/from-253.conf",
    "share/zsh/site-functions/_offramp",
];

fn place(arguments: &[&str], root: &Path) -> Output {
    let _ = require("objcopy", "binutils");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/place");
    let done = Command::new(script).args(arguments).arg(root).env_remove("UNITDIR").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done
}

/// All files below a folder, as paths that begin there.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), found);
            } else {
                found.push(entry.path());
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, &mut found);
    let mut found: Vec<String> =
        found.iter().map(|path| path.strip_prefix(folder).unwrap().display().to_string()).collect();
    found.sort_unstable();
    found
}

#[test]
fn everything_is_installed_and_removed() {
    for prefix in ["/usr/local", "/usr", "/opt/edge/offramp"] {
        let root = temp_dir();
        place(&[env!("CARGO_BIN_EXE_offramp"), prefix], root.path());
        let below = root.path().join(&prefix[1..]);
        assert_eq!(files(&below), FILES, "{prefix}");
        let text = |file: &str| fs::read_to_string(below.join(file)).unwrap();
        let unit = text("lib/systemd/system/offramp.service");
        let commands = ["ExecStart=", "ExecReload="].map(|key| format!("\n{key}{prefix}/bin/offramp "));
        assert!(commands.iter().all(|command| unit.contains(command)), "{unit}");
        assert_eq!(unit.matches("/bin/offramp ").count(), 2, "{unit}");
        // A minimal Debian has a shell, and no /bin/kill.
        let commands = unit.lines().filter_map(|line| line.strip_prefix("Exec")?.split_once('='));
        let programs = commands.filter_map(|(_, command)| command.split(' ').next());
        let own = format!("{prefix}/bin/offramp");
        assert!(programs.clone().all(|program| program == own || program == "/bin/sh"), "{unit}");
        assert!(
            text("share/man/man1/offramp.1").starts_with(".ie")
                || text("share/man/man1/offramp.1").contains(".TH")
        );
        assert!(text("share/man/man1/offramp.1").contains("offramp 1 "), "the section is that of its folder");
        let addition = text("share/offramp/from-253.conf");
        assert!(addition.contains(&format!("\nExecReload={prefix}/bin/offramp check ")), "{addition}");
        assert!(addition.contains(&format!(" {prefix}/share/offramp/from-253.conf /etc/")), "{addition}");
        assert!(!addition.contains("=/usr/bin/offramp") || prefix == "/usr", "{addition}");
        assert!(text("share/bash-completion/completions/offramp").contains("complete -F _offramp"));
        assert!(text("share/zsh/site-functions/_offramp").starts_with("#compdef offramp"));
        assert!(text("share/fish/vendor_completions.d/offramp.fish").contains("complete -c offramp"));
        for file in FILES {
            let mode = fs::metadata(below.join(file)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if file == "bin/offramp" { 0o755 } else { 0o644 }, "{file}");
        }
        // What somebody else has put there stays.
        fs::write(below.join("bin/other"), "").unwrap();
        place(&["--remove", prefix], root.path());
        assert_eq!(files(root.path()), [format!("{}/bin/other", &prefix[1..])]);
    }
}

/// The installed units, as the systemd of this machine reads them below another root.
#[test]
fn systemd_accepts_the_units() {
    let root = temp_dir();
    place(&[env!("CARGO_BIN_EXE_offramp"), "/usr/local"], root.path());
    // What the units refer to.
    let (system, own) = (Path::new("/lib/systemd/system"), root.path().join("usr/lib/systemd/system"));
    fs::create_dir_all(&own).unwrap();
    for entry in fs::read_dir(system).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".target") || name.ends_with(".slice") {
            let _ = fs::copy(entry.path(), own.join(name));
        }
    }
    let verify = || {
        let mut command = Command::new(require("systemd-analyze", "systemd"));
        command.args(["verify", "--man=no", "offramp.service", "offramp.socket"]);
        command.arg(format!("--root={}", root.path().display())).output().unwrap()
    };
    let said = verify();
    // A directive that this systemd does not know is only a warning.
    assert!(said.status.success() && said.stderr.is_empty(), "{}", String::from_utf8_lossy(&said.stderr));
    // The addition for --resume, as it is documented: the command of the unit, with another path of the program.
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/resume.md")).unwrap();
    let addition = page.split("```ini\n").skip(1).find(|block| block.contains("--resume")).unwrap();
    let addition = addition.split("```").next().unwrap();
    let unit = fs::read_to_string(root.path().join("usr/local/lib/systemd/system/offramp.service")).unwrap();
    let command = |text: &str| text.lines().rfind(|line| line.starts_with("ExecStart=")).unwrap().to_owned();
    let own = command(&unit).replace(" run ", " run --resume ");
    assert_eq!(command(addition).replace("/usr/bin", "/usr/local/bin"), own);
    let folder = root.path().join("etc/systemd/system/offramp.service.d");
    fs::create_dir_all(&folder).unwrap();
    for (program, is_there) in [("/usr/local/elsewhere/offramp", false), ("/usr/local/bin/offramp", true)] {
        fs::write(folder.join("override.conf"), addition.replace("/usr/bin/offramp", program)).unwrap();
        let said = verify();
        let error = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.success() && said.stderr.is_empty(), is_there, "{error}");
    }
    fs::remove_file(root.path().join("usr/local/bin/offramp")).unwrap();
    assert!(!verify().status.success(), "the unit names another program");
}

#[test]
fn a_home_gets_no_unit_for_the_whole_machine() {
    let root = temp_dir();
    let done = place(&[env!("CARGO_BIN_EXE_offramp"), "/home/ada/.local"], root.path());
    assert!(String::from_utf8_lossy(&done.stdout).contains("no systemd unit: "));
    let below = files(&root.path().join("home/ada/.local"));
    let belongs_to_systemd = |file: &&str| file.contains("systemd") || file.ends_with("from-253.conf");
    assert_eq!(below, FILES.into_iter().filter(|file| !belongs_to_systemd(file)).collect::<Vec<_>>());
}
