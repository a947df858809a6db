//! What the user of the protocol keeps of a stream.

use std::task::Waker;

use bytes::BytesMut;
use offramp_http::h2::Code;
use offramp_http::head::Fields;
use offramp_net::clock::coarse_ms;

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

    /// Content that has come and was not taken, in one piece however it came.
    pub(super) unread: BytesMut,
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
        (self.unread, self.trailers) = (BytesMut::new(), None);
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
