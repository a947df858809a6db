//! Paths of logs that lead to a standard stream of the process.

use std::fs;
use std::path::Path;
use std::process;

use offramp_config::model::StandardStream;
use offramp_observe::Output;

/// The standard stream that a path leads to through symbolic links, as `/var/log/access.log` does in many containers.
pub fn of(path: &Path) -> Option<Output> {
    let own = format!("/proc/{}/fd", process::id());
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        // Paths with the number of this process are its own streams too: containers name those of their first process.
        let named = match path.strip_prefix(&own) {
            Ok(number) => Path::new("/proc/self/fd").join(number),
            Err(_) => path.clone(),
        };
        match StandardStream::of(&named) {
            Some(StandardStream::Stdout) => return Some(Output::Stdout),
            Some(StandardStream::Stderr) => return Some(Output::Stderr),
            None => {}
        }
        let target = fs::read_link(&path).ok()?;
        path = offramp_config::joined(path.parent()?, target);
    }
    None
}

/// The most symbolic links in a row that are followed to a stream. The kernel follows 40.
const LINKS: usize = 8;
