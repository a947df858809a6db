//! A file with all that is said of it, ready for a response.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use offramp_http::files::conditions::Validators;
use offramp_http::files::path;
use offramp_http::head::{Fields, Known};
use offramp_http::semantics::accept_encoding::Coding;
use offramp_net::file::{self, FileVersion, OpenFile, Wait};

use super::content::ContentPiece;
use crate::media::media_type;
use crate::snapshot::http::Files;

/// The largest file that is kept in memory.
pub(super) const SMALL: u64 = 64 * 1024;
/// For how many seconds a file must not have changed, so that it may be kept: clocks of file systems tick in as many, and
/// two changes within a tick look alike.
const SETTLED: i64 = 2;

/// A file that was found.
pub(super) struct ReadyFile {
    /// Its path below the root.
    name: String,
    /// The content coding that it has beyond what its path says.
    coding: Option<Coding>,
    stamp: FileVersion,
    pub(super) validators: Validators,
    /// The fields of every response with it, whether it has content or not (RFC 9110 §15.4.5).
    pub(super) described: Fields,
    /// The fields of the response with all of it.
    pub(super) whole: Fields,
    pub(super) content: ContentLocation,
    kind: String,
}

/// The place of the content.
pub(super) enum ContentLocation {
    /// Content in memory.
    Memory(Bytes),
    /// Content behind a descriptor.
    File(Arc<OwnedFd>),
}

impl ReadyFile {
    pub(super) fn new(files: &Files, file: OpenFile, name: String, coding: Option<Coding>) -> Self {
        let stamp = file.stamp;
        let (seconds, nanoseconds) = stamp.modified;
        let validators = Validators::new(seconds, nanoseconds, stamp.size, stamp.inode);
        let described = describe(files, &name, &validators);
        let content = ContentLocation::File(Arc::new(file.fd));
        let kind = media_type(&name);
        let mut ready =
            Self { name, coding, stamp, validators, whole: Fields::new(), described, content, kind };
        let mut whole = ready.with_content();
        // A part says by itself that there are parts.
        whole.append(b"accept-ranges", b"bytes");
        whole.append(b"content-type", ready.kind.as_bytes());
        whole.set_known(Known::ContentLength, itoa::Buffer::new().format(stamp.size).as_bytes());
        ready.whole = whole;
        ready
    }

    /// The fields of a response with content; its media type and length are not among them.
    pub(super) fn with_content(&self) -> Fields {
        let mut fields = self.described.clone();
        if let Some(coding) = self.coding {
            fields.append(b"content-encoding", coding.name().as_bytes());
        }
        fields
    }

    /// Media type of the file.
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Size in bytes, not encoded.
    pub(super) fn size(&self) -> u64 {
        self.stamp.size
    }

    /// It is this file, in this state.
    pub(super) fn is(&self, file: &OpenFile, name: &str, coding: Option<Coding>) -> bool {
        self.stamp == file.stamp && self.name == name && self.coding == coding
    }

    /// Returns true if the file at the path is still the one that was described. Its path may lead elsewhere
    /// meanwhile.
    pub(super) fn is_as_said(&self) -> bool {
        match &self.content {
            ContentLocation::Memory(_) => true,
            ContentLocation::File(fd) => file::stamp(fd).is_ok_and(|now| now == self.stamp),
        }
    }

    /// Takes the content into memory if it is small. `false`: it must not be kept, because it changed too shortly before
    /// `now`, in seconds since 1970, or while it was read.
    pub(super) fn settle(&mut self, now: i64) -> bool {
        if self.stamp.changed.0 > now.saturating_sub(SETTLED) {
            return false;
        }
        let ContentLocation::File(fd) = &self.content else { return true };
        if self.stamp.size <= SMALL {
            let Some(bytes) = all(fd, self.stamp.size) else { return false };
            if !self.is_as_said() {
                return false;
            }
            self.content = ContentLocation::Memory(bytes);
        }
        true
    }

    /// The bytes of memory that it holds, about.
    pub(super) fn held(&self) -> usize {
        let content = match &self.content {
            ContentLocation::Memory(bytes) => bytes.len(),
            ContentLocation::File(_) => 0,
        };
        content + self.described.memory() + self.whole.memory() + self.name.len() + size_of::<Self>()
    }
}

/// Content of a small file, read without a wait; `None` if that is not all of it.
fn all(fd: &OwnedFd, size: u64) -> Option<Bytes> {
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    if !bytes.is_empty() {
        let n = file::read(fd, &mut [IoSliceMut::new(&mut bytes)], 0, Wait::Never).ok()?;
        if n < bytes.len() {
            return None;
        }
    }
    Some(bytes.into())
}

/// These pieces of content that is in memory.
pub(super) fn gathered(bytes: &Bytes, pieces: &[ContentPiece]) -> Bytes {
    let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(bytes.len());
    let part = |range: &Range<u64>| bytes.slice(at(range.start)..at(range.end));
    match pieces {
        [ContentPiece::File(range)] => part(range),
        pieces => {
            let texts = pieces.iter().map(|piece| match piece {
                ContentPiece::Text(text) => text.clone(),
                ContentPiece::File(range) => part(range),
            });
            texts.flatten().collect::<Vec<u8>>().into()
        }
    }
}

/// Fields that describe a file with its content and without.
fn describe(files: &Files, name: &str, validators: &Validators) -> Fields {
    let mut fields = Fields::new();
    if let Some(date) = validators.date() {
        fields.append(b"last-modified", date.as_bytes());
    }
    fields.append(b"etag", validators.etag.as_bytes());
    if files.precompressed {
        fields.append(b"vary", b"accept-encoding");
    }
    let rule = files.cache_control.iter().find(|(pattern, _)| {
        // A pattern with a slash at its front is for the whole path below the root.
        match pattern.strip_prefix('/') {
            Some(pattern) => path::matches(pattern, name),
            None => path::matches(pattern, name.rsplit('/').next().unwrap_or(name)),
        }
    });
    if let Some((_, value)) = rule {
        fields.append(b"cache-control", value.as_bytes());
    }
    fields
}
