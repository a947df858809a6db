//! What the user of the protocol keeps of a stream.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use offramp_http::h2::Code;
use offramp_http::head::Fields;
use offramp_net::clock::coarse_ms;

/// The most content in one piece, which is copied as it grows, and may have twice its memory.
const PIECE: usize = 256 * 1024;

/// A stream.
#[derive(Default)]
pub(in crate::l7::h2) struct Slot {
    /// Who has it: who answers, and who reads the content.
    pub(super) writes: bool,
    pub(super) reads: bool,
    /// What the fields of its request, of them those of its head, and a piece of its response that waits, are counted as.
    pub(super) fields: u32,
    pub(super) head: u32,
    pub(super) piece: u32,
    /// How much a server may have sent ahead of its response.
    pub(super) ahead: u32,
    /// How it was ended at once, and by whom.
    pub(super) over: Option<Code>,
    pub(super) by_client: bool,
    /// Whether all of the request was taken by then.
    pub(super) whole: bool,

    /// Content that has come and was not taken, in one piece however it came; pieces behind it where it is more than [`PIECE`].
    pub(super) unread: BytesMut,
    #[allow(clippy::box_collection)] // Nearly every stream has none, and then it is a word.
    pub(super) behind: Option<Box<VecDeque<BytesMut>>>,
    pub(super) trailers: Option<Box<Fields>>,
    /// Whether all of the request has come.
    pub(super) received_all: bool,
    pub(super) reader: Option<Waker>,

    /// Whether it is among those that read nothing for now, and whether any of its response was sent.
    pub(super) hungry: bool,
    pub(super) fed: bool,
    /// Whether its turn to read has come.
    pub(super) called: bool,
    /// Whether more data of its response is known to come, and whether that waits for the bandwidth of a route.
    pub(super) sized: bool,
    pub(super) paced: bool,
    /// Since when nothing may be written, and when content last came, in milliseconds of the coarse clock; or 0.
    pub(super) blocked: u64,
    pub(super) moved: u64,
    pub(super) writer: Option<Waker>,
}

impl Slot {
    /// A request with so many bytes of fields has come: somebody answers, and reads its content unless it is `over`.
    pub(super) fn begin(&mut self, fields: usize, over: bool) {
        (self.fields, self.head) = (fields as u32, fields as u32);
        (self.writes, self.reads, self.received_all) = (true, !over, over);
    }

    /// Adds content that has arrived.
    pub(super) fn put(&mut self, data: &[u8]) {
        let last = self.behind.as_mut().and_then(|behind| behind.back_mut()).unwrap_or(&mut self.unread);
        if last.is_empty() || last.len() + data.len() <= PIECE {
            last.extend_from_slice(data);
        } else {
            self.behind.get_or_insert_default().push_back(BytesMut::from(data));
        }
    }

    /// Takes `n` bytes of content, which are there in one piece.
    pub(super) fn take(&mut self, n: usize) -> Bytes {
        let taken = self.unread.split_to(n).freeze();
        if self.unread.is_empty()
            && let Some(behind) = &mut self.behind
        {
            self.unread = behind.pop_front().unwrap_or_default();
            if behind.is_empty() {
                self.behind = None;
            }
        }
        taken
    }

    /// It was ended at once. What has come nobody will read.
    pub(super) fn end(&mut self, code: Code, by_client: bool) {
        (self.over, self.by_client) = (Some(code), by_client);
        self.whole = self.received_all && self.unread.is_empty() && self.trailers.is_none();
        self.forget_content();
        self.wake_reader();
        self.wake_writer();
    }

    /// Drops what nobody will read.
    pub(super) fn forget_content(&mut self) {
        (self.unread, self.behind, self.trailers) = (BytesMut::new(), None, None);
    }

    /// It cannot write.
    pub(super) fn block(&mut self) {
        if self.blocked == 0 {
            self.blocked = coarse_ms().max(1);
        }
    }

    /// For how long it could not write, in milliseconds.
    pub(super) fn waits(&self, now: u64) -> u64 {
        if self.blocked > 0 { now.saturating_sub(self.blocked) } else { 0 }
    }

    pub(super) fn wake_reader(&self) {
        if let Some(reader) = &self.reader {
            reader.wake_by_ref();
        }
    }

    pub(super) fn wake_writer(&self) {
        if let Some(writer) = &self.writer {
            writer.wake_by_ref();
        }
    }
}
