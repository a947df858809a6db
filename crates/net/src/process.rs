//! The process as a whole: descriptor limit, user, identity.

use std::io;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group, Uid, User, fchownat, setgid, setgroups, setuid};

/// Raises the limit of open descriptors to the hard limit; returns what it is then.
///
/// # Errors
/// What the kernel says; the limit is then as it was.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Whether the process runs as root.
#[must_use]
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// A user to switch to, looked up before it is needed.
#[derive(Clone, Debug)]
pub struct Identity {
    uid: Uid,
    gid: Gid,
}

impl Identity {
    /// Looks up `name`, or `user:group`.
    ///
    /// # Errors
    /// A sentence that names what does not exist.
    pub fn find(name: &str) -> Result<Self, String> {
        let (user, group) = name.split_once(':').map_or((name, None), |(user, group)| (user, Some(group)));
        let found = User::from_name(user).map_err(|error| format!("looking up user `{user}`: {error}"))?;
        let found = found
            .ok_or_else(|| format!("there is no user `{user}`; create it with `useradd --system {user}`"))?;
        let gid = match group {
            None => found.gid,
            Some(group) => {
                Group::from_name(group)
                    .map_err(|error| format!("looking up group `{group}`: {error}"))?
                    .ok_or_else(|| format!("there is no group `{group}`"))?
                    .gid
            }
        };
        Ok(Self { uid: found.uid, gid })
    }

    /// Whether the process already runs as this user.
    #[must_use]
    pub fn is_current(&self) -> bool {
        Uid::effective() == self.uid
    }

    /// Gives a file or directory to this user; a symbolic link is given itself, not what it names.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn own(&self, path: &std::path::Path) -> io::Result<()> {
        Ok(fchownat(AT_FDCWD, path, Some(self.uid), Some(self.gid), AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Switches the whole process to this user, for good: supplementary groups, group, user.
    ///
    /// # Errors
    /// What the kernel says; the process must then not go on.
    pub fn assume(&self) -> io::Result<()> {
        setgroups(&[self.gid])?;
        setgid(self.gid)?;
        setuid(self.uid)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised() {
        let limit = raise_descriptor_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, limit);
    }

    #[test]
    fn an_unknown_user_is_named() {
        assert!(Identity::find("nobody").is_ok());
        assert!(Identity::find("no-such-user").unwrap_err().contains("`no-such-user`"));
        assert!(Identity::find("nobody:no-such-group").unwrap_err().contains("`no-such-group`"));
    }
}
