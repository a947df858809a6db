//! `install.sh` of the static tarballs: what it installs below a prefix, what it refuses, and that it takes all of it away.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use offramp_testkit::process::{require, temp_dir, write_program};
use tempfile::TempDir;

use crate::make_install_fits_together::files;
use crate::support::offramp::{stderr, stdout};

const NAME: &str = "offramp-0.1.0-x86_64-linux-musl";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with a tarball, its sums and the script, and a prefix that does not exist yet.
struct Download {
    folder: TempDir,
}

impl Download {
    /// A tarball as `make package` packs it, of a program of this name.
    fn of(program: &Path) -> Self {
        let folder = temp_dir();
        let mut tarball = Command::new(root().join("scripts/tarball"));
        tarball.arg(program).arg(NAME).arg(folder.path());
        let packed = tarball.env("LEVEL", "1").output().unwrap();
        assert!(packed.status.success(), "{}", stderr(&packed));
        Self::with_sums(folder)
    }

    /// A small one, of a program that only tells its version.
    fn small() -> Self {
        Self::packing("#!/bin/sh\necho offramp 0.1.0\n", |_| {})
    }

    /// A small one, with this text as the program and with what `damage` does to its folder after the sums were taken.
    fn packing(program: &str, damage: impl FnOnce(&Path)) -> Self {
        let folder = temp_dir();
        let inside = folder.path().join(NAME);
        for name in ["bin", "lib/systemd/system", "share/offramp", "share/man/man1"] {
            fs::create_dir_all(inside.join(name)).unwrap();
        }
        write_program(&inside.join("bin/offramp"), program);
        fs::copy(root().join("deploy/install.sh"), inside.join("install.sh")).unwrap();
        for file in ["lib/systemd/system/offramp.service", "share/offramp/from-253.conf"] {
            let from = root().join("deploy/systemd").join(Path::new(file).file_name().unwrap());
            fs::copy(from, inside.join(file)).unwrap();
        }
        fs::write(inside.join("share/man/man1/offramp.1"), ".TH offramp 1\n").unwrap();
        run(&inside, "find * -type f | xargs sha256sum > ../sums && mv ../sums SHA256SUMS");
        damage(&inside);
        run(folder.path(), &format!("tar -cf - {NAME} | gzip -1 > {NAME}.tar.gz && rm -r {NAME}"));
        Self::with_sums(folder)
    }

