//! Peers of the next Debian: programs in a folder with a whole system, which run there by chroot.
//!
//! The folder is only read, but for an empty directory that the run's own directory is mounted on, in a mount
//! namespace that ends with the program. So configurations, keys and sockets have the same paths inside.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, make_dir};
use crate::process::{find_program, output_of};

/// A folder with a system in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder(PathBuf);

/// What `unshare` runs in the new mount namespace: the arguments are the folder, the run's directory, then the
/// program with its arguments. One process all the way: each becomes the next.
const ENTER: &str = "mount --bind \"$2\" \"$1$2\"; root=$1; shift 2; exec chroot \"$root\" \"$@\"";

impl Folder {
    /// The folder at `path`.
    ///
    /// # Errors
    /// `Missing` with the remedy, where there is no system in it, or this user may not enter it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let root = path.canonicalize().ok().filter(|root| root.join("usr/bin").is_dir());
        let root = root.ok_or_else(|| {
            Error::Missing(format!(
                "no Debian is in {} (`scripts/next-debian` puts one there)",
                path.display()
            ))
        })?;
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Missing(format!("running what is in {} takes root", path.display())));
        }
        Ok(Self(root))
    }

    /// Its path in this system.
    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// The path, within the folder, of a program.
    pub(crate) fn find_program(&self, name: &str) -> Option<PathBuf> {
        let places = ["/usr/sbin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
        places.into_iter().find(|place| self.0.join(place.strip_prefix("/").unwrap_or(place)).is_file())
    }

    /// Runs one of its programs to its end and returns what it printed, for version lines.
    pub(crate) fn output_of(&self, program: &Path, args: &[&str]) -> Option<String> {
        let (root, program) = (self.0.to_str()?, program.to_str()?);
        let args: Vec<&str> = [root, program].into_iter().chain(args.iter().copied()).collect();
        output_of(&find_program("chroot")?, &args)
    }

    /// The program and arguments that run `program` of this folder, which sees `dir` under its own path.
    ///
    /// # Errors
    /// `unshare` is missing, or the directory cannot be made.
    pub(crate) fn within(
        &self,
        dir: &Path,
        program: &Path,
        args: Vec<OsString>,
    ) -> Result<(PathBuf, Vec<OsString>)> {
        let unshare = find_program("unshare")
            .ok_or_else(|| Error::Missing("unshare is not installed (package util-linux)".into()))?;
        let dir = dir.canonicalize().map_err(|e| Error::io(format!("finding {}", dir.display()), e))?;
        make_dir(&self.0.join(dir.strip_prefix("/").unwrap_or(&dir)))?;
        let mut all: Vec<OsString> = ["--mount", "--", "sh", "-euc", ENTER, "sh"].map(Into::into).into();
        all.extend([self.0.clone().into(), dir.into(), program.into()]);
        all.extend(args);
        Ok((unshare, all))
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_system_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = Folder::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("scripts/next-debian"), "{error}");
    }

    #[test]
    fn programs_are_found_by_their_path_within() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("usr/sbin")).unwrap();
        std::fs::write(dir.path().join("usr/sbin/nginx"), "").unwrap();
        let folder = Folder(dir.path().to_owned());
        assert_eq!(folder.find_program("nginx"), Some("/usr/sbin/nginx".into()));
        assert_eq!(folder.find_program("hitch"), None);
    }
}
