//! Treatment of a damaged SQLite file: it is moved aside, if it was a store.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::error::Error;
use crate::store::location::Location;
use crate::store::sqlite::APPLICATION_ID;
use crate::time::micros;

/// Returns `true` for SQLite databases that this program created: their header has its application id
/// (Database File Format, §1.3). Other files that cannot be opened belong to another program: perhaps the
/// path is wrong.
pub fn was_a_store(url: &str) -> bool {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    let Ok(Location::File(path)) = Location::parse(url) else { return false };
    let mut start = [0; 72];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start.starts_with(MAGIC) && start[68..] == APPLICATION_ID.to_be_bytes()
}

/// Moves a damaged SQLite file and its write-ahead log aside, and returns the new path. The next opening
/// creates a fresh one.
///
/// # Errors
/// The store is not a file, or the file cannot be renamed.
pub fn move_aside(url: &str) -> Result<PathBuf, Error> {
    let Location::File(path) = Location::parse(url)? else {
        return Err(Error::Store("only a file can be moved aside".into()));
    };
    let seconds = micros(SystemTime::now()) / 1_000_000;
    let with = |suffix: &str| {
        let mut name = path.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    };
    let aside = (0..100)
        .map(|again| {
            if again == 0 {
                with(&format!(".corrupt-{seconds}"))
            } else {
                with(&format!(".corrupt-{seconds}-{again}"))
            }
        })
        .find(|aside| !aside.exists())
        .ok_or_else(|| Error::Store("too many damaged files lie beside it".into()))?;
    let failed = |error| Error::Io(format!("moving {} aside", path.display()), error);
    std::fs::rename(&path, &aside).map_err(failed)?;
    for suffix in ["-wal", "-shm"] {
        let mut name = aside.clone().into_os_string();
        name.push(suffix);
        match std::fs::rename(with(suffix), PathBuf::from(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(aside)
}
