//! Keystores of Java: the file `cacerts` of each installation, by its keytool(1).

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::owner::may_run;
use super::{StoreState, TrustContext, TrustGoal, TrustStore, piped};
use crate::banner::quoted;
use crate::steps::{Account, Invocation, SystemAction, find_program};

/// Folders whose folders are installations.
const FOLDERS: [&str; 4] = ["/usr/lib/jvm", "/usr/java", "/opt/java", "/usr/local/lib/jvm"];
/// Places of the keystore in an installation; the second is that of Java 8.
const KEYSTORES: [&str; 2] = ["lib/security/cacerts", "jre/lib/security/cacerts"];
/// Password that every `cacerts` has by convention; the keystore has no secrets.
const PASSWORD: &str = "changeit";
/// Beginning and end of the aliases that Debian's tool gives to the certificates of the system's store.
const OF_DEBIAN: [&str; 2] = ["debian:", ".pem"];

/// A keystore, and the installations that use it.
#[derive(Debug)]
struct Keystore {
    path: PathBuf,
    /// Paths in the tree that lead to it.
    places: Vec<PathBuf>,
    /// Directories of installations in the tree.
    installations: Vec<PathBuf>,
}

/// The keystores of all installations, each once.
pub(super) fn stores(context: &TrustContext<'_>) -> Vec<TrustStore> {
    keystores(context).iter().map(|keystore| store(context, keystore)).collect()
}

fn keystores(context: &TrustContext<'_>) -> Vec<Keystore> {
    let root = context.root;
    let mut homes: BTreeSet<PathBuf> = BTreeSet::new();
    let mut folders: Vec<PathBuf> = FOLDERS.map(PathBuf::from).into();
    if let Some(home) = &context.home {
        // Installations of sdkman and of development environments.
        folders
            .extend([".sdkman/candidates/java", ".jdks"].map(|place| context.root.within(home).join(place)));
    }
    for folder in folders {
        let entries = root.resolve(&folder).and_then(|folder| std::fs::read_dir(folder).ok());
        let entries = entries.into_iter().flatten();
        homes.extend(entries.filter_map(|entry| Some(folder.join(entry.ok()?.file_name()))));
    }
    if root.is_machine() {
        homes.extend(std::env::var_os("JAVA_HOME").map(PathBuf::from).filter(|home| home.is_absolute()));
        let program = find_program("java").and_then(|java| java.canonicalize().ok());
        homes.extend(program.and_then(|java| Some(java.parent()?.parent()?.to_owned())));
    }
    let mut found: Vec<Keystore> = Vec::new();
    for home in homes {
        for place in KEYSTORES.map(|place| home.join(place)) {
            let Some(path) = root.resolve(&place).filter(|path| path.is_file()) else { continue };
            match found.iter_mut().find(|keystore| keystore.path == path) {
                Some(same) => {
                    same.places.push(place);
                    same.installations.push(home.clone());
                }
                None => {
                    found.push(Keystore { path, places: vec![place], installations: vec![home.clone()] });
                }
            }
        }
    }
    found
}

impl Keystore {
    /// The user that handles it: nobody but root, if one way to it is root's own.
    fn actor(&self, context: &TrustContext<'_>) -> Result<Option<Account>, String> {
        let mut actors = self.places.iter().map(|place| context.actor(place));
        let first = actors.next().unwrap_or(Ok(None));
        if first == Ok(None) { first } else { actors.find(|actor| *actor == Ok(None)).unwrap_or(first) }
    }

    /// The keytool of an installation, or that of the machine. One of another tree is not run here.
    fn keytool(&self, context: &TrustContext<'_>, actor: Option<&Account>) -> Option<PathBuf> {
        let is_machine = context.root.is_machine();
        let own = self.installations.iter().filter(|_| is_machine).map(|home| home.join("bin/keytool"));
        own.chain(find_program("keytool")).find(|path| path.is_file() && may_run(path, actor))
    }
}

