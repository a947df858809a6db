//! A client's bytes as frames. Frames are read where they lie; a frame that has not come whole is kept until it has,
//! but for DATA, which is passed on as it comes.

use std::ops::Range;

use offramp_http::h2::{Code, FrameHeader, Framed, HEAD, Kind, PREFACE, flag};
use offramp_net::turn::{Turn, Work};

use super::Violation;

/// The largest payload of a frame that we take, which is the least that everybody must (RFC 9113 §4.2).
pub(super) const MOST: usize = 1 << 14;
/// Memory for frames that is kept while nothing is in it.
const KEPT: usize = 1024;

/// What the bytes of a client are.
#[derive(Debug, PartialEq, Eq)]
enum FrameStep {
    /// The begin of something, and nothing yet.
    More,
    /// A frame whose payload lies here.
    Here(FrameHeader, Range<usize>),
    /// A frame whose payload is in `kept`.
    Kept(FrameHeader),
    /// A piece of the data of a DATA frame; whether it is the first, and the last.
    Data { head: FrameHeader, framed: Framed, piece: Range<usize>, first: bool, last: bool },
}

/// A frame, or a piece of one.
#[derive(Debug)]
pub(super) enum Frame<'b> {
    /// One that has come whole, and its payload.
    Whole(FrameHeader, &'b [u8]),
    /// A piece of the data of a DATA frame; whether it is the first, and the last.
    Data { head: FrameHeader, framed: Framed, piece: &'b [u8], first: bool, last: bool },
}

/// What is read of a frame.
#[derive(Debug)]
enum State {
    /// So many bytes of the preface have come.
    Preface(usize),
    /// So many bytes of the next head have come.
    Head(usize),
    /// A payload that is not DATA's.
    Payload(FrameHeader),
    /// DATA of which so much has come.
    Data(FrameHeader, Option<Framed>, usize),
}

/// Reads frames.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    head: [u8; HEAD],
    kept: Vec<u8>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { state: State::Preface(0), head: [0; HEAD], kept: Vec::new() }
    }

    /// Whether the rest of a frame is to come, other than data.
    pub(super) fn is_amid(&self) -> bool {
        !matches!(self.state, State::Head(0) | State::Data(..))
    }

    /// Has `handle` look at the frames that `bytes` bring, until they are used up or the turn is over, and gives how
    /// many bytes were used up. A frame is one piece of work, besides what `handle` makes of it.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        turn: &mut Turn,
        mut handle: impl FnMut(Frame<'_>, &mut Turn) -> Result<(), Violation>,
    ) -> Result<usize, Violation> {
        let mut rest = bytes;
        while !rest.is_empty() && !turn.is_over() {
            let (used, step) = self.step(rest)?;
            turn.spend(Work::Pieces(1));
            match step {
                FrameStep::More => {}
                FrameStep::Here(head, place) => handle(Frame::Whole(head, &rest[place]), turn)?,
                FrameStep::Kept(head) => handle(Frame::Whole(head, &self.kept), turn)?,
                FrameStep::Data { head, framed, piece, first, last } => {
                    handle(Frame::Data { head, framed, piece: &rest[piece], first, last }, turn)?;
                }
            }
            rest = &rest[used..];
        }
        Ok(bytes.len() - rest.len())
    }

    /// Gives memory back while nothing is read.
    pub(super) fn rest(&mut self) {
        if !matches!(self.state, State::Payload(_)) {
            self.kept = Vec::new();
        }
    }

    /// Reads the front of `bytes`, which is not empty: how much of it is used up, and what it is.
    fn step(&mut self, bytes: &[u8]) -> Result<(usize, FrameStep), Violation> {
        match self.state {
            State::Preface(have) => {
                let n = bytes.len().min(PREFACE.len() - have);
                if bytes[..n] != PREFACE[have..have + n] {
                    return Err(Violation::new(Code::PROTOCOL_ERROR, "the preface is none of HTTP/2"));
                }
                let have = have + n;
                self.state = if have == PREFACE.len() { State::Head(0) } else { State::Preface(have) };
                Ok((n, FrameStep::More))
            }
            State::Head(have) => {
                // Most heads lie here whole.
                let n = bytes.len().min(HEAD - have);
                self.head[have..have + n].copy_from_slice(&bytes[..n]);
                if have + n < HEAD {
                    self.state = State::Head(have + n);
                    return Ok((n, FrameStep::More));
                }
                self.begin(n, bytes)
            }
            State::Payload(head) => {
                let n = bytes.len().min(head.length - self.kept.len());
                self.kept.extend_from_slice(&bytes[..n]);
                if self.kept.len() < head.length {
                    return Ok((n, FrameStep::More));
                }
                self.state = State::Head(0);
                Ok((n, FrameStep::Kept(head)))
            }
            State::Data(head, framed, seen) => self.data(head, framed, seen, bytes),
        }
    }

    /// A head has come, with the first `n` of `bytes`.
    fn begin(&mut self, n: usize, bytes: &[u8]) -> Result<(usize, FrameStep), Violation> {
        let head = FrameHeader::read(&self.head);
        if head.length > MOST {
            return Err(Violation::new(Code::FRAME_SIZE_ERROR, "a frame is larger than was agreed on"));
        }
        if head.kind == Kind::Data && (head.length > 0 || head.has(flag::PADDED)) {
            if head.length == 0 {
                return Err(Violation::new(Code::FRAME_SIZE_ERROR, "DATA without room for its padding"));
            }
            self.state = State::Data(head, None, 0);
            return Ok((n, FrameStep::More));
        }
        self.state = State::Head(0);
        if head.kind == Kind::Data {
            let framed = Framed { before: 0, length: 0 };
            return Ok((n, FrameStep::Data { head, framed, piece: n..n, first: true, last: true }));
        }
        if bytes.len() - n >= head.length {
            return Ok((n + head.length, FrameStep::Here(head, n..n + head.length)));
        }
        self.kept.clear();
        if self.kept.capacity() > KEPT {
            self.kept = Vec::new();
        }
        self.state = State::Payload(head);
        Ok((n, FrameStep::More))
    }

    fn data(
        &mut self,
        head: FrameHeader,
        framed: Option<Framed>,
        seen: usize,
        bytes: &[u8],
    ) -> Result<(usize, FrameStep), Violation> {
        let first = framed.is_none();
        let framed = match framed {
            Some(framed) => framed,
            None => Framed::of(&head, bytes.first().copied())
                .map_err(|code| Violation::new(code, "DATA with more padding than payload"))?,
        };
        let n = bytes.len().min(head.length - seen);
        let end = seen + n;
        let last = end == head.length;
        let within =
            |at: usize| at.clamp(framed.before, framed.before + framed.length).clamp(seen, end) - seen;
        let piece = within(seen)..within(end);
        self.state = if last { State::Head(0) } else { State::Data(head, Some(framed), end) };
        Ok((n, FrameStep::Data { head, framed, piece, first, last }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, flags: u8, payload: &[u8]) -> Vec<u8> {
        let head = FrameHeader { length: payload.len(), kind, flags, stream: 1 };
        [&head.bytes()[..], payload].concat()
    }

    /// All frames, each with its whole payload, or its data, however they came.
    fn frames(bytes: &[u8], step: usize) -> Result<Vec<(Kind, Vec<u8>)>, Violation> {
        let (mut reader, mut all, mut data) = (Reader::new(), Vec::new(), Vec::new());
        for mut part in bytes.chunks(step) {
            while !part.is_empty() {
                let used = reader.read(part, &mut Turn::default(), |frame, _| {
                    match frame {
                        Frame::Whole(head, payload) => all.push((head.kind, payload.to_vec())),
                        Frame::Data { head, framed, piece, first, last } => {
                            assert_eq!(first, data.is_empty() && first);
                            data.extend_from_slice(piece);
                            if last {
                                assert_eq!(data.len(), framed.length);
                                all.push((head.kind, std::mem::take(&mut data)));
                            }
                        }
                    }
                    Ok(())
                })?;
                part = &part[used..];
            }
        }
        Ok(all)
    }

    /// However small frames are: no more than a turn of them is looked at before others have theirs, and none is lost.
    #[test]
    fn hostile_senders_have_no_longer_turns() {
        let data = |flags, payload: &[u8]| frame(Kind::Data, flags, payload);
        for (what, each) in [
            ("PING", frame(Kind::Ping, 0, &[0; 8])),
            ("SETTINGS", frame(Kind::Settings, 0, &[])),
            ("empty DATA", data(0, &[])),
            ("DATA of a byte", data(0, b"x")),
            ("DATA that is all padding", data(flag::PADDED, &[1, 0])),
            ("requests", frame(Kind::Headers, 5, &[0x82, 0x87, 0x84])),
            ("resets", frame(Kind::ResetStream, 0, &[0; 4])),
            ("CONTINUATION", frame(Kind::Continuation, 0, &[])),
        ] {
            let mut reader = Reader::new();
            let preface = reader.read(PREFACE, &mut Turn::default(), |_, _| Ok(()));
            assert_eq!(preface.unwrap(), PREFACE.len());
            let bytes = each.repeat(20_000);
            let (mut rest, mut all) = (&bytes[..], 0);
            while !rest.is_empty() {
                let mut count = 0;
                let used = reader.read(rest, &mut Turn::default(), |_, _| {
                    count += 1;
                    Ok(())
                });
                rest = &rest[used.unwrap()..];
                assert!((1..=2000).contains(&count), "{what}: {count} at a time");
                all += count;
            }
            assert_eq!(all, 20_000, "{what}");
        }
    }

    /// Work that a frame makes ends the turn as frames do.
    #[test]
    fn what_frames_make_of_work_counts() {
        let mut reader = Reader::new();
        let bytes = [&PREFACE[..], &frame(Kind::Headers, 5, &[0x82]).repeat(100)].concat();
        let mut count = 0;
        let read = reader.read(&bytes, &mut Turn::default(), |_, turn| {
            count += 1;
            turn.spend(Work::Pieces(200));
            Ok(())
        });
        assert!((1..=10).contains(&count), "{count}");
        assert_eq!(read.unwrap(), PREFACE.len() + 10 * count);
    }

    #[test]
    fn frames_are_the_same_however_they_come() {
        let ping = b"12345678";
        let bytes = [
            PREFACE.to_vec(),
            frame(Kind::Settings, 0, &[]),
            frame(Kind::Ping, 0, ping),
            frame(Kind::Data, 0, b"hello"),
            frame(Kind::Data, flag::PADDED, &[3, b'a', b'b', 0, 0, 0]),
            frame(Kind::Data, flag::PADDED, &[0]),
            frame(Kind::Data, 1, &[]),
            frame(Kind::Headers, 4, &[7; 3000]),
        ]
        .concat();
        let whole = frames(&bytes, usize::MAX).unwrap();
        let data = |text: &[u8]| (Kind::Data, text.to_vec());
        let wanted = [
            (Kind::Settings, Vec::new()),
            (Kind::Ping, ping.to_vec()),
            data(b"hello"),
            data(b"ab"),
            data(b""),
            data(b""),
            (Kind::Headers, vec![7; 3000]),
        ];
        assert_eq!(whole, wanted);
        for step in [1, 2, 3, 7, 9, 10, 100, 2000] {
            assert_eq!(frames(&bytes, step).unwrap(), wanted, "{step}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let after = |more: &[u8]| [PREFACE, more].concat();
        for (bytes, code) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), Code::PROTOCOL_ERROR),
            (after(&[0, 0x40, 1, 4, 0, 0, 0, 0, 0]), Code::FRAME_SIZE_ERROR),
            (after(&frame(Kind::Data, flag::PADDED, &[])), Code::FRAME_SIZE_ERROR),
            (after(&frame(Kind::Data, flag::PADDED, &[2, 0])), Code::PROTOCOL_ERROR),
        ] {
            for step in [1, usize::MAX] {
                assert_eq!(frames(&bytes, step).unwrap_err().code, code, "{}", bytes.escape_ascii());
            }
        }
    }
}