    fn with_sums(folder: TempDir) -> Self {
        run(folder.path(), "sha256sum *.tar.gz > SHA256SUMS");
        fs::copy(root().join("deploy/install.sh"), folder.path().join("install.sh")).unwrap();
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn prefix(&self) -> PathBuf {
        self.path().join("prefix")
    }

    /// Runs the script in the folder, with the prefix and these arguments.
    fn install(&self, arguments: &[&str]) -> Output {
        self.install_into(&self.prefix(), arguments)
    }

    fn install_into(&self, prefix: &Path, arguments: &[&str]) -> Output {
        let mut script = Command::new("sh");
        script.arg("install.sh").arg("--prefix").arg(prefix).args(arguments);
        script.current_dir(self.path()).env("HOME", self.path()).output().unwrap()
    }

    fn tarball(&self) -> String {
        format!("{NAME}.tar.gz")
    }

    /// The files below the prefix.
    fn installed(&self) -> Vec<String> {
        if self.prefix().exists() { files(&self.prefix()) } else { Vec::new() }
    }
}

fn run(folder: &Path, script: &str) {
    let done = Command::new("sh").args(["-euc", script]).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{script}: {}", stderr(&done));
}

fn sum_of(download: &Download) -> String {
    let sums = fs::read_to_string(download.path().join("SHA256SUMS")).unwrap();
    sums.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_tarball_is_installed_runs_and_is_removed() {
    let _ = require("objcopy", "binutils");
    let shipped = temp_dir();
    let mut ship = Command::new(root().join("scripts/ship"));
    let stripped = ship.arg(env!("CARGO_BIN_EXE_offramp")).arg(shipped.path()).output().unwrap();
    assert!(stripped.status.success(), "{}", stderr(&stripped));
    let download = Download::of(&shipped.path().join("offramp"));
    let (prefix, tarball) = (download.prefix(), download.tarball());
    let done = download.install(&[&tarball]);
    let said = stdout(&done);
    assert!(done.status.success(), "{said}{}", stderr(&done));
    let program = prefix.join("bin/offramp");
    assert!(said.contains(&format!("is installed: {}", program.display())), "{said}");
    assert!(said.contains("not done: "), "{said}");
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(said.contains("ports below 1024"), !is_root, "{said}");
    let version = Command::new(&program).arg("version").output().unwrap();
    assert!(version.stdout.starts_with(b"offramp "));
    let wanted = [
        "bin/offramp",
        "share/bash-completion/completions/offramp",
        "share/doc/offramp/LICENSE-APACHE",
        "share/doc/offramp/LICENSE-MIT",
        "share/fish/vendor_completions.d/offramp.fish",
        "share/man/man1/offramp.1",
        "share/man/man5/offramp.toml.5",
        "share/zsh/site-functions/_offramp",
    ];
    let installed = download.installed();
    assert!(wanted.iter().all(|file| installed.iter().any(|found| found == file)), "{installed:?}");
    for file in &installed {
        let mode = fs::metadata(prefix.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if file == "bin/offramp" { 0o755 } else { 0o644 }, "{file}");
    }
    // Once more changes nothing, and neither does an installation from the unpacked tarball.
    assert!(download.install(&[&tarball]).status.success());
    assert_eq!(download.installed(), installed);
    run(download.path(), &format!("gzip -dc {tarball} | tar -xf -"));
    let unpacked = download.path().join(NAME).join("install.sh");
    let again = Command::new("sh").arg(unpacked).arg("--prefix").arg(&prefix).output().unwrap();
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(download.installed(), installed);
    // What is not of the tarball stays.
    fs::write(prefix.join("bin/other"), "").unwrap();
    let removed = download.install(&["--uninstall"]);
    assert!(removed.status.success(), "{}", stderr(&removed));
    assert_eq!(download.installed(), ["bin/other"]);
    assert!(!prefix.join("share/offramp").exists() && !prefix.join("share/doc/offramp").exists());
    let twice = download.install(&["--uninstall"]);
    assert!(
        !twice.status.success() && stderr(&twice).contains("nothing was installed"),
        "{}",
        stderr(&twice)
    );
}

/// Each kind of file that must not be installed: nothing is below the prefix afterwards.
/// A case: its name, the download, the arguments of the script, and its reason to refuse.
type Case = (&'static str, fn() -> Download, fn(&Download) -> Vec<String>, &'static str);

fn assert_refused(cases: &[Case]) {
    for (name, download, arguments, reason) in cases {
        let download = download();
        let arguments = arguments(&download);
        let refused = download.install(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains(reason), "{name}: {said}");
        assert_eq!(download.installed(), [""; 0], "{name}");
    }
}

#[test]
fn what_is_not_the_release_is_refused() {
    let tarball = |download: &Download| vec![download.tarball()];
    let cases: [Case; 8] = [
        (
            "another sum",
            Download::small,
            |download| vec!["--sha256".to_owned(), "0".repeat(64), download.tarball()],
            "is not the file that was released, or is damaged",
        ),
        (
            "a sum that is none",
            Download::small,
            |download| vec!["--sha256=zz".to_owned(), download.tarball()],
            "does not have a SHA-256",
        ),
        (
            "a sum cut short",
            Download::small,
            |download| vec![format!("--sha256={}", &sum_of(download)[..40]), download.tarball()],
            "40 characters instead of 64",
        ),
        (
            "another file since",
            || {
                let download = Download::small();
                run(download.path(), &format!("echo >> {NAME}.tar.gz"));
                download
            },
            tarball,
            "is not the file that was released, or is damaged",
        ),
        (
            "no sums",
            || {
                let download = Download::small();
                fs::remove_file(download.path().join("SHA256SUMS")).unwrap();
                download
            },
            tarball,
            "no sum to check",
        ),
        (
            "sums of other files",
            || {
                let download = Download::small();
                run(download.path(), "sed -i s/0.1.0/0.1.1/ SHA256SUMS");
                download
            },
            tarball,
            "has no line for",
        ),
        ("no such file", Download::small, |_| vec!["offramp-9.tar.gz".to_owned()], "no such file"),
        ("no tarball at all", Download::small, |_| Vec::new(), "is no unpacked tarball"),
    ];
    assert_refused(&cases);
    // The right sum, in either case of letters, with and without the file of sums.
    let download = Download::small();
    let sum = sum_of(&download).to_uppercase();
    fs::remove_file(download.path().join("SHA256SUMS")).unwrap();
    let done = download.install(&["--sha256", &sum, &download.tarball()]);
    assert!(done.status.success(), "{}", stderr(&done));
}

#[test]
fn what_is_damaged_inside_is_refused() {
    let tarball = |download: &Download| vec![download.tarball()];
    let cases: [Case; 5] = [
        (
            "a damaged file inside",
            || Download::packing("#!/bin/sh\n", |inside| fs::write(inside.join("bin/offramp"), "x").unwrap()),
            tarball,
            "bin/offramp is damaged",
        ),
        (
            "a missing file inside",
            || {
                let remove =
                    |inside: &Path| fs::remove_file(inside.join("share/man/man1/offramp.1")).unwrap();
                Download::packing("#!/bin/sh\n", remove)
            },
            tarball,
            "offramp.1 is missing",
        ),
        (
            "names that lead elsewhere",
            || {
                let line = |inside: &Path| fs::write(inside.join("SHA256SUMS"), "00  ../../x\n").unwrap();
                Download::packing("#!/bin/sh\n", line)
            },
            tarball,
            "SHA256SUMS is damaged",
        ),
        (
            "a program without a sum",
            || {
                let none = |inside: &Path| fs::write(inside.join("SHA256SUMS"), "").unwrap();
                Download::packing("#!/bin/sh\n", none)
            },
            tarball,
            "does not cover bin/offramp",
        ),
        (
            "a program of another machine",
            || Download::packing("#!/bin/sh\necho Exec format error >&2\nexit 126\n", |_| {}),
            tarball,
            "is it the tarball of another architecture?",
        ),
    ];
    assert_refused(&cases);
}

#[test]
fn command_lines_that_mean_nothing_are_refused() {
    let download = Download::small();
    let tarball = download.tarball();
    let cases: [(&[&str], &str); 5] = [
        (&["--unknown"], "unknown option --unknown"),
        (&["--sha256"], "--sha256 needs a value"),
        (&[&tarball, &tarball], "one tarball at a time"),
        (&["--uninstall", &tarball], "--uninstall takes no tarball"),
        (&["--prefix", ""], "not empty"),
    ];
    for (arguments, reason) in cases {
        let refused = download.install(arguments);
        let said = stderr(&refused);
        assert!(refused.status.code() == Some(2) && said.contains(reason), "{arguments:?}: {said}");
    }
    for prefix in ["a b", "a#b", "a;b", "a'b", "a%b"] {
        let refused = download.install_into(&download.path().join(prefix), &[&tarball]);
        assert!(stderr(&refused).contains("the prefix may not contain"), "{prefix}: {}", stderr(&refused));
    }
    assert_eq!(download.installed(), [""; 0]);
}

/// A file system that takes no files from anybody, a file in the way, and, where this user is not root, a folder without
/// rights.
#[test]
fn a_prefix_that_cannot_be_written_to_gets_nothing() {
    let download = Download::small();
    let tarball = download.tarball();
    let closed = download.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let file = download.path().join("file");
    fs::write(&file, "").unwrap();
    let mut prefixes = vec![PathBuf::from("/proc/self/nowhere"), file.clone()];
    if !rustix::process::geteuid().is_root() {
        prefixes.extend([closed.clone(), closed.join("below")]);
    }
    for prefix in prefixes {
        let refused = download.install_into(&prefix, &[&tarball]);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{}: {said}", prefix.display());
        assert!(said.contains("nothing is installed. To go on, "), "{}: {said}", prefix.display());
    }
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

/// `mv` fails at each file in turn, as it would on a full disk or where the machine stops.
#[test]
fn an_interrupted_installation_is_repeated_or_undone() {
    let whole = {
        let download = Download::small();
        assert!(download.install(&[&download.tarball()]).status.success());
        download.installed()
    };
    // One for the list of the files.
    for failing in 1..=whole.len() {
        let download = Download::small();
        let programs = download.path().join("programs");
        fs::create_dir(&programs).unwrap();
        let count = download.path().join("count");
        let text = format!(
            "#!/bin/sh\necho >> {0}\n[ $(wc -l < {0}) -ne {failing} ] || exit 1\nexec /bin/mv \"$@\"\n",
            count.display()
        );
        write_program(&programs.join("mv"), &text);
        let mut script = Command::new("sh");
        script.args(["install.sh", &download.tarball(), "--prefix"]).arg(download.prefix());
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let failed = script.current_dir(download.path()).env("PATH", path).output().unwrap();
        assert_eq!(failed.status.code(), Some(1), "{failing}: {}", stderr(&failed));
        let partial = download.installed();
        assert!(partial.len() <= whole.len() && partial != whole, "{failing}: {partial:?}");
        if failing > 1 {
            assert!(stderr(&failed).contains("run this again"), "{}", stderr(&failed));
        }
        if failing % 2 == 0 {
            let undone = download.install(&["--uninstall"]);
            assert!(undone.status.success(), "{failing}: {}", stderr(&undone));
            assert_eq!(download.installed(), [""; 0], "{failing}");
        } else {
            let repeated = download.install(&[&download.tarball()]);
            assert!(repeated.status.success(), "{failing}: {}", stderr(&repeated));
            assert_eq!(download.installed(), whole, "{failing}");
        }
    }
}

/// A link at a name that the script writes first does not lead it elsewhere, and a file that no sum covers is not installed.
#[test]
fn nothing_else_is_written_or_installed() {
    let download = Download::packing("#!/bin/sh\necho offramp 0.1.0\n", |inside| {
        fs::write(inside.join("bin/extra"), "not checked").unwrap();
    });
    let victim = download.path().join("victim");
    fs::write(&victim, "as it was").unwrap();
    fs::create_dir_all(download.prefix().join("bin")).unwrap();
    std::os::unix::fs::symlink(&victim, download.prefix().join("bin/offramp.offramp-new")).unwrap();
    let done = download.install(&[&download.tarball()]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
    assert!(fs::symlink_metadata(download.prefix().join("bin/offramp")).unwrap().is_file());
    assert!(!download.prefix().join("bin/extra").exists());
    // A list that somebody has written to removes nothing but what is installed.
    let list = download.prefix().join("share/offramp/installed");
    fs::write(download.prefix().join("mine"), "").unwrap();
    fs::write(&list, fs::read_to_string(&list).unwrap() + "mine\n/etc/hostname\n").unwrap();
    let undone = download.install(&["--uninstall"]);
    assert!(undone.status.success(), "{}", stderr(&undone));
    assert_eq!(download.installed(), ["mine"]);
}

/// A list of sums with the line ends of another system, and a run that ended before there was a folder of programs.
#[test]
fn what_is_only_unusual_is_understood() {
    let download = Download::small();
    run(download.path(), "sed -i 's/$/\\r/' SHA256SUMS");
    let done = download.install(&[&download.tarball()]);
    assert!(done.status.success(), "{}", stderr(&done));
    fs::remove_dir_all(download.prefix().join("bin")).unwrap();
    let undone = download.install(&["--uninstall"]);
    assert!(undone.status.success(), "{}", stderr(&undone));
    assert_eq!(download.installed(), [""; 0]);
}
