//! The autosave of a change that is about to write the configuration's file: `running.coming.toml`.
//!
//! File and autosave are two files, and the process may end between them. An autosave that belongs to another file than there is
//! would not be used, with every change that was not written. So the one that belongs to the new file is written first, beside
//! the present one, and a start takes the one that has the digest of the file.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Autosave, Saved, path_in, read};

/// The path of the coming autosave in a state directory.
pub(super) fn coming_path_in(state_dir: &Path) -> PathBuf {
    state_dir.join("running.coming.toml")
}

/// Removes the coming autosave, which is in its place or not used at all. One that stays is used only where it belongs to the
/// file and the other does not.
pub(super) fn forget_coming(state_dir: &Path) {
    // There may be none.
    let _ = fs::remove_file(coming_path_in(state_dir));
}

impl Autosave {
    /// Writes the autosave that is to be used once the configuration's file is written. The next write of the autosave itself
    /// removes it.
    ///
    /// # Errors
    /// The reason why it is not there.
    pub(crate) async fn announce(&mut self, content: String) -> Result<(), String> {
        // Two at once would use one temporary file.
        let earlier = self.end_of_write().await;
        if self.writing.is_some() {
            return earlier;
        }
        self.begin(None, move |folder| folder.write_coming(content.as_bytes()))?;
        self.end_of_write().await
    }

    /// Takes back what was announced: the file stays as it is.
    pub(crate) fn withdraw(&self) {
        self.state_dir.as_deref().into_iter().for_each(forget_coming);
    }
}

/// Puts the coming autosave of a process that has ended in its place, if the file with this digest is the one that it belongs
/// to, and removes it otherwise.
pub(crate) fn adopt(state_dir: &Path, digest: Option<u64>) {
    let (path, coming) = (path_in(state_dir), coming_path_in(state_dir));
    let belongs = |path: &Path| {
        let found = read(path).ok().flatten();
        let saved = found.as_ref().and_then(|found| Saved::parse(&found.content).ok());
        digest.is_some() && saved.is_some_and(|saved| saved.digest == digest)
    };
    // Each is whole or not there; one that cannot be moved is looked at again by the next start.
    let _ = if belongs(&coming) && !belongs(&path) {
        fs::rename(&coming, &path)
    } else {
        fs::remove_file(&coming)
    };
}

#[cfg(test)]
mod tests {
    use offramp_process::Origin;

    use super::super::FoundAutosave;
    use super::super::folder::replace;
    use super::*;

    fn form(digest: u64, text: &str) -> String {
        Saved { digest: Some(digest), changes: 1, text: text.into(), base: None }.form(Path::new("/c.toml"))
    }

    #[test]
    fn a_start_takes_the_autosave_that_belongs_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, coming) = (path_in(folder.path()), coming_path_in(folder.path()));
        // The digests of both, that of the file, and the text that is used.
        for (now, next, file, used) in [
            (Some(1), Some(2), Some(1), Some("old\n")),
            (Some(1), Some(2), Some(2), Some("new\n")),
            (Some(1), Some(2), Some(3), Some("old\n")),
            (Some(1), Some(2), None, Some("old\n")),
            // One that was written late, and has been overtaken.
            (Some(2), Some(2), Some(2), Some("old\n")),
            (None, Some(2), Some(2), Some("new\n")),
            (None, Some(2), Some(1), None),
            (Some(1), None, Some(1), Some("old\n")),
            (None, None, Some(1), None),
        ] {
            let write = |path: &Path, digest: Option<u64>, text: &str| match digest {
                Some(digest) => replace(path, form(digest, text).as_bytes()).unwrap(),
                None => drop(fs::remove_file(path)),
            };
            write(&path, now, "old\n");
            write(&coming, next, "new\n");
            adopt(folder.path(), file);
            let found = read(&path).unwrap().map(|found| found.content);
            let found = found.as_deref().map(|content| Saved::parse(content).unwrap().text.into_owned());
            assert_eq!(found.as_deref(), used, "{now:?} {next:?} {file:?}");
            assert!(!coming.exists());
        }
        // One that was cut off counts for nothing.
        replace(&path, form(1, "old\n").as_bytes()).unwrap();
        let whole = form(2, "new\n");
        replace(&coming, &whole.as_bytes()[..whole.len() / 2]).unwrap();
        adopt(folder.path(), Some(2));
        assert!(read(&path).unwrap().unwrap().content.contains("old") && !coming.exists());
    }

    #[tokio::test]
    async fn it_is_written_beside_the_other_and_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("state_dir = {:?}\n[[route]]\nserver = \"127.0.0.1:2\"\n", folder.path());
        let config = offramp_config::parse(&text, "/c.toml", &offramp_config::Environment::default());
        let mut autosave =
            Autosave::of(&config.unwrap().0, &Origin::File("/c.toml".into()), FoundAutosave::default());
        autosave.announce(form(1, "new\n")).await.unwrap();
        assert_eq!(fs::read_to_string(coming_path_in(folder.path())).unwrap(), form(1, "new\n"));
        assert!(!path_in(folder.path()).exists());
        autosave.withdraw();
        let lock = || {
            fs::read_dir(folder.path())
                .unwrap()
                .filter(|one| one.as_ref().unwrap().file_name() == "running.lock")
        };
        let others = || fs::read_dir(folder.path()).unwrap().count() - lock().count();
        assert_eq!(others(), 0);
        fs::create_dir_all(coming_path_in(folder.path()).join("in-the-way")).unwrap();
        assert!(autosave.announce(form(1, "new\n")).await.is_err());
        assert_eq!(others(), 1, "nothing is left behind");
    }
}
