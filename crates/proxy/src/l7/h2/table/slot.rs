//! What is known of one stream.

use std::task::Waker;

use bytes::BytesMut;
use offramp_http::h2::{Code, Priority};
use offramp_http::head::Fields;

use super::STREAM_WINDOW;

/// A stream, or room for one.
#[derive(Default)]
pub(super) struct Slot {
    /// Its number; 0 where there is none.
    pub(super) id: u32,
    /// Who has it: who answers, and who reads the content.
    pub(super) writes: bool,
    pub(super) reads: bool,
    /// Whether it counts as open.
    pub(super) counted: bool,
    /// What the fields of its request, of them those of its head, and a piece of its response that waits, are counted as.
    pub(super) fields: usize,
    pub(super) head: usize,
    pub(super) piece: usize,
    /// How much a server may have sent ahead of its response.
    pub(super) ahead: usize,
    /// What goes before others.
    pub(super) priority: Priority,
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
    /// Whether somebody will read what comes.
    pub(super) wanted: bool,
    /// What is left of the declared length.
    pub(super) length: Option<u64>,
    /// What the client may still send, and how much of what it sent was taken since the last WINDOW_UPDATE.
    pub(super) room: i64,
    pub(super) owed: u32,
    pub(super) reader: Option<Waker>,

    /// What may be sent.
    pub(super) window: i64,
    /// Whether the response has begun.
    pub(super) answered: bool,
    /// Whether the end was written.
    pub(super) sent_all: bool,
    /// Whether it is among those that wait.
    pub(super) waits: bool,
    /// Whether it has written since it was last called from among them.
    pub(super) wrote: bool,
    /// Whether it is among those that read nothing for now, and whether any of its response was sent.
    pub(super) hungry: bool,
    pub(super) fed: bool,
    /// Whether its turn to read has come.
    pub(super) called: bool,
    /// Whether more data of its response is known to come.
    pub(super) sized: bool,
    /// Since when nothing may be written, and when content last came, in milliseconds of the coarse clock; or 0.
    pub(super) blocked: u64,
    pub(super) moved: u64,
    pub(super) writer: Option<Waker>,
}

impl Slot {
    /// A request has come: somebody answers, and reads its content if there is any.
    pub(super) fn begin(&mut self, id: u32, over: bool, length: Option<u64>, window: i64) {
        *self = Self {
            id,
            writes: true,
            reads: !over,
            counted: true,
            received_all: over,
            wanted: !over,
            length,
            room: i64::from(STREAM_WINDOW),
            window,
            ..Self::default()
        };
    }

    /// Forgets the stream.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether as much content has come as was declared.
    pub(super) fn is_whole(&self) -> bool {
        self.length.is_none_or(|left| left == 0)
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
