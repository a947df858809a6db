//! Replacing a file by a new one: obstacles that rename(2) would report late or badly, and the attributes that
//! the new file takes over.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, StatxAttributes, StatxFlags, XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr,
    statx,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Access control list of a file (acl(5)).
const ACL: &str = "system.posix_acl_access";
/// Largest value, and largest list of names, that the kernel has (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const LARGEST: usize = 64 << 10;

/// A reason why rename(2) cannot replace a file, though its folder can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The file is mounted by itself, as a container mounts a single file.
    MountPoint,
    /// The file has the attribute `i` or `a` (chattr(1)).
    Immutable,
    /// The folder has the sticky bit, and file and folder belong to other users.
    Sticky,
}

/// Finds the obstacle to replacing the file at a path without links. A kernel before Linux 5.8 does not report
/// mount points.
///
/// # Errors
/// Errors of the system calls.
pub fn obstacle(path: &Path) -> io::Result<Option<Obstacle>> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
    let (has, known) = (found.stx_attributes, found.stx_attributes_mask);
    let has = |attribute: StatxAttributes| known.contains(attribute) && has.contains(attribute);
    if has(StatxAttributes::MOUNT_ROOT) {
        return Ok(Some(Obstacle::MountPoint));
    }
    if has(StatxAttributes::IMMUTABLE) || has(StatxAttributes::APPEND) {
        return Ok(Some(Obstacle::Immutable));
    }
    let folder = std::fs::metadata(path.parent().unwrap_or(Path::new("/")))?;
    let own = geteuid().as_raw();
    let is_sticky = folder.mode() & STICKY != 0 && own != 0 && own != found.stx_uid && own != folder.uid();
    Ok(is_sticky.then_some(Obstacle::Sticky))
}

/// Sticky bit (`S_ISVTX`): only the owner of a file or of its folder may rename it.
const STICKY: u32 = 0o1000;

/// An attribute that a new file could not take over.
#[derive(Debug)]
pub struct AttributeLost {
    /// Name of the attribute, such as `system.posix_acl_access`.
    pub name: String,
    /// Error of the system call.
    pub error: io::Error,
}

/// Gives a new file the extended attributes of an old one that decide who may use it, and those of users. An access
/// control list that the new file has from its folder and the old one has not is removed.
///
/// The mode must be set before: with a list, its bits for the group are the list's mask.
///
/// # Errors
/// The attribute that cannot be kept.
pub fn copy_attributes(old: &File, new: &File) -> Result<(), AttributeLost> {
    let mut has_list = false;
    for name in names(old).map_err(|error| lost("extended attributes", error))? {
        if !is_kept(&name) {
            continue;
        }
        has_list |= name == ACL;
        let copied = value(old, &name).and_then(|wanted| match wanted {
            Some(wanted) if value(new, &name)?.as_ref() != Some(&wanted) => {
                Ok(fsetxattr(new, &*name, &wanted, XattrFlags::empty())?)
            }
            _ => Ok(()),
        });
        copied.map_err(|error| lost(&name, error))?;
    }
    if has_list {
        return Ok(());
    }
    match fremovexattr(new, ACL) {
        Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        Err(error) => Err(lost(ACL, error.into())),
    }
}

fn lost(name: &str, error: io::Error) -> AttributeLost {
    AttributeLost { name: name.to_owned(), error }
}

/// Returns true for attributes that pass to a new file. Others belong to the content (`security.ima`), to programs
/// (`security.capability`) or to the file system (`trusted`).
fn is_kept(name: &str) -> bool {
    name.starts_with("system.")
        || name.starts_with("user.")
        || matches!(name, "security.selinux" | "security.SMACK64")
}

/// Names of the extended attributes of a file; none where its file system has no such attributes.
fn names(file: &File) -> io::Result<Vec<String>> {
    let mut list = vec![0; LARGEST];
    let length = match flistxattr(file, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

fn value(file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; LARGEST];
    match fgetxattr(file, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A list as the kernel has it: version 2, then tag, rights and number of each entry.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    const NOBODY: u32 = 65534;
    const NONE: u32 = u32::MAX;

    /// The owner may read and write, the user `nobody` read, the group nothing.
    fn for_nobody() -> Vec<u8> {
        list(&[(1, 6, NONE), (2, 4, NOBODY), (4, 0, NONE), (0x10, 4, NONE), (0x20, 0, NONE)])
    }

    #[test]
    fn lists_and_attributes_of_users_pass_over_and_those_of_the_folder_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let create = |name: &str| File::create(folder.path().join(name)).unwrap();
        let old = create("old");
        if let Err(Errno::NOTSUP) = fsetxattr(&old, ACL, &for_nobody(), XattrFlags::empty()) {
            println!("skipped: the file system has no access control lists");
            return;
        }
        let has_user = fsetxattr(&old, "user.origin", b"template", XattrFlags::empty()).is_ok();
        let new = create("new");
        new.set_permissions(Permissions::from_mode(old.metadata().unwrap().mode() & 0o777)).unwrap();
        copy_attributes(&old, &new).unwrap();
        assert_eq!(value(&new, ACL).unwrap(), Some(for_nobody()));
        assert_eq!(value(&new, "user.origin").unwrap(), has_user.then(|| b"template".to_vec()));
        assert_eq!(new.metadata().unwrap().mode() & 0o777, old.metadata().unwrap().mode() & 0o777);
        // A folder gives new files a list, which an old file may not have.
        let plain = create("plain");
        fsetxattr(
            File::open(folder.path()).unwrap(),
            "system.posix_acl_default",
            &for_nobody(),
            XattrFlags::empty(),
        )
        .unwrap();
        let new = create("listed");
        assert!(value(&new, ACL).unwrap().is_some());
        new.set_permissions(Permissions::from_mode(0o640)).unwrap();
        copy_attributes(&plain, &new).unwrap();
        assert_eq!((value(&new, ACL).unwrap(), new.metadata().unwrap().mode() & 0o777), (None, 0o640));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri leaves a field of statx(2) unset that rustix reads")]
    fn a_mount_point_is_an_obstacle_and_a_plain_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        assert_eq!(obstacle(&path).unwrap(), None);
        assert_eq!(obstacle(Path::new("/proc")).unwrap(), Some(Obstacle::MountPoint));
        assert!(obstacle(&folder.path().join("missing")).is_err());
    }
}
