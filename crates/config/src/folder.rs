//! Relative paths and the folder where they begin.

use std::env;
use std::fs::symlink_metadata;
use std::io;
use std::path::{Component, Path, PathBuf};

/// `path` as seen from `folder`. A `.` or `..` at its front is taken off, so that people read `/run/x.sock` and not
/// `/etc/../run/x.sock`. A `..` stays behind a folder that is a symbolic link, from which it leads elsewhere, or that
/// cannot be looked at.
#[must_use]
pub fn joined(folder: &Path, path: impl AsRef<Path>) -> PathBuf {
    let (mut folder, mut rest) = (folder, path.as_ref());
    let whole = rest;
    loop {
        let mut components = rest.components();
        match components.next() {
            Some(Component::CurDir) => rest = components.as_path(),
            Some(Component::ParentDir) if is_folder(folder) => {
                let Some(above) = folder.parent() else { break };
                (folder, rest) = (above, components.as_path());
            }
            _ => break,
        }
    }
    match (folder.as_os_str().is_empty(), rest.as_os_str().is_empty()) {
        (true, true) => whole.to_owned(),
        // Joined to nothing it would end in a slash.
        (false, true) => folder.to_owned(),
        _ => folder.join(rest),
    }
}

/// `path` as seen from the current folder of the process.
///
/// # Errors
/// The path is empty, or the current folder is gone.
pub fn absolute(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    if path.is_absolute() || path.as_os_str().is_empty() {
        return std::path::absolute(path);
    }
    Ok(joined(&env::current_dir()?, path))
}

fn is_folder(folder: &Path) -> bool {
    matches!(folder.components().next_back(), Some(Component::Normal(_)))
        && folder.is_absolute()
        && symlink_metadata(folder).is_ok_and(|found| found.is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn dots_at_the_front_go_where_they_lead_to_the_same_place() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let etc = home.join("etc");
        std::fs::create_dir_all(etc.join("offramp")).unwrap();
        symlink(etc.join("offramp"), home.join("link")).unwrap();
        let of = |folder: &str, path: &str| joined(&home.join(folder), path);
        for (path, expected) in [
            ("a.pem", "etc/offramp/a.pem"),
            ("./a.pem", "etc/offramp/a.pem"),
            (".//./a/", "etc/offramp/a"),
            ("../run/a.sock", "etc/run/a.sock"),
            ("./../../run/a.sock", "run/a.sock"),
            ("..", "etc"),
            (".", "etc/offramp"),
            ("a/../b", "etc/offramp/a/../b"),
            (".hidden", "etc/offramp/.hidden"),
            ("..hidden", "etc/offramp/..hidden"),
        ] {
            assert_eq!(of("etc/offramp", path).to_str(), home.join(expected).to_str(), "{path}");
        }
        assert_eq!(of("etc/offramp", "/run/../a"), Path::new("/run/../a"));
        assert_eq!(of("link", "../a"), home.join("link/../a"));
        assert_eq!(of("absent", "../a"), home.join("absent/../a"));
        assert_eq!(joined(Path::new("/"), "../a"), Path::new("/../a"));
        assert_eq!(joined(Path::new(""), "../a"), Path::new("../a"));
        assert_eq!(joined(Path::new(""), "."), Path::new("."));
        let here = env::current_dir().unwrap();
        assert_eq!(absolute("../a").unwrap(), here.parent().unwrap().join("a"));
        assert_eq!(absolute("/a").unwrap(), Path::new("/a"));
        assert!(absolute("").is_err());
    }
}
