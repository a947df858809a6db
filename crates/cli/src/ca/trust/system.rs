//! The store of the system, by the tool of its distribution.

use std::path::{Path, PathBuf};

use super::{StoreProof, StoreState, TrustContext, TrustGoal, TrustStore};
use crate::steps::{Invocation, SystemAction, find_program};

/// A kind of store: where certificates of the administrator are, and the tool that collects them.
struct SystemStoreKind {
    name: &'static str,
    folder: &'static str,
    extension: &'static str,
    /// The file that the tool makes, which has every certificate that the system trusts.
    bundle: &'static str,
    tool: &'static [&'static str],
    package: &'static str,
}

/// Stores, in the order in which they are looked for: some distributions have folders of two.
const KINDS: [SystemStoreKind; 4] = [
    SystemStoreKind {
        name: "Fedora",
        folder: "/etc/pki/ca-trust/source/anchors",
        extension: "pem",
        bundle: "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        tool: &["update-ca-trust", "extract"],
        package: "ca-certificates",
    },
    SystemStoreKind {
        name: "openSUSE",
        folder: "/etc/pki/trust/anchors",
        extension: "pem",
        bundle: "/var/lib/ca-certificates/ca-bundle.pem",
        tool: &["update-ca-certificates"],
        package: "ca-certificates",
    },
    SystemStoreKind {
        name: "Arch",
        folder: "/etc/ca-certificates/trust-source/anchors",
        extension: "crt",
        bundle: "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
        tool: &["update-ca-trust"],
        package: "ca-certificates-utils",
    },
    SystemStoreKind {
        name: "Debian",
        folder: "/usr/local/share/ca-certificates",
        extension: "crt",
        bundle: "/etc/ssl/certs/ca-certificates.crt",
        tool: &["update-ca-certificates"],
        package: "ca-certificates",
    },
];

/// A certificate of the administrator.
struct Anchor {
    path: PathBuf,
    stem: String,
    text: String,
}

/// The store of the system.
pub(super) fn stores(context: &TrustContext<'_>) -> Vec<TrustStore> {
    let reached = |kind: &'static SystemStoreKind| Some((kind, reach(context, kind.folder)?));
    let Some((kind, folder)) = KINDS.iter().filter_map(reached).find(|(_, folder)| folder.is_dir()) else {
        return missing(context);
    };
    let own = folder.join(format!("{}.{}", context.ca.stem(), kind.extension));
    let state = state(context, kind, &folder, &own).unwrap_or_else(StoreState::Unreachable);
    vec![TrustStore::new("system", own.display().to_string(), state)]
}

/// A path of the tree; `None` if it is not there, or a link leads out of another tree.
fn reach(context: &TrustContext<'_>, path: &str) -> Option<PathBuf> {
    if context.root.is_machine() { Some(path.into()) } else { context.root.resolve(path) }
}

/// The state, which the bundle decides: a tool that failed or was killed leaves the anchor alone.
///
/// # Errors
/// The reason why the store cannot be changed.
fn state(
    context: &TrustContext<'_>,
    kind: &SystemStoreKind,
    folder: &Path,
    own: &Path,
) -> Result<StoreState, String> {
    let (ca, wish) = (context.ca, context.wish);
    let anchors = anchors(folder, kind.extension);
    let is_gone = |anchor: &&Anchor| {
        ca.is_older_stem(&anchor.stem) || (wish == TrustGoal::Gone && ca.is_own_stem(&anchor.stem))
    };
    let mut actions: Vec<SystemAction> = anchors.iter().filter(is_gone).map(Anchor::remove).collect();
    let removes = !actions.is_empty() || wish == TrustGoal::Gone;
    let holder = anchors.iter().find(|anchor| !is_gone(anchor) && ca.is_in(&anchor.text));
    if wish == TrustGoal::Trusted && holder.is_none() {
        let (path, text) = (own.to_owned(), ca.pem.clone());
        actions.push(SystemAction::Write { path, text, mode: 0o644, group: None });
    }
    let bundle = reach(context, kind.bundle);
    let text = bundle.as_ref().and_then(|bundle| std::fs::read_to_string(bundle).ok());
    let is_trusted = text.as_ref().is_some_and(|text| ca.is_in(text));
    let is_met = match wish {
        TrustGoal::Trusted => is_trusted,
        TrustGoal::Gone => !is_trusted && !bundle.as_ref().is_some_and(|bundle| is_stale(bundle, folder)),
    };
    if actions.is_empty() && is_met {
        return Ok(StoreState::Met(match wish {
            TrustGoal::Trusted => "trusted already",
            TrustGoal::Gone => "not there",
        }));
    }
    if !has_tool(context, kind) {
        let install = context.distribution.install(kind.package);
        let install = install.map(|command| format!(": {command}")).unwrap_or_default();
        return Err(format!(
            "the program `{}` is missing; install the package {}{install}",
            kind.tool[0], kind.package
        ));
    }
    let foreign = holder.filter(|_| wish == TrustGoal::Gone).map(|holder| {
        format!("; {} has it, which Offramp did not write: remove that file first", holder.path.display())
    });
    if let Some(foreign) = foreign.as_ref().filter(|_| actions.is_empty()) {
        return Err(format!("it is trusted still{foreign}"));
    }
    actions.push(collect(context, kind, folder, removes)?);
    let proof = bundle.filter(|_| ca.is_there()).map(|bundle| StoreProof {
        bundle,
        has_it: wish == TrustGoal::Trusted,
        advice: foreign.unwrap_or_default(),
    });
    let remark = match wish {
        TrustGoal::Trusted => "trusted now",
        TrustGoal::Gone => "taken out",
    };
    Ok(StoreState::Pending(actions, remark, proof))
}

