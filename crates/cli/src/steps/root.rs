//! The tree of files that is changed: that of the machine, or one below a directory, such as an image.

use std::path::{Component, Path, PathBuf};

/// The top of a tree of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// The tree below a directory.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// The tree of this machine.
    pub(crate) fn machine() -> Self {
        Self(PathBuf::from("/"))
    }

    /// Set for the tree of this machine.
    pub(crate) fn is_machine(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The directory at the top.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A path of the tree, as this process reaches it.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The path within the tree of one that [`Root::join`] or [`Root::place`] gave.
    pub(crate) fn within(&self, path: &Path) -> PathBuf {
        Path::new("/").join(path.strip_prefix(&self.0).unwrap_or(path))
    }

    /// A path that is to be written: the links of the directories above it are followed within the tree. What is missing
    /// is taken as it is named.
    ///
    /// # Errors
    /// A link leads to nothing within the tree.
    pub(crate) fn place(&self, path: impl AsRef<Path>) -> Result<PathBuf, String> {
        let path = Path::new("/").join(path);
        if self.is_machine() {
            return Ok(path);
        }
        let is_outside =
            || format!("{}: a link leads out of the tree, or nowhere", self.join(&path).display());
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Err(is_outside()) };
        let deepest = folder.ancestors().find_map(|above| Some((above, self.resolve(above)?)));
        let (above, resolved) = deepest.ok_or_else(is_outside)?;
        let missing = folder.strip_prefix(above).unwrap_or(Path::new(""));
        // One that is there, but cannot be resolved, is a link that leads out, or a circle.
        let is_missing = |first: &Path| resolved.join(first).symlink_metadata().is_err();
        let is_free = missing.iter().next().is_none_or(|first| is_missing(Path::new(first)));
        let is_plain = missing.components().all(|part| matches!(part, Component::Normal(_)));
        if is_free && is_plain { Ok(resolved.join(missing).join(name)) } else { Err(is_outside()) }
    }

    /// A home of the tree: one that lies below the top already stays as it is.
    pub(crate) fn home(&self, home: &Path) -> PathBuf {
        if home.starts_with(&self.0) { home.to_owned() } else { self.join(home) }
    }

    /// Follows symbolic links as a process would whose root this is, so that no link leads out of the tree. `None` if
    /// the file is not there, or the links are a circle.
    pub(crate) fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        if self.is_machine() {
            return path.as_ref().canonicalize().ok();
        }
        self.walk(path.as_ref(), |_| {})
    }

    /// The files on the way to a path, links among them, as this process reaches them. `None` as for [`Root::resolve`].
    pub(crate) fn trail(&self, path: impl AsRef<Path>) -> Option<Vec<PathBuf>> {
        let mut trail = Vec::new();
        self.walk(path.as_ref(), |visited| trail.push(visited.to_owned()))?;
        Some(trail)
    }

    fn walk(&self, path: &Path, mut visit: impl FnMut(&Path)) -> Option<PathBuf> {
        let mut pending: Vec<PathBuf> = parts(path);
        let mut found = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = pending.pop() {
            if part == Path::new("..") {
                found.pop();
                continue;
            }
            let next = found.join(&part);
            let there = self.join(&next);
            visit(&there);
            match there.symlink_metadata().ok()?.is_symlink() {
                false => found = next,
                true if links == LINKS => return None,
                true => {
                    links += 1;
                    let target = there.read_link().ok()?;
                    if target.is_absolute() {
                        found = PathBuf::from("/");
                    }
                    pending.extend(parts(&target));
                }
            }
        }
        Some(self.join(found))
    }
}

/// Symbolic links on the way to one file (path_resolution(7)).
const LINKS: usize = 40;

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| PathBuf::from(part.as_os_str())).rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_top() {
        assert_eq!(Root::machine().join("/etc/a"), Path::new("/etc/a"));
        let root = Root::new("/srv/image".into());
        assert_eq!(root.join("/etc/a"), Path::new("/srv/image/etc/a"));
        assert_eq!(root.home(Path::new("/home/ada")), Path::new("/srv/image/home/ada"));
        assert_eq!(root.home(Path::new("/srv/image/home/ada")), Path::new("/srv/image/home/ada"));
    }

    #[test]
    fn links_do_not_lead_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().to_owned());
        std::fs::create_dir_all(root.join("/etc/java")).unwrap();
        std::fs::create_dir_all(root.join("/usr/lib/jvm")).unwrap();
        std::fs::write(root.join("/etc/java/cacerts"), "x").unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        link("/etc/java/cacerts", "/usr/lib/jvm/absolute");
        link("../../../../../../etc/java/cacerts", "/usr/lib/jvm/relative");
        link("circle", "/usr/lib/jvm/circle");
        link("/etc/hostname-that-is-not-there", "/usr/lib/jvm/none");
        for name in ["/usr/lib/jvm/absolute", "/usr/lib/jvm/relative", "/etc/java/cacerts"] {
            assert_eq!(root.resolve(name), Some(root.join("/etc/java/cacerts")), "{name}");
        }
        let outside = tempfile::tempdir().unwrap();
        link(outside.path().to_str().unwrap(), "/etc/out");
        link("../../../etc/java", "/usr/in");
        assert!(root.place("/etc/out/a").is_err() && root.place("/etc/out/b/a").is_err());
        assert!(root.place("/usr/lib/jvm/circle/a").is_err());
        assert_eq!(root.place("/usr/in/new/a"), Ok(root.join("/etc/java/new/a")));
        assert_eq!(root.place("/srv/new/a"), Ok(root.join("/srv/new/a")));
        assert_eq!(root.within(&root.join("/srv/a")), Path::new("/srv/a"));
        for name in ["/usr/lib/jvm/circle", "/usr/lib/jvm/none", "/nothing"] {
            assert_eq!(root.resolve(name), None, "{name}");
        }
    }

    #[test]
    fn each_file_on_the_way_is_visited() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().to_owned());
        std::fs::create_dir_all(root.join("/etc/java")).unwrap();
        std::os::unix::fs::symlink("etc", root.join("/one")).unwrap();
        std::os::unix::fs::symlink("/one/java", root.join("/two")).unwrap();
        let trail = ["two", "one", "etc", "etc/java"].map(|name| root.join(name));
        assert_eq!(root.trail("/two").as_deref(), Some(&trail[..]));
        assert_eq!(root.trail("/two/none"), None);
    }
}
