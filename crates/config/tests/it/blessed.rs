//! Files that are compared with what the program says, and written anew with `OFFRAMP_BLESS=1`.

use std::path::{Path, PathBuf};

/// A file of this crate or, from `../..`, of the workspace.
pub(crate) fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// The text of a file.
pub(crate) fn read(relative: &str) -> String {
    let path = path(relative);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails where the file differs from `actual`, or writes it.
pub(crate) fn compare(relative: &str, actual: &str) {
    if std::env::var_os("OFFRAMP_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(path(relative), actual).unwrap();
    }
    let expected = read(relative);
    assert!(
        expected == actual,
        "{relative} is not what it should be; look at the difference and write it anew with \
         OFFRAMP_BLESS=1 cargo test -p offramp-config\n--- expected\n{expected}\n--- actual\n{actual}"
    );
}
