//! Restrictions on files and ports (landlock(7)): where this process may write and, in the strict form, what
//! it may read and which TCP ports it may use. Executing files and signalling other processes are always
//! denied.
//!
//! A rule belongs to the file or folder (with everything below it) that is at its path when the rule is made.
//! A replacement of that file or folder is a different one, without a rule. Open descriptors are not
//! affected.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, AddRuleError, AddRulesError, BitFlags, CompatLevel,
    Compatible as _, LandlockStatus, NetPort, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use nix::libc;
use rustix::fs::{FileType, Mode, OFlags};

/// Rights below a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read files and list folders. Has an effect only where reading is restricted.
    pub read: bool,
    /// Create, write, rename and remove files.
    pub files: bool,
    /// Create Unix sockets and remove files.
    pub sockets: bool,
    /// Create and remove folders.
    pub folders: bool,
}

impl Rights {
    /// Only reading files and folders.
    pub const READ: Self = Self { read: true, files: false, sockets: false, folders: false };
    /// Files, without reading them.
    pub const FILES: Self = Self { read: false, files: true, sockets: false, folders: false };
    /// Only creating and removing Unix sockets.
    pub const SOCKETS: Self = Self { read: false, files: false, sockets: true, folders: false };
    /// Files, including reading them.
    pub const KEEP: Self = Self { read: true, files: true, sockets: false, folders: false };
    /// Every right; executing is never one of them.
    pub const ALL: Self = Self { read: true, files: true, sockets: true, folders: true };

    /// The union of these rights and `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            files: self.files || other.files,
            sockets: self.sockets || other.sockets,
            folders: self.folders || other.folders,
        }
    }

    /// Returns true if these rights cover `wanted`.
    #[must_use]
    pub fn include(self, wanted: Self) -> bool {
        (self.read || !wanted.read)
            && (self.files || !wanted.files)
            && (self.sockets || !wanted.sockets)
            && (self.folders || !wanted.folders)
    }

    fn flags(self) -> BitFlags<AccessFs> {
        let mut flags = BitFlags::empty();
        if self.read {
            flags |= make_bitflags!(AccessFs::{ReadFile | ReadDir});
        }
        if self.files {
            flags |= make_bitflags!(AccessFs::{WriteFile | Truncate | MakeReg | RemoveFile});
        }
        if self.sockets {
            flags |= make_bitflags!(AccessFs::{MakeSock | RemoveFile});
        }
        if self.folders {
            flags |= make_bitflags!(AccessFs::{MakeDir | RemoveDir});
        }
        flags
    }
}

/// A path and the rights below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// A file, or a folder with everything below it.
    pub path: PathBuf,
    /// Rights at the path.
    pub rights: Rights,
}

/// TCP ports that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Ports to listen on; 0 stands for any port that the kernel picks.
    pub listen: BTreeSet<u16>,
    /// Ports to connect to.
    pub connect: BTreeSet<u16>,
}

/// Permitted use of files and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxRules {
    /// Places with their rights to write, and to read where that is restricted. A place that does not exist
    /// gets no rule.
    pub places: Vec<PathRule>,
    /// Restricts reading to `places`.
    pub reading: bool,
    /// Permitted TCP ports; `None`: any.
    pub ports: Option<Ports>,
    /// Permits connections to abstract Unix sockets of other processes (unix(7)), which no file permission
    /// protects.
    pub abstract_sockets: bool,
}

/// Result of a restriction; keep it for the life of the process.
#[derive(Debug)]
pub struct Restricted {
    /// Version of the Landlock ABI that the kernel and this program share, from 1.
    pub version: u32,
    /// Places of the bounds that are unusable, each with the error of the kernel.
    pub without_rule: Vec<(PathBuf, String)>,
    /// Descriptors that keep rules in `/proc` alive: an inode that the kernel evicts there comes back as a
    /// different one.
    _held: Vec<OwnedFd>,
}

