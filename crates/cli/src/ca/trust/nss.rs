//! Databases of NSS: Chromium and its relatives share one for each user, Firefox has one in each profile.
//!
//! They are changed by certutil(1), as the user whose home they are in. Within another tree no link leads to a database of the
//! machine, and no module of the tree is loaded.

use std::path::{Path, PathBuf};

use super::{StoreState, TrustContext, TrustGoal, TrustStore, piped};
use crate::steps::{DistributionFamily, Invocation, Root, SystemAction, find_program};

/// A database, or the place of one that is created.
#[derive(Debug, PartialEq, Eq)]
struct Database {
    browser: &'static str,
    path: PathBuf,
    is_there: bool,
}

/// Databases of Chromium, below a home. The first is created where Chromium is installed; packages of snap and flatpak
/// have homes of their own.
const CHROMIUM: [&str; 5] = [
    ".pki/nssdb",
    ".local/share/pki/nssdb",
    "snap/chromium/current/.pki/nssdb",
    ".var/app/org.chromium.Chromium/data/pki/nssdb",
    ".var/app/com.google.Chrome/data/pki/nssdb",
];
/// Programs that use the first database of [`CHROMIUM`].
const CHROMIUM_PROGRAMS: [&str; 7] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "brave-browser",
    "microsoft-edge",
    "vivaldi",
];
/// Folders with profiles of Firefox and its relatives, below a home.
const FIREFOX: [&str; 6] = [
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
    ".librewolf",
    ".var/app/io.gitlab.librewolf-community/.librewolf",
];

/// The databases of the home.
pub(super) fn stores(context: &TrustContext<'_>) -> Vec<TrustStore> {
    let Some(home) = &context.home else { return Vec::new() };
    let has_chromium = || CHROMIUM_PROGRAMS.iter().any(|name| find_program(name).is_some());
    let creates = context.wish == TrustGoal::Trusted && context.root.is_machine() && has_chromium();
    databases(context.root, home, creates)
        .into_iter()
        .map(|database| store(context, home, &database))
        .collect()
}

/// Finds the databases below a home.
fn databases(root: &Root, home: &Path, creates: bool) -> Vec<Database> {
    let inside = |path: PathBuf| match root.is_machine() {
        true => Some(path),
        false => root.resolve(root.within(&path)),
    };
    let is_database = |path: &Path| path.join("cert9.db").symlink_metadata().is_ok();
    let mut found: Vec<Database> = CHROMIUM
        .iter()
        .filter_map(|place| inside(home.join(place)))
        .filter(|path| is_database(path))
        .map(|path| Database { browser: "Chromium", path, is_there: true })
        .collect();
    let shared = |database: &Database| CHROMIUM[..2].iter().any(|place| database.path == home.join(place));
    if creates && !found.iter().any(shared) {
        found.push(Database { browser: "Chromium", path: home.join(CHROMIUM[0]), is_there: false });
    }
    for folder in FIREFOX {
        let entries = inside(home.join(folder)).and_then(|folder| std::fs::read_dir(folder).ok());
        let entries = entries.into_iter().flatten();
        let mut profiles: Vec<PathBuf> = entries.filter_map(|entry| inside(entry.ok()?.path())).collect();
        profiles.retain(|path| is_database(path));
        profiles.sort();
        found.extend(profiles.into_iter().map(|path| Database { browser: "Firefox", path, is_there: true }));
    }
    found
}

fn store(context: &TrustContext<'_>, home: &Path, database: &Database) -> TrustStore {
    let place = database.path.display().to_string();
    let make = |state| TrustStore::new(database.browser, place.clone(), state);
    if find_program("certutil").is_none() {
        let package = package(context.distribution);
        let install =
            context.distribution.install(package).map(|command| format!(": {command}")).unwrap_or_default();
        return make(StoreState::Unreachable(format!(
            "the program `certutil` is missing; install the package {package}{install}"
        )));
    }
    if let Some(why) = foreign(context.root, &database.path) {
        return make(StoreState::Unreachable(why));
    }
    let handled = if database.is_there { &database.path } else { home };
    let actor = match context.actor(&context.root.within(handled)) {
        Ok(actor) => actor,
        Err(why) => return make(StoreState::Unreachable(why)),
    };
    let run = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Invocation { words, user: actor.clone(), ..Invocation::default() }
    };
    let of = format!("sql:{place}");
    let mut actions = Vec::new();
    let mut entries = Vec::new();
    if database.is_there {
        match run(&["certutil", "-L", "-d", &of]).output() {
            Ok(output) if output.status.success() => {
                entries = parse(&String::from_utf8_lossy(&output.stdout));
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return make(StoreState::Unreachable(format!("certutil cannot read it: {said}")));
            }
            Err(why) => return make(StoreState::Unreachable(why)),
        }
    } else {
        actions.push(SystemAction::Run(run(&["mkdir", "-p", "-m", "700", &place])));
        actions.push(SystemAction::Run(run(&["certutil", "-N", "-d", &of, "--empty-password"])));
    }
    let ca = context.ca;
    let is_trusted = entries.iter().any(|entry| ca.is_own_nickname(&entry.nickname) && entry.is_authority);
    let is_gone = |entry: &&NssEntry| {
        let name = &entry.nickname;
        ca.is_older_nickname(name) || (context.wish == TrustGoal::Gone && ca.is_own_nickname(name))
    };
    let gone = entries.iter().filter(is_gone).map(|entry| entry.nickname.as_str());
    actions
        .extend(gone.map(|nickname| SystemAction::Run(run(&["certutil", "-D", "-d", &of, "-n", nickname]))));
    if context.wish == TrustGoal::Trusted && !is_trusted {
        let (own, path) = (ca.nickname(), ca.path.display().to_string());
        let words = ["certutil", "-A", "-d", &of, "-t", "C,,", "-n", &own];
        actions.push(SystemAction::Run(match &actor {
            // The file may be readable by root alone.
            Some(_) => piped(run(&[&words[..], &["-a"]].concat()), &ca.pem),
            None => run(&[&words[..], &["-i", &path]].concat()),
        }));
    }
    if actions.is_empty() {
        return make(StoreState::Met(if context.wish == TrustGoal::Trusted {
            "trusted already"
        } else {
            "not there"
        }));
    }
    make(StoreState::pending(
        actions,
        match context.wish {
            TrustGoal::Trusted => "trusted now; restart the browser if it is open",
            TrustGoal::Gone => "taken out; restart the browser if it is open",
        },
    ))
}

