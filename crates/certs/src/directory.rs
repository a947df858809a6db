//! Pairs of certificate and key in a directory, by file name.
//!
//! | files | pair |
//! | --- | --- |
//! | `NAME.pem` and `NAME.key` | these two |
//! | `NAME.crt` and `NAME.key` | these two |
//! | `NAME.pem` without `NAME.key` | both are in it |
//! | `NAME/fullchain.pem` and `NAME/privkey.pem` | these two, as certbot and acme clients write them |
//! | `NAME/tls.crt` and `NAME/tls.key` | these two, as Kubernetes mounts secrets |
//!
//! Names that start with a dot and all other names are ignored.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::warning::{Concern, Warning};

/// The pairs in a directory, with warnings.
#[derive(Debug, Default)]
pub struct PairListing {
    /// The path of each certificate, and of its key if different, sorted by name.
    pub pairs: Vec<(PathBuf, Option<PathBuf>)>,
    /// Warnings about files without their counterpart.
    pub warnings: Vec<Warning>,
}

/// Lists the pairs in `path`, without opening files.
///
/// # Errors
/// [`Error::Io`]: the directory cannot be read.
pub fn pairs(path: &Path) -> Result<PairListing, Error> {
    let (mut files, mut folders) = (BTreeSet::new(), Vec::new());
    for entry in fs::read_dir(path).map_err(|error| Error::io("read", path, error))? {
        let entry = entry.map_err(|error| Error::io("read", path, error))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        // A link may lead to a file or a directory.
        if is_directory(&entry, &path) {
            folders.push(path);
        } else {
            files.insert(path);
        }
    }
    let mut listing = PairListing::default();
    for file in &files {
        match file.extension().and_then(OsStr::to_str) {
            Some("pem") => listing.pairs.push((file.clone(), key_of(file, &files))),
            Some("crt") if files.contains(&file.with_extension("pem")) => {}
            Some("crt") => match key_of(file, &files) {
                Some(key) => listing.pairs.push((file.clone(), Some(key))),
                None => listing.warnings.push(Warning::new(file, Concern::NoKeyBeside)),
            },
            Some("key") => {
                let is_there = |extension| files.contains(&file.with_extension(extension));
                if !is_there("pem") && !is_there("crt") {
                    listing.warnings.push(Warning::new(file, Concern::NoCertificateBeside));
                }
            }
            _ => {}
        }
    }
    for folder in folders {
        for (cert, key) in [("fullchain.pem", "privkey.pem"), ("tls.crt", "tls.key")] {
            let (cert, key) = (folder.join(cert), folder.join(key));
            if cert.exists() {
                listing.pairs.push((cert, Some(key)));
            }
        }
    }
    listing.pairs.sort();
    Ok(listing)
}

fn is_directory(entry: &fs::DirEntry, path: &Path) -> bool {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => path.is_dir(),
        Ok(kind) => kind.is_dir(),
        Err(_) => false,
    }
}

fn key_of(cert: &Path, files: &BTreeSet<PathBuf>) -> Option<PathBuf> {
    Some(cert.with_extension("key")).filter(|key| files.contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for directory in ["live.test", "..2026", "secret", "empty"] {
            fs::create_dir(at(directory)).unwrap();
        }
        std::os::unix::fs::symlink("live.test", at("link.test")).unwrap();
        for file in [
            "a.test.pem",
            "a.test.key",
            "b.pem",
            "c.crt",
            "c.key",
            "alone.crt",
            "orphan.key",
            "README",
            ".hidden.pem",
            "b.ocsp",
            "live.test/fullchain.pem",
            "live.test/privkey.pem",
            "live.test/cert.pem",
            "..2026/tls.crt",
            "secret/tls.crt",
            "secret/tls.key",
        ] {
            fs::write(at(file), "").unwrap();
        }
        let listing = pairs(folder.path()).unwrap();
        let expected = [
            ("a.test.pem", Some("a.test.key")),
            ("b.pem", None),
            ("c.crt", Some("c.key")),
            ("link.test/fullchain.pem", Some("link.test/privkey.pem")),
            ("live.test/fullchain.pem", Some("live.test/privkey.pem")),
            ("secret/tls.crt", Some("secret/tls.key")),
        ];
        assert_eq!(listing.pairs, expected.map(|(cert, key)| (at(cert), key.map(at))));
        let told: Vec<_> = listing.warnings.iter().map(|warning| warning.path.clone()).collect();
        assert_eq!(told, [at("alone.crt"), at("orphan.key")]);
        assert!(pairs(&at("absent")).is_err());
    }
}
