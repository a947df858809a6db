//! Programs, users and the distribution of a tree of files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Root;

/// A user of `/etc/passwd` (passwd(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
    pub(crate) shell: String,
}

impl Account {
    /// Finds a user by name in the tree.
    pub(crate) fn find(root: &Root, name: &str) -> Option<Self> {
        let text = fs::read_to_string(root.join("/etc/passwd")).unwrap_or_default();
        let found = text.lines().filter_map(Self::parse).find(|user| user.name == name);
        found.or_else(|| root.is_machine().then(|| Self::of_the_system(name)).flatten())
    }

    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, shell] = fields[..] else { return None };
        Some(Self {
            name: name.to_owned(),
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            home: home.into(),
            shell: shell.to_owned(),
        })
    }

    /// Asks the name service.
    fn of_the_system(name: &str) -> Option<Self> {
        Self::parse(&name_service("passwd", name)?)
    }
}

/// The number of a group of the tree (group(5)).
pub(crate) fn group_id(root: &Root, name: &str) -> Option<u32> {
    let text = fs::read_to_string(root.join("/etc/group")).unwrap_or_default();
    let number = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        Some(*fields.get(2)?).filter(|_| fields[0] == name)?.parse().ok()
    };
    let found = text.lines().find_map(number);
    found.or_else(|| number(&root.is_machine().then(|| name_service("group", name)).flatten()?))
}

/// A line of the name service, by the program that asks it (getent(1)): users and groups of a directory are in no file.
fn name_service(database: &str, name: &str) -> Option<String> {
    let output = std::process::Command::new("getent").args([database, name]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
}

/// The home of the user behind `sudo`, or of the user of this process.
pub(crate) fn home_of(root: &Root, user: Option<&Account>, own: Option<PathBuf>) -> Option<PathBuf> {
    Some(root.home(&user.map(|user| user.home.clone()).or(own)?))
}

/// Finds a program in the directories of `PATH`, or in those of administration, which `PATH` of a user often lacks.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect::<Vec<_>>();
    let administration = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut candidates = named.into_iter().chain(administration).map(|folder| folder.join(name));
    candidates.find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Families of distributions, which name packages differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DistributionFamily {
    Debian,
    Fedora,
    Suse,
    Arch,
    Alpine,
    Other,
}

impl DistributionFamily {
    /// Reads `/etc/os-release` of the tree (os-release(5)).
    pub(crate) fn of(root: &Root) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        Self::parse(&read("/etc/os-release").or_else(|| read("/usr/lib/os-release")).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        let names = format!("{} {}", value("ID"), value("ID_LIKE"));
        let family = names.split_whitespace().find_map(|name| match name {
            "debian" | "ubuntu" => Some(Self::Debian),
            "fedora" | "rhel" | "centos" | "amzn" => Some(Self::Fedora),
            "suse" | "opensuse" | "sles" | "opensuse-leap" | "opensuse-tumbleweed" => Some(Self::Suse),
            "arch" => Some(Self::Arch),
            "alpine" => Some(Self::Alpine),
            _ => None,
        });
        family.unwrap_or(Self::Other)
    }

    /// The command that installs a package; `None` where the package manager is not known.
    pub(crate) fn install(self, package: &str) -> Option<String> {
        let command = match self {
            Self::Debian => "apt install",
            Self::Fedora => "dnf install",
            Self::Suse => "zypper install",
            Self::Arch => "pacman -S",
            Self::Alpine => "apk add",
            Self::Other => return None,
        };
        Some(format!("{command} {package}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_recognized() {
        for (text, family) in [
            ("ID=debian\n", DistributionFamily::Debian),
            ("NAME=x\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", DistributionFamily::Debian),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", DistributionFamily::Fedora),
            ("ID=opensuse-tumbleweed\nID_LIKE=\"opensuse suse\"\n", DistributionFamily::Suse),
            ("ID=manjaro\nID_LIKE=arch\n", DistributionFamily::Arch),
            ("ID=alpine\n", DistributionFamily::Alpine),
            ("ID=nixos\n", DistributionFamily::Other),
            ("", DistributionFamily::Other),
        ] {
            assert_eq!(DistributionFamily::parse(text), family, "{text}");
        }
    }

    #[test]
    fn users_of_a_tree_are_those_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().to_owned());
        assert_eq!(Account::find(&root, "root"), None);
        std::fs::create_dir(root.join("/etc")).unwrap();
        std::fs::write(root.join("/etc/passwd"), "bad\noff:x:1:2:,,:/home/off:/bin/sh\n").unwrap();
        std::fs::write(root.join("/etc/group"), "a:x:1:\noff:x:22:u\n").unwrap();
        let user = Account::find(&root, "off").unwrap();
        assert_eq!((user.uid, user.gid, user.home), (1, 2, PathBuf::from("/home/off")));
        assert_eq!((group_id(&root, "off"), group_id(&root, "b")), (Some(22), None));
    }
}
