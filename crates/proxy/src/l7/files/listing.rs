//! The list of what a directory has, as a response.
//!
//! A directory may have a million names, and clients may read slowly. So a list has at most [`MOST_NAMES`] names and about
//! [`MOST_BYTES`] bytes, it is made on a thread beside the worker ([`super::lists`]), and lists that clients have not read yet,
//! or that are remembered, hold at most [`MOST_HELD`] bytes per worker.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::StatusCode;
use offramp_http::files::listing::{Listing, ListingEntry, sort};
use offramp_http::head::Response;
use offramp_net::file::{self, FileKind, Wait};

use crate::snapshot::http::{ClosedPaths, Files};

/// Names of a directory that are looked at.
const MOST_NAMES: usize = 10_000;
/// The bytes of a list, about.
const MOST_BYTES: usize = 2 * 1024 * 1024;
/// The bytes of all lists of a worker on their way.
const MOST_HELD: usize = 32 * 1024 * 1024;

/// The form of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListingRequest {
    /// The host that was asked for: what other routes guard differs by host, on one route too.
    pub(crate) host: Box<str>,
    /// Its path, as people read it.
    pub(crate) path: String,
    /// As JSON, not as a page.
    pub(crate) json: bool,
}

/// Page with a list of a directory.
pub(crate) struct ListingText {
    pub(super) text: String,
    pub(super) json: bool,
}

impl ListingRequest {
    /// Lists the directory `name` below `root`, which is empty or ends with `/`.
    ///
    /// # Errors
    /// What the kernel says; [`io::ErrorKind::Interrupted`] where it was `stopped`.
    pub(super) fn page(
        &self,
        root: BorrowedFd<'_>,
        name: &str,
        files: &Files,
        stopped: impl Fn() -> bool,
    ) -> io::Result<ListingText> {
        let go_on = || if stopped() { Err(io::Error::from(io::ErrorKind::Interrupted)) } else { Ok(()) };
        let mut found =
            file::list(root, name, MOST_NAMES, |entry| go_on().map(|()| is_served(entry, files.hidden)))?;
        if !files.closed.is_empty() {
            let place = file::resolve(root, name, Wait::Allowed)?;
            // Links are looked up again, which may be for no client any more.
            found.entries.retain(|entry| !stopped() && is_open(root, &place, entry, &files.closed));
        }
        let entry = |found: file::DirectoryEntry| ListingEntry {
            name: found.name,
            is_directory: found.kind == FileKind::Directory,
            size: found.size,
            modified: found.modified,
        };
        let mut entries: Vec<ListingEntry> = found.entries.into_iter().map(entry).collect();
        go_on()?;
        sort(&mut entries);
        go_on()?;
        let listing = Listing {
            path: &self.path,
            has_parent: !name.is_empty(),
            entries: &entries,
            is_cut: found.is_cut,
        };
        let text = if self.json { listing.json(MOST_BYTES) } else { listing.html(MOST_BYTES) };
        Ok(ListingText { text, json: self.json })
    }
}

/// Set where an entry of the directory at `place` belongs to no other route, even behind links.
fn is_open(root: BorrowedFd<'_>, place: &str, entry: &file::DirectoryEntry, closed: &ClosedPaths) -> bool {
    let gap = if place.is_empty() { "" } else { "/" };
    let name = format!("{place}{gap}{}", entry.name);
    if !entry.is_link {
        return !closed.covers(&name);
    }
    file::resolve(root, &name, Wait::Allowed).is_ok_and(|place| !closed.covers(&place))
}

/// A file of this name could be asked for, see [`offramp_http::files::path::decode`].
fn is_served(name: &str, hidden: bool) -> bool {
    (hidden || !name.starts_with('.')) && !name.contains(|c: char| c.is_ascii_control() || c == '\\')
}

/// The memory of the lists that have not been sent.
#[derive(Default)]
pub(crate) struct ListingMemory(Arc<AtomicUsize>);

/// The response with a list.
pub(super) fn response(body: Bytes, json: bool) -> Response<Bytes> {
    let kind: &[u8] = if json { b"application/json" } else { b"text/html; charset=utf-8" };
    let mut response = Response::new(StatusCode::OK, body);
    response.fields.append(b"content-type", kind);
    response.fields.append(b"vary", b"accept");
    response.fields.append(b"cache-control", b"no-cache");
    if !json {
        response.fields.append(b"content-security-policy", POLICY);
    }
    response
}

impl ListingMemory {
    /// Counts a list until the last part of it is dropped.
    ///
    /// # Errors
    /// The list, where there is no memory for it.
    pub(super) fn hold(&self, text: String) -> Result<Bytes, String> {
        // The worker alone adds; threads that drop what was sent make it less.
        if self.0.load(Ordering::Relaxed) + text.len() > MOST_HELD {
            return Err(text);
        }
        self.0.fetch_add(text.len(), Ordering::Relaxed);
        Ok(Bytes::from_owner(ListingBody { text, all: Arc::clone(&self.0) }))
    }
}

/// The page has styles of its own and nothing else, whatever names say.
const POLICY: &[u8] = b"default-src 'none'; style-src 'unsafe-inline'";

/// A list that is on its way.
struct ListingBody {
    text: String,
    all: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for ListingBody {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Drop for ListingBody {
    fn drop(&mut self) {
        self.all.fetch_sub(self.text.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_on_their_way_have_a_bound() {
        let memory = ListingMemory::default();
        let page = || "x".repeat(MOST_HELD / 2);
        let one = memory.hold(page()).unwrap();
        let other = memory.hold(page()).unwrap();
        let more = || memory.hold("x".to_owned());
        assert_eq!(more(), Err("x".to_owned()));
        // A part that is still on its way holds the whole.
        let part = one.slice(..1);
        drop(one);
        assert!(more().is_err());
        drop(part);
        assert!(more().is_ok());
        drop(other);
        assert_eq!(memory.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_listed_can_be_asked_for() {
        for (name, hidden, served) in [
            ("a", false, true),
            ("a b\u{e4}", false, true),
            (".git", false, false),
            (".git", true, true),
            ("a\\b", true, false),
            ("a\nb", true, false),
        ] {
            assert_eq!(is_served(name, hidden), served, "{name}");
        }
    }
}