/// Returns true if the folder has changed since the tool ran.
fn is_stale(bundle: &Path, folder: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    matches!((changed(bundle), changed(folder)), (Some(bundle), Some(folder)) if bundle < folder)
}

/// Looks for the tool where [`collect`] runs it.
fn has_tool(context: &TrustContext<'_>, kind: &SystemStoreKind) -> bool {
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    match context.root.is_machine() || kind.name == "Debian" {
        true => find_program(kind.tool[0]).is_some(),
        false => {
            folders.iter().any(|folder| context.root.resolve(format!("{folder}/{}", kind.tool[0])).is_some())
        }
    }
}

/// A distribution whose store is not known.
fn missing(context: &TrustContext<'_>) -> Vec<TrustStore> {
    if context.wish == TrustGoal::Gone {
        return Vec::new();
    }
    let folders: Vec<&str> = KINDS.iter().map(|kind| kind.folder).collect();
    let install = context.distribution.install("ca-certificates");
    let install = install
        .map(|command| format!("; install the package ca-certificates: {command}"))
        .unwrap_or_default();
    let why = format!("no store of a known kind is there (looked for {}){install}", folders.join(", "));
    vec![TrustStore::new("system", context.root.path().display().to_string(), StoreState::Unreachable(why))]
}

impl Anchor {
    fn remove(&self) -> SystemAction {
        SystemAction::Remove { path: self.path.clone(), text: self.text.clone() }
    }
}

/// The certificates of a folder, sorted.
fn anchors(folder: &Path, extension: &str) -> Vec<Anchor> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| path.is_file() && path.extension().is_some_and(|found| found == extension));
    found.sort();
    let anchor = |path: PathBuf| {
        let (stem, text) = (path.file_stem()?.to_str()?.to_owned(), std::fs::read_to_string(&path).ok()?);
        Some(Anchor { path, stem, text })
    };
    found.into_iter().filter_map(anchor).collect()
}

/// The run of the tool.
///
/// # Errors
/// The tool of Debian would follow a link out of another tree.
fn collect(
    context: &TrustContext<'_>,
    kind: &SystemStoreKind,
    folder: &Path,
    removes: bool,
) -> Result<SystemAction, String> {
    if context.root.is_machine() {
        // The tool of Debian leaves links to removed certificates without it.
        let fresh = (kind.name == "Debian" && removes).then_some("--fresh");
        return Ok(SystemAction::run(kind.tool.iter().copied().chain(fresh)));
    }
    let root = context.root.path().display().to_string();
    if kind.name != "Debian" {
        return Ok(SystemAction::run(["chroot", &root].into_iter().chain(kind.tool.iter().copied())));
    }
    let outside =
        |path: &Path| format!("{} is missing, or a link that leads out of the tree", path.display());
    let collected = "/etc/ssl/certs";
    let collected = context.root.resolve(collected).ok_or_else(|| outside(&context.root.join(collected)))?;
    for name in ["ca-certificates.crt", "ca-certificates.crt.new"] {
        // The tool writes to them by their names.
        let file = collected.join(name);
        if file.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return Err(outside(&file));
        }
    }
    let nothing = || PathBuf::from("/dev/null");
    let read = |path: &str| context.root.resolve(path).unwrap_or_else(nothing);
    // Works without root, and for a tree whose programs are of another architecture.
    let mut words = vec!["update-ca-certificates".to_owned(), "--fresh".to_owned()];
    for (option, path) in [
        ("--certsconf", read("/etc/ca-certificates.conf")),
        ("--certsdir", read("/usr/share/ca-certificates")),
        ("--localcertsdir", folder.to_owned()),
        ("--etccertsdir", collected),
        // Hooks of the tree are its programs, and those of the machine would change the machine.
        ("--hooksdir", nothing()),
    ] {
        words.extend([option.to_owned(), path.display().to_string()]);
    }
    Ok(SystemAction::Run(Invocation { words, ..Invocation::default() }))
}
