//! Queue of frames to be sent. Large data is not copied, but referenced with its position.

use std::io::IoSlice;

use bytes::Bytes;

use super::{Code, FrameHeader, Kind, flag};

/// Data up to this size is copied behind the frames, which costs less than another slice.
const SMALL: usize = 2 * 1024;
/// Memory kept for later frames, in bytes.
const KEPT: usize = 16 * 1024;

/// Frames that wait to be sent. The owner of the socket writes the bytes of [`Output::slices`], and reports
/// the number written by [`Output::advance`].
#[derive(Debug, Default)]
pub struct Output {
    text: Vec<u8>,
    /// Referenced data, and its position in the text.
    pieces: Vec<(usize, Bytes)>,
    /// Bytes of referenced data.
    data: usize,
    /// Bytes at the front that were sent and not removed yet.
    gone: usize,
    /// Bytes sent since the begin of the connection.
    sent: u64,
}

impl Output {
    /// Number of waiting bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.text.len() + self.data - self.gone
    }

    /// Returns true without waiting bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `parts` with the next bytes; returns the number of parts used.
    pub fn slices<'o>(&'o self, parts: &mut [IoSlice<'o>]) -> usize {
        if self.pieces.is_empty() {
            let rest = &self.text[self.gone..];
            if rest.is_empty() || parts.is_empty() {
                return 0;
            }
            parts[0] = IoSlice::new(rest);
            return 1;
        }
        let (mut count, mut skip) = (0, self.gone);
        for part in self.parts() {
            let gone = skip.min(part.len());
            skip -= gone;
            let part = &part[gone..];
            if part.is_empty() {
                continue;
            }
            if count == parts.len() {
                break;
            }
            parts[count] = IoSlice::new(part);
            count += 1;
        }
        count
    }

    /// Removes the next `n` bytes, which were sent.
    ///
    /// # Panics
    /// In debug builds, if fewer bytes wait.
    pub fn advance(&mut self, n: usize) {
        debug_assert!(n <= self.len(), "{n} bytes have gone, and {} were there", self.len());
        self.gone += n;
        self.sent += n as u64;
        if self.is_empty() {
            self.clear();
        } else if self.gone > KEPT {
            self.compact();
        }
    }

    /// Number of bytes sent since the begin of the connection.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Offset of the next frame, counted from the begin of the connection.
    pub(super) fn end(&self) -> u64 {
        self.sent + self.len() as u64
    }

    /// Releases memory, except what later frames will need.
    pub fn rest(&mut self) {
        if self.is_empty() {
            *self = Self { sent: self.sent, ..Self::default() };
        }
    }

    /// Appends bytes that are not a frame: the preface of a client.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    /// Appends a frame with its header.
    pub(super) fn frame(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        let head = FrameHeader { length: payload.len(), kind, flags, stream };
        self.text.extend_from_slice(&head.bytes());
        self.text.extend_from_slice(payload);
    }

    /// Appends RST_STREAM (RFC 9113 §6.4).
    pub(super) fn reset(&mut self, stream: u32, code: Code) {
        self.frame(Kind::ResetStream, 0, stream, &code.0.to_be_bytes());
    }

    /// Appends WINDOW_UPDATE (RFC 9113 §6.9).
    pub(super) fn window(&mut self, stream: u32, more: u32) {
        self.frame(Kind::WindowUpdate, 0, stream, &more.to_be_bytes());
    }

    /// Appends GOAWAY for the connection (RFC 9113 §6.8).
    pub(super) fn goaway(&mut self, last: u32, code: Code) {
        let payload = (u64::from(last) << 32 | u64::from(code.0)).to_be_bytes();
        self.frame(Kind::GoAway, 0, 0, &payload);
    }

    /// Appends DATA without padding (RFC 9113 §6.1).
    pub(super) fn data(&mut self, stream: u32, data: Bytes, end: bool) {
        let flags = if end { flag::END_STREAM } else { 0 };
        let head = FrameHeader { length: data.len(), kind: Kind::Data, flags, stream };
        self.text.extend_from_slice(&head.bytes());
        if data.len() <= SMALL {
            self.text.extend_from_slice(&data);
        } else {
            self.data += data.len();
            self.pieces.push((self.text.len(), data));
        }
    }

    /// Appends a header block written by `write`: HEADERS, and CONTINUATION beyond `most` bytes (RFC 9113
    /// §4.3).
    pub(super) fn fields(&mut self, stream: u32, end: bool, most: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let place = self.text.len();
        let end = if end { flag::END_STREAM } else { 0 };
        let mut head = FrameHeader { length: 0, kind: Kind::Headers, flags: flag::END_HEADERS | end, stream };
        self.text.extend_from_slice(&head.bytes());
        let begin = self.text.len();
        write(&mut self.text);
        head.length = self.text.len() - begin;
        if head.length <= most {
            self.text[place..begin].copy_from_slice(&head.bytes());
            return;
        }
        let block = self.text.split_off(begin);
        self.text.truncate(place);
        let (mut kind, mut flags, parts) = (Kind::Headers, end, block.chunks(most));
        let last = parts.len() - 1;
        for (at, part) in parts.enumerate() {
            self.frame(kind, flags | if at == last { flag::END_HEADERS } else { 0 }, stream, part);
            (kind, flags) = (Kind::Continuation, 0);
        }
    }

    /// Removes bytes that were sent.
    fn compact(&mut self) {
        let (mut gone, mut text, mut pieces) = (self.gone, 0, 0);
        for (at, piece) in &self.pieces {
            let before = at - text;
            if gone < before {
                break;
            }
            (gone, text) = (gone - before, *at);
            if gone < piece.len() {
                break;
            }
            (gone, pieces) = (gone - piece.len(), pieces + 1);
        }
        // The rest begins within text, or within the first remaining piece, before which there is no text.
        if self.pieces.get(pieces).is_none_or(|(at, _)| *at > text) {
            (gone, text) = (0, text + gone);
        }
        self.text.drain(..text);
        self.data -= self.pieces.drain(..pieces).map(|(_, piece)| piece.len()).sum::<usize>();
        self.pieces.iter_mut().for_each(|(at, _)| *at -= text);
        self.gone = gone;
    }

    fn clear(&mut self) {
        self.text.clear();
        self.pieces.clear();
        (self.data, self.gone) = (0, 0);
        if self.text.capacity() > KEPT {
            self.text = Vec::new();
        }
    }

    /// All bytes, sent ones included, in order.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        let between = self.pieces.iter().flat_map(move |(at, piece)| {
            let text = &self.text[from..*at];
            from = *at;
            [text, &piece[..]]
        });
        let last = self.pieces.last().map_or(0, |(at, _)| *at);
        between.chain([&self.text[last..]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(out: &Output) -> Vec<u8> {
        out.parts().collect::<Vec<_>>().concat()
    }

    #[test]
    fn data_keeps_its_position_whether_copied_or_not() {
        for size in [10, SMALL, SMALL + 1, 16_384] {
            let (mut out, mut wanted) = (Output::default(), Vec::new());
            for stream in [1_u8, 3, 5] {
                out.reset(u32::from(stream), Code::CANCEL);
                wanted.extend_from_slice(&[0, 0, 4, 3, 0, 0, 0, 0, stream, 0, 0, 0, 8]);
                out.data(u32::from(stream), vec![stream; size].into(), stream == 5);
                let [_, a, b, c] = u32::try_from(size).unwrap().to_be_bytes();
                wanted.extend_from_slice(&[a, b, c, 0, u8::from(stream == 5), 0, 0, 0, stream]);
                wanted.extend(vec![stream; size]);
            }
            out.window(0, 9);
            wanted.extend_from_slice(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
            out.goaway(7, Code::ENHANCE_YOUR_CALM);
            wanted.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 11]);
            assert!(all(&out) == wanted, "{size}");
            assert_eq!((out.len(), out.end()), (wanted.len(), wanted.len() as u64));
        }
    }

    /// Writes of any size send the bytes in order, and leave none behind.
    #[test]
    fn writes_of_any_size_send_the_bytes_in_order() {
        for step in [1, 7, 100, SMALL, 5000, usize::MAX] {
            let mut out = Output::default();
            for stream in [1_u8, 3, 5] {
                out.data(u32::from(stream), vec![stream; SMALL * 5].into(), false);
                out.data(u32::from(stream), vec![stream; 3].into(), true);
            }
            let (whole, mut written) = (all(&out), Vec::new());
            while !out.is_empty() {
                let mut parts = [IoSlice::new(&[]); 2];
                let count = out.slices(&mut parts);
                let n = parts[0].len().min(step);
                assert!(count > 0 && n > 0);
                written.extend_from_slice(&parts[0][..n]);
                out.advance(n);
                assert!(out.gone <= KEPT + SMALL * 5, "{step}");
            }
            assert!(written == whole, "{step}");
            assert_eq!((out.sent(), out.end()), (whole.len() as u64, whole.len() as u64));
        }
    }

    #[test]
    fn sent_bytes_are_removed_at_any_position() {
        let fresh = || {
            let mut out = Output::default();
            out.reset(1, Code::CANCEL);
            out.data(1, vec![1; SMALL + 5].into(), false);
            out.data(3, vec![3; SMALL + 9].into(), false);
            out.window(0, 9);
            out
        };
        let whole = all(&fresh());
        for gone in 0..whole.len() {
            let mut out = fresh();
            out.gone = gone;
            out.compact();
            assert!(all(&out)[out.gone..] == whole[gone..], "{gone}");
            assert_eq!(out.len(), whole.len() - gone);
            assert!(out.gone < SMALL + 9, "{gone}");
            out.reset(5, Code::CANCEL);
            assert!(all(&out)[out.gone..].starts_with(&whole[gone..]), "{gone}");
        }
    }

    #[test]
    fn blocks_larger_than_a_frame_continue() {
        let text: Vec<u8> = (0..25).collect();
        let frames = |most| {
            let mut out = Output::default();
            out.fields(1, true, most, |block| block.extend_from_slice(&text));
            all(&out)
        };
        let mut wanted = vec![0, 0, 25, 1, 5, 0, 0, 0, 1];
        wanted.extend_from_slice(&text);
        assert_eq!(frames(25), wanted);
        let mut wanted = vec![0, 0, 10, 1, 1, 0, 0, 0, 1];
        wanted.extend_from_slice(&text[..10]);
        wanted.extend_from_slice(&[0, 0, 10, 9, 0, 0, 0, 0, 1]);
        wanted.extend_from_slice(&text[10..20]);
        wanted.extend_from_slice(&[0, 0, 5, 9, 4, 0, 0, 0, 1]);
        wanted.extend_from_slice(&text[20..]);
        assert_eq!(frames(10), wanted);
    }
}