/// Reason why a database of another tree is not for a program of this machine: its files are links, or it loads programs.
fn foreign(root: &Root, database: &Path) -> Option<String> {
    if root.is_machine() {
        return None;
    }
    let files = ["cert9.db", "key4.db", "pkcs11.txt"].map(|name| database.join(name));
    let is_link = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if let Some(link) = files.iter().find(is_link) {
        return Some(format!("{} is a link; certutil would follow it out of the tree", link.display()));
    }
    let modules = std::fs::read_to_string(&files[2]).unwrap_or_default();
    let module = modules.lines().filter_map(|line| line.trim_start().strip_prefix("library=")).map(str::trim);
    let module = module.into_iter().find(|library| !library.is_empty())?;
    Some(format!(
        "it loads the module {module}, and programs of another tree are not run here; run offramp within the tree, as by chroot"
    ))
}

/// A remedy for a failure of certutil.
pub(super) fn advice(why: &str) -> &'static str {
    let asks =
        ["SEC_ERROR_BAD_PASSWORD", "SEC_ERROR_TOKEN_NOT_LOGGED_IN"].iter().any(|code| why.contains(code));
    match asks {
        true => {
            "\n      A primary password protects it: import or delete the CA in the settings of the browser, or run the commands \
             of --print by hand, which ask for it"
        }
        false => "",
    }
}

/// An entry of a database.
#[derive(Debug, PartialEq, Eq)]
struct NssEntry {
    nickname: String,
    /// Set if it is an authority for servers.
    is_authority: bool,
}

/// Parses the table of `certutil -L`: a nickname, blanks, and flags such as `CT,C,`.
fn parse(text: &str) -> Vec<NssEntry> {
    let is_flags = |text: &str| {
        text.matches(',').count() == 2 && text.chars().all(|c| c == ',' || c.is_ascii_alphabetic())
    };
    let rows = text.lines().filter_map(|line| line.trim_end().rsplit_once(char::is_whitespace));
    let rows = rows.filter(|(_, flags)| is_flags(flags));
    rows.map(|(nickname, flags)| NssEntry {
        nickname: nickname.trim_end().to_owned(),
        is_authority: flags.split(',').next().is_some_and(|ssl| ssl.contains('C')),
    })
    .collect()
}

/// The package that has certutil.
fn package(distribution: DistributionFamily) -> &'static str {
    match distribution {
        DistributionFamily::Debian => "libnss3-tools",
        DistributionFamily::Suse => "mozilla-nss-tools",
        DistributionFamily::Arch => "nss",
        DistributionFamily::Fedora | DistributionFamily::Alpine | DistributionFamily::Other => "nss-tools",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_certutil_is_read() {
        let text = "\nCertificate Nickname                                         Trust Attributes\n\
            \x20                                                            SSL,S/MIME,JAR/XPI\n\n\
            Offramp Local CA 0a1b2c3d-11223344 /home/ada/my state/ca.pem  C,,  \n\
            Corporate Root                                               CT,C,C\n\
            a server                                                     P,,\n\
            no trust                                                     ,,   \n";
        let found = parse(text);
        let entry = |nickname: &str, is_authority| NssEntry { nickname: nickname.to_owned(), is_authority };
        assert_eq!(
            found,
            [
                entry("Offramp Local CA 0a1b2c3d-11223344 /home/ada/my state/ca.pem", true),
                entry("Corporate Root", true),
                entry("a server", false),
                entry("no trust", false),
            ]
        );
    }

    #[test]
    fn databases_are_found_where_browsers_have_them() {
        let home = tempfile::tempdir().unwrap();
        let (root, home) = (Root::machine(), home.path());
        assert!(databases(&root, home, false).is_empty());
        assert_eq!(databases(&root, home, true).len(), 1, "that of Chromium is created");
        for place in [
            "snap/chromium/current/.pki/nssdb",
            "snap/firefox/common/.mozilla/firefox/x.default",
            ".var/app/org.mozilla.firefox/.mozilla/firefox/y.default-release",
            ".mozilla/firefox/a.default",
            ".mozilla/firefox/b.work",
        ] {
            std::fs::create_dir_all(home.join(place)).unwrap();
            std::fs::write(home.join(place).join("cert9.db"), "").unwrap();
        }
        std::fs::create_dir_all(home.join(".mozilla/firefox/Crash Reports")).unwrap();
        let found = databases(&root, home, false);
        assert_eq!(found.iter().filter(|database| database.browser == "Firefox").count(), 4, "{found:?}");
        assert_eq!(found.len(), 5, "{found:?}");
        // The database within a snap is not the one that others use.
        assert_eq!(databases(&root, home, true).len(), 6);
        std::fs::create_dir_all(home.join(".local/share/pki/nssdb")).unwrap();
        std::fs::write(home.join(".local/share/pki/nssdb/cert9.db"), "").unwrap();
        assert_eq!(databases(&root, home, true).len(), 6);
    }
}