fn store(context: &TrustContext<'_>, keystore: &Keystore) -> TrustStore {
    let place = keystore.path.display().to_string();
    let make = |state| TrustStore::new("Java", place.clone(), state);
    let actor = match keystore.actor(context) {
        Ok(actor) => actor,
        Err(why) => return make(StoreState::Unreachable(why)),
    };
    let Some(keytool) = keystore.keytool(context, actor.as_ref()) else {
        return make(StoreState::Unreachable(
            "no keytool is there that may be run; it is part of every Java runtime. Root runs only one that nobody else can \
             change, and none of another tree"
                .to_owned(),
        ));
    };
    let keytool = keytool.display().to_string();
    let run = |words: &[&str]| {
        let words = [&[keytool.as_str()], words, &["-keystore", &place, "-storepass", PASSWORD]].concat();
        let words = words.into_iter().map(str::to_owned).collect();
        Invocation { words, user: actor.clone(), ..Invocation::default() }
    };
    let listed = match run(&["-list", "-rfc"]).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            return make(StoreState::Unreachable(format!("keytool cannot read it: {said}")));
        }
        Err(why) => return make(StoreState::Unreachable(why)),
    };
    let entries = JavaEntries::of(context, &listed);
    let mut actions: Vec<SystemAction> =
        entries.gone.iter().map(|alias| SystemAction::Run(run(&["-delete", "-alias", alias]))).collect();
    if context.wish == TrustGoal::Trusted && !entries.is_trusted {
        let (own, path) = (context.ca.stem(), context.ca.path.display().to_string());
        let words = ["-importcert", "-noprompt", "-trustcacerts", "-alias", own.as_str()];
        actions.push(SystemAction::Run(match &actor {
            // The file may be readable by root alone.
            Some(_) => piped(run(&words), &context.ca.pem),
            None => run(&[&words[..], &["-file", path.as_str()]].concat()),
        }));
    }
    if actions.is_empty() {
        return make(match context.wish {
            TrustGoal::Gone if entries.is_trusted => StoreState::Unreachable(format!(
                "it has the CA under an alias that Offramp did not give; look for it: keytool -list -rfc -keystore {}",
                quoted(&keystore.path)
            )),
            TrustGoal::Gone => StoreState::Met("not there"),
            TrustGoal::Trusted if entries.has_own => StoreState::Met("trusted already"),
            TrustGoal::Trusted => StoreState::Met("trusted by way of the system's store"),
        });
    }
    if rustix::fs::access(&keystore.path, rustix::fs::Access::WRITE_OK).is_err()
        && !offramp_net::process::is_root()
    {
        return make(StoreState::Unreachable("Permission denied; run this as root, as with sudo".to_owned()));
    }
    make(StoreState::pending(
        actions,
        match context.wish {
            TrustGoal::Trusted => "trusted now; restart programs that run",
            TrustGoal::Gone => "taken out; restart programs that run",
        },
    ))
}

/// Entries of a keystore that concern the CA.
struct JavaEntries<'a> {
    /// Aliases that are to be deleted.
    gone: Vec<&'a str>,
    has_own: bool,
    /// Set if the certificate is there, under whatever alias.
    is_trusted: bool,
}

impl<'a> JavaEntries<'a> {
    fn of(context: &TrustContext<'_>, listed: &'a str) -> Self {
        let ca = context.ca;
        let aliases = || listed.lines().filter_map(|line| line.strip_prefix("Alias name: ")).map(str::trim);
        let [begin, end] = OF_DEBIAN;
        let stem = |alias: &'a str| {
            alias.strip_prefix(begin).and_then(|name| name.strip_suffix(end)).unwrap_or(alias)
        };
        let is_gone = |alias: &&'a str| {
            ca.is_older_stem(stem(alias)) || (context.wish == TrustGoal::Gone && ca.is_own_stem(stem(alias)))
        };
        let has_own = aliases().any(|alias| ca.is_own_stem(alias));
        Self { gone: aliases().filter(is_gone).collect(), has_own, is_trusted: has_own || ca.is_in(listed) }
    }
}