/// Restricts this thread, and everything it starts, to `bounds`. `no_new_privs` must be set.
///
/// With `required`, the kernel must support everything that the bounds restrict; otherwise, what it supports
/// is enough: no ports before Linux 6.7, no truncation before 6.2. Signals and abstract sockets are
/// restricted since 6.12; `required` does not include them, because the filter of system calls
/// ([`super::calls`]) denies signals on every kernel.
///
/// A place that can have no rule is left out, which restricts more, never less.
///
/// # Errors
/// The reason why nothing is restricted.
pub fn restrict(bounds: &SandboxRules, required: bool) -> Result<Restricted, String> {
    let handled = handled(bounds);
    let why = |error: RulesetError| error.to_string();
    // The library names bits, whatever the reason is.
    let unsupported = |error: RulesetError| {
        missing(bounds.reading || bounds.ports.is_some()).unwrap_or_else(|| error.to_string())
    };
    let level = if required { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    // Support that the kernel must have. The rest is used if available.
    let least = match bounds.reading || bounds.ports.is_some() {
        true => handled & AccessFs::from_all(ABI::V4),
        false => handled & AccessFs::from_all(ABI::V1),
    };
    let mut ruleset =
        Ruleset::default().set_compatibility(level).handle_access(least).map_err(unsupported)?;
    if bounds.ports.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4)).map_err(unsupported)?;
    }
    ruleset = ruleset.set_compatibility(CompatLevel::BestEffort).handle_access(handled).map_err(why)?;
    ruleset = ruleset.scope(Scope::Signal).map_err(why)?;
    if !bounds.abstract_sockets {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket).map_err(why)?;
    }
    let mut created = ruleset.create().map_err(why)?;
    let (held, without_rule) = add_places(&mut created, &bounds.places, handled);
    for (ports, access) in bounds
        .ports
        .iter()
        .flat_map(|ports| [(&ports.listen, AccessNet::BindTcp), (&ports.connect, AccessNet::ConnectTcp)])
    {
        for port in ports {
            created = created.add_rule(NetPort::new(*port, access)).map_err(why)?;
        }
    }
    let status = created.restrict_self().map_err(why)?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if status.ruleset != RulesetStatus::NotEnforced => {
            Ok(Restricted { version: effective_abi as u32, without_rule, _held: held })
        }
        LandlockStatus::NotEnabled => Err("Landlock is not enabled (see `lsm=` of the kernel)".to_owned()),
        _ => Err("the kernel has no Landlock".to_owned()),
    }
}

/// Returns the reason why the kernel cannot restrict files or, with `strict`, reading and TCP ports as well;
/// `None` if it can. Restricts nothing.
#[must_use]
pub fn missing(strict: bool) -> Option<String> {
    let (least, since) = if strict { (4, "6.7") } else { (1, "5.13") };
    let error = match version() {
        Ok(found) if found >= least => return None,
        Ok(found) => {
            return Some(format!(
                "the kernel's Landlock is version {found}, and version {least} is needed, which Linux has since {since}"
            ));
        }
        Err(error) => error,
    };
    Some(match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => {
            "Landlock is not enabled: the kernel's parameter `lsm=` must name `landlock`".to_owned()
        }
        Some(libc::ENOSYS) => {
            format!("the kernel has no Landlock, which Linux can have since {since}, or a container hides it")
        }
        _ => format!("Landlock cannot be used, perhaps because a container forbids it: {error}"),
    })
}

/// Asks the kernel for the version of its Landlock ABI, from 1.
fn version() -> io::Result<u64> {
    // SAFETY: without attributes and with this flag the call only returns a number.
    let found = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, CREATE_RULESET_VERSION)
    };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// `LANDLOCK_CREATE_RULESET_VERSION` of landlock_create_ruleset(2).
const CREATE_RULESET_VERSION: u32 = 1;

/// Adds a rule for each place. Returns the descriptors that must stay open, and the unusable places.
fn add_places(
    created: &mut RulesetCreated,
    places: &[PathRule],
    handled: BitFlags<AccessFs>,
) -> (Vec<OwnedFd>, Vec<(PathBuf, String)>) {
    let (mut held, mut without_rule) = (Vec::new(), Vec::new());
    for place in places {
        let Some((fd, rights)) = open(place) else { continue };
        let rights = rights & handled;
        if rights.is_empty() {
            continue;
        }
        if place.path.starts_with("/proc") {
            held.extend(fd.try_clone());
        }
        match (&mut *created).add_rule(PathBeneath::new(fd, rights)) {
            Ok(_) => {}
            // A pipe or a socket behind `/dev/stdout`: it is in no folder, and Landlock does not restrict its
            // use.
            Err(error) if is_of_no_folder(&error) => {}
            Err(error) => without_rule.push((place.path.clone(), error.to_string())),
        }
    }
    (held, without_rule)
}

/// Returns true if a rule failed because the file is on an internal file system without paths (`EBADFD`).
fn is_of_no_folder(error: &RulesetError) -> bool {
    match error {
        RulesetError::AddRules(AddRulesError::Fs(AddRuleError::AddRuleCall { source, .. })) => {
            source.raw_os_error() == Some(libc::EBADFD)
        }
        _ => false,
    }
}

/// Every right that is denied unless a rule grants it.
fn handled(bounds: &SandboxRules) -> BitFlags<AccessFs> {
    // Later ABI versions restrict more than files and TCP, such as connections to Unix sockets.
    let writing = AccessFs::from_write(ABI::V5) | AccessFs::Execute;
    if bounds.reading { writing | AccessFs::ReadFile | AccessFs::ReadDir } else { writing }
}

/// Opens a place and selects the rights that a rule for its type can have; `None` if it is missing.
fn open(place: &PathRule) -> Option<(OwnedFd, BitFlags<AccessFs>)> {
    let fd = rustix::fs::open(&place.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&fd).ok()?;
    let rights = place.rights.flags();
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => Some((fd, rights)),
        _ => Some((fd, rights & AccessFs::from_file(ABI::V5))),
    }
}

/// Resolves symbolic links in the existing part of a path.
#[must_use]
pub fn real(path: &Path) -> PathBuf {
    match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => real(parent).join(name),
            _ => path.to_owned(),
        },
        Err(_) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests;
