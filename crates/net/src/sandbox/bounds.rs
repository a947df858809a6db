//! Files and ports (landlock(7)): where this process may write, and in its strict form what it may read and which TCP
//! ports it may use. Nothing may be executed, and no other process may be signalled.
//!
//! A rule belongs to what lies at its path when it is made: a folder with everything below it, or one file. What takes
//! the place of that file or folder later is another one, without a rule. Descriptors that are open stay as they are.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, AddRuleError, AddRulesError, BitFlags, CompatLevel,
    Compatible as _, LandlockStatus, NetPort, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{FileType, Mode, OFlags};

/// What may be done below a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read files and list folders. It counts only where reading is restricted.
    pub read: bool,
    /// Make, write, rename and remove files.
    pub files: bool,
    /// Make Unix sockets and remove files.
    pub sockets: bool,
    /// Make and remove folders.
    pub folders: bool,
}

impl Rights {
    /// Only to read.
    pub const READ: Self = Self { read: true, files: false, sockets: false, folders: false };
    /// Files, and not to read them.
    pub const FILES: Self = Self { read: false, files: true, sockets: false, folders: false };
    /// Sockets.
    pub const SOCKETS: Self = Self { read: false, files: false, sockets: true, folders: false };
    /// Files, and to read them.
    pub const KEEP: Self = Self { read: true, files: true, sockets: false, folders: false };
    /// Everything but to execute.
    pub const ALL: Self = Self { read: true, files: true, sockets: true, folders: true };

    /// These and `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            files: self.files || other.files,
            sockets: self.sockets || other.sockets,
            folders: self.folders || other.folders,
        }
    }

    /// Whether all of `wanted` is among them.
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

/// A path, and what may be done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A folder with all that is below it, or a file.
    pub path: PathBuf,
    /// What may be done.
    pub rights: Rights,
}

/// The TCP ports that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Those that may be listened on; 0: any that the kernel picks.
    pub listen: BTreeSet<u16>,
    /// Those that may be connected.
    pub connect: BTreeSet<u16>,
}

/// What a process may do with files and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Where it may write, and read where that is restricted. A place that does not exist gets no rule.
    pub places: Vec<Place>,
    /// Whether reading is restricted.
    pub reading: bool,
    /// The TCP ports; `None`: any.
    pub ports: Option<Ports>,
    /// Whether abstract Unix sockets of other processes may be connected (unix(7)). No file and no permission protects
    /// them.
    pub abstract_sockets: bool,
}

/// That a thread is restricted.
#[derive(Debug)]
pub struct Restricted {
    /// The version of Landlock's interface that the kernel and this program share, from 1.
    pub version: u32,
    /// Places that cannot be used although the bounds name them, each with what the kernel said.
    pub without_rule: Vec<(PathBuf, String)>,
    /// Rules in `/proc` last as long as these are open: what the kernel forgets there, and finds again, is another file.
    _held: Vec<OwnedFd>,
}

/// Restricts this thread, and all that it starts, to `bounds`. `no_new_privs` must be set.
///
/// With `required` the kernel must know all that the bounds are for, else what it knows is enough: before Linux 6.7 no
/// ports, before 6.2 not that a file is truncated. Signals and abstract sockets are restricted since 6.12; `required`
/// does not ask for that, because the filter of system calls ([`super::calls`]) refuses signals on every kernel.
///
/// A place that can have no rule is left out: that restricts more, and not less.
///
/// # Errors
/// Why nothing is restricted.
pub fn restrict(bounds: &Bounds, required: bool) -> Result<Restricted, String> {
    let handled = handled(bounds);
    let why = |error: RulesetError| error.to_string();
    let level = if required { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    // What the kernel must know. The rest is welcome.
    let least = match bounds.reading || bounds.ports.is_some() {
        true => handled & AccessFs::from_all(ABI::V4),
        false => handled & AccessFs::from_all(ABI::V1),
    };
    let mut ruleset = Ruleset::default().set_compatibility(level).handle_access(least).map_err(why)?;
    if bounds.ports.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4)).map_err(why)?;
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

/// Adds a rule for each place. Gives the descriptors that must stay open, and the places that cannot be used.
fn add_places(
    created: &mut RulesetCreated,
    places: &[Place],
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
            // A pipe or a socket behind `/dev/stdout`: it lies in no folder, and the kernel restricts no use of it.
            Err(error) if is_of_no_folder(&error) => {}
            Err(error) => without_rule.push((place.path.clone(), error.to_string())),
        }
    }
    (held, without_rule)
}

/// Whether a rule was refused because the file is on a file system of the kernel's own, without paths (`EBADFD`).
fn is_of_no_folder(error: &RulesetError) -> bool {
    match error {
        RulesetError::AddRules(AddRulesError::Fs(AddRuleError::AddRuleCall { source, .. })) => {
            source.raw_os_error() == Some(nix::libc::EBADFD)
        }
        _ => false,
    }
}

/// Every right that is refused where no rule gives it.
fn handled(bounds: &Bounds) -> BitFlags<AccessFs> {
    // Later versions restrict more than files and TCP, such as connections to Unix sockets.
    let writing = AccessFs::from_write(ABI::V5) | AccessFs::Execute;
    if bounds.reading { writing | AccessFs::ReadFile | AccessFs::ReadDir } else { writing }
}

/// What lies at a place, and the rights that a rule for it can have; `None`: there is nothing.
fn open(place: &Place) -> Option<(OwnedFd, BitFlags<AccessFs>)> {
    let fd = rustix::fs::open(&place.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&fd).ok()?;
    let rights = place.rights.flags();
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => Some((fd, rights)),
        _ => Some((fd, rights & AccessFs::from_file(ABI::V5))),
    }
}

/// The path without symbolic links, as far as it exists.
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
